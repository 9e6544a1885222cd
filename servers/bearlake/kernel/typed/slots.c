/* The columns of a decoder: room, nulls, the removal of slots, and the columns as Python objects. Contract: slots.py. */
#include "typed/typed.h"

bool reserve_slots(Node *node, int64_t count)
{
    const size_t used = (size_t)node->length, slots = used + (size_t)count;
    if (node->is_nullable && !column_reserve(&node->validity, (used + 7) / 8, (slots + 7) / 8))
        return false;
    switch ((Layout)node->layout) {
    case LAYOUT_BITMAP:
        return column_reserve(&node->content, (used + 7) / 8, (slots + 7) / 8);
    case LAYOUT_WIDTH:
        return column_reserve(&node->content, used * (size_t)node->width, slots * (size_t)node->width);
    case LAYOUT_TEXT:
    case LAYOUT_LIST:
        if (!column_reserve(&node->offsets, used ? 4 * (used + 1) : 0, 4 * (slots + 1)))
            return false;
        if (used == 0)
            memset(node->offsets.bytes, 0, 4);
        return true;
    case LAYOUT_STRUCT:
        for (int32_t at = 0; at < node->child_count; at++)
            if (node->children[at]->has_column && !reserve_slots(node->children[at], count))
                return false;
    }
    return true;
}

void add_null(Node *node)
{
    const int64_t slot = node->length;
    if (node->layout == LAYOUT_BITMAP) {
        put_bit(&node->content, slot, false);
    } else if (node->layout == LAYOUT_WIDTH) {
        memset(node->content.bytes + slot * node->width, 0, (size_t)node->width);
    } else if (node->layout == LAYOUT_STRUCT) {
        for (int32_t at = 0; at < node->child_count; at++)
            if (node->children[at]->has_column)
                add_null(node->children[at]);
    }
    end_slot(node, false);
}

/* Clears the bits after the first `count` in their byte: all bits after the last slot are 0. */
static void cut_bits(Column *bitmap, int64_t count)
{
    if (count & 7)
        bitmap->bytes[count >> 3] &= (uint8_t)((1u << (count & 7)) - 1);
}

void cut_slots(Node *node, int64_t length)
{
    const int64_t before = node->length;
    int64_t below = length;
    if (before > length) {
        node->length = length;
        if (node->null_count > 0) {
            for (int64_t slot = length; slot < before; slot++)
                node->null_count -= !bit_at(node->validity.bytes, slot);
            cut_bits(&node->validity, length);
        }
        if (node->layout == LAYOUT_BITMAP)
            cut_bits(&node->content, length);
    }
    if (node->layout == LAYOUT_TEXT)
        node->content_size = node->offsets.capacity ? offset_at(node->offsets.bytes, node->length) : 0;
    else if (node->layout == LAYOUT_LIST)
        below = node->offsets.capacity ? offset_at(node->offsets.bytes, node->length) : 0;
    if (node->layout == LAYOUT_STRUCT || node->layout == LAYOUT_LIST)
        for (int32_t at = 0; at < node->child_count; at++)
            if (node->children[at]->has_column)
                cut_slots(node->children[at], below);
}

/* A column, or None without it. */
static PyObject *take_column(KernelState *state, Column *column, bool is_there, size_t size)
{
    return is_there ? column_take(state, column, size) : Py_NewRef(Py_None);
}

static PyObject *take_node(KernelState *state, Node *node)
{
    PyTypeObject *type = (PyTypeObject *)state->typed_slots_type;
    const size_t length = (size_t)node->length;
    const bool has_offsets = node->layout == LAYOUT_TEXT || node->layout == LAYOUT_LIST;
    const bool has_content = node->layout != LAYOUT_LIST && node->layout != LAYOUT_STRUCT;
    const size_t content_size = node->layout == LAYOUT_BITMAP ? (length + 7) / 8
        : node->layout == LAYOUT_TEXT                           ? (size_t)node->content_size
                                                                : length * (size_t)node->width;
    PyObject *slots = type->tp_alloc(type, 5);
    if (slots == NULL)
        return NULL;
    PyObject *fields[5] = {
        PyLong_FromLongLong(node->length),
        PyLong_FromLongLong(node->null_count),
        take_column(state, &node->validity, node->null_count > 0, (length + 7) / 8),
        take_column(state, &node->offsets, has_offsets, 4 * (length + 1)),
        take_column(state, &node->content, has_content, content_size),
    };
    bool is_whole = true;
    for (int at = 0; at < 5; at++) {
        is_whole = is_whole && fields[at] != NULL;
        PyTuple_SET_ITEM(slots, at, fields[at]);
    }
    if (!is_whole)
        Py_CLEAR(slots);
    return slots;
}

static int take_all(KernelState *state, Node *node, PyObject *list)
{
    PyObject *slots = take_node(state, node);
    const int outcome = slots == NULL ? -1 : PyList_Append(list, slots);
    Py_XDECREF(slots);
    if (outcome < 0)
        return -1;
    for (int32_t at = 0; node->layout >= LAYOUT_LIST && node->layout <= LAYOUT_STRUCT && at < node->child_count; at++)
        if (node->children[at]->has_column && take_all(state, node->children[at], list) < 0)
            return -1;
    return 0;
}

PyObject *take_slots(KernelState *state, Tree *tree)
{
    PyObject *list = PyList_New(0);
    if (list != NULL && take_all(state, &tree->nodes[0], list) < 0)
        Py_CLEAR(list);
    return list;
}
