/* Columns to record batches, in two passes without the GIL: plan (sizes and validity), then write. Contract:
   encode.py. */
#include "columns/pages.h"
#include "columns/source.h"

#include <stdlib.h>

#define CODEC_MASK 0x07
#define RELEASE_ROWS 1024

typedef struct {
    int64_t row_start, row_end;
    int64_t position, length; /* in the output */
    int64_t end_offset;
    int64_t max_timestamp;
} BatchPlan;

typedef enum { ENCODE_OK, ENCODE_IMPOSSIBLE, ENCODE_BAD_PAGE, ENCODE_NO_MEMORY } EncodeStatus;

typedef struct {
    ColumnSource source;
    Pages pages;
    BatchPlan *batches;
    int64_t count, capacity;
    int64_t size; /* of all batches */
    int64_t row;  /* ENCODE_IMPOSSIBLE: the first impossible row; ENCODE_BAD_PAGE: the page */
} Encoding;

/* Plans the record of `row`, whose batch has the first timestamp `first_time`; false if the columns are inconsistent. */
static inline bool plan_record(const ColumnSource *source, int64_t first_time, int64_t row, int64_t last_delta, RecordPlan *plan)
{
    const int64_t offset = int64_at(source->offset, row), base = int64_at(source->base_offset, row);
    if (base < 0 || offset < base || offset == INT64_MAX || offset - base > INT32_MAX || offset - base <= last_delta)
        return false;
    plan->offset_delta = offset - base;
    plan->time_delta = milliseconds(int64_at(source->timestamp, row)) - first_time;
    plan->header_start = int32_at(source->header_lists, row);
    plan->header_end = int32_at(source->header_lists, row + 1);
    if (!text_at(&source->key, row, &plan->key) || !value_at(source, row, &plan->value) || plan->header_start < 0
        || plan->header_end < plan->header_start || plan->header_end > source->header_count)
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

/* Plans the batch that begins at `plan->row_start`; the rows end at `row_end`. Sets everything but its position. Returns the impossible
   row, or -1. */
static int64_t plan_batch(const ColumnSource *source, int64_t row_end, BatchPlan *plan)
{
    const int64_t start = plan->row_start;
    const int32_t partition_id = int32_at(source->partition_id, start);
    const int32_t attributes = int32_at(source->attributes, start), epoch = int32_at(source->producer_epoch, start);
    const int64_t base = int64_at(source->base_offset, start), first_time = milliseconds(int64_at(source->timestamp, start));
    if (attributes != (int16_t)attributes || epoch != (int16_t)epoch)
        return start;
    RecordPlan record = {.offset_delta = -1};
    int64_t row = start, most = 0;
    plan->length = HEADER_BYTES;
    do {
        if (!plan_record(source, first_time, row, record.offset_delta, &record))
            return row;
        plan->length += zigzag_size(record.size) + record.size;
        if (plan->length - LENGTH_END > INT32_MAX)
            return row;
        most = record.time_delta > most ? record.time_delta : most;
        row++;
    } while (row < row_end && int32_at(source->partition_id, row) == partition_id && int64_at(source->base_offset, row) == base);
    plan->row_end = row;
    plan->end_offset = base + record.offset_delta + 1;
    plan->max_timestamp = first_time + most;
    return -1;
}

static EncodeStatus plan_batches(Encoding *encoding, int64_t row, int64_t row_end)
{
    if ((encoding->row = pages_read(&encoding->pages)) >= 0)
        return ENCODE_BAD_PAGE;
    while (row < row_end) {
        if (encoding->count == encoding->capacity) {
            encoding->capacity = encoding->capacity ? 2 * encoding->capacity : 64;
            BatchPlan *more = realloc(encoding->batches, (size_t)encoding->capacity * sizeof *more);
            if (more == NULL)
                return ENCODE_NO_MEMORY;
            encoding->batches = more;
        }
        BatchPlan *plan = &encoding->batches[encoding->count++];
        plan->row_start = row;
        plan->position = encoding->size;
        encoding->row = plan_batch(&encoding->source, row_end, plan);
        if (encoding->row >= 0)
            return ENCODE_IMPOSSIBLE;
        encoding->size += plan->length;
        row = plan->row_end;
    }
    return ENCODE_OK;
}

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
    uint8_t *const end = at + zigzag_size(plan->size) + plan->size;
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

static void write_header(const ColumnSource *source, const BatchPlan *plan, uint8_t *at)
{
    const int64_t row = plan->row_start, base = int64_at(source->base_offset, row);
    store_u64(at, (uint64_t)base);
    store_u32(at + 8, (uint32_t)(plan->length - LENGTH_END));
    store_u32(at + 12, UINT32_MAX); /* leader epoch */
    at[MAGIC_AT] = 2;
    store_u16(at + 21, (uint16_t)(int32_at(source->attributes, row) & ~CODEC_MASK));
    store_u32(at + DELTA_AT, (uint32_t)(plan->end_offset - base - 1));
    store_u64(at + 27, (uint64_t)milliseconds(int64_at(source->timestamp, row)));
    store_u64(at + 35, (uint64_t)plan->max_timestamp);
    store_u64(at + 43, (uint64_t)int64_at(source->producer_id, row));
    store_u16(at + 51, (uint16_t)int32_at(source->producer_epoch, row));
    store_u32(at + 53, (uint32_t)int32_at(source->base_sequence, row));
    store_u32(at + 57, (uint32_t)(plan->row_end - row));
    store_u32(at + CRC_AT, checksum(at + CRC_START, (size_t)(plan->length - CRC_START)));
}

/* Writes the planned batches. If a column changed since planning, this fails but never writes outside `out`. */
static EncodeStatus write_batches(Encoding *encoding, uint8_t *out)
{
    const ColumnSource *source = &encoding->source;
    for (int64_t index = 0; index < encoding->count; index++) {
        const BatchPlan *plan = &encoding->batches[index];
        const int64_t first_time = milliseconds(int64_at(source->timestamp, plan->row_start));
        uint8_t *at = out + plan->position + HEADER_BYTES, *const end = out + plan->position + plan->length;
        RecordPlan record = {.offset_delta = -1};
        for (int64_t row = plan->row_start; row < plan->row_end; row++) {
            if (plan_record(source, first_time, row, record.offset_delta, &record)
                && zigzag_size(record.size) + record.size <= end - at)
                at = write_record(source, &record, at);
            else
                at = NULL;
            if (at == NULL) {
                encoding->row = row;
                return ENCODE_IMPOSSIBLE;
            }
        }
        if (at != end) {
            encoding->row = plan->row_start;
            return ENCODE_IMPOSSIBLE;
        }
        write_header(source, plan, out + plan->position);
    }
    return ENCODE_OK;
}

static PyObject *batch_value(KernelState *state, const ColumnSource *source, const BatchPlan *plan)
{
    PyTypeObject *type = (PyTypeObject *)state->encoded_batch_type;
    PyObject *value = type->tp_alloc(type, 7);
    if (value == NULL)
        return NULL;
    PyObject *fields[7] = {
        PyLong_FromLong(int32_at(source->partition_id, plan->row_start)),
        PyLong_FromLongLong(int64_at(source->base_offset, plan->row_start)),
        PyLong_FromLongLong(plan->end_offset),
        PyLong_FromLongLong(plan->position),
        PyLong_FromLongLong(plan->length),
        PyLong_FromLong(int32_at(source->attributes, plan->row_start)),
        PyLong_FromLongLong(plan->max_timestamp),
    };
    bool is_whole = true;
    for (int at = 0; at < 7; at++) {
        is_whole = is_whole && fields[at] != NULL;
        PyTuple_SET_ITEM(value, at, fields[at]);
    }
    if (!is_whole)
        Py_CLEAR(value);
    return value;
}

static PyObject *batch_values(KernelState *state, const Encoding *encoding)
{
    PyObject *values = PyList_New((Py_ssize_t)encoding->count);
    for (int64_t index = 0; values != NULL && index < encoding->count; index++) {
        PyObject *value = batch_value(state, &encoding->source, &encoding->batches[index]);
        if (value == NULL)
            Py_CLEAR(values);
        else
            PyList_SET_ITEM(values, (Py_ssize_t)index, value);
    }
    return values;
}

static EncodeStatus plan_releasing(Encoding *encoding, int64_t row_start, int64_t row_end)
{
    EncodeStatus status;
    if (row_end - row_start < RELEASE_ROWS)
        return plan_batches(encoding, row_start, row_end);
    Py_BEGIN_ALLOW_THREADS
    status = plan_batches(encoding, row_start, row_end);
    Py_END_ALLOW_THREADS
    return status;
}

static EncodeStatus write_releasing(Encoding *encoding, uint8_t *out)
{
    EncodeStatus status;
    if (encoding->size < RELEASE_COLUMN_BYTES)
        return write_batches(encoding, out);
    Py_BEGIN_ALLOW_THREADS
    status = write_batches(encoding, out);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *encode_rows(KernelState *state, Encoding *encoding, int64_t row_start, int64_t row_end)
{
    PyObject *out = NULL, *values = NULL, *result = NULL;
    EncodeStatus status = plan_releasing(encoding, row_start, row_end);
    if (status == ENCODE_OK && (out = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)encoding->size)) != NULL)
        status = write_releasing(encoding, (uint8_t *)PyByteArray_AS_STRING(out));
    if (status == ENCODE_NO_MEMORY)
        PyErr_NoMemory();
    else if (status == ENCODE_BAD_PAGE)
        PyErr_Format(state->corrupt, "page %lld of the values is malformed", (long long)encoding->row);
    else if (status == ENCODE_IMPOSSIBLE)
        PyErr_Format(state->corrupt, "row %lld of the columns is impossible", (long long)encoding->row);
    else if (out != NULL && (values = batch_values(state, encoding)) != NULL)
        result = PyTuple_Pack(2, out, values);
    Py_XDECREF(out);
    Py_XDECREF(values);
    return result;
}

KERNEL_FUNCTION(kernel_encode_columns)
{
    Encoding encoding = {.count = 0};
    int64_t row_start, row_end;
    if (check_arguments("encode_columns", count, 3, 4) < 0 || to_int64(arguments[1], &row_start) < 0
        || to_int64(arguments[2], &row_end) < 0)
        return NULL;
    const bool has_pages = count > 3 && arguments[3] != Py_None;
    if (source_open(&encoding.source, arguments[0], !has_pages) < 0)
        return NULL;
    if (has_pages && pages_open(&encoding.pages, arguments[3], encoding.source.row_count) < 0) {
        source_close(&encoding.source);
        return NULL;
    }
    encoding.source.values = encoding.pages.values;
    PyObject *result = NULL;
    if (row_start < 0 || row_end < row_start || row_end > encoding.source.row_count)
        PyErr_Format(
            PyExc_ValueError, "rows [%lld, %lld) are not inside columns of %lld rows", (long long)row_start, (long long)row_end,
            (long long)encoding.source.row_count);
    else
        result = encode_rows(state_of(module), &encoding, row_start, row_end);
    free(encoding.batches);
    pages_close(&encoding.pages);
    source_close(&encoding.source);
    return result;
}
