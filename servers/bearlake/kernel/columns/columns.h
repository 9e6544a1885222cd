/* Records as columns: shared by the files of this folder. The contract is in builder.py. */
#ifndef BEARLAKE_COLUMNS_H
#define BEARLAKE_COLUMNS_H

#include "batch/records.h"

/* Decoding or encoding at least this many bytes releases the GIL: about 20 us. */
#define RELEASE_COLUMN_BYTES (64 * 1024)

/* columns.DecodeStatus; NO_MEMORY becomes a MemoryError */
typedef enum {
    DECODE_NO_MEMORY = -1,
    DECODE_OK = 0,
    DECODE_INEXACT = 1,
    DECODE_CONTROL = 2,
    DECODE_UNDECODABLE = 3,
    DECODE_OVERFLOW = 4,
} DecodeStatus;

/* A growable buffer in memory of the pool. */
typedef struct {
    uint8_t *bytes;
    size_t capacity;
    size_t wish; /* initial capacity: the final capacity of the last time */
} Column;

/* Binary values that may be null. */
typedef struct {
    Column offsets;
    Column content;
    Column validity;
    int64_t size; /* bytes of `content` in use */
    int64_t null_count;
} Text;

typedef struct {
    int64_t row_count;
    int64_t header_count;
    Column partition_id, offset, timestamp, header_list_offsets;
    Column base_offset, attributes, producer_id, producer_epoch, base_sequence;
    Text key, value, header_key, header_value; /* `header_key` has no validity */
} ColumnSet;

/* memory.c; none of these needs the GIL */
bool column_grow(Column *column, size_t used, size_t size); /* false: no memory */
void column_free(Column *column);
void column_trim(Column *column, size_t size); /* gives back memory behind `size` bytes; the capacity stays */
/* Takes the column and returns a read-only memoryview of its `size` bytes; needs the GIL. An unused column reads as zeros. */
PyObject *column_take(KernelState *state, Column *column, size_t size);

/* Makes room for `size` bytes; keeps the first `used` bytes. */
static inline bool column_reserve(Column *column, size_t used, size_t size)
{
    return size <= column->capacity || column_grow(column, used, size);
}

/* decode.c: adds all rows of the batch at `header` or none. `section` is NULL if it could not be decompressed. */
DecodeStatus decode_batch(
    ColumnSet *set, int64_t column_bytes_max, int32_t partition_id, int64_t base_offset, const uint8_t *header, const Cursor *section);

KERNEL_FUNCTION(kernel_encode_columns);
KERNEL_FUNCTION(kernel_encode_pages);

/* The types of the module, or NULL with an exception set. */
PyObject *make_column_memory_type(PyObject *module);  /* memory.c */
PyObject *make_column_builder_type(PyObject *module); /* builder.c */

#endif
