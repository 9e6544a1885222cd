/* Columns to record batches, in two passes without the GIL: plan (sizes and validity), then write. Contract:
   encode.py. */
#include "columns/encode.h"

#include <stdlib.h>

#define CODEC_MASK 0x07
#define RELEASE_ROWS 1024

typedef enum { ENCODE_OK, ENCODE_IMPOSSIBLE, ENCODE_NO_MEMORY } EncodeStatus;

typedef struct {
    ColumnSource source;
    BatchPlan *batches;
    int64_t count, capacity;
    int64_t size; /* of all batches */
    int64_t row;  /* the first impossible row */
} Encoding;

/* Plans the batch that begins at `plan->row_start`; the rows end at `row_end`. Sets everything but its position. Returns the impossible
   row, or -1. */
static int64_t plan_batch(const ColumnSource *source, int64_t row_end, BatchPlan *plan)
{
    const int64_t start = plan->row_start, first_time = milliseconds(int64_at(source->timestamp, start));
    if (!can_begin_batch(source, start))
        return start;
    RecordPlan record = {.offset_delta = -1};
    int64_t row = start, most = 0;
    plan->length = HEADER_BYTES;
    do {
        if (!text_at(&source->value, row, &record.value)
            || !plan_record(source, first_time, row, record.offset_delta, &record))
            return row;
        plan->length += record_bytes(&record);
        if (plan->length - LENGTH_END > INT32_MAX)
            return row;
        most = record.time_delta > most ? record.time_delta : most;
        row++;
    } while (row < row_end && is_same_batch(source, row, start));
    plan->row_end = row;
    plan->end_offset = int64_at(source->base_offset, start) + record.offset_delta + 1;
    plan->max_timestamp = first_time + most;
    return -1;
}

bool reserve_batch(BatchPlan **batches, int64_t count, int64_t *capacity)
{
    if (count < *capacity)
        return true;
    const int64_t more = *capacity ? 2 * *capacity : 64;
    BatchPlan *grown = realloc(*batches, (size_t)more * sizeof *grown);
    if (grown == NULL)
        return false;
    *batches = grown;
    *capacity = more;
    return true;
}

static EncodeStatus plan_batches(Encoding *encoding, int64_t row, int64_t row_end)
{
    while (row < row_end) {
        if (!reserve_batch(&encoding->batches, encoding->count, &encoding->capacity))
            return ENCODE_NO_MEMORY;
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

void write_batch_header(const ColumnSource *source, const BatchPlan *plan, uint8_t *at)
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
            if (text_at(&source->value, row, &record.value)
                && plan_record(source, first_time, row, record.offset_delta, &record) && record_bytes(&record) <= end - at)
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
        write_batch_header(source, plan, out + plan->position);
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

PyObject *batch_values(KernelState *state, const ColumnSource *source, const BatchPlan *batches, int64_t count)
{
    PyObject *values = PyList_New((Py_ssize_t)count);
    for (int64_t index = 0; values != NULL && index < count; index++) {
        PyObject *value = batch_value(state, source, &batches[index]);
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
    else if (status == ENCODE_IMPOSSIBLE)
        PyErr_Format(state->corrupt, "row %lld of the columns is impossible", (long long)encoding->row);
    else if (out != NULL && (values = batch_values(state, &encoding->source, encoding->batches, encoding->count)) != NULL)
        result = PyTuple_Pack(2, out, values);
    Py_XDECREF(out);
    Py_XDECREF(values);
    return result;
}

KERNEL_FUNCTION(kernel_encode_columns)
{
    Encoding encoding = {.count = 0};
    int64_t row_start, row_end;
    if (check_arguments("encode_columns", count, 3, 3) < 0 || to_int64(arguments[1], &row_start) < 0
        || to_int64(arguments[2], &row_end) < 0 || source_open(&encoding.source, arguments[0], true) < 0)
        return NULL;
    PyObject *result = NULL;
    if (row_start < 0 || row_end < row_start || row_end > encoding.source.row_count)
        PyErr_Format(
            PyExc_ValueError, "rows [%lld, %lld) are not inside columns of %lld rows", (long long)row_start, (long long)row_end,
            (long long)encoding.source.row_count);
    else
        result = encode_rows(state_of(module), &encoding, row_start, row_end);
    free(encoding.batches);
    source_close(&encoding.source);
    return result;
}
