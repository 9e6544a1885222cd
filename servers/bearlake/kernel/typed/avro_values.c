/* Appends Avro values to columns. Contract: avro_values.py. */
#include "typed/avro_reader.h"

#define DAY_MILLIS INT64_C(86400000)
#define MICROSECONDS 1000

/* Big-endian two's complement as a little-endian int128; false if it has more digits than the node. */
static bool to_decimal(const Node *node, const uint8_t *bytes, int64_t size, uint8_t *cell, bool *is_shortest)
{
    const uint8_t sign = size > 0 && bytes[0] & 0x80 ? 0xFF : 0;
    int64_t lead = 0;
    while (size - lead > 1 && bytes[lead] == sign && (bytes[lead + 1] & 0x80) == (sign & 0x80))
        lead++;
    *is_shortest = size > 0 && lead == 0;
    if (size - lead > 16)
        return false;
    unsigned __int128 value = sign ? ~(unsigned __int128)0 : 0;
    for (int64_t at = lead; at < size; at++)
        value = value << 8 | bytes[at];
    if ((sign ? ~value + 1 : value) >= node->limit)
        return false;
    memcpy(cell, &value, 16);
    return true;
}

static Step read_decimal(Decoder *decoder, Node *node)
{
    const uint8_t *bytes;
    int64_t size = node->size;
    const Step step = node->kind == KIND_DECIMAL ? read_sized(decoder, node, false, &bytes, &size)
                                                 : read_bytes_of(decoder, node, size, &bytes);
    if (step != STEP_OK)
        return step;
    uint8_t cell[16];
    bool is_shortest;
    if (!to_decimal(node, bytes, size, cell, &is_shortest))
        return add_misfit(decoder, node);
    if (node->kind == KIND_DECIMAL && !is_shortest)
        found(decoder, node, OUTCOME_FORM);
    add_wide(node, cell);
    return STEP_OK;
}

static inline int hexadecimal(uint8_t digit)
{
    return digit >= '0' && digit <= '9' ? digit - '0'
        : digit >= 'a' && digit <= 'f'  ? digit - 'a' + 10
        : digit >= 'A' && digit <= 'F'  ? digit - 'A' + 10
                                        : -1;
}

static Step read_uuid(Decoder *decoder, Node *node)
{
    const uint8_t *text;
    int64_t size;
    const Step step = read_sized(decoder, node, true, &text, &size);
    if (step != STEP_OK)
        return step;
    uint8_t cell[16];
    bool is_lower = true;
    if (size != 36)
        return add_misfit(decoder, node);
    for (int at = 0, place = 0; at < 36;) {
        if (at == 8 || at == 13 || at == 18 || at == 23) {
            if (text[at++] != '-')
                return add_misfit(decoder, node);
            continue;
        }
        const int high = hexadecimal(text[at]), low = hexadecimal(text[at + 1]);
        if (high < 0 || low < 0)
            return add_misfit(decoder, node);
        is_lower = is_lower && !(text[at] >= 'A' && text[at] <= 'F') && !(text[at + 1] >= 'A' && text[at + 1] <= 'F');
        cell[place++] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    if (!is_lower)
        found(decoder, node, OUTCOME_FORM);
    add_wide(node, cell);
    return STEP_OK;
}

static Step read_time(Decoder *decoder, Node *node)
{
    int64_t value, micros;
    const Step step = node->kind == KIND_TIME_MILLIS ? read_int(decoder, node, &value) : read_number(decoder, node, &value);
    if (step != STEP_OK)
        return step;
    if (node->kind == KIND_TIME_MICROS)
        micros = value;
    else if (__builtin_mul_overflow(value, (int64_t)MICROSECONDS, &micros))
        return add_misfit(decoder, node);
    if (node->kind != KIND_TIMESTAMP_MILLIS && (micros < 0 || micros >= DAY_MILLIS * MICROSECONDS))
        return add_misfit(decoder, node);
    add_int64(node, micros);
    return STEP_OK;
}

static Step read_symbol(Decoder *decoder, const Node *node, int64_t *symbol)
{
    const Step step = read_number(decoder, node, symbol);
    return step == STEP_OK && (*symbol < 0 || *symbol >= PyTuple_GET_SIZE(node->symbols)) ? stop(decoder, node, OUTCOME_SYMBOL) : step;
}

static inline Step decode_int(Decoder *decoder, Node *node)
{
    int64_t number;
    const Step step = read_int(decoder, node, &number);
    if (step != STEP_OK)
        return step;
    ((int32_t *)node->content.bytes)[node->length] = (int32_t)number;
    end_cell(node, true);
    return STEP_OK;
}

static inline Step decode_long(Decoder *decoder, Node *node)
{
    int64_t number;
    const Step step = read_number(decoder, node, &number);
    if (step == STEP_OK)
        add_int64(node, number);
    return step;
}

static inline Step decode_text(Decoder *decoder, Node *node, bool is_utf8)
{
    const uint8_t *bytes;
    int64_t size;
    const Step step = read_sized(decoder, node, is_utf8, &bytes, &size);
    return step == STEP_OK ? add_text(decoder, node, bytes, size, bytes < decoder->slack) : step;
}

static Step decode_record(Decoder *decoder, Node *node);

/* Appends a value of a field or an element. The commonest kinds need neither a call nor an indirect jump, which cost as much as their values. */
static inline Step decode_child(Decoder *decoder, Node *node)
{
    if (node->null_branch < 0) {
        if (node->kind == KIND_STRING)
            return decode_text(decoder, node, true);
        if (node->kind == KIND_INT)
            return decode_int(decoder, node);
        if (node->kind == KIND_LONG)
            return decode_long(decoder, node);
        if (node->kind == KIND_RECORD)
            return decode_record(decoder, node);
        if (node->kind == KIND_DECIMAL)
            return read_decimal(decoder, node);
    }
    return decode_node(decoder, node);
}

static Step decode_record(Decoder *decoder, Node *node)
{
    for (int32_t at = 0; at < node->child_count; at++) {
        const Step step = decode_child(decoder, node->children[at]);
        if (step != STEP_OK)
            return step;
    }
    end_cell(node, true);
    return STEP_OK;
}

static Step decode_blocks(Decoder *decoder, Node *node)
{
    int64_t cost = 0;
    for (int32_t at = 0; at < node->child_count; at++)
        cost += node->children[at]->slot_bytes;
    for (int blocks = 1;; blocks++) {
        int64_t count, size;
        Step step = read_block(decoder, node, &count);
        if (step != STEP_OK || count == 0)
            return step;
        if ((step = use(decoder, __builtin_mul_overflow(count, cost, &size) ? INT64_MAX : size)) != STEP_OK)
            return step;
        if (blocks == 2)
            found(decoder, node, OUTCOME_FORM);
        for (int32_t at = 0; at < node->child_count; at++)
            if (!reserve_slots(node->children[at], count))
                return STEP_NO_MEMORY;
        for (; count > 0; count--)
            for (int32_t at = 0; at < node->child_count; at++)
                if ((step = decode_child(decoder, node->children[at])) != STEP_OK)
                    return step;
    }
}

static Step decode_map(Decoder *decoder, Node *node)
{
    const int64_t start = node->children[0]->length;
    Step step = decode_blocks(decoder, node);
    bool is_repeated;
    if (step != STEP_OK || (step = find_repeated(decoder, node->children[0], start, &is_repeated)) != STEP_OK)
        return step;
    if (!is_repeated) {
        end_slot(node, true);
        return STEP_OK;
    }
    cut_slots(node->children[0], start);
    cut_slots(node->children[1], start);
    return add_misfit(decoder, node);
}

static Step decode_union(Decoder *decoder, Node *node)
{
    int64_t branch;
    Step step = read_number(decoder, node, &branch);
    if (step != STEP_OK)
        return step;
    if (branch < 0 || branch >= node->child_count)
        return stop(decoder, node, OUTCOME_BRANCH);
    for (int32_t at = 0; at < node->child_count; at++) {
        Node *child = node->children[at];
        if (!child->has_column)
            continue;
        if (at != branch)
            add_null(child);
        else if ((step = decode_node(decoder, child)) != STEP_OK)
            return step;
    }
    end_slot(node, node->children[branch]->has_column);
    return STEP_OK;
}

static Step decode_opaque(Decoder *decoder, Node *node)
{
    const uint8_t *start = decoder->at;
    const int32_t status = decoder->status;
    const Step step = pass_node(decoder, node, node->children[0], 0);
    if (step != STEP_OK)
        return step;
    decoder->status = status; /* the bytes are kept as they are */
    return add_text(decoder, node, start, decoder->at - start, start < decoder->slack);
}

Step decode_node(Decoder *decoder, Node *node)
{
    const uint8_t *bytes;
    int64_t number;
    Step step;
    if (node->null_branch >= 0) {
        bool is_null;
        if ((step = read_null(decoder, node, &is_null)) != STEP_OK)
            return step;
        if (is_null) {
            add_null(node);
            return STEP_OK;
        }
    }
    switch ((TypedKind)node->kind) {
    case KIND_NULL: add_null(node); return STEP_OK;
    case KIND_PRESENT:
        put_bit(&node->content, node->length, true);
        end_slot(node, true);
        return STEP_OK;
    case KIND_BOOLEAN:
        if ((step = read_bytes_of(decoder, node, 1, &bytes)) != STEP_OK)
            return step;
        if (*bytes > 1)
            return stop(decoder, node, OUTCOME_BOOLEAN);
        put_bit(&node->content, node->length, *bytes);
        end_slot(node, true);
        return STEP_OK;
    case KIND_INT: return decode_int(decoder, node);
    case KIND_LONG: return decode_long(decoder, node);
    case KIND_DOUBLE:
        if ((step = read_bytes_of(decoder, node, 8, &bytes)) != STEP_OK)
            return step;
        memcpy(&number, bytes, 8);
        add_int64(node, number);
        return STEP_OK;
    case KIND_FLOAT:
    case KIND_FIXED:
        if ((step = read_bytes_of(decoder, node, node->width, &bytes)) != STEP_OK)
            return step;
        add_cell(node, bytes);
        return STEP_OK;
    case KIND_UINT32:
        if ((step = read_bytes_of(decoder, node, 4, &bytes)) != STEP_OK)
            return step;
        add_int64(node, (int64_t)((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24));
        return STEP_OK;
    case KIND_BYTES: return decode_text(decoder, node, false);
    case KIND_STRING: return decode_text(decoder, node, true);
    case KIND_ENUM: {
        if ((step = read_symbol(decoder, node, &number)) != STEP_OK)
            return step;
        PyObject *symbol = PyTuple_GET_ITEM(node->symbols, number);
        return add_text(decoder, node, (const uint8_t *)PyBytes_AS_STRING(symbol), PyBytes_GET_SIZE(symbol), false);
    }
    case KIND_ARRAY:
        if ((step = decode_blocks(decoder, node)) == STEP_OK)
            end_slot(node, true);
        return step;
    case KIND_MAP: return decode_map(decoder, node);
    case KIND_RECORD: return decode_record(decoder, node);
    case KIND_UNION: return decode_union(decoder, node);
    case KIND_DECIMAL:
    case KIND_DECIMAL_FIXED:
        return read_decimal(decoder, node);
    case KIND_UUID: return read_uuid(decoder, node);
    case KIND_OPAQUE: return decode_opaque(decoder, node);
    default: return read_time(decoder, node);
    }
}
