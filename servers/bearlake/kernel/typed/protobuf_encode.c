/* Typed columns to Protobuf messages, row by row. Contract: protobuf_encode.py. */
#include "typed/protobuf.h"

#define DIGITS_MAX 11

/* Writes into room that there is. */
static inline void write_varint(Out *out, uint64_t bits)
{
    uint8_t *at = out->column->bytes + out->size;
    for (; bits >= 0x80; bits >>= 7)
        *at++ = (uint8_t)(bits | 0x80);
    *at++ = (uint8_t)bits;
    out->size = at - out->column->bytes;
}

static inline Step put_varint(Out *out, uint64_t bits)
{
    if (!make_room(out, VARINT_BYTES_MAX))
        return STEP_NO_MEMORY;
    write_varint(out, bits);
    return STEP_OK;
}

static inline Step put_tag(Out *out, int32_t number, WireType type) { return put_varint(out, (uint64_t)number << 3 | (uint64_t)type); }

/* Begins bytes after their length; `*mark` is for `end_sized`. */
static inline Step begin_sized(Out *out, int64_t *mark)
{
    *mark = out->size;
    return put_bytes(out, (const uint8_t *)"", 1);
}

static Step end_sized(Out *out, int64_t mark)
{
    const int64_t size = out->size - mark - 1;
    if (size < 0x80) {
        out->column->bytes[mark] = (uint8_t)size;
        return STEP_OK;
    }
    int more = 0;
    for (int64_t rest = size >> 7; rest > 0; rest >>= 7)
        more++;
    if (!make_room(out, more))
        return STEP_NO_MEMORY;
    uint8_t *content = out->column->bytes + mark + 1;
    memmove(content + more, content, (size_t)size);
    out->size = mark;
    write_varint(out, (uint64_t)size);
    out->size += size;
    return STEP_OK;
}

/* The number of digits that an open enum has without a symbol; false: no such digits. */
static bool to_number(const uint8_t *text, int64_t size, int32_t *number)
{
    const bool is_negative = size > 0 && text[0] == '-';
    const uint8_t *at = text + is_negative, *end = text + size;
    int64_t value = 0;
    if (size > DIGITS_MAX || at == end || (*at == '0' && (end - at > 1 || is_negative)))
        return false;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        value = value * 10 + (*at - '0');
    }
    value = is_negative ? -value : value;
    *number = (int32_t)value;
    return value == (int32_t)value;
}

static Step enum_number(const Node *node, int64_t slot, uint64_t *bits)
{
    const Wire *wire = node->wire;
    const uint8_t *text;
    int64_t size;
    int32_t number;
    if (!text_cell(node, slot, &text, &size))
        return STEP_IMPOSSIBLE;
    const int64_t place = symbol_place(node, text, size);
    if (place >= 0) {
        *bits = (uint64_t)(int64_t)wire->numbers[place];
        return STEP_OK;
    }
    if (wire->is_closed || !to_number(text, size, &number) || symbol_of(wire, number) >= 0)
        return STEP_IMPOSSIBLE;
    *bits = (uint64_t)(int64_t)number;
    return STEP_OK;
}

/* What is written of a number: a varint, or 4 or 8 bytes. */
static Step number_of(const Node *node, int64_t slot, uint64_t *bits)
{
    switch ((Coding)node->wire->coding) {
    case CODING_BOOL: *bits = bit_at(node->read_content, node->start + slot); return STEP_OK;
    case CODING_ENUM: return enum_number(node, slot, bits);
    case CODING_INT32: *bits = (uint64_t)(int64_t)int32_cell(node, slot); return STEP_OK;
    case CODING_SINT32: {
        const int32_t number = int32_cell(node, slot);
        *bits = (uint32_t)number << 1 ^ (uint32_t)(number >> 31);
        return STEP_OK;
    }
    case CODING_SFIXED32:
    case CODING_FLOAT:
        *bits = (uint32_t)int32_cell(node, slot);
        return STEP_OK;
    case CODING_UINT32:
    case CODING_FIXED32:
        *bits = (uint64_t)int64_cell(node, slot);
        return *bits > UINT32_MAX ? STEP_IMPOSSIBLE : STEP_OK;
    case CODING_SINT64: {
        const int64_t number = int64_cell(node, slot);
        *bits = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
        return STEP_OK;
    }
    case CODING_UINT64:
    case CODING_FIXED64: {
        uint64_t high;
        const uint8_t *cell = wide_cell(node, slot);
        memcpy(bits, cell, 8);
        memcpy(&high, cell + 8, 8);
        return high != 0 ? STEP_IMPOSSIBLE : STEP_OK;
    }
    default: *bits = (uint64_t)int64_cell(node, slot); return STEP_OK; /* int64, sfixed64, double */
    }
}

static Step put_text(Out *out, int32_t number, const uint8_t *text, int64_t size)
{
    if (!make_room(out, 2 * VARINT_BYTES_MAX + size))
        return STEP_NO_MEMORY;
    write_varint(out, (uint64_t)number << 3 | WIRE_LEN);
    write_varint(out, (uint64_t)size);
    return put_bytes(out, text, size);
}

/* Writes a scalar as a field, unless it has its default and `is_implicit`. Number 0: without a tag. */
static Step put_scalar(Out *out, const Node *node, int64_t slot, int32_t number, bool is_implicit)
{
    const Coding coding = (Coding)node->wire->coding;
    if (coding == CODING_STRING || coding == CODING_BYTES) {
        const uint8_t *text;
        int64_t size;
        if (!text_cell(node, slot, &text, &size))
            return STEP_IMPOSSIBLE;
        return size == 0 && is_implicit ? STEP_OK : put_text(out, number, text, size);
    }
    uint64_t bits;
    const Step step = number_of(node, slot, &bits);
    if (step != STEP_OK || (bits == 0 && is_implicit))
        return step;
    if (!make_room(out, 2 * VARINT_BYTES_MAX))
        return STEP_NO_MEMORY;
    const WireType type = wire_type_of(coding);
    if (number > 0)
        write_varint(out, (uint64_t)number << 3 | (uint64_t)type);
    if (type == WIRE_VARINT) {
        write_varint(out, bits);
        return STEP_OK;
    }
    const int64_t size = type == WIRE_I32 ? 4 : 8;
    memcpy(out->column->bytes + out->size, &bits, (size_t)size);
    out->size += size;
    return STEP_OK;
}

static Step put_timestamp(Out *out, const Node *node, int64_t slot)
{
    const int64_t value = int64_cell(node, slot);
    int64_t seconds = value / SECOND_MICROS, rest = value % SECOND_MICROS;
    if (rest < 0) {
        rest += SECOND_MICROS;
        seconds--;
    }
    if (seconds < SECONDS_MIN || seconds >= SECONDS_END)
        return STEP_IMPOSSIBLE;
    if (!make_room(out, 4 * VARINT_BYTES_MAX))
        return STEP_NO_MEMORY;
    if (seconds != 0) {
        write_varint(out, 1 << 3 | WIRE_VARINT);
        write_varint(out, (uint64_t)seconds);
    }
    if (rest != 0) {
        write_varint(out, 2 << 3 | WIRE_VARINT);
        write_varint(out, (uint64_t)rest * MICRO_NANOS);
    }
    return STEP_OK;
}

/* Writes the content of a value that has a length. */
static Step put_content(Out *out, const Node *node, int64_t slot)
{
    if (node->wire->is_wrapped)
        return put_scalar(out, node, slot, 1, true);
    return node->wire->coding == CODING_TIMESTAMP ? put_timestamp(out, node, slot) : put_message(out, node, slot);
}

/* Writes a value that is not null as a field. */
static Step put_value(Out *out, const Node *node, int64_t slot, int32_t number)
{
    const Wire *wire = node->wire;
    const bool is_group = wire->coding == CODING_GROUP;
    if (!is_group && wire->coding != CODING_MESSAGE && wire->coding != CODING_TIMESTAMP && !wire->is_wrapped)
        return put_scalar(out, node, slot, number, wire->label == LABEL_IMPLICIT);
    int64_t mark = 0;
    Step step = put_tag(out, number, is_group ? WIRE_START : WIRE_LEN);
    if (step == STEP_OK && !is_group)
        step = begin_sized(out, &mark);
    if (step == STEP_OK)
        step = put_content(out, node, slot);
    if (step != STEP_OK)
        return step;
    return is_group ? put_tag(out, number, WIRE_END) : end_sized(out, mark);
}

static Step put_entry(Out *out, const Node *node, int64_t slot, int32_t number)
{
    int64_t mark;
    Step step = put_tag(out, number, WIRE_LEN);
    if (step == STEP_OK)
        step = begin_sized(out, &mark);
    for (int32_t at = 0; step == STEP_OK && at < 2; at++)
        step = put_value(out, node->children[at], slot, at + 1);
    return step == STEP_OK ? end_sized(out, mark) : step;
}

static Step put_elements(Out *out, const Node *node, int64_t low, int64_t high)
{
    const int32_t number = node->wire->label == LABEL_PACKED ? 0 : node->wire->number;
    for (int64_t slot = low; slot < high; slot++) {
        const Step step = node->kind == KIND_MAP ? put_entry(out, node, slot, number)
            : number == 0                        ? put_scalar(out, node->children[0], slot, 0, false)
                                                 : put_value(out, node->children[0], slot, number);
        if (step != STEP_OK)
            return step;
        if (out->size > TYPED_BYTES_MAX)
            return STEP_FULL; /* the lists of a file may overlap, so that few bytes are many elements */
    }
    return STEP_OK;
}

static Step put_list(Out *out, const Node *node, int64_t slot)
{
    const int64_t low = offset_at(node->read_offsets, node->start + slot), high = offset_at(node->read_offsets, node->start + slot + 1);
    if (low < 0 || high < low)
        return STEP_IMPOSSIBLE;
    for (int32_t at = 0; at < node->child_count; at++) {
        const Node *child = node->children[at];
        if (high > child->count)
            return STEP_IMPOSSIBLE;
        for (int64_t item = low; item < high && child->read_validity != NULL; item++)
            if (is_null(child, item))
                return STEP_IMPOSSIBLE;
    }
    if (node->wire->label != LABEL_PACKED || high == low)
        return put_elements(out, node, low, high);
    int64_t mark;
    Step step = put_tag(out, node->wire->number, WIRE_LEN);
    if (step == STEP_OK)
        step = begin_sized(out, &mark);
    if (step == STEP_OK)
        step = put_elements(out, node, low, high);
    return step == STEP_OK ? end_sized(out, mark) : step;
}

static Step put_field(Out *out, const Node *node, int64_t slot)
{
    if (is_null(node, slot))
        return node->wire->label == LABEL_EXPLICIT ? STEP_OK : STEP_IMPOSSIBLE;
    if (node->kind == KIND_ARRAY || node->kind == KIND_MAP)
        return put_list(out, node, slot);
    return put_value(out, node, slot, node->wire->number);
}

Step put_message(Out *out, const Node *node, int64_t slot)
{
    if (node->kind == KIND_OPAQUE) {
        const uint8_t *bytes;
        int64_t size;
        return text_cell(node, slot, &bytes, &size) ? put_bytes(out, bytes, size) : STEP_IMPOSSIBLE;
    }
    const int64_t write = ++node->wire->write_count;
    for (int32_t at = 0; at < node->child_count; at++) {
        const Node *child = node->children[at];
        const Wire *wire = child->wire;
        if (wire->oneof >= 0 && !is_null(child, slot)) {
            Oneof *oneof = &node->wire->oneofs[wire->oneof];
            if (oneof->write == write)
                return STEP_IMPOSSIBLE;
            oneof->write = write;
        }
        const Step step = wire->number > 0 ? put_field(out, child, slot) : STEP_OK;
        if (step != STEP_OK)
            return step;
    }
    return STEP_OK;
}

KERNEL_FUNCTION(kernel_encode_protobuf)
{
    Tree tree;
    if (check_arguments("encode_protobuf", count, 4, 4) < 0 || message_open(&tree, arguments[0], arguments[1]) < 0)
        return NULL;
    PyObject *result = encode_values(module, arguments + 2, &tree, put_message, NULL);
    message_close(&tree);
    return result;
}
