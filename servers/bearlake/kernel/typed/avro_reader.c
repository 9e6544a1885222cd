/* Numbers, blocks, and values outside of the tree. Contract: avro_reader.py. */
#include "typed/avro_reader.h"

Step read_long_number(Decoder *decoder, const Node *node, int64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (decoder->at == decoder->end)
            return stop(decoder, node, OUTCOME_TRUNCATED);
        const uint64_t byte = *decoder->at++;
        if (shift == 63 && byte > 1)
            return stop(decoder, node, OUTCOME_VARINT);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift > 0)
                found(decoder, node, OUTCOME_FORM);
            *out = (int64_t)(value >> 1 ^ (~(value & 1) + 1));
            return STEP_OK;
        }
    }
}

Step read_block(Decoder *decoder, const Node *node, int64_t *count)
{
    Step step = read_number(decoder, node, count);
    if (step != STEP_OK)
        return step;
    if (*count < 0) {
        int64_t size;
        found(decoder, node, OUTCOME_FORM);
        if ((step = read_number(decoder, node, &size)) != STEP_OK)
            return step;
        if (size < 0 || *count == INT64_MIN)
            return stop(decoder, node, OUTCOME_COUNT);
        *count = -*count;
    }
    if (*count > decoder->end - decoder->at || *count > decoder->credit)
        return stop(decoder, node, OUTCOME_COUNT);
    decoder->credit -= *count;
    return STEP_OK;
}

/* Moves past a value without children. */
static Step pass_leaf(Decoder *decoder, const Node *column, const Node *node)
{
    const uint8_t *bytes;
    int64_t number;
    switch ((TypedKind)node->kind) {
    case KIND_BOOLEAN: {
        const Step step = read_bytes_of(decoder, column, 1, &bytes);
        return step == STEP_OK && *bytes > 1 ? stop(decoder, column, OUTCOME_BOOLEAN) : step;
    }
    case KIND_INT:
    case KIND_TIME_MILLIS:
        return read_int(decoder, column, &number);
    case KIND_LONG:
    case KIND_TIME_MICROS:
    case KIND_TIMESTAMP_MILLIS:
        return read_number(decoder, column, &number);
    case KIND_FLOAT:
    case KIND_UINT32:
        return read_bytes_of(decoder, column, 4, &bytes);
    case KIND_DOUBLE: return read_bytes_of(decoder, column, 8, &bytes);
    case KIND_FIXED:
    case KIND_DECIMAL_FIXED:
        return read_bytes_of(decoder, column, node->size, &bytes);
    case KIND_BYTES:
    case KIND_DECIMAL:
        return read_sized(decoder, column, false, &bytes, &number);
    case KIND_STRING:
    case KIND_UUID:
        return read_sized(decoder, column, true, &bytes, &number);
    case KIND_ENUM: {
        const Step step = read_number(decoder, column, &number);
        const bool is_there = step == STEP_OK && number >= 0 && number < PyTuple_GET_SIZE(node->symbols);
        return step == STEP_OK && !is_there ? stop(decoder, column, OUTCOME_SYMBOL) : step;
    }
    default: return STEP_OK; /* no bytes */
    }
}

static Step pass_value(Decoder *decoder, const Node *column, const Node *node, int level)
{
    Step step = STEP_OK;
    int64_t number;
    switch ((TypedKind)node->kind) {
    case KIND_RECORD:
    case KIND_OPAQUE:
        for (int32_t at = 0; step == STEP_OK && at < node->child_count; at++)
            step = pass_node(decoder, column, node->children[at], level + 1);
        return step;
    case KIND_UNION:
        if ((step = read_number(decoder, column, &number)) != STEP_OK)
            return step;
        if (number < 0 || number >= node->child_count)
            return stop(decoder, column, OUTCOME_BRANCH);
        return pass_node(decoder, column, node->children[number], level + 1);
    case KIND_ARRAY:
    case KIND_MAP:
        for (;;) {
            if ((step = read_block(decoder, column, &number)) != STEP_OK || number == 0)
                return step;
            for (; number > 0; number--)
                for (int32_t at = 0; at < node->child_count; at++)
                    if ((step = pass_node(decoder, column, node->children[at], level + 1)) != STEP_OK)
                        return step;
        }
    default: return pass_leaf(decoder, column, node);
    }
}

Step pass_node(Decoder *decoder, const Node *column, const Node *node, int level)
{
    if (level >= LEVELS_MAX)
        return stop(decoder, column, OUTCOME_DEPTH);
    if (node->null_branch >= 0) {
        int64_t branch;
        const Step step = read_number(decoder, column, &branch);
        if (step != STEP_OK)
            return step;
        if (branch < 0 || branch > 1 || (node->kind == KIND_NULL && branch != node->null_branch))
            return stop(decoder, column, OUTCOME_BRANCH);
        if (branch == node->null_branch)
            return STEP_OK;
    }
    return pass_value(decoder, column, node, level);
}
