/* Pulsar entries to record batches. Contract: encode.py. */
#include "pulsar/encode.h"

#include "pulsar/base64.h"
#include "pulsar/pulsar.h"

#define ENTRY_BYTES_MAX (256 * 1024 * 1024)
#define MESSAGE_BYTES_MIN 6
#define SIZE_BYTES 4
/* Initial room for a batch beyond metadata and payload: for its headers and the overhead of records. */
#define ROOM_BYTES (HEADER_BYTES + 64)
#define ROOM_BYTES_EACH 4

static const Field entry_header = {(const uint8_t *)ENTRY_HEADER, sizeof ENTRY_HEADER - 1};
static const Field message_header = {(const uint8_t *)MESSAGE_HEADER, sizeof MESSAGE_HEADER - 1};

typedef struct {
    EntryFields entry;
    Cursor payload;
    bool is_batch;
    uint8_t flags;
    int64_t count;
    int64_t base_timestamp, max_timestamp;
} Encoding;

/* A message and its record. */
typedef struct {
    Message message;
    const Roles *roles;
    Field payload;
    int64_t index;
    int64_t timestamp;
    bool is_event_present; /* the event time does not follow from the timestamp */
    int64_t present_size;  /* bytes of the fields that do not follow from the record */
} Carried;

typedef enum { ENCODE_OK, ENCODE_MALFORMED, ENCODE_FLAGS_CHANGED, ENCODE_FAILED } EncodeStatus;

static inline bool is_null(const Carried *carried, uint8_t flags)
{
    return carried->message.is_null && carried->payload.size == 0 && !(flags & IS_OPAQUE);
}

/* Reads message `index` and advances the payload's cursor past it. */
static bool read_carried(const Encoding *encoding, Cursor *payload, int64_t index, Carried *carried)
{
    Message *message = &carried->message;
    carried->index = index;
    carried->roles = encoding->is_batch ? &single_roles : &message_roles;
    if (encoding->is_batch) {
        if (payload->end - payload->at < SIZE_BYTES)
            return false;
        const int64_t size = load_u32(payload->at);
        const uint8_t *start = payload->at + SIZE_BYTES;
        if (size > payload->end - start || !read_message((Cursor){start, start + size}, carried->roles, message)
            || message->size < 0 || message->size > payload->end - start - size)
            return false;
        carried->payload = (Field){start + size, message->size};
    } else {
        if (!read_message(encoding->entry.fields, carried->roles, message))
            return false;
        carried->payload = (Field){payload->at, payload->end - payload->at};
    }
    payload->at = carried->payload.bytes + carried->payload.size;
    const int64_t published = encoding->entry.timestamp;
    const bool is_earlier = message->event_time != 0 && published > 0 && message->event_time < (uint64_t)published;
    carried->timestamp = is_earlier ? (int64_t)message->event_time : published;
    carried->is_event_present = message->event_time != 0 && !is_earlier;
    return true;
}

/* Clears the flags that do not hold for this message; the first message decides which flags are possible. */
static bool check_flags(Encoding *encoding, const Carried *carried)
{
    const Message *message = &carried->message;
    uint8_t flags = encoding->flags;
    if (!message->has_sequence || message->sequence != encoding->entry.sequence_id + (uint64_t)carried->index)
        flags &= (uint8_t)~SEQUENCES_FOLLOW;
    if ((message->key.bytes != NULL || carried->index == 0) && message->key_decoded_size < 0)
        flags &= (uint8_t)~KEYS_ARE_BASE64;
    const bool are_so = carried->index == 0 || flags == encoding->flags;
    encoding->flags = flags;
    return are_so;
}

/* The fields without a role, then odd properties. */
static void put_residual(Writer *writer, const Message *message, const Roles *roles)
{
    for (int round = 0; round < 2; round++) {
        if (round == 0 ? message->residual_bytes == 0 : !message->are_properties_odd)
            continue;
        Cursor cursor = message->fields;
        PulsarField field;
        while (cursor.at < cursor.end && read_field(&cursor, &field)) {
            const bool is_wanted = round == 0 ? !has_role(&field, roles)
                                              : field.kind == WIRE_BYTES && field.number == roles->properties;
            if (is_wanted)
                put(writer, field.whole, field.whole_size);
        }
    }
}

/* Appends the fields that do not follow from the record. */
static void put_present(Writer *writer, const Encoding *encoding, const Carried *carried)
{
    const Message *message = &carried->message;
    const Roles *roles = carried->roles;
    put_residual(writer, message, roles);
    if (message->is_base64 && (message->key_decoded_size < 0 || !(encoding->flags & KEYS_ARE_BASE64))) {
        if (message->key.bytes != NULL)
            put_bytes_field(writer, roles->key, &message->key);
        put_varint_field(writer, roles->base64, 1);
    }
    if (carried->is_event_present)
        put_varint_field(writer, roles->event_time, message->event_time);
    if (message->has_sequence && !(encoding->flags & SEQUENCES_FOLLOW))
        put_varint_field(writer, roles->sequence, message->sequence);
    if (message->is_null && !is_null(carried, encoding->flags))
        put_varint_field(writer, roles->null_value, 1);
}

static void put_properties(Writer *writer, const Carried *carried)
{
    Cursor cursor = carried->message.fields;
    PulsarField field;
    while (cursor.at < cursor.end && read_field(&cursor, &field)) {
        Field key, value;
        if (field.kind == WIRE_BYTES && field.number == carried->roles->properties
            && read_property(&field.content, &key, &value)) {
            put_text(writer, &key);
            put_text(writer, &value);
        }
    }
}

/* Size of the entry header after version and flags. */
static inline int64_t entry_present_size(const Encoding *encoding, const Carried *carried)
{
    return encoding->is_batch ? encoding->entry.fields.end - encoding->entry.fields.at : carried->present_size;
}

static inline int64_t header_count(const Encoding *encoding, const Carried *carried)
{
    const Message *message = &carried->message;
    return (message->are_properties_odd ? 0 : message->property_count) + (encoding->is_batch && carried->present_size > 0)
        + (carried->index == 0);
}

/* Size of the record after its length. */
static int64_t inner_size(const Encoding *encoding, const Carried *carried)
{
    const Message *message = &carried->message;
    const int64_t decoded = message->key_decoded_size;
    int64_t size = 1 + zigzag_size(carried->timestamp - encoding->base_timestamp) + zigzag_size(carried->index)
        + (decoded >= 0 ? zigzag_size(decoded) + decoded : text_size(&message->key))
        + (is_null(carried, encoding->flags) ? 1 : text_size(&carried->payload)) + zigzag_size(header_count(encoding, carried))
        + (message->are_properties_odd ? 0 : message->header_bytes);
    if (encoding->is_batch && carried->present_size > 0)
        size += text_size(&message_header) + zigzag_size(carried->present_size) + carried->present_size;
    if (carried->index == 0) {
        const int64_t present = 2 + entry_present_size(encoding, carried);
        size += text_size(&entry_header) + zigzag_size(present) + present;
    }
    return size;
}

static void put_reserved(Writer *writer, const Encoding *encoding, const Carried *carried)
{
    if (encoding->is_batch && carried->present_size > 0) {
        put_text(writer, &message_header);
        put_zigzag(writer, carried->present_size);
        put_present(writer, encoding, carried);
    }
    if (carried->index > 0)
        return;
    const Cursor *all = &encoding->entry.fields;
    put_text(writer, &entry_header);
    put_zigzag(writer, 2 + entry_present_size(encoding, carried));
    put_byte(writer, ENTRY_VERSION);
    put_byte(writer, encoding->flags);
    if (encoding->is_batch)
        put(writer, all->at, all->end - all->at);
    else
        put_present(writer, encoding, carried);
}

/* Appends the record after its length. */
static void put_inner(Writer *writer, const Encoding *encoding, const Carried *carried)
{
    const Message *message = &carried->message;
    put_byte(writer, 0); /* the attributes, unused */
    put_zigzag(writer, carried->timestamp - encoding->base_timestamp);
    put_zigzag(writer, carried->index);
    if (message->key_decoded_size >= 0) {
        put_zigzag(writer, message->key_decoded_size);
        put_base64_decoded(writer, &message->key);
    } else {
        put_text(writer, &message->key);
    }
    put_text(writer, is_null(carried, encoding->flags) ? &(Field){NULL, -1} : &carried->payload);
    put_zigzag(writer, header_count(encoding, carried));
    if (message->property_count > 0 && !message->are_properties_odd)
        put_properties(writer, carried);
    put_reserved(writer, encoding, carried);
}

/* Appends the records of all messages; `*index` is the index of the malformed message. */
static EncodeStatus put_records(Output *output, Encoding *encoding, int64_t *index)
{
    Cursor payload = encoding->payload;
    for (*index = 0; *index < encoding->count; ++*index) {
        Carried carried;
        if (!read_carried(encoding, &payload, *index, &carried))
            return ENCODE_MALFORMED;
        if (!check_flags(encoding, &carried))
            return ENCODE_FLAGS_CHANGED;
        if (*index == 0)
            encoding->base_timestamp = encoding->max_timestamp = carried.timestamp;
        else if (carried.timestamp > encoding->max_timestamp)
            encoding->max_timestamp = carried.timestamp;
        Writer counter = {NULL};
        put_present(&counter, encoding, &carried);
        carried.present_size = counter.size;
        const int64_t size = inner_size(encoding, &carried);
        if (!reserve(output, VARINT_BYTES_MAX + size))
            return ENCODE_FAILED;
        put_zigzag(&output->writer, size);
        const uint8_t *start = output->writer.at;
        put_inner(&output->writer, encoding, &carried);
        if (output->writer.at != start + size) /* the bytes changed meanwhile */
            return ENCODE_MALFORMED;
    }
    return payload.at == payload.end ? ENCODE_OK : ENCODE_MALFORMED;
}

static void write_header(const Encoding *encoding, uint8_t *at, int64_t size)
{
    store_u64(at, 0);
    store_u32(at + 8, (uint32_t)(size - LENGTH_END));
    store_u32(at + 12, UINT32_MAX); /* leader epoch */
    at[MAGIC_AT] = 2;
    store_u16(at + 21, 0);
    store_u32(at + DELTA_AT, (uint32_t)(encoding->count - 1));
    store_u64(at + 27, (uint64_t)encoding->base_timestamp);
    store_u64(at + 35, (uint64_t)encoding->max_timestamp);
    memset(at + 43, 0xFF, 14); /* no producer */
    store_u32(at + 57, (uint32_t)encoding->count);
    store_u32(at + CRC_AT, checksum_releasing(at + CRC_START, (Py_ssize_t)(size - CRC_START)));
}

/* Appends the batch of an entry to the output: 0; -1 with an exception set. */
static int put_batch(KernelState *state, Output *output, Encoding *encoding)
{
    const int64_t start = output_size(output);
    int64_t index;
    EncodeStatus status;
    if (!reserve(output, HEADER_BYTES))
        return -1;
    do { /* at most twice again: flags are only cleared */
        output->writer.at = output_at(output, start) + HEADER_BYTES;
        status = put_records(output, encoding, &index);
    } while (status == ENCODE_FLAGS_CHANGED);
    if (status == ENCODE_OK) {
        write_header(encoding, output_at(output, start), output_size(output) - start);
        return 0;
    }
    if (status == ENCODE_MALFORMED)
        PyErr_Format(state->corrupt, "message %lld of a Pulsar batch is malformed", (long long)index);
    return -1;
}

/* Reads the metadata of an entry: 0; -1 with an exception set. */
static int read_encoding(KernelState *state, Cursor metadata, Cursor payload, bool is_opaque, Encoding *encoding)
{
    *encoding = (Encoding){.payload = payload, .flags = SEQUENCES_FOLLOW | KEYS_ARE_BASE64};
    EntryFields *entry = &encoding->entry;
    if (!read_entry(metadata, entry))
        PyErr_Format(state->corrupt, "the metadata of a Pulsar entry is malformed");
    else if (!entry->has_name || !entry->has_sequence_id || !entry->has_publish_time)
        PyErr_Format(
            state->corrupt, "the metadata of a Pulsar entry lacks the producer's name, the sequence id or the publish time");
    else if (entry->message_count == -2)
        PyErr_Format(state->corrupt, "the metadata of a Pulsar entry has an impossible count of messages");
    else if (entry->compression > COMPRESSION_MAX && !is_opaque)
        PyErr_Format(state->unsupported, "compression %llu of a Pulsar entry", (unsigned long long)entry->compression);
    else if (entry->message_count > (payload.end - payload.at) / MESSAGE_BYTES_MIN && !is_opaque)
        PyErr_Format(
            state->corrupt, "%lld messages in a Pulsar batch of %lld bytes", (long long)entry->message_count,
            (long long)(payload.end - payload.at));
    if (PyErr_Occurred())
        return -1;
    encoding->is_batch = entry->message_count > 0 && !is_opaque;
    encoding->count = encoding->is_batch ? entry->message_count : 1;
    encoding->flags |= is_opaque ? IS_OPAQUE : 0;
    return 0;
}

int put_entry(KernelState *state, Output *output, Cursor metadata, Cursor payload, bool is_opaque, Encoded *encoded)
{
    Encoding encoding;
    if (read_encoding(state, metadata, payload, is_opaque, &encoding) < 0 || put_batch(state, output, &encoding) < 0)
        return -1;
    *encoded = (Encoded){encoding.count, encoding.base_timestamp, encoding.max_timestamp};
    return 0;
}

PyObject *encode_entry(KernelState *state, Cursor metadata, Cursor payload, bool is_opaque)
{
    Encoding encoding;
    Output output;
    if (read_encoding(state, metadata, payload, is_opaque, &encoding) < 0
        || !open_output(&output, ROOM_BYTES + (metadata.end - metadata.at) + (payload.end - payload.at) + ROOM_BYTES_EACH * encoding.count,
                        0))
        return NULL;
    if (put_batch(state, &output, &encoding) < 0) {
        Py_XDECREF(output.bytes);
        return NULL;
    }
    PyObject *batch = close_output(&output);
    return batch == NULL ? NULL : Py_BuildValue("NLL", batch, (long long)encoding.count, (long long)encoding.max_timestamp);
}

KERNEL_FUNCTION(kernel_encode_entry)
{
    Py_buffer metadata, payload;
    if (check_arguments("encode_entry", count, 3, 3) < 0)
        return NULL;
    const int is_opaque = PyObject_IsTrue(arguments[2]);
    if (is_opaque < 0 || PyObject_GetBuffer(arguments[0], &metadata, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &payload, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&metadata);
        return NULL;
    }
    PyObject *result = NULL;
    if (metadata.len > ENTRY_BYTES_MAX - payload.len)
        PyErr_Format(PyExc_ValueError, "an entry of %zd bytes", metadata.len + payload.len);
    else
        result = encode_entry(
            state_of(module), (Cursor){(const uint8_t *)metadata.buf, (const uint8_t *)metadata.buf + metadata.len},
            (Cursor){(const uint8_t *)payload.buf, (const uint8_t *)payload.buf + payload.len}, is_opaque);
    PyBuffer_Release(&metadata);
    PyBuffer_Release(&payload);
    return result;
}
