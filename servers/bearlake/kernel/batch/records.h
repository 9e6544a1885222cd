/* Reading the fields of records. Layout: records.py. */
#ifndef BEARLAKE_RECORDS_H
#define BEARLAKE_RECORDS_H

#include "batch/batch.h"

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* A key, value or header part; `bytes` is NULL for null. */
typedef struct {
    const uint8_t *bytes;
    int64_t size;
} Field;

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t header_count;
    Field key;
    Field value;
    Cursor headers;
} Record;

/* records.c: reads the record at the cursor and advances the cursor past it; false if the record is malformed. */
bool read_record(Cursor *section, Record *record);

/* records.c: the index of the first record that is malformed or out of sequence; `record_count` if bytes follow the last; -1 if none. */
int64_t first_bad_record(Cursor section, int64_t record_count);

/* A zigzag varint of at most `bits` bits. */
static inline bool read_zigzag(Cursor *cursor, int bits, int64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (cursor->at == cursor->end)
            return false;
        const uint64_t byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            return false;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (bits == 32 && value >> 32)
                return false;
            *out = (int64_t)(value >> 1 ^ (~(value & 1) + 1));
            return true;
        }
    }
    return false;
}

/* Length-prefixed bytes; -1 stands for null. */
static inline bool read_bytes(Cursor *cursor, Field *field)
{
    if (!read_zigzag(cursor, 32, &field->size) || field->size < -1 || field->size > cursor->end - cursor->at)
        return false;
    field->bytes = field->size < 0 ? NULL : cursor->at;
    cursor->at += field->size > 0 ? field->size : 0;
    return true;
}

#endif
