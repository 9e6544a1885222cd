/* Parts of a message: numbers, tags, scalars, and fields that the message does not have. Contract: protobuf_reader.py. */
#include "typed/protobuf.h"

Step read_long_varint(Decoder *decoder, const Node *node, uint64_t *bits)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (decoder->at == decoder->end)
            return stop(decoder, node, OUTCOME_TRUNCATED);
        const uint64_t byte = *decoder->at++;
        if (shift == 63 && byte > 0x7F)
            return stop(decoder, node, OUTCOME_VARINT);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (shift > 0 && (byte == 0 || (shift == 63 && byte > 1)))
                found(decoder, node, OUTCOME_FORM);
            *bits = value;
            return STEP_OK;
        }
    }
}

Step open_length(Decoder *decoder, const Node *node, const uint8_t **before)
{
    uint64_t size;
    const Step step = read_varint(decoder, node, &size);
    if (step != STEP_OK)
        return step;
    if (size > (uint64_t)(decoder->end - decoder->at))
        return stop(decoder, node, OUTCOME_COUNT);
    *before = decoder->end;
    decoder->end = decoder->at + size;
    return STEP_OK;
}

Step read_tag(Decoder *decoder, const Node *node, int32_t group, int32_t *number, WireType *type)
{
    if (group == 0 && decoder->at == decoder->end) {
        *type = WIRE_END;
        return STEP_OK;
    }
    decoder->tag_at = decoder->at;
    uint64_t bits;
    const Step step = read_varint(decoder, node, &bits);
    if (step != STEP_OK)
        return step;
    *type = (WireType)(bits & 7);
    bits >>= 3;
    if (bits == 0 || bits > FIELD_NUMBER_MAX || *type > WIRE_I32 || (*type == WIRE_END && bits != (uint64_t)group))
        return stop(decoder, node, OUTCOME_TAG);
    *number = (int32_t)bits;
    return STEP_OK;
}

static inline Step take(Decoder *decoder, const Node *node, int64_t size, uint64_t *bits)
{
    if (size > decoder->end - decoder->at)
        return stop(decoder, node, OUTCOME_TRUNCATED);
    *bits = 0;
    memcpy(bits, decoder->at, (size_t)size);
    decoder->at += size;
    return STEP_OK;
}

Step skip_group(Decoder *decoder, const Node *node, int32_t number, int level)
{
    for (;;) {
        int32_t inner;
        WireType type;
        Step step = read_tag(decoder, node, number, &inner, &type);
        if (step != STEP_OK || type == WIRE_END)
            return step;
        if ((step = skip_field(decoder, node, inner, type, level)) != STEP_OK)
            return step;
    }
}

Step skip_field(Decoder *decoder, const Node *node, int32_t number, WireType type, int level)
{
    uint64_t bits;
    const uint8_t *before;
    Step step;
    switch (type) {
    case WIRE_VARINT: return read_varint(decoder, node, &bits);
    case WIRE_I32: return take(decoder, node, 4, &bits);
    case WIRE_I64: return take(decoder, node, 8, &bits);
    case WIRE_LEN:
        if ((step = open_length(decoder, node, &before)) != STEP_OK)
            return step;
        decoder->at = decoder->end;
        decoder->end = before;
        return STEP_OK;
    default:
        if (level >= SKIPPED_LEVELS_MAX)
            return stop(decoder, node, OUTCOME_DEPTH);
        return skip_group(decoder, node, number, level + 1);
    }
}

static Step read_text(Decoder *decoder, const Node *node, Coding coding, bool is_implicit, FieldValue *field)
{
    const uint8_t *before;
    const Step step = open_length(decoder, node, &before);
    if (step != STEP_OK)
        return step;
    const uint8_t *text = decoder->at;
    const int64_t size = decoder->end - text;
    decoder->at = decoder->end;
    decoder->end = before;
    const bool is_fit = coding != CODING_STRING || is_short_ascii(text, size) || is_text(text, (size_t)size);
    if (!is_fit)
        found(decoder, node, OUTCOME_DOMAIN);
    if (size == 0 && is_implicit)
        found(decoder, node, OUTCOME_FORM);
    *field = (FieldValue){.text = text, .size = size, .is_fit = is_fit};
    return STEP_OK;
}

/* The content of a number's cell; bits that the type does not have are dropped. */
static uint64_t content_of(Decoder *decoder, const Node *node, Coding coding, uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    switch (coding) {
    case CODING_BOOL:
        if (bits > 1)
            found(decoder, node, OUTCOME_FORM);
        return bits != 0;
    case CODING_SINT64: return bits >> 1 ^ (~(bits & 1) + 1);
    case CODING_INT32:
    case CODING_ENUM: {
        const uint64_t number = (uint64_t)(int64_t)(int32_t)low;
        if (bits != number)
            found(decoder, node, OUTCOME_FORM);
        return number;
    }
    case CODING_UINT32:
    case CODING_SINT32:
        if (bits != low)
            found(decoder, node, OUTCOME_FORM);
        return coding == CODING_UINT32 ? low : low >> 1 ^ (~(low & 1) + 1);
    default: return bits;
    }
}

Step read_scalar(Decoder *decoder, const Node *node, Coding coding, bool is_implicit, FieldValue *field)
{
    uint64_t bits;
    Step step;
    bool is_zero;
    switch (coding) {
    case CODING_STRING:
    case CODING_BYTES:
        return read_text(decoder, node, coding, is_implicit, field);
    case CODING_FIXED32:
    case CODING_SFIXED32:
    case CODING_FLOAT:
        step = take(decoder, node, 4, &bits);
        is_zero = step == STEP_OK && bits == 0;
        break;
    case CODING_FIXED64:
    case CODING_SFIXED64:
    case CODING_DOUBLE:
        step = take(decoder, node, 8, &bits);
        is_zero = step == STEP_OK && bits == 0;
        break;
    default:
        step = read_varint(decoder, node, &bits);
        is_zero = step == STEP_OK && bits == 0;
        if (step == STEP_OK)
            bits = content_of(decoder, node, coding, bits);
        if (step == STEP_OK && coding == CODING_ENUM && node->wire->is_closed && symbol_of(node->wire, (int32_t)bits) < 0)
            return STEP_UNKNOWN;
    }
    if (step != STEP_OK)
        return step;
    if (is_zero && is_implicit)
        found(decoder, node, OUTCOME_FORM);
    *field = (FieldValue){.bits = bits, .is_fit = true};
    return STEP_OK;
}
