/* One record and one batch of the encoders: sizes and validity first, then bytes. Contract: encode.py. */
#ifndef BEARLAKE_COLUMNS_ENCODE_H
#define BEARLAKE_COLUMNS_ENCODE_H

#include "columns/source.h"

/* A record as it will be written. */
typedef struct {
    int64_t time_delta;
    int64_t offset_delta;
    int64_t header_start, header_end;
    int64_t size; /* bytes after its length */
    Field key, value;
} RecordPlan;

typedef struct {
    int64_t row_start, row_end;
    int64_t position, length; /* in the output */
    int64_t end_offset;
    int64_t max_timestamp;
} BatchPlan;

/* Plans the record of `row`, whose value is `plan->value` and whose batch has the first timestamp `first_time`; false if the columns are
   inconsistent. */
static inline bool plan_record(const ColumnSource *source, int64_t first_time, int64_t row, int64_t last_delta, RecordPlan *plan)
{
    const int64_t offset = int64_at(source->offset, row), base = int64_at(source->base_offset, row);
    if (base < 0 || offset < base || offset == INT64_MAX || offset - base > INT32_MAX || offset - base <= last_delta)
        return false;
    plan->offset_delta = offset - base;
    plan->time_delta = milliseconds(int64_at(source->timestamp, row)) - first_time;
    plan->header_start = int32_at(source->header_lists, row);
    plan->header_end = int32_at(source->header_lists, row + 1);
    if (!text_at(&source->key, row, &plan->key) || plan->header_start < 0 || plan->header_end < plan->header_start
        || plan->header_end > source->header_count)
        return false;
    int64_t size = 1 + zigzag_size(plan->time_delta) + zigzag_size(plan->offset_delta) + field_size(&plan->key)
        + field_size(&plan->value) + zigzag_size(plan->header_end - plan->header_start);
    for (int64_t header = plan->header_start; header < plan->header_end; header++) {
        Field key, value;
        if (!text_at(&source->header_key, header, &key) || !text_at(&source->header_value, header, &value))
            return false;
        size += field_size(&key) + field_size(&value);
    }
    plan->size = size;
    return true;
}

/* The bytes of a planned record with its length. */
static inline int64_t record_bytes(const RecordPlan *plan) { return zigzag_size(plan->size) + plan->size; }

static inline uint8_t *write_zigzag(uint8_t *at, int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; bits >= 0x80; bits >>= 7)
        *at++ = (uint8_t)(bits | 0x80);
    *at++ = (uint8_t)bits;
    return at;
}

static inline uint8_t *write_field(uint8_t *at, const Field *field)
{
    at = write_zigzag(at, field->size);
    if (field->size > 0) {
        memcpy(at, field->bytes, (size_t)field->size);
        at += field->size;
    }
    return at;
}

/* Writes the record; there is room if the headers are as planned. NULL if they have changed. */
static inline uint8_t *write_record(const ColumnSource *source, const RecordPlan *plan, uint8_t *at)
{
    uint8_t *const end = at + record_bytes(plan);
    at = write_zigzag(at, plan->size);
    *at++ = 0;
    at = write_zigzag(at, plan->time_delta);
    at = write_zigzag(at, plan->offset_delta);
    at = write_field(at, &plan->key);
    at = write_field(at, &plan->value);
    at = write_zigzag(at, plan->header_end - plan->header_start);
    for (int64_t header = plan->header_start; header < plan->header_end; header++) {
        Field key, value;
        if (!text_at(&source->header_key, header, &key) || !text_at(&source->header_value, header, &value)
            || field_size(&key) + field_size(&value) > end - at)
            return NULL;
        at = write_field(write_field(at, &key), &value);
    }
    return at == end ? at : NULL;
}

/* Whether two rows are in one batch. */
static inline bool is_same_batch(const ColumnSource *source, int64_t row, int64_t other)
{
    return int32_at(source->partition_id, row) == int32_at(source->partition_id, other)
        && int64_at(source->base_offset, row) == int64_at(source->base_offset, other);
}

/* Whether the header of a batch that begins at `row` has room for its fields. */
static inline bool can_begin_batch(const ColumnSource *source, int64_t row)
{
    const int32_t attributes = int32_at(source->attributes, row), epoch = int32_at(source->producer_epoch, row);
    return attributes == (int16_t)attributes && epoch == (int16_t)epoch;
}

/* encode.c */
void write_batch_header(const ColumnSource *source, const BatchPlan *plan, uint8_t *at);
/* A list of EncodedBatch, or NULL with an exception set. */
PyObject *batch_values(KernelState *state, const ColumnSource *source, const BatchPlan *batches, int64_t count);

/* Makes room for one more batch; needs no GIL. False: no memory. */
bool reserve_batch(BatchPlan **batches, int64_t count, int64_t *capacity);

#endif
