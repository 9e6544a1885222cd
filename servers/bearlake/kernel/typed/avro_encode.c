/* Typed columns to Avro values, row by row. Contract: avro_encode.py. */
#include "typed/typed.h"

#define MICROSECONDS 1000
#define VARINT_BYTES_MAX 10
#define RELEASE_ROWS 64

/* The values as they grow. */
typedef struct {
    Column *column;
    int64_t size;
} Out;

static inline bool make_room(Out *out, int64_t more)
{
    return column_reserve(out->column, (size_t)out->size, (size_t)(out->size + more));
}

/* Writes into room that there is. */
static inline void write_number(Out *out, int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    uint8_t *at = out->column->bytes + out->size;
    for (; bits >= 0x80; bits >>= 7)
        *at++ = (uint8_t)(bits | 0x80);
    *at++ = (uint8_t)bits;
    out->size = at - out->column->bytes;
}

static inline Step put_number(Out *out, int64_t value)
{
    if (!make_room(out, VARINT_BYTES_MAX))
        return STEP_NO_MEMORY;
    write_number(out, value);
    return STEP_OK;
}

static inline Step put_bytes(Out *out, const uint8_t *bytes, int64_t size)
{
    if (!make_room(out, size))
        return STEP_NO_MEMORY;
    if (size > 0)
        memcpy(out->column->bytes + out->size, bytes, (size_t)size);
    out->size += size;
    return STEP_OK;
}

static inline bool is_null(const Node *node, int64_t slot)
{
    return node->read_validity != NULL && !bit_at(node->read_validity, node->start + slot);
}

static inline int64_t int64_cell(const Node *node, int64_t slot)
{
    int64_t value;
    memcpy(&value, node->read_content + 8 * (node->start + slot), sizeof value);
    return value;
}

static inline int32_t int32_cell(const Node *node, int64_t slot)
{
    int32_t value;
    memcpy(&value, node->read_content + 4 * (node->start + slot), sizeof value);
    return value;
}

static inline const uint8_t *wide_cell(const Node *node, int64_t slot)
{
    return node->read_content + (int64_t)node->width * (node->start + slot);
}

/* The bytes of a text; false if its offsets are impossible. */
static inline bool text_cell(const Node *node, int64_t slot, const uint8_t **bytes, int64_t *size)
{
    const int64_t low = offset_at(node->read_offsets, node->start + slot), high = offset_at(node->read_offsets, node->start + slot + 1);
    if (low < 0 || high < low || high > node->read_size)
        return false;
    *bytes = node->read_content + low;
    *size = high - low;
    return true;
}

static Step put_node(Out *out, const Node *node, int64_t slot);

static Step put_list(Out *out, const Node *node, int64_t slot)
{
    const int64_t low = offset_at(node->read_offsets, node->start + slot), high = offset_at(node->read_offsets, node->start + slot + 1);
    if (low < 0 || high < low)
        return STEP_IMPOSSIBLE;
    for (int32_t at = 0; at < node->child_count; at++)
        if (high > node->children[at]->count)
            return STEP_IMPOSSIBLE;
    if (!make_room(out, VARINT_BYTES_MAX))
        return STEP_NO_MEMORY;
    if (high > low)
        write_number(out, high - low);
    for (int64_t item = low; item < high; item++)
        for (int32_t at = 0; at < node->child_count; at++) {
            const Step step = put_node(out, node->children[at], item);
            if (step != STEP_OK)
                return step;
        }
    return put_bytes(out, (const uint8_t *)"", 1);
}

static Step put_union(Out *out, const Node *node, int64_t slot)
{
    const bool is_absent = is_null(node, slot);
    int32_t chosen = -1;
    for (int32_t at = 0; at < node->child_count; at++) {
        const Node *child = node->children[at];
        if (is_absent ? child->has_column : !child->has_column || is_null(child, slot))
            continue;
        if (chosen >= 0)
            return STEP_IMPOSSIBLE;
        chosen = at;
    }
    if (chosen < 0)
        return STEP_IMPOSSIBLE;
    const Step step = put_number(out, chosen);
    return step != STEP_OK || is_absent ? step : put_node(out, node->children[chosen], slot);
}

static Step put_symbol(Out *out, const Node *node, int64_t slot)
{
    const uint8_t *bytes;
    int64_t size;
    if (!text_cell(node, slot, &bytes, &size))
        return STEP_IMPOSSIBLE;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(node->symbols); at++) {
        PyObject *symbol = PyTuple_GET_ITEM(node->symbols, at);
        if (PyBytes_GET_SIZE(symbol) == size && memcmp(PyBytes_AS_STRING(symbol), bytes, (size_t)size) == 0)
            return put_number(out, at);
    }
    return STEP_IMPOSSIBLE;
}

/* The shortest big-endian two's complement of a little-endian int128: its size. */
static inline int shortest_size(const uint8_t *cell)
{
    int size = 16;
    while (size > 1 && ((cell[size - 1] == 0 && cell[size - 2] < 0x80) || (cell[size - 1] == 0xFF && cell[size - 2] >= 0x80)))
        size--;
    return size;
}

static Step put_decimal(Out *out, const Node *node, int64_t slot)
{
    const uint8_t *cell = wide_cell(node, slot);
    const int least = shortest_size(cell);
    const int64_t size = node->kind == KIND_DECIMAL ? least : node->size;
    if (least > size)
        return STEP_IMPOSSIBLE;
    if (!make_room(out, VARINT_BYTES_MAX + size))
        return STEP_NO_MEMORY;
    if (node->kind == KIND_DECIMAL)
        write_number(out, size);
    uint8_t *at = out->column->bytes + out->size;
    for (int64_t place = size - 1; place >= 0; place--)
        *at++ = place < 16 ? cell[place] : cell[15] & 0x80 ? 0xFF : 0;
    out->size += size;
    return STEP_OK;
}

static Step put_uuid(Out *out, const Node *node, int64_t slot)
{
    static const char digits[] = "0123456789abcdef";
    if (!make_room(out, 37))
        return STEP_NO_MEMORY;
    const uint8_t *cell = wide_cell(node, slot);
    uint8_t *at = out->column->bytes + out->size;
    *at++ = 36 * 2;
    for (int index = 0; index < 16; index++) {
        if (index == 4 || index == 6 || index == 8 || index == 10)
            *at++ = '-';
        *at++ = (uint8_t)digits[cell[index] >> 4];
        *at++ = (uint8_t)digits[cell[index] & 15];
    }
    out->size += 37;
    return STEP_OK;
}

static Step put_millis(Out *out, const Node *node, int64_t slot)
{
    const int64_t value = int64_cell(node, slot);
    const int64_t millis = value / MICROSECONDS;
    if (value % MICROSECONDS != 0 || (node->kind == KIND_TIME_MILLIS && millis != (int32_t)millis))
        return STEP_IMPOSSIBLE;
    return put_number(out, millis);
}

static Step put_text(Out *out, const Node *node, int64_t slot)
{
    const uint8_t *bytes;
    int64_t size;
    if (!text_cell(node, slot, &bytes, &size))
        return STEP_IMPOSSIBLE;
    if (!make_room(out, VARINT_BYTES_MAX + size + COPY_SLACK))
        return STEP_NO_MEMORY;
    if (node->kind != KIND_OPAQUE)
        write_number(out, size);
    copy_short(out->column->bytes + out->size, bytes, size, node->read_size - (bytes - node->read_content) >= COPY_SLACK);
    out->size += size;
    return STEP_OK;
}

static Step put_uint32(Out *out, const Node *node, int64_t slot)
{
    const int64_t value = int64_cell(node, slot);
    if (value < 0 || value > UINT32_MAX)
        return STEP_IMPOSSIBLE;
    const uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    return put_bytes(out, bytes, 4);
}

static Step put_value(Out *out, const Node *node, int64_t slot)
{
    Step step;
    switch ((TypedKind)node->kind) {
    case KIND_RECORD:
        for (int32_t at = 0; at < node->child_count; at++)
            if ((step = put_node(out, node->children[at], slot)) != STEP_OK)
                return step;
        return STEP_OK;
    case KIND_ARRAY:
    case KIND_MAP:
        return put_list(out, node, slot);
    case KIND_BOOLEAN: {
        const uint8_t byte = bit_at(node->read_content, node->start + slot);
        return put_bytes(out, &byte, 1);
    }
    case KIND_INT: return put_number(out, int32_cell(node, slot));
    case KIND_LONG:
    case KIND_TIME_MICROS:
        return put_number(out, int64_cell(node, slot));
    case KIND_FLOAT:
    case KIND_DOUBLE:
    case KIND_FIXED:
        return put_bytes(out, wide_cell(node, slot), node->width);
    case KIND_BYTES:
    case KIND_STRING:
    case KIND_OPAQUE:
        return put_text(out, node, slot);
    case KIND_ENUM: return put_symbol(out, node, slot);
    case KIND_DECIMAL:
    case KIND_DECIMAL_FIXED:
        return put_decimal(out, node, slot);
    case KIND_UUID: return put_uuid(out, node, slot);
    case KIND_TIME_MILLIS:
    case KIND_TIMESTAMP_MILLIS:
        return put_millis(out, node, slot);
    case KIND_UINT32: return put_uint32(out, node, slot);
    default: return STEP_OK; /* no bytes */
    }
}

static Step put_node(Out *out, const Node *node, int64_t slot)
{
    if (node->kind == KIND_UNION)
        return put_union(out, node, slot);
    const bool is_absent = is_null(node, slot);
    if (node->null_branch >= 0) {
        const bool is_null_chosen = is_absent || node->kind == KIND_NULL;
        const Step step = put_number(out, is_null_chosen ? node->null_branch : 1 - node->null_branch);
        if (step != STEP_OK || is_null_chosen)
            return step;
    }
    if (node->kind == KIND_NULL)
        return STEP_OK;
    return is_absent ? STEP_IMPOSSIBLE : put_value(out, node, slot);
}

Step encode_avro_row(const Node *root, int64_t row, Column *out, int64_t *size)
{
    Out values = {out, *size};
    const Step step = put_node(&values, root, row);
    *size = values.size;
    return step;
}

/* The columns of the caller, and what becomes of them. */
typedef struct {
    Tree tree;
    Py_buffer *buffers; /* three per column; `obj` is NULL for none */
    int32_t buffer_count;
    Py_buffer prefix;
    Column offsets, content;
    int64_t size;
    int64_t row; /* the first impossible row */
} Encoding;

static int open_columns(Encoding *encoding, PyObject *columns)
{
    const int32_t count = encoding->tree.column_count;
    if (PyTuple_GET_SIZE(columns) != count) {
        PyErr_Format(PyExc_ValueError, "the schema has %d columns, %zd were given", count, PyTuple_GET_SIZE(columns));
        return -1;
    }
    if ((encoding->buffers = PyMem_Calloc(3 * (size_t)count, sizeof *encoding->buffers)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    encoding->buffer_count = 3 * count;
    int32_t next = 0;
    return open_sources(&encoding->tree.nodes[0], columns, encoding->buffers, &next);
}

static Step encode_rows(Encoding *encoding)
{
    const Node *root = &encoding->tree.nodes[0];
    Out out = {&encoding->content, 0};
    if (!column_reserve(&encoding->offsets, 0, 4 * ((size_t)root->count + 1)))
        return STEP_NO_MEMORY;
    int32_t *offsets = (int32_t *)encoding->offsets.bytes;
    offsets[0] = 0;
    for (int64_t row = 0; row < root->count; row++) {
        if (!is_null(root, row)) {
            Step step = put_bytes(&out, encoding->prefix.buf, encoding->prefix.len);
            if (step == STEP_OK)
                step = put_node(&out, root, row);
            encoding->row = row;
            encoding->size = out.size;
            if (step != STEP_OK)
                return step;
            if (out.size > TYPED_BYTES_MAX)
                return STEP_FULL;
        }
        offsets[row + 1] = (int32_t)out.size;
    }
    encoding->size = out.size;
    return STEP_OK;
}

static PyObject *encode_all(KernelState *state, Encoding *encoding)
{
    const int64_t rows = encoding->tree.nodes[0].count;
    Step step;
    if (rows < RELEASE_ROWS) {
        step = encode_rows(encoding);
    } else {
        Py_BEGIN_ALLOW_THREADS
        step = encode_rows(encoding);
        Py_END_ALLOW_THREADS
    }
    if (step == STEP_NO_MEMORY)
        return PyErr_NoMemory();
    if (step == STEP_IMPOSSIBLE)
        return PyErr_Format(state->corrupt, "row %lld of the typed columns is impossible", (long long)encoding->row);
    if (step == STEP_FULL)
        return raise_too_large(state, "a column of encoded values", encoding->size, TYPED_BYTES_MAX);
    PyObject *offsets = column_take(state, &encoding->offsets, 4 * ((size_t)rows + 1));
    PyObject *content = offsets != NULL ? column_take(state, &encoding->content, (size_t)encoding->size) : NULL;
    PyObject *result = content != NULL ? PyTuple_Pack(2, offsets, content) : NULL;
    Py_XDECREF(offsets);
    Py_XDECREF(content);
    return result;
}

KERNEL_FUNCTION(kernel_encode_avro)
{
    Encoding encoding = {.size = 0};
    PyObject *result = NULL;
    if (check_arguments("encode_avro", count, 3, 3) < 0 || tree_open(&encoding.tree, arguments[0]) < 0)
        return NULL;
    PyObject *columns = PySequence_Tuple(arguments[1]); /* a copy: opening buffers may run Python code */
    if (columns != NULL && PyObject_GetBuffer(arguments[2], &encoding.prefix, PyBUF_SIMPLE) == 0) {
        if (open_columns(&encoding, columns) == 0)
            result = encode_all(state_of(module), &encoding);
        PyBuffer_Release(&encoding.prefix);
    }
    for (int32_t at = 0; at < encoding.buffer_count; at++)
        if (encoding.buffers[at].obj != NULL)
            PyBuffer_Release(&encoding.buffers[at]);
    PyMem_Free(encoding.buffers);
    Py_XDECREF(columns);
    column_free(&encoding.offsets);
    column_free(&encoding.content);
    tree_close(&encoding.tree);
    return result;
}
