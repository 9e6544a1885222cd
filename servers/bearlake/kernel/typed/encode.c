/* The call that encodes columns: arguments, rows, and errors. Contract: avro_encode.py. */
#include "typed/encoder.h"

#define RELEASE_ROWS 64

/* The columns of the caller, and what becomes of them. */
typedef struct {
    Tree *tree;
    EncodeRow encode;
    PrepareColumn prepare;
    Py_buffer *buffers; /* SOURCE_BUFFERS per column; `obj` is NULL for none */
    int32_t buffer_count;
    Py_buffer prefix;
    Column offsets, content;
    int64_t size;
    int64_t row; /* the first impossible row */
} Encoding;

static int open_columns(Encoding *encoding, PyObject *columns)
{
    const int32_t count = encoding->tree->column_count;
    if (PyTuple_GET_SIZE(columns) != count) {
        PyErr_Format(PyExc_ValueError, "the schema has %d columns, %zd were given", count, PyTuple_GET_SIZE(columns));
        return -1;
    }
    if ((encoding->buffers = PyMem_Calloc(SOURCE_BUFFERS * (size_t)count, sizeof *encoding->buffers)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    encoding->buffer_count = SOURCE_BUFFERS * count;
    int32_t next = 0;
    return open_sources(&encoding->tree->nodes[0], columns, encoding->buffers, &next);
}

static Step prepare_columns(Encoding *encoding)
{
    for (int32_t at = 0; encoding->prepare != NULL && at < encoding->tree->node_count; at++) {
        Node *node = &encoding->tree->nodes[at];
        const Step step = node->has_column ? encoding->prepare(node) : STEP_OK;
        if (step != STEP_OK)
            return step;
    }
    return STEP_OK;
}

static Step encode_rows(Encoding *encoding)
{
    const Node *root = &encoding->tree->nodes[0];
    Out out = {&encoding->content, 0};
    if (!column_reserve(&encoding->offsets, 0, 4 * ((size_t)root->count + 1)) || prepare_columns(encoding) != STEP_OK)
        return STEP_NO_MEMORY;
    int32_t *offsets = (int32_t *)encoding->offsets.bytes;
    offsets[0] = 0;
    for (int64_t row = 0; row < root->count; row++) {
        if (!is_null(root, row)) {
            Step step = put_bytes(&out, encoding->prefix.buf, encoding->prefix.len);
            if (step == STEP_OK)
                step = encoding->encode(&out, root, row);
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
    const int64_t rows = encoding->tree->nodes[0].count;
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

PyObject *encode_values(PyObject *module, PyObject *const *arguments, Tree *tree, EncodeRow encode, PrepareColumn prepare)
{
    Encoding encoding = {.tree = tree, .encode = encode, .prepare = prepare};
    PyObject *result = NULL;
    PyObject *columns = PySequence_Tuple(arguments[0]); /* a copy: opening buffers may run Python code */
    if (columns != NULL && PyObject_GetBuffer(arguments[1], &encoding.prefix, PyBUF_SIMPLE) == 0) {
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
    return result;
}
