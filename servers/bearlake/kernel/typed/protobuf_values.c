/* Appends what was read of a message to the columns. Contract: protobuf_values.py. */
#include "typed/protobuf.h"

#include <stdio.h>

#define SECOND_NANOS 1000000000

static Step add_message(Decoder *decoder, Node *node, int64_t message)
{
    for (int32_t at = 0; at < node->child_count; at++) {
        const Step step = add_field(decoder, node->children[at], message);
        if (step != STEP_OK)
            return step;
    }
    end_slot(node, true);
    return STEP_OK;
}

/* The symbol of an enum's number, or its digits. */
static Step add_symbol(Decoder *decoder, Node *node, int32_t number, bool is_there)
{
    const int32_t at = is_there ? symbol_of(node->wire, number) : node->wire->number_count > 0 ? 0 : -1;
    if (at >= 0) {
        PyObject *symbol = PyTuple_GET_ITEM(node->symbols, at);
        return add_text(decoder, node, (const uint8_t *)PyBytes_AS_STRING(symbol), PyBytes_GET_SIZE(symbol), false);
    }
    char digits[16];
    const int size = snprintf(digits, sizeof digits, "%d", (int)number);
    return add_text(decoder, node, (const uint8_t *)digits, size, false);
}

static Step add_timestamp(Decoder *decoder, Node *node, const FieldValue *field)
{
    const int64_t seconds = (int64_t)field->bits;
    if (seconds < SECONDS_MIN || seconds >= SECONDS_END || field->nanos < 0 || field->nanos >= SECOND_NANOS)
        return add_misfit(decoder, node);
    if (field->nanos % MICRO_NANOS != 0)
        found(decoder, node, OUTCOME_FORM);
    add_int64(node, seconds * SECOND_MICROS + field->nanos / MICRO_NANOS);
    return STEP_OK;
}

Step add_value(Decoder *decoder, Node *node, bool is_there)
{
    static const FieldValue zero = {.text = (const uint8_t *)"", .is_fit = true, .is_joined = true};
    const Wire *wire = node->wire;
    const FieldValue *field = is_there ? &wire->field : &zero;
    switch ((TypedKind)node->kind) {
    case KIND_RECORD: return add_message(decoder, node, is_there ? wire->message : -1);
    case KIND_PRESENT:
        put_bit(&node->content, node->length, true);
        end_slot(node, true);
        return STEP_OK;
    case KIND_BOOLEAN:
        put_bit(&node->content, node->length, field->bits != 0);
        end_slot(node, true);
        return STEP_OK;
    case KIND_ENUM: return add_symbol(decoder, node, (int32_t)field->bits, is_there);
    case KIND_STRING:
    case KIND_BYTES:
    case KIND_OPAQUE:
        if (!field->is_fit) {
            add_null(node);
            return STEP_OK;
        }
        return add_text(decoder, node, field->text, field->size, !field->is_joined && field->size > 0 && field->text < decoder->slack);
    default:
        if (wire->coding == CODING_TIMESTAMP)
            return add_timestamp(decoder, node, field);
        const uint64_t cell[2] = {field->bits, 0};
        add_cell(node, (const uint8_t *)cell);
        return STEP_OK;
    }
}

/* Ends a map whose entries are there; it is null if a key appears twice, or does not fit. */
static Step add_map(Decoder *decoder, Node *node)
{
    Node *keys = node->children[0];
    const int64_t start = offset_at(node->offsets.bytes, node->length);
    bool is_wrong = false;
    for (int64_t slot = start; keys->is_nullable && slot < keys->length && !is_wrong; slot++)
        is_wrong = keys->null_count > 0 && !bit_at(keys->validity.bytes, slot);
    const Step step = is_wrong ? STEP_OK : find_repeated(decoder, keys, start, &is_wrong);
    if (step != STEP_OK)
        return step;
    if (!is_wrong) {
        end_slot(node, true);
        return STEP_OK;
    }
    cut_slots(keys, start);
    cut_slots(node->children[1], start);
    return add_misfit(decoder, node);
}

Step add_field(Decoder *decoder, Node *node, int64_t message)
{
    if (node->kind == KIND_MAP)
        return add_map(decoder, node);
    if (node->kind == KIND_ARRAY) {
        end_slot(node, true);
        return STEP_OK;
    }
    const bool is_there = node->wire->holder == message;
    if (!is_there && node->wire->label == LABEL_EXPLICIT) {
        add_null(node);
        return STEP_OK;
    }
    return add_value(decoder, node, is_there);
}

static Step decode_message(Decoder *decoder, Node *root)
{
    root->wire->message = ++decoder->message_count;
    const Step step = read_fields(decoder, root, 0);
    return step == STEP_OK ? add_value(decoder, root, true) : step;
}

KERNEL_FUNCTION(kernel_decode_protobuf)
{
    Tree tree;
    if (check_arguments("decode_protobuf", count, 10, 10) < 0 || message_open(&tree, arguments[0], arguments[1]) < 0)
        return NULL;
    PyObject *result = decode_values(module, arguments + 2, &tree, decode_message, put_message);
    message_close(&tree);
    return result;
}
