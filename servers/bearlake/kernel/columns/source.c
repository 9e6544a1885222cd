/* Opens columns: checks that every buffer exists and is large enough for the rows. */
#include "columns/source.h"

/* In the order of columns.Columns, without its row count. */
enum {
    PARTITION_ID, OFFSET, TIMESTAMP, KEY_OFFSETS, KEY_DATA, KEY_VALIDITY, HEADER_LIST_OFFSETS, HEADER_KEY_OFFSETS, HEADER_KEY_DATA,
    HEADER_VALUE_OFFSETS, HEADER_VALUE_DATA, HEADER_VALUE_VALIDITY, VALUE_OFFSETS, VALUE_DATA, VALUE_VALIDITY, BASE_OFFSET, ATTRIBUTES,
    PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE,
};

typedef enum { BYTES, BITMAP, INT32, INT64, ROW_OFFSETS } Kind;

static const struct {
    const char *name;
    Kind kind;
} layout[COLUMN_COUNT] = {
    {"partition_id", INT32},   {"offset", INT64},
    {"timestamp", INT64},      {"key_offsets", ROW_OFFSETS},
    {"key_data", BYTES},       {"key_validity", BITMAP},
    {"header_list_offsets", ROW_OFFSETS},
    {"header_key_offsets", BYTES},   {"header_key_data", BYTES},
    {"header_value_offsets", BYTES}, {"header_value_data", BYTES},
    {"header_value_validity", BYTES},
    {"value_offsets", ROW_OFFSETS},
    {"value_data", BYTES},     {"value_validity", BITMAP},
    {"base_offset", INT64},    {"attributes", INT32},
    {"producer_id", INT64},    {"producer_epoch", INT32},
    {"base_sequence", INT32},
};

/* Minimum size in bytes of a column with this many rows. */
static int64_t least_bytes(Kind kind, int64_t rows)
{
    switch (kind) {
    case INT32: return 4 * rows;
    case INT64: return 8 * rows;
    case ROW_OFFSETS: return rows ? 4 * (rows + 1) : 0;
    case BITMAP: return (rows + 7) / 8;
    default: return 0;
    }
}

static int open_column(Py_buffer *buffer, PyObject *column, int index, int64_t rows)
{
    if (column != Py_None && PyObject_GetBuffer(column, buffer, PyBUF_SIMPLE) < 0) {
        buffer->obj = NULL;
        return -1;
    }
    const Kind kind = layout[index].kind;
    const int64_t least = kind == BITMAP && buffer->obj == NULL ? 0 : least_bytes(kind, rows);
    if (buffer->len >= least)
        return 0;
    PyErr_Format(
        PyExc_ValueError, "column %s has %zd bytes, %lld are needed", layout[index].name, buffer->len, (long long)least);
    return -1;
}

static bool is_of_values(int index) { return index >= VALUE_OFFSETS && index <= VALUE_VALIDITY; }

static const uint8_t *cells(const ColumnSource *source, int index) { return source->buffers[index].buf; }

static TextSource text_source(const ColumnSource *source, int offsets, int content, int validity)
{
    return (TextSource){
        .offsets = cells(source, offsets),
        .content = cells(source, content),
        .validity = validity >= 0 && source->buffers[validity].obj ? cells(source, validity) : NULL,
        .size = source->buffers[content].len,
    };
}

/* The number of headers that have offsets and, if there is a validity, a validity bit. */
static int64_t header_count(const ColumnSource *source)
{
    int64_t keys = source->buffers[HEADER_KEY_OFFSETS].len / 4 - 1;
    int64_t values = source->buffers[HEADER_VALUE_OFFSETS].len / 4 - 1;
    int64_t count = keys < values ? keys : values;
    if (source->header_value.validity != NULL && 8 * source->buffers[HEADER_VALUE_VALIDITY].len < count)
        count = 8 * source->buffers[HEADER_VALUE_VALIDITY].len;
    return count > 0 ? count : 0;
}

int source_open(ColumnSource *source, PyObject *columns, bool has_values)
{
    static const uint8_t nothing[8];
    memset(source, 0, sizeof *source);
    if (!PyTuple_Check(columns) || PyTuple_GET_SIZE(columns) != COLUMN_COUNT + 1) {
        PyErr_SetString(PyExc_TypeError, "not Columns");
        return -1;
    }
    PyObject *rows = PyTuple_GET_ITEM(columns, 0);
    if (to_int64(rows, &source->row_count) < 0)
        return -1;
    if (source->row_count < 0 || source->row_count > INT64_MAX / 16) {
        PyErr_Format(PyExc_ValueError, source->row_count < 0 ? "row count %S is negative" : "row count %S is too large", rows);
        return -1;
    }
    for (int index = 0; index < COLUMN_COUNT; index++)
        if ((has_values || !is_of_values(index))
            && open_column(&source->buffers[index], PyTuple_GET_ITEM(columns, index + 1), index, source->row_count) < 0) {
            source_close(source);
            return -1;
        }
    for (int index = 0; index < COLUMN_COUNT; index++)
        if (source->buffers[index].buf == NULL)
            source->buffers[index].buf = (void *)nothing;
    source->partition_id = cells(source, PARTITION_ID);
    source->offset = cells(source, OFFSET);
    source->timestamp = cells(source, TIMESTAMP);
    source->header_lists = cells(source, HEADER_LIST_OFFSETS);
    source->base_offset = cells(source, BASE_OFFSET);
    source->attributes = cells(source, ATTRIBUTES);
    source->producer_id = cells(source, PRODUCER_ID);
    source->producer_epoch = cells(source, PRODUCER_EPOCH);
    source->base_sequence = cells(source, BASE_SEQUENCE);
    source->key = text_source(source, KEY_OFFSETS, KEY_DATA, KEY_VALIDITY);
    source->value = text_source(source, VALUE_OFFSETS, VALUE_DATA, VALUE_VALIDITY);
    source->header_key = text_source(source, HEADER_KEY_OFFSETS, HEADER_KEY_DATA, -1);
    source->header_value = text_source(source, HEADER_VALUE_OFFSETS, HEADER_VALUE_DATA, HEADER_VALUE_VALIDITY);
    source->header_count = header_count(source);
    return 0;
}

void source_close(ColumnSource *source)
{
    for (int index = 0; index < COLUMN_COUNT; index++)
        if (source->buffers[index].obj != NULL)
            PyBuffer_Release(&source->buffers[index]);
}
