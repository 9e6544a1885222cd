/* Reads the wires of a message's nodes, and gives the nodes their columns. Contract: protobuf.py, `message_columns`. */
#include "typed/protobuf.h"

static const struct {
    uint8_t kind;
    uint8_t wire_type;
} codings[CODING_COUNT] = {
    [CODING_NONE] = {KIND_NULL, WIRE_END},
    [CODING_BOOL] = {KIND_BOOLEAN, WIRE_VARINT},
    [CODING_INT32] = {KIND_INT, WIRE_VARINT},
    [CODING_INT64] = {KIND_LONG, WIRE_VARINT},
    [CODING_UINT32] = {KIND_LONG, WIRE_VARINT},
    [CODING_UINT64] = {KIND_DECIMAL, WIRE_VARINT},
    [CODING_SINT32] = {KIND_INT, WIRE_VARINT},
    [CODING_SINT64] = {KIND_LONG, WIRE_VARINT},
    [CODING_FIXED32] = {KIND_LONG, WIRE_I32},
    [CODING_FIXED64] = {KIND_DECIMAL, WIRE_I64},
    [CODING_SFIXED32] = {KIND_INT, WIRE_I32},
    [CODING_SFIXED64] = {KIND_LONG, WIRE_I64},
    [CODING_FLOAT] = {KIND_FLOAT, WIRE_I32},
    [CODING_DOUBLE] = {KIND_DOUBLE, WIRE_I64},
    [CODING_STRING] = {KIND_STRING, WIRE_LEN},
    [CODING_BYTES] = {KIND_BYTES, WIRE_LEN},
    [CODING_ENUM] = {KIND_ENUM, WIRE_VARINT},
    [CODING_MESSAGE] = {KIND_RECORD, WIRE_LEN},
    [CODING_GROUP] = {KIND_RECORD, WIRE_START},
    [CODING_TIMESTAMP] = {KIND_LONG, WIRE_LEN},
};

enum { FIELD_CODING, FIELD_NUMBER, FIELD_LABEL, FIELD_ONEOF, FIELD_WRAPPED, FIELD_NUMBERS, FIELD_CLOSED, FIELD_COUNT };

WireType wire_type_of(Coding coding) { return (WireType)codings[coding].wire_type; }

static int malformed(const Node *node)
{
    PyErr_Format(PyExc_ValueError, "the wire of node %d is malformed", (int)node->index);
    return -1;
}

/* Reads the numbers of an enum's symbols. */
static int read_numbers(Wire *wire, const Node *node, PyObject *numbers)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    if (count != PyTuple_GET_SIZE(node->symbols) || (count > 0 && node->kind != KIND_ENUM))
        return malformed(node);
    if ((wire->numbers = PyMem_Calloc((size_t)count + 1, sizeof *wire->numbers)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    wire->number_count = (int32_t)count;
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t number;
        if (to_int64(PyTuple_GET_ITEM(numbers, at), &number) < 0)
            return -1;
        if (number != (int32_t)number)
            return malformed(node);
        wire->numbers[at] = (int32_t)number;
    }
    if (sort_numbers(wire))
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int read_wire(Wire *wire, const Node *node, PyObject *item)
{
    int64_t numbers[FIELD_COUNT];
    if (check_tuple(item, FIELD_COUNT, "a wire") < 0 || to_numbers(item, FIELD_CODING, FIELD_WRAPPED, numbers) < 0
        || to_numbers(item, FIELD_CLOSED, FIELD_CLOSED, numbers) < 0)
        return -1;
    if (!PyTuple_Check(PyTuple_GET_ITEM(item, FIELD_NUMBERS)) || numbers[FIELD_CODING] < 0 || numbers[FIELD_CODING] >= CODING_COUNT
        || numbers[FIELD_LABEL] < 0 || numbers[FIELD_LABEL] >= LABEL_COUNT || numbers[FIELD_NUMBER] < 0
        || numbers[FIELD_NUMBER] > FIELD_NUMBER_MAX || numbers[FIELD_ONEOF] < -1 || numbers[FIELD_ONEOF] >= NODES_MAX)
        return malformed(node);
    wire->coding = (uint8_t)numbers[FIELD_CODING];
    wire->label = (uint8_t)numbers[FIELD_LABEL];
    wire->number = (int32_t)numbers[FIELD_NUMBER];
    wire->oneof = (int32_t)numbers[FIELD_ONEOF];
    wire->is_wrapped = numbers[FIELD_WRAPPED] != 0;
    wire->is_closed = numbers[FIELD_CLOSED] != 0;
    wire->wire_type = wire->is_wrapped ? WIRE_LEN : wire_type_of(wire->coding);
    return read_numbers(wire, node, PyTuple_GET_ITEM(item, FIELD_NUMBERS));
}

static bool is_list(const Node *node) { return node->kind == KIND_ARRAY || node->kind == KIND_MAP; }

static bool is_message(const Wire *wire) { return wire->coding == CODING_MESSAGE || wire->coding == CODING_GROUP; }

/* Whether a node is an element, a key or a value: always written, and no list. */
static bool is_element(const Node *node, int32_t number)
{
    const Wire *wire = node->wire;
    return wire->number == number && wire->label == LABEL_ALWAYS && wire->oneof < 0 && wire->coding != CODING_NONE;
}

static bool is_key(const Node *node)
{
    const uint8_t coding = node->wire->coding;
    return is_element(node, 1) && !node->wire->is_wrapped && coding >= CODING_BOOL && coding <= CODING_STRING && coding != CODING_FLOAT
        && coding != CODING_DOUBLE;
}

/* Whether a child of a message is a field whose number is above `least`. */
static bool is_field(const Node *message, const Node *node, int32_t least)
{
    const Wire *wire = node->wire;
    if (wire->number <= least || wire->oneof >= message->child_count)
        return false;
    if (is_list(node))
        return wire->oneof < 0;
    return wire->coding != CODING_NONE
        && (wire->label == LABEL_EXPLICIT
            || (wire->label == LABEL_IMPLICIT && !is_message(wire) && !wire->is_wrapped && wire->coding != CODING_TIMESTAMP));
}

static bool has_fields(const Node *node)
{
    if (node->index == 0 && node->child_count == 1 && node->children[0]->kind == KIND_PRESENT && node->children[0]->wire->number == 0) {
        const Wire *only = node->children[0]->wire;
        return only->coding == CODING_NONE && only->label == LABEL_ALWAYS && only->oneof < 0;
    }
    for (int32_t at = 0; at < node->child_count; at++)
        if (!is_field(node, node->children[at], at == 0 ? 0 : node->children[at - 1]->wire->number))
            return false;
    return true;
}

/* Whether kind, wire and children fit. */
static bool is_right(const Node *node)
{
    const Wire *wire = node->wire;
    const Node *const *children = (const Node *const *)node->children;
    if (node->null_branch >= 0)
        return false;
    switch ((TypedKind)node->kind) {
    case KIND_ARRAY:
        return wire->coding == CODING_NONE && is_element(children[0], 0)
            && (wire->label == LABEL_REPEATED || (wire->label == LABEL_PACKED && is_packable(children[0]->wire)));
    case KIND_MAP:
        return wire->coding == CODING_NONE && wire->label == LABEL_REPEATED && is_key(children[0]) && is_element(children[1], 2);
    case KIND_RECORD:
        return (is_message(wire) || (node->index == 0 && wire->coding == CODING_NONE)) && !wire->is_wrapped && has_fields(node);
    case KIND_PRESENT: return (is_message(wire) || wire->coding == CODING_NONE) && !wire->is_wrapped;
    case KIND_OPAQUE: return is_message(wire) && !wire->is_wrapped;
    default:
        return wire->coding != CODING_NONE && codings[wire->coding].kind == node->kind
            && !(wire->is_wrapped && (wire->coding == CODING_ENUM || wire->coding == CODING_TIMESTAMP));
    }
}

static int place_message(Tree *tree, Node *node, bool is_nullable, int level)
{
    if (node->has_column || level >= LEVELS_MAX) {
        PyErr_SetString(PyExc_ValueError, "the nodes are not a tree");
        return -1;
    }
    place_column(tree, node, is_nullable);
    for (int32_t at = 0; at < node->child_count; at++) {
        Node *child = node->children[at];
        const Wire *wire = child->wire;
        const bool may_not_fit = wire->coding == CODING_STRING || wire->coding == CODING_TIMESTAMP || child->kind == KIND_MAP;
        if (place_message(tree, child, may_not_fit || wire->label == LABEL_EXPLICIT, level + 1) < 0)
            return -1;
        node->slot_bytes += node->layout == LAYOUT_STRUCT ? child->slot_bytes : 0;
    }
    return 0;
}

static int read_wires(Tree *tree, PyObject *wires)
{
    for (int32_t at = 0; at < tree->node_count; at++)
        if (read_wire(&tree->wires[at], &tree->nodes[at], PyTuple_GET_ITEM(wires, at)) < 0)
            return -1;
    for (int32_t at = 0; at < tree->node_count; at++) {
        Node *node = &tree->nodes[at];
        node->wire->oneofs = tree->oneofs + (node->children - tree->links);
        if (!is_right(node))
            return malformed(node);
    }
    if (place_message(tree, &tree->nodes[0], true, 0) < 0)
        return -1;
    if (tree->column_count == tree->node_count)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the nodes are not a tree");
    return -1;
}

int message_open(Tree *tree, PyObject *schema, PyObject *wires)
{
    if (tree_read(tree, schema, 0, BINARY_KIND_COUNT) < 0)
        return -1;
    if (!PyTuple_Check(wires) || PyTuple_GET_SIZE(wires) != tree->node_count) {
        PyErr_Format(PyExc_ValueError, "there is not one wire for each of %d nodes", (int)tree->node_count);
    } else {
        size_t links = 1;
        for (int32_t at = 0; at < tree->node_count; at++)
            links += (size_t)tree->nodes[at].child_count;
        tree->wires = PyMem_Calloc((size_t)tree->node_count, sizeof *tree->wires);
        tree->oneofs = PyMem_Calloc(links, sizeof *tree->oneofs);
        for (int32_t at = 0; tree->wires != NULL && at < tree->node_count; at++)
            tree->nodes[at].wire = &tree->wires[at];
        if (tree->wires == NULL || tree->oneofs == NULL)
            PyErr_NoMemory();
        else if (read_wires(tree, wires) == 0)
            return 0;
    }
    message_close(tree);
    return -1;
}

void message_close(Tree *tree)
{
    for (int32_t at = 0; tree->wires != NULL && at < tree->node_count; at++) {
        PyMem_Free(tree->wires[at].numbers);
        PyMem_Free(tree->wires[at].by_number);
        column_free(&tree->wires[at].joined);
    }
    PyMem_Free(tree->wires);
    PyMem_Free(tree->oneofs);
    tree_close(tree);
}
