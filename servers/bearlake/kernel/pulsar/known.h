/* The fields of a message that follow from its record. */
#ifndef BEARLAKE_PULSAR_KNOWN_H
#define BEARLAKE_PULSAR_KNOWN_H

#include "pulsar/source.h"

/* The fields that follow from a record, in ascending field order as clients write them */
typedef struct {
    const Roles *roles;
    Field key; /* bytes NULL: none */
    bool is_base64, has_sequence;
    uint64_t event_time; /* 0: none */
    uint64_t sequence;
} Known;
void put_known(Writer *writer, const Known *known, const Row *row);

#endif
