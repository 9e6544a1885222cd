/* Columns of the caller, read record by record. The reader trusts nothing in them: they may come from a file, and other threads may write
   to them at the same time. Layout: bearlake.kernel.columns.Columns. */
#ifndef BEARLAKE_COLUMNS_SOURCE_H
#define BEARLAKE_COLUMNS_SOURCE_H

#include "columns/columns.h"

#define COLUMN_COUNT 20
#define MICROSECONDS 1000

typedef struct {
    const uint8_t *offsets;
    const uint8_t *content;
    const uint8_t *validity; /* NULL: no nulls */
    int64_t size;            /* bytes of `content` */
} TextSource;

typedef struct {
    Py_buffer buffers[COLUMN_COUNT]; /* `obj` is NULL where the column is None */
    const uint8_t *partition_id, *offset, *timestamp, *header_lists;
    const uint8_t *base_offset, *attributes, *producer_id, *producer_epoch, *base_sequence;
    TextSource key, value, header_key, header_value;
    int64_t row_count;
    int64_t header_count;
} ColumnSource;

/* source.c. `source_open` returns -1 with an exception set. `has_values`: the columns hold the values too. */
int source_open(ColumnSource *source, PyObject *columns, bool has_values);
void source_close(ColumnSource *source);

static inline int32_t int32_at(const uint8_t *cells, int64_t index)
{
    int32_t value;
    memcpy(&value, cells + 4 * index, sizeof value);
    return value;
}

static inline int64_t int64_at(const uint8_t *cells, int64_t index)
{
    int64_t value;
    memcpy(&value, cells + 8 * index, sizeof value);
    return value;
}

/* Microseconds to ms, rounded down. */
static inline int64_t milliseconds(int64_t time)
{
    const int64_t whole = time / MICROSECONDS;
    return whole - (time % MICROSECONDS < 0);
}

/* Value `index` of the column; false if its offsets are impossible. */
static inline bool text_at(const TextSource *text, int64_t index, Field *field)
{
    const int64_t start = int32_at(text->offsets, index), end = int32_at(text->offsets, index + 1);
    if (start < 0 || end < start || end > text->size)
        return false;
    const bool is_null = text->validity != NULL && !(text->validity[index >> 3] >> (index & 7) & 1);
    field->bytes = is_null ? NULL : text->content + start;
    field->size = is_null ? -1 : end - start;
    return true;
}

static inline int zigzag_size(int64_t value)
{
    const uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    return (70 - __builtin_clzll(bits | 1)) / 7;
}

static inline int64_t field_size(const Field *field)
{
    return field->bytes == NULL ? 1 : zigzag_size(field->size) + field->size;
}

#endif
