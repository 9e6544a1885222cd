/* Pulsar entries to record batches. */
#ifndef BEARLAKE_PULSAR_ENCODE_H
#define BEARLAKE_PULSAR_ENCODE_H

#include "pulsar/fields.h"

/* (batch, record count, max timestamp), or NULL with an exception set */
PyObject *encode_entry(KernelState *state, Cursor metadata, Cursor payload, bool is_opaque);

#endif
