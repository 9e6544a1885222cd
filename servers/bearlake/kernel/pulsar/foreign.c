/* Batches of other protocols' clients as Pulsar batches. Contract: foreign.py. */
#include "pulsar/foreign.h"

#include "pulsar/base64.h"
#include "pulsar/known.h"

#define NAME_PREFIX "__pulsar.name."
#define VALUE_PREFIX "__pulsar.base64."

/* Bytes as a string: unchanged or as base64, after a prefix. */
typedef struct {
    const char *prefix;
    Field bytes;
    bool is_base64;
} Shown;

static int64_t shown_size(const Shown *shown)
{
    const int64_t size = shown->bytes.size;
    return (int64_t)strlen(shown->prefix) + (shown->is_base64 ? base64_encoded_size(size) : size);
}

static void put_shown(Writer *writer, uint32_t number, const Shown *shown)
{
    put_bytes_head(writer, number, shown_size(shown));
    put(writer, shown->prefix, (int64_t)strlen(shown->prefix));
    if (shown->is_base64)
        put_base64_encoded(writer, &shown->bytes);
    else
        put(writer, shown->bytes.bytes, shown->bytes.size);
}

static void put_shown_property(Writer *writer, const Shown *key, const Shown *value)
{
    Writer counter = {NULL};
    put_shown(&counter, 1, key);
    put_shown(&counter, 2, value);
    put_bytes_head(writer, single_roles.properties, counter.size);
    put_shown(writer, 1, key);
    put_shown(writer, 2, value);
}

static void put_header(Writer *writer, const Field *name, const Field *content)
{
    static const uint8_t nothing[1];
    const bool is_name_text = is_text(name->bytes, (size_t)name->size);
    const Field bytes = content->bytes ? *content : (Field){nothing, 0};
    Shown key = {is_name_text ? "" : NAME_PREFIX, *name, !is_name_text};
    const Shown value = {"", bytes, !is_text(bytes.bytes, (size_t)bytes.size)};
    put_shown_property(writer, &key, &value);
    if (value.is_base64) {
        key.prefix = is_name_text ? VALUE_PREFIX : VALUE_PREFIX NAME_PREFIX;
        put_shown_property(writer, &key, &(Shown){"", {nothing, 0}, false});
    }
}

void put_foreign_message(Writer *writer, const Row *row, int64_t base_offset)
{
    Cursor headers = row->headers;
    for (int32_t index = 0; index < row->header_count; index++) {
        Field name = {NULL, 0}, content = {NULL, 0};
        if (!read_bytes(&headers, &name) || name.bytes == NULL || !read_bytes(&headers, &content))
            break;
        put_header(writer, &name, &content);
    }
    const Known known = {
        .roles = &single_roles,
        .key = row->key,
        .is_base64 = row->key.bytes != NULL && !is_text(row->key.bytes, (size_t)row->key.size),
        .event_time = row->has_timestamp && row->timestamp > 0 ? (uint64_t)row->timestamp : 0,
        .has_sequence = true,
        .sequence = (uint64_t)base_offset + (uint64_t)row->delta,
    };
    put_known(writer, &known, row);
}

void put_foreign_metadata(Writer *writer, const Source *source, int64_t base_offset, int64_t payload_size)
{
    put_bytes_head(writer, PRODUCER_NAME, 0);
    put_varint_field(writer, SEQUENCE_ID, (uint64_t)base_offset);
    put_varint_field(writer, PUBLISH_TIME, source->max_timestamp > 0 ? (uint64_t)source->max_timestamp : 0);
    put_varint_field(writer, UNCOMPRESSED_SIZE, (uint64_t)payload_size);
    put_varint_field(writer, MESSAGE_COUNT, (uint64_t)source->last_delta + 1);
}
