/* JSON values to typed columns. Contract: json_values.py. */
#include "typed/json.h"

#include <math.h>

#define FLOAT_END 0x1.ffffffp+127 /* numbers from here on are rounded to infinity */

static Step decode_value(Decoder *decoder, Node *node, int level);

/* Stops at a value whose type is not that of the column. */
static Step mismatch(Decoder *decoder, const Node *node, uint8_t octet)
{
    const bool is_value = octet == '-' || is_digit(octet) || (octet != 0 && strchr("\"{[tf", octet) != NULL);
    return stop(decoder, node, is_value ? OUTCOME_TYPE : OUTCOME_SYNTAX);
}

#define SLOTS_MADE 64 /* columns grow by doubling: this only saves looking at each of them for every slot */

/* Room for one more slot of the elements of a list, or of the entries of a map. */
static Step make_slot(Node *node)
{
    if (node->length < node->room)
        return STEP_OK;
    if (!reserve_slots(node, SLOTS_MADE))
        return STEP_NO_MEMORY;
    node->room = node->length + SLOTS_MADE;
    return STEP_OK;
}

/* Appends the cell of a number of an integer kind. */
static TypedOutcome add_integer(Node *node, const uint8_t *start, const uint8_t *end)
{
    int64_t value;
    const TypedOutcome outcome = json_integer(start, end, &value);
    if (outcome != OUTCOME_EXACT)
        return outcome;
    if (node->kind == KIND_LONG) {
        add_int64(node, value);
        return OUTCOME_EXACT;
    }
    const int32_t narrow = (int32_t)value;
    if (narrow != value)
        return OUTCOME_RANGE;
    add_cell(node, (const uint8_t *)&narrow);
    return OUTCOME_EXACT;
}

/* Appends the cell of a number of a kind with floating point. */
static TypedOutcome add_real(Decoder *decoder, Node *node, const uint8_t *start, Step *step)
{
    double value;
    const TypedOutcome outcome = json_double(decoder, start, decoder->at, &value, step);
    if (*step != STEP_OK || outcome != OUTCOME_EXACT)
        return outcome;
    if (node->kind == KIND_DOUBLE) {
        add_cell(node, (const uint8_t *)&value);
        return OUTCOME_EXACT;
    }
    if (fabs(value) >= FLOAT_END)
        return OUTCOME_RANGE;
    const float narrow = (float)value;
    add_cell(node, (const uint8_t *)&narrow);
    return OUTCOME_EXACT;
}

static Step decode_number(Decoder *decoder, Node *node)
{
    const uint8_t *start = decoder->at;
    uint8_t cell[16];
    Step step = json_number(decoder, node);
    if (step != STEP_OK)
        return step;
    TypedOutcome outcome;
    switch ((TypedKind)node->kind) {
    case KIND_INT:
    case KIND_LONG: outcome = add_integer(node, start, decoder->at); break;
    case KIND_DECIMAL:
        if ((outcome = json_decimal(start, decoder->at, node, cell)) == OUTCOME_EXACT)
            add_cell(node, cell);
        break;
    default: outcome = add_real(decoder, node, start, &step);
    }
    return outcome == OUTCOME_EXACT ? step : stop(decoder, node, outcome);
}

static Step decode_boolean(Decoder *decoder, Node *node, uint8_t octet)
{
    const Step step = json_word(decoder, node, octet == 't' ? "true" : "false");
    if (step != STEP_OK)
        return step;
    put_bit(&node->content, node->length, octet == 't');
    end_slot(node, true);
    return STEP_OK;
}

/* A string that is a text in a column: without escapes; stops if it is none. */
static Step read_text(Decoder *decoder, const Node *node, JsonString *string)
{
    Step step = json_string(decoder, node, string);
    if (step == STEP_OK && !json_unescape(decoder, string, &step))
        return stop(decoder, node, OUTCOME_TEXT);
    return step;
}

/* A text in base64. */
static Step decode_bytes(Decoder *decoder, Node *node)
{
    JsonString string;
    Step step = read_text(decoder, node, &string);
    if (step != STEP_OK)
        return step;
    const TypedOutcome outcome = json_base64(decoder, &string, &step);
    if (step != STEP_OK)
        return step;
    return outcome == OUTCOME_EXACT ? add_text(decoder, node, string.text, string.size, false) : stop(decoder, node, outcome);
}

static Step decode_string(Decoder *decoder, Node *node)
{
    JsonString string;
    const Step step = read_text(decoder, node, &string);
    if (step != STEP_OK)
        return step;
    TypedOutcome outcome;
    int64_t micros;
    int32_t days;
    uint8_t cell[16];
    switch ((TypedKind)node->kind) {
    case KIND_DATE:
        if ((outcome = json_date(string.text, string.size, &days)) == OUTCOME_EXACT)
            add_cell(node, (const uint8_t *)&days);
        break;
    case KIND_TIMESTAMP:
        if ((outcome = json_timestamp(string.text, string.size, &micros)) == OUTCOME_EXACT)
            add_int64(node, micros);
        break;
    case KIND_LOCAL_TIMESTAMP:
        if ((outcome = json_local_timestamp(string.text, string.size, &micros)) == OUTCOME_EXACT)
            add_int64(node, micros);
        break;
    case KIND_DECIMAL:
        outcome = OUTCOME_FORMAT;
        if (json_is_number(string.text, string.size)
            && (outcome = json_decimal(string.text, string.text + string.size, node, cell)) == OUTCOME_EXACT)
            add_cell(node, cell);
        break;
    case KIND_UUID:
        if ((outcome = json_uuid(string.text, string.size, cell)) == OUTCOME_EXACT)
            add_cell(node, cell);
        break;
    default: return add_text(decoder, node, string.text, string.size, !string.has_escapes && string.text < decoder->slack);
    }
    return outcome == OUTCOME_EXACT ? STEP_OK : stop(decoder, node, outcome);
}

/* Moves past a comma, or past the end of an object or array. */
static Step pass_comma(Decoder *decoder, const Node *node, uint8_t closing, bool *is_closed)
{
    uint8_t octet;
    const Step step = json_peek(decoder, node, &octet);
    if (step != STEP_OK)
        return step;
    if (octet != ',' && octet != closing)
        return stop(decoder, node, OUTCOME_SYNTAX);
    decoder->at++;
    *is_closed = octet == closing;
    return STEP_OK;
}

/* Moves into an object or array, and out of it if it is empty. */
static Step open_around(Decoder *decoder, const Node *node, uint8_t closing, bool *is_closed)
{
    uint8_t octet;
    decoder->at++;
    const Step step = json_peek(decoder, node, &octet);
    *is_closed = step == STEP_OK && octet == closing;
    decoder->at += *is_closed;
    return step;
}

/* The column of a key: `*next` is where the last one leads to expect it; NULL: there is none. */
static Node *column_of(const Node *node, const JsonString *key, int32_t *next)
{
    int64_t place = *next;
    PyObject *name = place < node->child_count ? PyTuple_GET_ITEM(node->symbols, place) : NULL;
    if (name == NULL || PyBytes_GET_SIZE(name) != key->size || memcmp(PyBytes_AS_STRING(name), key->text, (size_t)key->size) != 0)
        place = symbol_place(node, key->text, key->size);
    if (place < 0)
        return NULL;
    *next = (int32_t)place + 1;
    return node->children[place];
}

static Step decode_field(Decoder *decoder, Node *node, int64_t slot, int level, int32_t *next)
{
    JsonString key;
    Step step = json_key(decoder, node, &key);
    if (step != STEP_OK)
        return step;
    const bool is_name = json_unescape(decoder, &key, &step);
    if (step != STEP_OK)
        return step;
    Node *child = is_name ? column_of(node, &key, next) : NULL;
    if (child == NULL)
        return json_pass(decoder, node, level + 1);
    if (child->length > slot)
        return stop(decoder, child, OUTCOME_REPEATED);
    return decode_value(decoder, child, level + 1);
}

static Step decode_object(Decoder *decoder, Node *node, int level)
{
    const int64_t slot = node->length;
    int32_t next = 0;
    bool is_closed;
    Step step = open_around(decoder, node, '}', &is_closed);
    while (step == STEP_OK && !is_closed)
        if ((step = decode_field(decoder, node, slot, level, &next)) == STEP_OK)
            step = pass_comma(decoder, node, '}', &is_closed);
    if (step != STEP_OK)
        return step;
    for (int32_t at = 0; at < node->child_count; at++)
        if (node->children[at]->length == slot)
            add_null(node->children[at]);
    end_slot(node, true);
    return STEP_OK;
}

static Step decode_entry(Decoder *decoder, Node *node, int level)
{
    JsonString key;
    Node *keys = node->children[0], *values = node->children[1];
    Step step = use(decoder, keys->slot_bytes + values->slot_bytes);
    if (step != STEP_OK || (step = make_slot(keys)) != STEP_OK || (step = make_slot(values)) != STEP_OK
        || (step = json_key(decoder, node, &key)) != STEP_OK)
        return step;
    if (!json_unescape(decoder, &key, &step))
        return stop(decoder, keys, OUTCOME_TEXT);
    if (step == STEP_OK)
        step = add_text(decoder, keys, key.text, key.size, !key.has_escapes && key.text < decoder->slack);
    return step == STEP_OK ? decode_value(decoder, values, level + 1) : step;
}

static Step decode_map(Decoder *decoder, Node *node, int level)
{
    const int64_t start = node->children[0]->length;
    bool is_closed, is_repeated;
    Step step = open_around(decoder, node, '}', &is_closed);
    while (step == STEP_OK && !is_closed)
        if ((step = decode_entry(decoder, node, level)) == STEP_OK)
            step = pass_comma(decoder, node, '}', &is_closed);
    if (step != STEP_OK || (step = find_repeated(decoder, node->children[0], start, &is_repeated)) != STEP_OK)
        return step;
    if (is_repeated)
        return stop(decoder, node, OUTCOME_REPEATED);
    end_slot(node, true);
    return STEP_OK;
}

static Step decode_array(Decoder *decoder, Node *node, int level)
{
    Node *child = node->children[0];
    bool is_closed;
    Step step = open_around(decoder, node, ']', &is_closed);
    while (step == STEP_OK && !is_closed)
        if ((step = use(decoder, child->slot_bytes)) == STEP_OK && (step = make_slot(child)) == STEP_OK
            && (step = decode_value(decoder, child, level + 1)) == STEP_OK)
            step = pass_comma(decoder, node, ']', &is_closed);
    if (step == STEP_OK)
        end_slot(node, true);
    return step;
}

/* A value without a type: its text. */
static Step decode_any(Decoder *decoder, Node *node, int level)
{
    const uint8_t *start = decoder->at;
    const Step step = json_pass(decoder, node, level);
    return step == STEP_OK ? add_text(decoder, node, start, decoder->at - start, start < decoder->slack) : step;
}

static Step decode_value(Decoder *decoder, Node *node, int level)
{
    uint8_t octet;
    Step step = json_peek(decoder, node, &octet);
    if (step != STEP_OK)
        return step;
    if (octet == 'n') {
        if ((step = json_word(decoder, node, "null")) == STEP_OK)
            add_null(node);
        return step;
    }
    switch ((TypedKind)node->kind) {
    case KIND_JSON: return decode_any(decoder, node, level);
    case KIND_BOOLEAN: return octet == 't' || octet == 'f' ? decode_boolean(decoder, node, octet) : mismatch(decoder, node, octet);
    case KIND_INT:
    case KIND_LONG:
    case KIND_FLOAT:
    case KIND_DOUBLE:
        return octet == '-' || is_digit(octet) ? decode_number(decoder, node) : mismatch(decoder, node, octet);
    case KIND_DECIMAL:
        if (octet == '-' || is_digit(octet))
            return decode_number(decoder, node);
        return octet == '"' ? decode_string(decoder, node) : mismatch(decoder, node, octet);
    case KIND_BYTES: return octet == '"' ? decode_bytes(decoder, node) : mismatch(decoder, node, octet);
    case KIND_ARRAY: return octet == '[' ? decode_array(decoder, node, level) : mismatch(decoder, node, octet);
    case KIND_MAP: return octet == '{' ? decode_map(decoder, node, level) : mismatch(decoder, node, octet);
    case KIND_RECORD: return octet == '{' ? decode_object(decoder, node, level) : mismatch(decoder, node, octet);
    default: return octet == '"' ? decode_string(decoder, node) : mismatch(decoder, node, octet);
    }
}

/* Whether the value is that of the only field, and no object around it. */
static bool is_bare(const Node *root) { return PyTuple_GET_SIZE(root->symbols) == 0; }

static Step decode_document(Decoder *decoder, Node *root)
{
    Step step = decode_value(decoder, is_bare(root) ? root->children[0] : root, 0);
    if (step != STEP_OK)
        return step;
    if (is_bare(root))
        end_slot(root, true);
    while (decoder->at < decoder->end && is_space(*decoder->at))
        decoder->at++;
    if (decoder->at != decoder->end)
        return stop(decoder, root, OUTCOME_SYNTAX);
    found(decoder, root, OUTCOME_FORM);
    return STEP_OK;
}

static bool is_kind_of_json(const Node *node)
{
    switch ((TypedKind)node->kind) {
    case KIND_BOOLEAN:
    case KIND_INT:
    case KIND_LONG:
    case KIND_FLOAT:
    case KIND_DOUBLE:
    case KIND_BYTES:
    case KIND_STRING:
    case KIND_DECIMAL:
    case KIND_UUID:
    case KIND_ARRAY:
    case KIND_MAP:
    case KIND_RECORD:
    case KIND_DATE:
    case KIND_TIMESTAMP:
    case KIND_JSON:
    case KIND_LOCAL_TIMESTAMP: return true;
    default: return false;
    }
}

/* Gives a node and those below it their columns; -1 with an exception set. */
static int place_columns(Tree *tree, Node *node, int level)
{
    if (node->has_column || level >= LEVELS_MAX) {
        PyErr_SetString(PyExc_ValueError, "the nodes are not a tree");
        return -1;
    }
    const Py_ssize_t names = PyTuple_GET_SIZE(node->symbols);
    if (!is_kind_of_json(node) || (node->kind == KIND_MAP && node->children[0]->kind != KIND_STRING)
        || (node->kind == KIND_RECORD && names != node->child_count && !(level == 0 && names == 0 && node->child_count == 1))) {
        PyErr_Format(PyExc_ValueError, "node %d is none of a JSON value", (int)node->index);
        return -1;
    }
    place_column(tree, node, true);
    for (int32_t at = 0; at < node->child_count; at++) {
        Node *child = node->children[at];
        if (place_columns(tree, child, level + 1) < 0)
            return -1;
        node->slot_bytes += node->layout == LAYOUT_STRUCT ? child->slot_bytes : 0;
    }
    return 0;
}

static int open_tree(Tree *tree, PyObject *schema)
{
    if (!json_cells_open()) {
        PyErr_NoMemory();
        return -1;
    }
    if (tree_read(tree, schema, 0, KIND_COUNT) < 0)
        return -1;
    if (place_columns(tree, &tree->nodes[0], 0) == 0)
        return 0;
    tree_close(tree);
    return -1;
}

KERNEL_FUNCTION(kernel_decode_json)
{
    Tree tree;
    if (check_arguments("decode_json", count, 8, 8) < 0 || open_tree(&tree, arguments[0]) < 0)
        return NULL;
    PyObject *values[8] = {arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6], Py_False, arguments[7]};
    PyObject *result = decode_values(module, values, &tree, decode_document, NULL);
    tree_close(&tree);
    return result;
}
