/* Batches of other protocols' clients. */
#ifndef BEARLAKE_PULSAR_FOREIGN_H
#define BEARLAKE_PULSAR_FOREIGN_H

#include "pulsar/source.h"

void put_foreign_message(Writer *writer, const Row *row, int64_t base_offset);
void put_foreign_metadata(Writer *writer, const Source *source, int64_t base_offset, int64_t payload_size);

#endif
