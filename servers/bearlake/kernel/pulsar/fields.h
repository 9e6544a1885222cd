/* Protocol Buffers fields of Pulsar's metadata messages. The stored form of an entry: encode.py. */
#ifndef BEARLAKE_PULSAR_FIELDS_H
#define BEARLAKE_PULSAR_FIELDS_H

#include "batch/records.h"
#include "pulsar/output.h"

#define ENTRY_HEADER "__pulsar.entry"
#define MESSAGE_HEADER "__pulsar.message"
#define RESERVED "__pulsar."
#define ENTRY_VERSION 1
#define IS_OPAQUE 1
#define SEQUENCES_FOLLOW 2
#define KEYS_ARE_BASE64 4
#define ALL_FLAGS 7

/* Wire types. */
#define WIRE_VARINT 0
#define WIRE_INT64 1
#define WIRE_BYTES 2
#define WIRE_INT32 5

/* Numbers in MessageMetadata. */
#define PRODUCER_NAME 1
#define SEQUENCE_ID 2
#define PUBLISH_TIME 3
#define COMPRESSION 8
#define COMPRESSION_MAX 4 /* snappy */
#define UNCOMPRESSED_SIZE 9
#define MESSAGE_COUNT 11
#define ORDERING_KEY 18
#define SINGLE_ORDERING_KEY 7 /* in SingleMessageMetadata */
#define DELIVER_AT 19
#define UUID 26
#define CHUNK_COUNT 27
#define CHUNK_ID 29

typedef struct {
    uint32_t number;
    int kind;
    uint64_t value;         /* of WIRE_VARINT */
    Field content;          /* of WIRE_BYTES */
    const uint8_t *whole;   /* the field with its tag ... */
    int64_t whole_size;     /* ... and its bytes */
} PulsarField;

/* Numbers of the fields that follow from a record; 0: the metadata has no such field. */
typedef struct {
    uint32_t properties, key, base64, event_time, null_value, size, sequence;
} Roles;

/* The values of the fields with a role. */
typedef struct {
    Cursor fields;
    int64_t residual_bytes; /* of the fields without a role */
    int64_t property_bytes;
    int64_t header_bytes;   /* of the properties as headers of a record */
    int32_t property_count;
    bool are_properties_odd;
    bool is_base64, is_null, has_sequence;
    Field key;
    int64_t key_decoded_size; /* -1: not base64 */
    int64_t size;             /* -1: none */
    uint64_t event_time, sequence;
} Message;

/* The fields of an entry's metadata that apply to the whole entry. */
typedef struct {
    Cursor fields;
    bool has_name, has_sequence_id, has_publish_time;
    uint64_t sequence_id;
    int64_t timestamp;     /* the publish time; -1 if it does not fit a record */
    int64_t message_count; /* -1: no batch; -2: impossible */
    uint64_t compression;
} EntryFields;

extern const Roles message_roles; /* of MessageMetadata */
extern const Roles single_roles;  /* of SingleMessageMetadata */

/* fields.c: each returns false if the bytes are malformed */
bool read_field(Cursor *cursor, PulsarField *field);
bool read_message(Cursor fields, const Roles *roles, Message *message);
bool read_entry(Cursor fields, EntryFields *entry);
bool read_property(const Field *content, Field *key, Field *value); /* false: it cannot be a header */

static inline bool has_role(const PulsarField *field, const Roles *roles)
{
    if (field->kind == WIRE_BYTES)
        return field->number == roles->properties || field->number == roles->key;
    return field->kind == WIRE_VARINT
        && (field->number == roles->base64 || field->number == roles->event_time || field->number == roles->null_value
            || field->number == roles->size || field->number == roles->sequence);
}

static inline void put_varint_field(Writer *writer, uint32_t number, uint64_t value)
{
    put_varint(writer, number << 3 | WIRE_VARINT);
    put_varint(writer, value);
}

static inline void put_bytes_head(Writer *writer, uint32_t number, int64_t size)
{
    put_varint(writer, number << 3 | WIRE_BYTES);
    put_varint(writer, (uint64_t)size);
}

static inline void put_bytes_field(Writer *writer, uint32_t number, const Field *content)
{
    put_bytes_head(writer, number, content->size);
    put(writer, content->bytes, content->size);
}

#endif
