/* Reads the fields of messages; elements of lists are appended at once. Contract: protobuf_reader.py. */
#include "typed/protobuf.h"

static const FieldValue zero_field = {.text = (const uint8_t *)"", .is_fit = true};

/* Adds a piece to an OPAQUE. */
static Step join(Wire *wire, const uint8_t *bytes, int64_t size, bool is_continued)
{
    FieldValue *field = &wire->field;
    if (!is_continued) {
        *field = (FieldValue){.text = bytes, .size = size, .is_fit = true};
        return STEP_OK;
    }
    const int64_t before = field->size;
    if (!column_reserve(&wire->joined, field->is_joined ? (size_t)before : 0, (size_t)(before + size) + 1))
        return STEP_NO_MEMORY;
    if (!field->is_joined && before > 0)
        memcpy(wire->joined.bytes, field->text, (size_t)before);
    if (size > 0)
        memcpy(wire->joined.bytes + before, bytes, (size_t)size);
    *field = (FieldValue){.text = wire->joined.bytes, .size = before + size, .is_fit = true, .is_joined = true};
    return STEP_OK;
}

static Step read_opaque(Decoder *decoder, const Node *node, int32_t group, bool is_continued)
{
    const uint8_t *start = decoder->at, *end = decoder->end;
    const int32_t status = decoder->status;
    if (group > 0) {
        const Step step = skip_group(decoder, node, group, 0);
        if (step != STEP_OK)
            return step;
        end = decoder->tag_at;
    } else {
        decoder->at = end;
    }
    decoder->status = status; /* the bytes are kept as they are */
    return join(node->wire, start, end - start, is_continued);
}

static Step read_submessage(Decoder *decoder, Node *node, int32_t number, bool is_continued)
{
    Wire *wire = node->wire;
    const uint8_t *before = decoder->end;
    const int32_t group = wire->coding == CODING_GROUP ? number : 0;
    Step step = group > 0 ? STEP_OK : open_length(decoder, node, &before);
    if (step != STEP_OK)
        return step;
    if (node->kind == KIND_OPAQUE) {
        step = read_opaque(decoder, node, group, is_continued);
    } else {
        if (!is_continued)
            wire->message = ++decoder->message_count;
        step = read_fields(decoder, node, group);
    }
    decoder->end = before;
    return step;
}

/* Reads the scalars of a wrapper or timestamp. */
static Step read_parts(Decoder *decoder, const Node *node, FieldValue *field)
{
    const uint8_t *before;
    Step step = open_length(decoder, node, &before);
    if (step != STEP_OK)
        return step;
    const bool is_timestamp = node->wire->coding == CODING_TIMESTAMP;
    const Coding coding = is_timestamp ? CODING_INT64 : node->wire->coding;
    for (int32_t last = 0;;) {
        int32_t number;
        WireType type;
        FieldValue part;
        if ((step = read_tag(decoder, node, 0, &number, &type)) != STEP_OK)
            return step;
        if (type == WIRE_END)
            break;
        if (number > (is_timestamp ? 2 : 1) || type != wire_type_of(coding)) {
            found(decoder, node, OUTCOME_FORM);
            if ((step = skip_field(decoder, node, number, type, 0)) != STEP_OK)
                return step;
            continue;
        }
        if (number <= last)
            found(decoder, node, OUTCOME_FORM);
        last = number;
        if ((step = read_scalar(decoder, node, number == 2 ? CODING_INT32 : coding, true, &part)) != STEP_OK)
            return step;
        if (number == 2) {
            field->nanos = (int32_t)part.bits;
        } else {
            part.nanos = field->nanos;
            *field = part;
        }
    }
    decoder->end = before;
    return STEP_OK;
}

/* Reads a value after its tag; `is_continued`: an earlier piece of it was read. STEP_UNKNOWN: as if it were not there. */
static Step read_value(Decoder *decoder, Node *node, int32_t number, bool is_continued)
{
    Wire *wire = node->wire;
    if (wire->coding == CODING_MESSAGE || wire->coding == CODING_GROUP)
        return read_submessage(decoder, node, number, is_continued);
    if (!wire->is_wrapped && wire->coding != CODING_TIMESTAMP)
        return read_scalar(decoder, node, wire->coding, wire->label == LABEL_IMPLICIT, &wire->field);
    if (!is_continued)
        wire->field = zero_field;
    return read_parts(decoder, node, &wire->field);
}

static Step add_element(Decoder *decoder, Node *element)
{
    const Step step = use(decoder, element->slot_bytes);
    if (step != STEP_OK)
        return step;
    return reserve_slots(element, 1) ? add_value(decoder, element, true) : STEP_NO_MEMORY;
}

static Step read_element(Decoder *decoder, Node *node, WireType type, bool *is_taken)
{
    Node *element = node->children[0];
    const bool is_packed = type == WIRE_LEN && is_packable(element->wire);
    if (!is_packed && type != element->wire->wire_type)
        return STEP_OK;
    *is_taken = true;
    if (is_packed != (node->wire->label == LABEL_PACKED))
        found(decoder, node, OUTCOME_FORM);
    const uint8_t *before = decoder->end;
    Step step = is_packed ? open_length(decoder, node, &before) : STEP_OK;
    if (step != STEP_OK)
        return step;
    if (is_packed && decoder->at == decoder->end)
        found(decoder, node, OUTCOME_FORM);
    while (!is_packed || decoder->at < decoder->end) {
        step = read_value(decoder, element, node->wire->number, false);
        if (step == STEP_UNKNOWN)
            found(decoder, element, OUTCOME_FORM);
        else if (step != STEP_OK || (step = add_element(decoder, element)) != STEP_OK)
            return step;
        if (!is_packed)
            break;
    }
    decoder->end = before;
    return STEP_OK;
}

static Step read_entry(Decoder *decoder, Node *node)
{
    Node *key = node->children[0], *value = node->children[1];
    const uint8_t *before;
    Step step = open_length(decoder, node, &before);
    if (step != STEP_OK)
        return step;
    const int64_t message = ++decoder->message_count;
    node->wire->message = message;
    node->wire->is_spoiled = false;
    if ((step = read_fields(decoder, node, 0)) != STEP_OK)
        return step;
    decoder->end = before;
    if (key->wire->holder != message || value->wire->holder != message)
        found(decoder, node, OUTCOME_FORM);
    if (node->wire->is_spoiled)
        return STEP_OK;
    if ((step = use(decoder, key->slot_bytes + value->slot_bytes)) != STEP_OK)
        return step;
    if (!reserve_slots(key, 1) || !reserve_slots(value, 1))
        return STEP_NO_MEMORY;
    step = add_field(decoder, key, message);
    return step == STEP_OK ? add_field(decoder, value, message) : step;
}

/* Forgets the other field of a oneof, with the elements of its lists. */
static void take_oneof(Decoder *decoder, const Node *message, Node *node)
{
    Oneof *oneof = &message->wire->oneofs[node->wire->oneof];
    if (oneof->message == message->wire->message && oneof->member != node) {
        found(decoder, node, OUTCOME_FORM);
        oneof->member->wire->holder = 0;
        if (oneof->member->kind == KIND_RECORD)
            cut_slots(oneof->member, oneof->member->length);
    }
    oneof->message = message->wire->message;
    oneof->member = node;
}

/* Reads a field of a message; `*is_taken` stays false if it is of another wire type, and then nothing was read. */
static Step read_field(Decoder *decoder, Node *message, Node *node, WireType type, bool *is_taken)
{
    Wire *wire = node->wire;
    if (node->kind == KIND_ARRAY)
        return read_element(decoder, node, type, is_taken);
    if (type != (node->kind == KIND_MAP ? WIRE_LEN : wire->wire_type))
        return STEP_OK;
    *is_taken = true;
    if (node->kind == KIND_MAP)
        return read_entry(decoder, node);
    const int64_t holder = message->wire->message;
    const Step step = read_value(decoder, node, wire->number, wire->holder == holder);
    if (step == STEP_UNKNOWN) {
        found(decoder, node, OUTCOME_FORM);
        message->wire->is_spoiled = true;
        return STEP_OK;
    }
    if (step != STEP_OK)
        return step;
    if (wire->oneof >= 0)
        take_oneof(decoder, message, node);
    wire->holder = holder;
    return STEP_OK;
}

/* The field of a number, NULL: none. `*next` guesses its place, and is then the place after it. */
static inline Node *field_of(const Node *message, int32_t number, int32_t *next)
{
    Node *const *children = message->children;
    if (*next > 0 && children[*next - 1]->wire->number == number)
        return children[*next - 1];
    if (*next < message->child_count && children[*next]->wire->number == number)
        return children[(*next)++];
    for (int32_t low = 0, high = message->child_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (children[middle]->wire->number == number) {
            *next = middle + 1;
            return children[middle];
        }
        if (children[middle]->wire->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

Step read_fields(Decoder *decoder, Node *node, int32_t group)
{
    for (int32_t last = 0, next = 0;;) {
        int32_t number;
        WireType type;
        bool is_taken = false;
        Step step = read_tag(decoder, node, group, &number, &type);
        if (step != STEP_OK || type == WIRE_END)
            return step;
        Node *child = field_of(node, number, &next);
        if (child != NULL && (step = read_field(decoder, node, child, type, &is_taken)) != STEP_OK)
            return step;
        if (!is_taken) {
            found(decoder, node, OUTCOME_FORM);
            if ((step = skip_field(decoder, node, number, type, 0)) != STEP_OK)
                return step;
        } else if (number < last || (number == last && child->wire->label != LABEL_REPEATED)) {
            found(decoder, child, OUTCOME_FORM);
        }
        last = number;
    }
}
