/* Record batches to Pulsar entries. */
#ifndef BEARLAKE_PULSAR_DECODE_H
#define BEARLAKE_PULSAR_DECODE_H

#include "pulsar/source.h"

typedef struct {
    Source source;
    StoredHeader header;
    bool is_stored; /* by a Pulsar client */
    int64_t base_offset;
    int64_t payload_bytes_max;
    int64_t index; /* of the malformed record */
} Decoding;

/* (entry, message count, is batch) of an open source, or NULL with an exception set */
PyObject *decode_entry(KernelState *state, Decoding *decoding);

#endif
