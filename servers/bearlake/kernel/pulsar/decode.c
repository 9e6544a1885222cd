/* Record batches to Pulsar entries. Contract: decode.py. */
#include "pulsar/decode.h"

#include "pulsar/foreign.h"
#include "pulsar/known.h"
#include "pulsar/pulsar.h"

#define MAGIC 0x0E01
#define CHECKSUM_AT 2
#define CHECKSUM_END 6
#define HEAD_BYTES 10 /* magic, checksum, size of the metadata */
#define ROOM_BYTES 64

/* A batch message: metadata size 4, payload_size = 0, compacted_out = true. */
static const uint8_t compacted_out[8] = {0, 0, 0, 4, 0x18, 0, 0x20, 1};

typedef enum { DECODE_OK, DECODE_MALFORMED, DECODE_FOREIGN, DECODE_TOO_LARGE, DECODE_FAILED } DecodeStatus;

/* Which fields the record supplies because the stored header does not. */
typedef struct {
    bool properties, key, event_time;
} Absent;

static Absent absent_from(Cursor fields, const Roles *roles)
{
    Absent absent = {true, true, true};
    PulsarField field;
    while (fields.at < fields.end && read_field(&fields, &field)) {
        if (field.kind == WIRE_BYTES && field.number == roles->properties)
            absent.properties = false;
        else if (field.kind == WIRE_BYTES && field.number == roles->key)
            absent.key = false;
        else if (field.kind == WIRE_VARINT && field.number == roles->event_time)
            absent.event_time = false;
    }
    return absent;
}

static void put_properties(Writer *writer, const Roles *roles, const Row *row)
{
    Cursor headers = row->headers;
    for (int32_t index = 0; index < row->header_count; index++) {
        Field name, content;
        if (!read_bytes(&headers, &name) || name.bytes == NULL || !read_bytes(&headers, &content))
            return;
        content = content.bytes ? content : (Field){headers.at, 0};
        Writer counter = {NULL};
        put_bytes_field(&counter, 1, &name);
        put_bytes_field(&counter, 2, &content);
        put_bytes_head(writer, roles->properties, counter.size);
        put_bytes_field(writer, 1, &name);
        put_bytes_field(writer, 2, &content);
    }
}

/* Appends the fields that follow from the record and are not in its header. */
static void put_absent(Writer *writer, const Decoding *decoding, const Roles *roles, const Row *row)
{
    const Absent absent = absent_from(row->present, roles);
    const StoredHeader *header = &decoding->header;
    const bool is_event = row->has_timestamp && row->timestamp > 0 && row->timestamp != header->fields.timestamp;
    const Known known = {
        .roles = roles,
        .key = absent.key ? row->key : (Field){NULL, 0},
        .is_base64 = header->flags & KEYS_ARE_BASE64,
        .event_time = is_event && absent.event_time ? (uint64_t)row->timestamp : 0,
        .has_sequence = roles->sequence != 0 && header->flags & SEQUENCES_FOLLOW,
        .sequence = header->fields.sequence_id + (uint64_t)row->delta,
    };
    if (absent.properties)
        put_properties(writer, roles, row);
    put_known(writer, &known, row);
}

static void put_single(Writer *writer, const Decoding *decoding, const Row *row)
{
    if (!decoding->is_stored) {
        put_foreign_message(writer, row, decoding->base_offset);
        return;
    }
    put(writer, row->present.at, row->present.end - row->present.at);
    put_absent(writer, decoding, &single_roles, row);
}

/* Appends messages flagged as compacted out for offsets without a record. */
static DecodeStatus put_gap(Output *output, const Decoding *decoding, int64_t count)
{
    const int64_t size = count * (int64_t)sizeof compacted_out;
    if (size > decoding->payload_bytes_max - output->writer.size)
        return DECODE_TOO_LARGE;
    if (!reserve(output, size))
        return DECODE_FAILED;
    while (count-- > 0)
        put(&output->writer, compacted_out, sizeof compacted_out);
    return DECODE_OK;
}

static DecodeStatus put_message(Output *output, const Decoding *decoding, const Row *row)
{
    const int64_t value_size = row->value.bytes == NULL ? 0 : row->value.size;
    Writer counter = {NULL};
    put_single(&counter, decoding, row);
    const int64_t size = 4 + counter.size + value_size;
    if (size > decoding->payload_bytes_max - output->writer.size)
        return DECODE_TOO_LARGE;
    if (!reserve(output, size))
        return DECODE_FAILED;
    const uint8_t *start = output->writer.at;
    put_u32(&output->writer, (uint32_t)counter.size);
    put_single(&output->writer, decoding, row);
    put(&output->writer, row->value.bytes, value_size);
    return output->writer.at == start + size ? DECODE_OK : DECODE_MALFORMED; /* the bytes changed meanwhile */
}

/* The payload of a Pulsar batch. */
static DecodeStatus put_messages(Output *output, Decoding *decoding)
{
    const Source *source = &decoding->source;
    Cursor records = source->records;
    int64_t last = -1;
    DecodeStatus status;
    for (decoding->index = 0; decoding->index < source->record_count; decoding->index++) {
        Row row;
        if (!read_row(source, &records, last, &row))
            return DECODE_MALFORMED;
        if (decoding->is_stored && !strip_reserved(&row, decoding->index == 0))
            return DECODE_FOREIGN;
        if ((row.delta > last + 1 && (status = put_gap(output, decoding, row.delta - last - 1)) != DECODE_OK)
            || (status = put_message(output, decoding, &row)) != DECODE_OK)
            return status;
        last = row.delta;
    }
    return records.at == records.end ? put_gap(output, decoding, source->last_delta - last) : DECODE_MALFORMED;
}

/* The fields as received, without the compression fields unless the entry is opaque: the stored payload is uncompressed. */
static void put_entry_fields(Writer *writer, const StoredHeader *header)
{
    Cursor cursor = header->fields.fields;
    if (header->flags & IS_OPAQUE) {
        put(writer, cursor.at, cursor.end - cursor.at);
        return;
    }
    PulsarField field;
    while (cursor.at < cursor.end && read_field(&cursor, &field))
        if (field.kind != WIRE_VARINT || (field.number != COMPRESSION && field.number != UNCOMPRESSED_SIZE))
            put(writer, field.whole, field.whole_size);
}

/* `row`: the only row of an entry that is a single message; else NULL. */
static void put_metadata(Writer *writer, const Decoding *decoding, const Row *row, int64_t payload_size)
{
    const StoredHeader *header = &decoding->header;
    if (!decoding->is_stored) {
        put_foreign_metadata(writer, &decoding->source, decoding->base_offset, payload_size);
        return;
    }
    put_entry_fields(writer, header);
    if (!header->is_batch)
        put_absent(writer, decoding, &message_roles, row);
    if (header->has_uncompressed_size && !(header->flags & IS_OPAQUE))
        put_varint_field(writer, UNCOMPRESSED_SIZE, (uint64_t)payload_size);
}

static PyObject *raise_status(KernelState *state, const Decoding *decoding, DecodeStatus status)
{
    if (status == DECODE_MALFORMED)
        return PyErr_Format(state->corrupt, "record %lld of a batch is malformed", (long long)decoding->index);
    const long long most = decoding->payload_bytes_max;
    PyObject *error = PyObject_CallFunction(state->too_large, "sLL", "payload of a Pulsar entry", most + 1, most);
    if (error != NULL)
        PyErr_SetObject(state->too_large, error);
    Py_XDECREF(error);
    return NULL;
}

static void write_head(uint8_t *frame, int64_t size, int64_t metadata_size)
{
    store_u16(frame, MAGIC);
    store_u32(frame + CHECKSUM_END, (uint32_t)metadata_size);
    store_u32(frame + CHECKSUM_AT, checksum_releasing(frame + CHECKSUM_END, (Py_ssize_t)(size - CHECKSUM_END)));
}

static int64_t metadata_size_of(const Decoding *decoding, const Row *row, int64_t payload_size)
{
    Writer counter = {NULL};
    put_metadata(&counter, decoding, row, payload_size);
    return counter.size;
}

/* An entry that is a single message: the only record. */
static PyObject *single_frame(KernelState *state, Decoding *decoding)
{
    Cursor records = decoding->source.records;
    Row row;
    if (!read_row(&decoding->source, &records, -1, &row))
        return raise_status(state, decoding, DECODE_MALFORMED);
    decoding->index = 1;
    if (decoding->source.record_count != 1 || records.at != records.end)
        return raise_status(state, decoding, DECODE_MALFORMED);
    row.header_count--; /* the entry header */
    row.present = decoding->header.fields.fields;
    const int64_t payload_size = row.value.bytes == NULL ? 0 : row.value.size;
    if (payload_size > decoding->payload_bytes_max)
        return raise_status(state, decoding, DECODE_TOO_LARGE);
    const int64_t metadata_size = metadata_size_of(decoding, &row, payload_size);
    const int64_t size = HEAD_BYTES + metadata_size + payload_size;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (frame == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(frame);
    Writer writer = {out + HEAD_BYTES, out + size, 0};
    put_metadata(&writer, decoding, &row, payload_size);
    put(&writer, row.value.bytes, payload_size);
    if (writer.at != writer.end) { /* the bytes changed meanwhile */
        Py_DECREF(frame);
        return raise_status(state, decoding, DECODE_MALFORMED);
    }
    write_head(out, size, metadata_size);
    return frame;
}

/* The metadata contains the payload size, which is known only at the end: this reserves room for the metadata, and moves the payload if
   the room is a byte too short or too long. */
static PyObject *batch_frame(KernelState *state, Decoding *decoding)
{
    const Cursor *records = &decoding->source.records;
    const int64_t records_size = records->end - records->at;
    const int64_t likely = decoding->is_stored ? (int64_t)(decoding->header.uncompressed_size & INT32_MAX) : records_size;
    int64_t start = HEAD_BYTES + metadata_size_of(decoding, NULL, likely);
    Output output;
    if (!open_output(&output, start + records_size + records_size / 8 + ROOM_BYTES, start))
        return NULL;
    const DecodeStatus status = put_messages(&output, decoding);
    const int64_t payload_size = output.writer.size;
    const int64_t metadata_size = metadata_size_of(decoding, NULL, payload_size);
    const int64_t shift = HEAD_BYTES + metadata_size - start;
    if (status != DECODE_OK || (shift > 0 && !reserve(&output, shift))) {
        Py_XDECREF(output.bytes);
        if (status == DECODE_OK || status == DECODE_FAILED)
            return NULL;
        return status == DECODE_FOREIGN ? Py_NewRef(Py_None) : raise_status(state, decoding, status);
    }
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(output.bytes);
    if (shift != 0)
        memmove(out + start + shift, out + start, (size_t)payload_size);
    output.writer.at += shift;
    Writer head = {out + HEAD_BYTES, out + start + shift, 0};
    put_metadata(&head, decoding, NULL, payload_size);
    PyObject *frame = close_output(&output);
    if (frame == NULL)
        return NULL;
    write_head((uint8_t *)PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), metadata_size);
    return frame;
}

PyObject *decode_entry(KernelState *state, Decoding *decoding)
{
    const Source *source = &decoding->source;
    const StoredHeader *header = &decoding->header;
    if (is_empty(source))
        return Py_BuildValue("y#LO", "", (Py_ssize_t)0, 0LL, Py_False);
    Cursor records = source->records;
    Row first;
    if (!read_row(source, &records, -1, &first))
        return raise_status(state, decoding, DECODE_MALFORMED);
    decoding->is_stored = read_stored_header(source, &first, &decoding->header);
    if (decoding->is_stored && !header->is_batch) {
        const long long count = header->fields.message_count > 0 ? header->fields.message_count : 1;
        PyObject *frame = single_frame(state, decoding);
        return frame == NULL ? NULL : Py_BuildValue("NLO", frame, count, Py_False);
    }
    PyObject *frame = batch_frame(state, decoding);
    if (frame == Py_None) { /* the headers were not written by a Pulsar client */
        Py_DECREF(frame);
        decoding->is_stored = false;
        frame = batch_frame(state, decoding);
    }
    return frame == NULL ? NULL : Py_BuildValue("NLO", frame, (long long)source->last_delta + 1, Py_True);
}

KERNEL_FUNCTION(kernel_decode_entry)
{
    Decoding decoding = {.index = 0};
    Py_buffer batch, records;
    if (check_arguments("decode_entry", count, 4, 4) < 0 || to_int64(arguments[2], &decoding.base_offset) < 0
        || to_int64(arguments[3], &decoding.payload_bytes_max) < 0
        || open_source(&decoding.source, arguments[0], arguments[1], &batch, &records) < 0)
        return NULL;
    PyObject *result = decode_entry(state_of(module), &decoding);
    close_source(&batch, &records);
    return result;
}
