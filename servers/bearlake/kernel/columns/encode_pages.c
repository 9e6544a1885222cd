/* Columns to record batches in one pass, page by page of their values: a page is used up before the next one is made. Contract:
   encode_pages.py. */
#include "columns/encode.h"
#include "columns/pages.h"

#include <stdlib.h>

/* Limit of what is reserved, since a footer may announce anything. Most row groups have 8 MiB; larger ones are copied when they grow. */
#define RESERVED_BYTES_MAX (64 << 20)
#define RECORD_BYTES_GUESS 24 /* of a record beside its key, value and headers: more than most take, for what is reserved */

typedef enum { ENCODE_OK, ENCODE_PAGE, ENCODE_IMPOSSIBLE, ENCODE_BAD_PAGE, ENCODE_NO_MEMORY } EncodeStatus;

typedef struct {
    ColumnSource source;
    Pages pages;
    Column out;
    int64_t size; /* bytes in `out` */
    BatchPlan *batches;
    int64_t count, capacity;
    bool is_open;      /* whether rows may still join the last batch */
    RecordPlan record; /* the last one of that batch */
    int64_t first_time;
    int64_t row;
} Encoding;

static void close_batch(Encoding *encoding)
{
    if (!encoding->is_open)
        return;
    BatchPlan *batch = &encoding->batches[encoding->count - 1];
    encoding->is_open = false;
    batch->row_end = encoding->row;
    batch->length = encoding->size - batch->position;
    batch->end_offset = int64_at(encoding->source.base_offset, batch->row_start) + encoding->record.offset_delta + 1;
    write_batch_header(&encoding->source, batch, encoding->out.bytes + batch->position);
}

static EncodeStatus open_batch(Encoding *encoding)
{
    if (!can_begin_batch(&encoding->source, encoding->row))
        return ENCODE_IMPOSSIBLE;
    if (!reserve_batch(&encoding->batches, encoding->count, &encoding->capacity)
        || !column_reserve(&encoding->out, (size_t)encoding->size, (size_t)encoding->size + HEADER_BYTES))
        return ENCODE_NO_MEMORY;
    encoding->first_time = milliseconds(int64_at(encoding->source.timestamp, encoding->row));
    encoding->batches[encoding->count++] =
        (BatchPlan){.row_start = encoding->row, .position = encoding->size, .max_timestamp = encoding->first_time};
    encoding->size += HEADER_BYTES;
    encoding->record.offset_delta = -1;
    encoding->is_open = true;
    return ENCODE_OK;
}

/* Adds the next row; its value is `encoding->record.value`. */
static EncodeStatus add_row(Encoding *encoding)
{
    const ColumnSource *source = &encoding->source;
    if (encoding->is_open && !is_same_batch(source, encoding->row, encoding->batches[encoding->count - 1].row_start))
        close_batch(encoding);
    if (!encoding->is_open) {
        const EncodeStatus status = open_batch(encoding);
        if (status != ENCODE_OK)
            return status;
    }
    BatchPlan *batch = &encoding->batches[encoding->count - 1];
    RecordPlan *record = &encoding->record;
    if (!plan_record(source, encoding->first_time, encoding->row, record->offset_delta, record))
        return ENCODE_IMPOSSIBLE;
    const int64_t size = record_bytes(record);
    if (encoding->size + size - batch->position - LENGTH_END > INT32_MAX)
        return ENCODE_IMPOSSIBLE;
    if (!column_reserve(&encoding->out, (size_t)encoding->size, (size_t)(encoding->size + size)))
        return ENCODE_NO_MEMORY;
    if (write_record(source, record, encoding->out.bytes + encoding->size) == NULL)
        return ENCODE_IMPOSSIBLE;
    encoding->size += size;
    if (encoding->first_time + record->time_delta > batch->max_timestamp)
        batch->max_timestamp = encoding->first_time + record->time_delta;
    encoding->row++;
    return ENCODE_OK;
}

/* Adds the rows of the current page. */
static EncodeStatus encode_page(Encoding *encoding)
{
    if (!page_begin(&encoding->pages))
        return ENCODE_BAD_PAGE;
    for (;;) {
        const PageStatus page = page_take(&encoding->pages, &encoding->record.value);
        if (page != PAGE_VALUE)
            return page == PAGE_END ? ENCODE_PAGE : ENCODE_BAD_PAGE;
        const EncodeStatus status = add_row(encoding);
        if (status != ENCODE_OK)
            return status;
    }
}

/* Reserves about what all rows take, whose values have `value_bytes`, up to a limit. */
static bool reserve_all(Encoding *encoding, int64_t value_bytes)
{
    const ColumnSource *source = &encoding->source;
    double size = (double)value_bytes + (double)RECORD_BYTES_GUESS * (double)source->row_count + HEADER_BYTES;
    size += (double)source->key.size + (double)source->header_key.size + (double)source->header_value.size;
    return column_reserve(&encoding->out, 0, size < RESERVED_BYTES_MAX ? (size_t)size : RESERVED_BYTES_MAX);
}

static EncodeStatus encode_releasing(Encoding *encoding)
{
    EncodeStatus status;
    if (encoding->pages.view.len < RELEASE_COLUMN_BYTES)
        return encode_page(encoding);
    Py_BEGIN_ALLOW_THREADS
    status = encode_page(encoding);
    Py_END_ALLOW_THREADS
    return status;
}

static int raise_status(KernelState *state, const Encoding *encoding, EncodeStatus status)
{
    if (status == ENCODE_NO_MEMORY)
        PyErr_NoMemory();
    else if (status == ENCODE_BAD_PAGE)
        PyErr_Format(state->corrupt, "page %lld of the values is malformed", (long long)encoding->pages.number);
    else
        PyErr_Format(state->corrupt, "row %lld of the columns is impossible", (long long)encoding->row);
    return -1;
}

static int encode_all(KernelState *state, Encoding *encoding)
{
    int found;
    while ((found = pages_next(&encoding->pages)) > 0) {
        const EncodeStatus status = encode_releasing(encoding);
        if (status != ENCODE_PAGE)
            return raise_status(state, encoding, status);
    }
    if (found < 0)
        return -1;
    if (encoding->pages.rows_left > 0) {
        PyErr_SetString(PyExc_ValueError, "the pages do not have as many values as the columns have rows");
        return -1;
    }
    close_batch(encoding);
    return 0;
}

static PyObject *take_result(KernelState *state, Encoding *encoding)
{
    column_trim(&encoding->out, (size_t)encoding->size);
    PyObject *values = batch_values(state, &encoding->source, encoding->batches, encoding->count);
    PyObject *out = values != NULL ? column_take(state, &encoding->out, (size_t)encoding->size) : NULL;
    PyObject *result = out != NULL ? PyTuple_Pack(2, out, values) : NULL;
    Py_XDECREF(out);
    Py_XDECREF(values);
    return result;
}

KERNEL_FUNCTION(kernel_encode_pages)
{
    Encoding encoding = {.count = 0};
    int64_t value_bytes;
    if (check_arguments("encode_pages", count, 3, 3) < 0 || to_int64(arguments[2], &value_bytes) < 0
        || source_open(&encoding.source, arguments[0], false) < 0)
        return NULL;
    PyObject *result = NULL;
    if (pages_open(&encoding.pages, arguments[1], encoding.source.row_count) == 0) {
        if (!reserve_all(&encoding, value_bytes > 0 ? value_bytes : 0))
            PyErr_NoMemory();
        else if (encode_all(state_of(module), &encoding) == 0)
            result = take_result(state_of(module), &encoding);
    }
    pages_close(&encoding.pages);
    column_free(&encoding.out);
    free(encoding.batches);
    source_close(&encoding.source);
    return result;
}
