/* Opens columns of the caller: checks that every buffer exists and has all slots. Contract: avro_encode.py, `Source`. */
#include "typed/typed.h"

static int need(const Py_buffer *buffer, int64_t least)
{
    if (buffer->len >= least)
        return 0;
    PyErr_Format(PyExc_ValueError, "a buffer of a typed column has %zd bytes, %lld are needed", buffer->len, (long long)least);
    return -1;
}

/* Lets a node read its column; checks that the buffers have all slots. */
static int open_source(Node *node, PyObject *source, Py_buffer *buffers)
{
    static const uint8_t nothing[8];
    int64_t numbers[2];
    if (check_tuple(source, 5, "a column") < 0 || to_numbers(source, 0, 1, numbers) < 0)
        return -1;
    for (int at = 0; at < 3; at++) {
        PyObject *item = PyTuple_GET_ITEM(source, at + 2);
        if (item != Py_None && PyObject_GetBuffer(item, &buffers[at], PyBUF_SIMPLE) < 0) {
            buffers[at].obj = NULL;
            return -1;
        }
    }
    if (numbers[0] < 0 || numbers[1] < 0 || numbers[0] > TYPED_BYTES_MAX || numbers[1] > TYPED_BYTES_MAX - numbers[0]) {
        PyErr_Format(PyExc_ValueError, "a column with %lld slots from %lld on is impossible", (long long)numbers[1], (long long)numbers[0]);
        return -1;
    }
    const int64_t end = numbers[0] + numbers[1];
    const int64_t bits = (end + 7) / 8;
    if (buffers[0].obj != NULL && need(&buffers[0], bits) < 0)
        return -1;
    if ((node->layout == LAYOUT_TEXT || node->layout == LAYOUT_LIST) && need(&buffers[1], numbers[1] ? 4 * (end + 1) : 0) < 0)
        return -1;
    if (node->layout == LAYOUT_BITMAP && need(&buffers[2], bits) < 0)
        return -1;
    if (node->layout == LAYOUT_WIDTH && need(&buffers[2], end * node->width) < 0)
        return -1;
    node->start = numbers[0];
    node->count = numbers[1];
    node->read_validity = buffers[0].obj != NULL ? buffers[0].buf : NULL;
    node->read_offsets = buffers[1].buf != NULL ? buffers[1].buf : nothing;
    node->read_content = buffers[2].buf != NULL ? buffers[2].buf : nothing;
    node->read_size = buffers[2].len;
    return 0;
}

int open_sources(Node *node, PyObject *columns, Py_buffer *buffers, int32_t *next)
{
    const int32_t own = (*next)++;
    for (int32_t at = 0; node->kind != KIND_OPAQUE && at < node->child_count; at++)
        if (node->children[at]->has_column && open_sources(node->children[at], columns, buffers, next) < 0)
            return -1;
    if (open_source(node, PyTuple_GET_ITEM(columns, own), &buffers[3 * own]) < 0)
        return -1;
    for (int32_t at = 0; node->layout == LAYOUT_STRUCT && at < node->child_count; at++)
        if (node->children[at]->has_column && node->children[at]->count < node->count) {
            PyErr_SetString(PyExc_ValueError, "a field has fewer slots than its struct");
            return -1;
        }
    return 0;
}
