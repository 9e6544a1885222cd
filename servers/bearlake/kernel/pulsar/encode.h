/* Pulsar entries to record batches. */
#ifndef BEARLAKE_PULSAR_ENCODE_H
#define BEARLAKE_PULSAR_ENCODE_H

#include "pulsar/fields.h"

typedef struct {
    int64_t record_count, base_timestamp, max_timestamp;
} Encoded;

/* Appends the batch of an entry to the output. -1 with an exception set, and part of the batch written. */
int put_entry(KernelState *state, Output *output, Cursor metadata, Cursor payload, bool is_opaque, Encoded *encoded);
/* (batch, record count, max timestamp), or NULL with an exception set */
PyObject *encode_entry(KernelState *state, Cursor metadata, Cursor payload, bool is_opaque);

#endif
