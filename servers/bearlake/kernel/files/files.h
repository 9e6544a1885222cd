/* Durable files. */
#ifndef BEARLAKE_FILES_H
#define BEARLAKE_FILES_H

#include "native.h"

KERNEL_FUNCTION(kernel_put_file);

#endif
