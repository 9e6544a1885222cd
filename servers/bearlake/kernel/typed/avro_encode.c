/* Typed columns to Avro values, row by row. Contract: avro_encode.py. */
#include "typed/encoder.h"

#define MICROSECONDS 1000

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

static Step put_record(Out *out, const Node *node, int64_t slot);
static inline Step put_child(Out *out, const Node *node, int64_t slot);

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
            const Step step = put_child(out, node->children[at], item);
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
    return step != STEP_OK || is_absent ? step : put_avro_node(out, node->children[chosen], slot);
}

static Step put_symbol(Out *out, const Node *node, int64_t slot)
{
    const uint8_t *bytes;
    int64_t size;
    if (!text_cell(node, slot, &bytes, &size))
        return STEP_IMPOSSIBLE;
    const int64_t place = symbol_place(node, bytes, size);
    return place < 0 ? STEP_IMPOSSIBLE : put_number(out, place);
}

/* The size of the shortest two's complement of an int128. */
static inline int shortest_size(int64_t low, int64_t high)
{
    const bool is_short = high == low >> 63;
    const uint64_t bits = is_short ? (uint64_t)(low ^ high) : (uint64_t)(high ^ high >> 63);
    return (bits == 0 ? 0 : (64 - __builtin_clzll(bits)) / 8) + (is_short ? 1 : 9);
}

static Step put_decimal(Out *out, const Node *node, int64_t slot)
{
    const uint8_t *cell = wide_cell(node, slot);
    int64_t low, high;
    memcpy(&low, cell, 8);
    memcpy(&high, cell + 8, 8);
    const int least = shortest_size(low, high);
    const int64_t size = node->kind == KIND_DECIMAL ? least : node->size;
    if (least > size)
        return STEP_IMPOSSIBLE;
    if (!make_room(out, VARINT_BYTES_MAX + size + 8))
        return STEP_NO_MEMORY;
    if (node->kind == KIND_DECIMAL)
        write_number(out, size);
    uint8_t *at = out->column->bytes + out->size;
    if (size <= 8)
        store_u64(at, (uint64_t)low << (64 - 8 * size)); /* there is room for eight bytes */
    else
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

/* Appends a text or symbol of a dictionary, which is there as a value. */
static inline Step put_entry(Out *out, const Node *node, int64_t slot)
{
    const int32_t at = offset_at(node->read_indices, node->start + slot);
    if (at < 0 || at >= node->entry_count)
        return STEP_IMPOSSIBLE;
    const int64_t low = offset_at(node->offsets.bytes, at), size = offset_at(node->offsets.bytes, at + 1) - low;
    if (size == 0)
        return STEP_IMPOSSIBLE;
    if (!make_room(out, size + COPY_SLACK))
        return STEP_NO_MEMORY;
    copy_short(out->column->bytes + out->size, node->content.bytes + low, size, true);
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

/* Appends a field or an element. The commonest kinds need neither a call nor an indirect jump, which cost as much as their values. */
static inline Step put_child(Out *out, const Node *node, int64_t slot)
{
    if (node->null_branch < 0 && !is_null(node, slot)) {
        if (node->kind == KIND_STRING)
            return node->is_prepared ? put_entry(out, node, slot) : put_text(out, node, slot);
        if (node->kind == KIND_INT)
            return put_number(out, int32_cell(node, slot));
        if (node->kind == KIND_LONG)
            return put_number(out, int64_cell(node, slot));
        if (node->kind == KIND_RECORD)
            return put_record(out, node, slot);
        if (node->kind == KIND_DECIMAL)
            return put_decimal(out, node, slot);
    }
    return put_avro_node(out, node, slot);
}

static Step put_record(Out *out, const Node *node, int64_t slot)
{
    for (int32_t at = 0; at < node->child_count; at++) {
        const Step step = put_child(out, node->children[at], slot);
        if (step != STEP_OK)
            return step;
    }
    return STEP_OK;
}

static Step put_value(Out *out, const Node *node, int64_t slot)
{
    switch ((TypedKind)node->kind) {
    case KIND_RECORD: return put_record(out, node, slot);
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
    case KIND_DOUBLE: return put_bytes(out, wide_cell(node, slot), 8);
    case KIND_FLOAT:
    case KIND_FIXED:
        return put_bytes(out, wide_cell(node, slot), node->width);
    case KIND_BYTES:
    case KIND_STRING:
    case KIND_OPAQUE:
        return node->is_prepared ? put_entry(out, node, slot) : put_text(out, node, slot);
    case KIND_ENUM: return node->is_prepared ? put_entry(out, node, slot) : put_symbol(out, node, slot);
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

Step put_avro_node(Out *out, const Node *node, int64_t slot)
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

/* Encodes each text of a dictionary once, so that a slot only copies. */
static Step prepare_entries(Node *node)
{
    if (node->read_indices == NULL || node->kind == KIND_OPAQUE || node->entry_count > node->count)
        return STEP_OK;
    Node texts = *node; /* the texts as a column of its own */
    texts.read_indices = texts.read_validity = NULL;
    texts.start = 0;
    Out out = {&node->content, 0};
    const int64_t size_max = node->read_size + 2 * VARINT_BYTES_MAX * node->entry_count; /* more: texts overlap */
    if (!column_reserve(&node->offsets, 0, 4 * ((size_t)node->entry_count + 1)))
        return STEP_NO_MEMORY;
    int32_t *offsets = (int32_t *)node->offsets.bytes;
    offsets[0] = 0;
    for (int64_t at = 0; at < node->entry_count; at++) {
        const Step step = put_value(&out, &texts, at);
        if (step == STEP_IMPOSSIBLE)
            out.size = offsets[at];
        else if (step != STEP_OK)
            return step;
        if (out.size > size_max || out.size > TYPED_BYTES_MAX)
            return STEP_OK;
        offsets[at + 1] = (int32_t)out.size;
    }
    node->is_prepared = make_room(&out, COPY_SLACK);
    return node->is_prepared ? STEP_OK : STEP_NO_MEMORY;
}

KERNEL_FUNCTION(kernel_encode_avro)
{
    Tree tree;
    if (check_arguments("encode_avro", count, 3, 3) < 0 || tree_open(&tree, arguments[0]) < 0)
        return NULL;
    PyObject *result = encode_values(module, arguments + 1, &tree, put_avro_node, prepare_entries);
    tree_close(&tree);
    return result;
}
