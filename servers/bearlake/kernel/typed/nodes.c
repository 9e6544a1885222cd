/* Reads a schema: a tuple of TypedNodes. Contract: slots.py, `columns_of`. */
#include "typed/typed.h"

static const struct {
    uint8_t layout;
    uint8_t width;
    bool is_checked; /* typed.CHECKED_KINDS */
    int8_t children; /* -1: one or more */
} kinds[KIND_COUNT] = {
    [KIND_NULL] = {LAYOUT_BITMAP, 0, false, 0},
    [KIND_PRESENT] = {LAYOUT_BITMAP, 0, false, 0},
    [KIND_BOOLEAN] = {LAYOUT_BITMAP, 0, false, 0},
    [KIND_INT] = {LAYOUT_WIDTH, 4, false, 0},
    [KIND_LONG] = {LAYOUT_WIDTH, 8, false, 0},
    [KIND_FLOAT] = {LAYOUT_WIDTH, 4, false, 0},
    [KIND_DOUBLE] = {LAYOUT_WIDTH, 8, false, 0},
    [KIND_BYTES] = {LAYOUT_TEXT, 0, false, 0},
    [KIND_STRING] = {LAYOUT_TEXT, 0, false, 0},
    [KIND_FIXED] = {LAYOUT_WIDTH, 0, false, 0},
    [KIND_ENUM] = {LAYOUT_TEXT, 0, false, 0},
    [KIND_ARRAY] = {LAYOUT_LIST, 0, false, 1},
    [KIND_MAP] = {LAYOUT_LIST, 0, true, 2},
    [KIND_RECORD] = {LAYOUT_STRUCT, 0, false, -1},
    [KIND_UNION] = {LAYOUT_STRUCT, 0, false, -1},
    [KIND_DECIMAL] = {LAYOUT_WIDTH, 16, true, 0},
    [KIND_DECIMAL_FIXED] = {LAYOUT_WIDTH, 16, true, 0},
    [KIND_UUID] = {LAYOUT_WIDTH, 16, true, 0},
    [KIND_TIME_MILLIS] = {LAYOUT_WIDTH, 8, true, 0},
    [KIND_TIME_MICROS] = {LAYOUT_WIDTH, 8, true, 0},
    [KIND_TIMESTAMP_MILLIS] = {LAYOUT_WIDTH, 8, true, 0},
    [KIND_UINT32] = {LAYOUT_WIDTH, 8, false, 0},
    [KIND_OPAQUE] = {LAYOUT_TEXT, 0, false, 1},
    [KIND_DATE] = {LAYOUT_WIDTH, 4, false, 0},
    [KIND_TIMESTAMP] = {LAYOUT_WIDTH, 8, false, 0},
    [KIND_JSON] = {LAYOUT_TEXT, 0, false, 0},
    [KIND_LOCAL_TIMESTAMP] = {LAYOUT_WIDTH, 8, false, 0},
};

static const char *const names[KIND_COUNT] = {
    "NULL", "PRESENT", "BOOLEAN", "INT", "LONG", "FLOAT", "DOUBLE", "BYTES", "STRING", "FIXED", "ENUM", "ARRAY", "MAP", "RECORD", "UNION",
    "DECIMAL", "DECIMAL_FIXED", "UUID", "TIME_MILLIS", "TIME_MICROS", "TIMESTAMP_MILLIS", "UINT32", "OPAQUE", "DATE",
    "TIMESTAMP", "JSON", "LOCAL_TIMESTAMP",
};

enum { FIELD_KIND, FIELD_NULL_BRANCH, FIELD_SIZE, FIELD_PRECISION, FIELD_CHILDREN, FIELD_SYMBOLS, FIELD_COUNT };

static int malformed(int64_t kind)
{
    PyErr_Format(PyExc_ValueError, "a node of kind %s is malformed", names[kind]);
    return -1;
}

static int check_symbols(PyObject *symbols)
{
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(symbols); at++)
        if (!PyBytes_CheckExact(PyTuple_GET_ITEM(symbols, at))) {
            PyErr_SetString(PyExc_ValueError, "a symbol is not bytes");
            return -1;
        }
    return 0;
}

/* Reads a node without its children; returns -1 with an exception set. */
static int read_node(Node *node, PyObject *item, int opaque_children, int kind_count)
{
    int64_t numbers[4];
    if (check_tuple(item, FIELD_COUNT, "a node") < 0 || to_numbers(item, FIELD_KIND, FIELD_PRECISION, numbers) < 0)
        return -1;
    PyObject *children = PyTuple_GET_ITEM(item, FIELD_CHILDREN), *symbols = PyTuple_GET_ITEM(item, FIELD_SYMBOLS);
    if (!PyTuple_Check(children) || !PyTuple_Check(symbols)) {
        PyErr_SetString(PyExc_ValueError, "children and symbols are tuples");
        return -1;
    }
    const int64_t kind = numbers[FIELD_KIND];
    if (kind < 0 || kind >= kind_count) {
        PyErr_Format(PyExc_ValueError, "%lld is not a kind of node", (long long)kind);
        return -1;
    }
    const Py_ssize_t child_count = PyTuple_GET_SIZE(children);
    const int least = kind == KIND_OPAQUE ? opaque_children : kinds[kind].children;
    const bool is_decimal = kind == KIND_DECIMAL || kind == KIND_DECIMAL_FIXED;
    const bool is_sized = kind == KIND_FIXED || kind == KIND_DECIMAL_FIXED;
    if (numbers[FIELD_NULL_BRANCH] < -1 || numbers[FIELD_NULL_BRANCH] > 1
        || (is_sized && (numbers[FIELD_SIZE] <= 0 || numbers[FIELD_SIZE] > FIXED_BYTES_MAX))
        || (is_decimal && (numbers[FIELD_PRECISION] <= 0 || numbers[FIELD_PRECISION] > DECIMAL_DIGITS_MAX))
        || (kind == KIND_DECIMAL && (numbers[FIELD_SIZE] < 0 || numbers[FIELD_SIZE] > DECIMAL_DIGITS_MAX))
        || (least < 0 ? child_count == 0 : child_count != least) || child_count > NODES_MAX)
        return malformed(kind);
    node->kind = (uint8_t)kind;
    node->layout = kinds[kind].layout;
    node->null_branch = (int8_t)numbers[FIELD_NULL_BRANCH];
    node->size = (int32_t)(is_sized || is_decimal ? numbers[FIELD_SIZE] : 0);
    node->precision = (int32_t)(is_decimal ? numbers[FIELD_PRECISION] : 0);
    node->width = kind == KIND_FIXED ? node->size : kinds[kind].width;
    node->limit = 1;
    for (int32_t digit = 0; digit < node->precision; digit++)
        node->limit *= 10;
    node->child_count = (int32_t)child_count;
    node->symbols = symbols;
    if (check_symbols(symbols) < 0)
        return -1;
    if (sort_symbols(node))
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int link_children(Tree *tree, PyObject *schema)
{
    Node **link = tree->links;
    for (int32_t at = 0; at < tree->node_count; at++) {
        Node *node = &tree->nodes[at];
        PyObject *children = PyTuple_GET_ITEM(PyTuple_GET_ITEM(schema, at), FIELD_CHILDREN);
        node->children = link;
        for (int32_t child = 0; child < node->child_count; child++) {
            int64_t index;
            if (to_int64(PyTuple_GET_ITEM(children, child), &index) < 0)
                return -1;
            if (index < 0 || index >= tree->node_count)
                return malformed(node->kind);
            *link++ = &tree->nodes[index];
        }
    }
    return 0;
}

static bool may_be_null(const Node *node, const Node *parent)
{
    if (node->null_branch >= 0 || (parent != NULL && parent->kind == KIND_UNION) || node->kind == KIND_NULL
        || kinds[node->kind].is_checked)
        return true;
    for (int32_t at = 0; node->kind == KIND_UNION && at < node->child_count; at++)
        if (is_plain_null(node->children[at]))
            return true;
    return false;
}

void place_column(Tree *tree, Node *node, bool is_nullable)
{
    node->has_column = true;
    node->is_nullable = is_nullable;
    node->slot_bytes = is_nullable
        + (node->layout == LAYOUT_BITMAP                                    ? 1
               : node->layout == LAYOUT_TEXT || node->layout == LAYOUT_LIST ? 4
                                                                            : node->width);
    tree->column_count++;
}

/* Gives a node and those below it their columns; -1 with an exception set. */
static int place_columns(Tree *tree, Node *node, const Node *parent, int level)
{
    if (node->has_column || level >= LEVELS_MAX) {
        PyErr_SetString(PyExc_ValueError, "the nodes are not a tree");
        return -1;
    }
    if (node->kind == KIND_MAP && (node->children[0]->kind != KIND_STRING || node->children[0]->null_branch >= 0)) {
        PyErr_SetString(PyExc_ValueError, "a key of a map is not a STRING");
        return -1;
    }
    place_column(tree, node, parent == NULL || may_be_null(node, parent));
    for (int32_t at = 0; node->kind != KIND_OPAQUE && at < node->child_count; at++) {
        Node *child = node->children[at];
        if (node->kind == KIND_UNION && is_plain_null(child))
            continue;
        if (place_columns(tree, child, node, level + 1) < 0)
            return -1;
        node->slot_bytes += node->layout == LAYOUT_STRUCT ? child->slot_bytes : 0;
    }
    return 0;
}

static int read_nodes(Tree *tree, PyObject *schema, int opaque_children, int kind_count)
{
    Py_ssize_t links = 0;
    for (int32_t at = 0; at < tree->node_count; at++) {
        tree->nodes[at].index = at;
        if (read_node(&tree->nodes[at], PyTuple_GET_ITEM(schema, at), opaque_children, kind_count) < 0)
            return -1;
        links += tree->nodes[at].child_count;
    }
    if ((tree->links = PyMem_Calloc((size_t)links + 1, sizeof *tree->links)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (link_children(tree, schema) < 0)
        return -1;
    if (tree->nodes[0].kind != KIND_RECORD) {
        PyErr_SetString(PyExc_ValueError, "node 0 is not a RECORD");
        return -1;
    }
    return 0;
}

int tree_read(Tree *tree, PyObject *schema, int opaque_children, int kind_count)
{
    memset(tree, 0, sizeof *tree);
    if (!PyTuple_Check(schema)) {
        PyErr_SetString(PyExc_ValueError, "a schema is a tuple of nodes");
        return -1;
    }
    const Py_ssize_t count = PyTuple_GET_SIZE(schema);
    if (count == 0 || count > NODES_MAX) {
        PyErr_Format(PyExc_ValueError, "a schema has 1 to %d nodes, not %zd", NODES_MAX, count);
        return -1;
    }
    if ((tree->nodes = PyMem_Calloc((size_t)count, sizeof *tree->nodes)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    tree->node_count = (int32_t)count;
    if (read_nodes(tree, schema, opaque_children, kind_count) == 0)
        return 0;
    tree_close(tree);
    return -1;
}

int tree_open(Tree *tree, PyObject *schema)
{
    if (tree_read(tree, schema, 1, BINARY_KIND_COUNT) < 0)
        return -1;
    if (place_columns(tree, &tree->nodes[0], NULL, 0) == 0)
        return 0;
    tree_close(tree);
    return -1;
}

void tree_close(Tree *tree)
{
    for (int32_t at = 0; at < tree->node_count; at++) {
        column_free(&tree->nodes[at].validity);
        column_free(&tree->nodes[at].offsets);
        column_free(&tree->nodes[at].content);
        PyMem_Free(tree->nodes[at].by_text);
    }
    PyMem_Free(tree->links);
    PyMem_Free(tree->nodes);
    memset(tree, 0, sizeof *tree);
}
