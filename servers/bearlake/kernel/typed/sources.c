/* Opens columns of the caller: checks that every buffer exists and has all slots. Contract: avro_encode.py, `Source`. */
#include "typed/typed.h"

static int need(const Py_buffer *buffer, int64_t least)
{
    if (buffer->len >= least)
        return 0;
    PyErr_Format(PyExc_ValueError, "a buffer of a typed column has %zd bytes, %lld are needed", buffer->len, (long long)least);
    return -1;
}

/* Checks that a column of texts has the index of each slot before `end`. */
static int check_indices(const Node *node, const Py_buffer *indices, int64_t end)
{
    if (node->layout != LAYOUT_TEXT) {
        PyErr_SetString(PyExc_ValueError, "a column without texts has indices");
        return -1;
    }
    return need(indices, 4 * end);
}

/* Lets a node read its column; checks that the buffers have all slots. */
static int open_source(Node *node, PyObject *source, Py_buffer *buffers)
{
    static const uint8_t nothing[8];
    int64_t numbers[2], entry_count;
    if (check_tuple(source, 7, "a column") < 0 || to_numbers(source, 0, 1, numbers) < 0
        || to_int64(PyTuple_GET_ITEM(source, 6), &entry_count) < 0)
        return -1;
    for (int at = 0; at < SOURCE_BUFFERS; at++) {
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
    if (entry_count < 0 || entry_count >= TYPED_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "a dictionary of %lld texts is impossible", (long long)entry_count);
        return -1;
    }
    const int64_t end = numbers[0] + numbers[1];
    const bool is_indexed = buffers[3].obj != NULL;
    const int64_t offset_count = is_indexed ? (entry_count ? entry_count + 1 : 0) : numbers[1] ? end + 1 : 0;
    const int64_t bits = (end + 7) / 8;
    if (buffers[0].obj != NULL && need(&buffers[0], bits) < 0)
        return -1;
    if ((node->layout == LAYOUT_TEXT || node->layout == LAYOUT_LIST) && need(&buffers[1], 4 * offset_count) < 0)
        return -1;
    if (node->layout == LAYOUT_BITMAP && need(&buffers[2], bits) < 0)
        return -1;
    if (node->layout == LAYOUT_WIDTH && need(&buffers[2], end * node->width) < 0)
        return -1;
    if (is_indexed && check_indices(node, &buffers[3], end) < 0)
        return -1;
    node->start = numbers[0];
    node->count = numbers[1];
    node->read_validity = buffers[0].obj != NULL ? buffers[0].buf : NULL;
    node->read_offsets = buffers[1].buf != NULL ? buffers[1].buf : nothing;
    node->read_content = buffers[2].buf != NULL ? buffers[2].buf : nothing;
    node->read_size = buffers[2].len;
    node->read_indices = is_indexed ? buffers[3].buf : NULL;
    node->entry_count = entry_count;
    return 0;
}

int open_sources(Node *node, PyObject *columns, Py_buffer *buffers, int32_t *next)
{
    const int32_t own = (*next)++;
    for (int32_t at = 0; node->kind != KIND_OPAQUE && at < node->child_count; at++)
        if (node->children[at]->has_column && open_sources(node->children[at], columns, buffers, next) < 0)
            return -1;
    if (open_source(node, PyTuple_GET_ITEM(columns, own), &buffers[SOURCE_BUFFERS * own]) < 0)
        return -1;
    for (int32_t at = 0; node->layout == LAYOUT_STRUCT && at < node->child_count; at++)
        if (node->children[at]->has_column && node->children[at]->count < node->count) {
            PyErr_SetString(PyExc_ValueError, "a field has fewer slots than its struct");
            return -1;
        }
    return 0;
}
