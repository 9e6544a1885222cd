/* Fields of Pulsar's message metadatas. Contract: fields.py. */
#include "pulsar/fields.h"

#include "pulsar/base64.h"

const Roles message_roles = {.properties = 4, .key = 6, .base64 = 17, .event_time = 12, .null_value = 25};
const Roles single_roles = {
    .properties = 1, .key = 2, .base64 = 6, .event_time = 5, .null_value = 9, .size = 3, .sequence = 8};

static inline bool read_varint(Cursor *cursor, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (cursor->at == cursor->end)
            return false;
        const uint64_t byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            return false;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

bool read_field(Cursor *cursor, PulsarField *field)
{
    uint64_t tag, size = 0;
    field->whole = cursor->at;
    if (!read_varint(cursor, &tag) || tag < 8 || tag > UINT32_MAX)
        return false;
    field->number = (uint32_t)tag >> 3;
    field->kind = tag & 7;
    switch (field->kind) {
    case WIRE_VARINT:
        if (!read_varint(cursor, &field->value))
            return false;
        break;
    case WIRE_BYTES:
        if (!read_varint(cursor, &size))
            return false;
        break;
    case WIRE_INT64:
        size = 8;
        break;
    case WIRE_INT32:
        size = 4;
        break;
    default:
        return false;
    }
    if (size > (uint64_t)(cursor->end - cursor->at))
        return false;
    field->content = (Field){cursor->at, (int64_t)size};
    cursor->at += size;
    field->whole_size = cursor->at - field->whole;
    return true;
}

bool read_property(const Field *content, Field *key, Field *value)
{
    Cursor cursor = {content->bytes, content->bytes + content->size};
    bool is_there[2] = {false, false};
    for (int index = 0; index < 2; index++) {
        PulsarField part;
        if (cursor.at == cursor.end || !read_field(&cursor, &part) || part.kind != WIRE_BYTES || part.number > 2)
            return false;
        *(part.number == 1 ? key : value) = part.content;
        is_there[part.number - 1] = true;
    }
    if (cursor.at != cursor.end || !is_there[0] || !is_there[1])
        return false;
    return key->size < (int64_t)strlen(RESERVED) || memcmp(key->bytes, RESERVED, strlen(RESERVED)) != 0;
}

/* Stores the value of a field with a role. */
static void take_field(Message *message, const PulsarField *field, const Roles *roles)
{
    if (field->kind == WIRE_BYTES && field->number == roles->key) {
        message->key = field->content;
    } else if (field->kind == WIRE_BYTES) {
        Field key, value;
        message->property_bytes += field->whole_size;
        message->property_count++;
        if (read_property(&field->content, &key, &value))
            message->header_bytes += text_size(&key) + text_size(&value);
        else
            message->are_properties_odd = true;
    } else if (field->number == roles->base64) {
        message->is_base64 = field->value != 0;
    } else if (field->number == roles->event_time) {
        message->event_time = field->value;
    } else if (field->number == roles->null_value) {
        message->is_null = field->value != 0;
    } else if (field->number == roles->size) {
        message->size = field->value > INT32_MAX ? INT64_MAX : (int64_t)field->value;
    } else {
        message->sequence = field->value;
        message->has_sequence = true;
    }
}

bool read_message(Cursor fields, const Roles *roles, Message *message)
{
    *message = (Message){.fields = fields, .key_decoded_size = -1, .size = -1};
    while (fields.at < fields.end) {
        PulsarField field;
        if (!read_field(&fields, &field))
            return false;
        if (has_role(&field, roles))
            take_field(message, &field, roles);
        else
            message->residual_bytes += field.whole_size;
    }
    if (message->key.bytes != NULL && message->is_base64)
        message->key_decoded_size = base64_decoded_size(&message->key);
    return message->size != INT64_MAX;
}

/* Converts a Pulsar time to a record timestamp; -1 if too large. Excludes INT64_MAX, so that the difference of two fits an int64. */
static inline int64_t record_timestamp(uint64_t time_ms) { return time_ms < INT64_MAX ? (int64_t)time_ms : -1; }

bool read_entry(Cursor fields, EntryFields *entry)
{
    *entry = (EntryFields){.fields = fields, .timestamp = -1, .message_count = -1};
    while (fields.at < fields.end) {
        PulsarField field;
        if (!read_field(&fields, &field))
            return false;
        if (field.kind == WIRE_BYTES && field.number == PRODUCER_NAME)
            entry->has_name = true;
        if (field.kind != WIRE_VARINT)
            continue;
        if (field.number == SEQUENCE_ID) {
            entry->sequence_id = field.value;
            entry->has_sequence_id = true;
        } else if (field.number == PUBLISH_TIME) {
            entry->timestamp = record_timestamp(field.value);
            entry->has_publish_time = true;
        } else if (field.number == COMPRESSION) {
            entry->compression = field.value;
        } else if (field.number == MESSAGE_COUNT) {
            entry->message_count = field.value > 0 && field.value <= INT32_MAX ? (int64_t)field.value : -2;
        }
    }
    return true;
}
