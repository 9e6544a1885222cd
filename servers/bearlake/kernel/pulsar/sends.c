/* Parses Pulsar SENDs in a receive buffer and encodes their receipts. Contract: sends.py. */
#include "pulsar/sends.h"

#define MAGIC 0x0E01
#define SIZE_BYTES 4
#define CHECKSUM_AT 2    /* in a message: after the magic */
#define CHECKED_AT 6     /* after the checksum */
#define METADATA_AT 10   /* after the metadata's size */
#define IDS_FIELDS 2     /* of pulsar.SendIds */
#define OUTCOME_FIELDS 3 /* of log.ProduceOutcome */
#define BASE_TIMESTAMP_AT 27

/* BaseCommand: type, and the field of the same number */
#define COMMAND_TYPE 1
#define SEND 6
#define SEND_RECEIPT 7
/* CommandSend */
#define SEND_PRODUCER 1
#define SEND_SEQUENCE 2
#define SEND_COUNT 3
#define SEND_HIGHEST 6
#define SEND_MARKER 8
/* MessageMetadata */
#define PROPERTIES 4
#define ENCRYPTION_KEYS 13

/* Verdicts */
#define ACCEPTED 0
#define DUPLICATE 1

/* Reads a SEND without a transaction, a chunk, a marker or unknown fields. */
static bool read_send(Cursor command, Send *send)
{
    PulsarField type, body, field;
    *send = (Send){0};
    if (!read_field(&command, &type) || type.number != COMMAND_TYPE || type.kind != WIRE_VARINT || type.value != SEND
        || !read_field(&command, &body) || body.number != SEND || body.kind != WIRE_BYTES || command.at != command.end)
        return false;
    Cursor cursor = {body.content.bytes, body.content.bytes + body.content.size};
    while (cursor.at < cursor.end) {
        if (!read_field(&cursor, &field) || field.kind != WIRE_VARINT || field.number > SEND_MARKER)
            return false;
        if (field.number == SEND_PRODUCER) {
            send->producer_id = field.value;
        } else if (field.number == SEND_SEQUENCE) {
            send->sequence_id = field.value;
        } else if (field.number == SEND_HIGHEST) {
            send->highest_id = field.value;
            send->has_highest = true;
        } else if (field.number != SEND_COUNT && field.value != 0) {
            return false;
        }
    }
    return send->sequence_id <= INT64_MAX && send->highest_id <= INT64_MAX;
}

/* Whether the entry is not compressed, encrypted or a chunk, and all its properties are regular. */
static bool is_plain(Cursor metadata)
{
    while (metadata.at < metadata.end) {
        PulsarField field;
        Field key, value;
        if (!read_field(&metadata, &field))
            return false;
        if (field.kind == WIRE_BYTES) {
            if (field.number == ENCRYPTION_KEYS || (field.number == PROPERTIES && !read_property(&field.content, &key, &value)))
                return false;
        } else if (field.kind != WIRE_VARINT || (field.number == COMPRESSION && field.value != 0)
                   || (field.number == CHUNK_COUNT && field.value > 1)) {
            return false;
        }
    }
    return true;
}

/* Finds the metadata and the payload of a message; false if the frame is wrong. */
static bool split_message(const Cursor *message, Cursor *metadata, Cursor *payload)
{
    if (message->end - message->at < METADATA_AT || load_u16(message->at) != MAGIC)
        return false;
    const uint8_t *start = message->at + METADATA_AT;
    const int64_t metadata_size = load_u32(message->at + CHECKED_AT);
    if (metadata_size > message->end - start)
        return false;
    *metadata = (Cursor){start, start + metadata_size};
    *payload = (Cursor){start + metadata_size, message->end};
    return true;
}

/* Whether the checksum of a message is right; may release the GIL. */
static bool has_checksum(const Cursor *message)
{
    const uint8_t *start = message->at + CHECKED_AT;
    return checksum_releasing(start, (Py_ssize_t)(message->end - start)) == load_u32(message->at + CHECKSUM_AT);
}

/* Reads the command of the whole SEND at `at`; the message is what follows it. */
static bool read_frame(const uint8_t *bytes, Py_ssize_t at, Py_ssize_t end, SendFrame *found, Cursor *message)
{
    if (end - at < 2 * SIZE_BYTES)
        return false;
    const uint8_t *frame = bytes + at + SIZE_BYTES;
    const int64_t size = load_u32(frame - SIZE_BYTES), room = end - at - SIZE_BYTES;
    const int64_t command_size = load_u32(frame);
    if (size < SIZE_BYTES || size > room || command_size > size - SIZE_BYTES)
        return false;
    *message = (Cursor){frame + SIZE_BYTES + command_size, frame + size};
    found->end = at + (Py_ssize_t)(SIZE_BYTES + size);
    return read_send((Cursor){frame + SIZE_BYTES, message->at}, &found->send);
}

bool read_common_send(const uint8_t *bytes, Py_ssize_t at, Py_ssize_t end, const SendLimits *limits, SendFrame *found)
{
    Cursor message;
    /* The checksum comes last, because it reads all bytes: large and compressed entries are refused without it. */
    return read_frame(bytes, at, end, found, &message) && message.end - message.at <= limits->message_bytes_max
        && (!limits->has_producer || found->send.producer_id == limits->producer_id)
        && split_message(&message, &found->metadata, &found->payload)
        && found->payload.end - found->payload.at <= limits->payload_bytes_max && is_plain(found->metadata)
        && has_checksum(&message);
}

bool clear_refusal(const KernelState *state)
{
    if (!PyErr_ExceptionMatches(state->corrupt) && !PyErr_ExceptionMatches(state->unsupported))
        return false;
    PyErr_Clear();
    return true;
}

static PyObject *make_entry(const SendFrame *frame, PyObject *encoded)
{
    const Send *send = &frame->send;
    PyObject *batch = PyTuple_GET_ITEM(encoded, 0);
    const int64_t base_timestamp = load_i64((const uint8_t *)PyBytes_AS_STRING(batch) + BASE_TIMESTAMP_AT);
    PyObject *highest_id = send->has_highest ? PyLong_FromUnsignedLongLong(send->highest_id) : Py_NewRef(Py_None);
    if (highest_id == NULL)
        return NULL;
    return Py_BuildValue(
        "KKNnOOLO", (unsigned long long)send->producer_id, (unsigned long long)send->sequence_id, highest_id, frame->end, batch,
        PyTuple_GET_ITEM(encoded, 1), (long long)base_timestamp, PyTuple_GET_ITEM(encoded, 2));
}

/* Appends the SEND at `*at` and advances past it: 1; 0 if there is no plain SEND; -1 with an exception set. */
static int take_send(KernelState *state, const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end, const SendLimits *limits, PyObject *list)
{
    SendFrame frame;
    if (!read_common_send(bytes, *at, end, limits, &frame))
        return 0;
    PyObject *encoded = encode_entry(state, frame.metadata, frame.payload, false);
    if (encoded == NULL)
        return clear_refusal(state) ? 0 : -1;
    PyObject *entry = make_entry(&frame, encoded);
    Py_DECREF(encoded);
    const int outcome = entry == NULL || PyList_Append(list, entry) < 0 ? -1 : 1;
    Py_XDECREF(entry);
    *at = frame.end;
    return outcome;
}

KERNEL_FUNCTION(kernel_next_sender)
{
    Py_buffer frames;
    Py_ssize_t at, end;
    SendFrame frame;
    Cursor message;
    if (check_arguments("next_sender", count, 3, 3) < 0 || PyObject_GetBuffer(arguments[0], &frames, PyBUF_SIMPLE) < 0)
        return NULL;
    const int outcome = to_range(arguments[1], arguments[2], frames.len, &at, &end);
    const bool is_found = outcome == 0 && read_frame(frames.buf, at, end, &frame, &message);
    PyBuffer_Release(&frames);
    if (outcome < 0)
        return NULL;
    return is_found ? PyLong_FromUnsignedLongLong(frame.send.producer_id) : Py_NewRef(Py_None);
}

KERNEL_FUNCTION(kernel_parse_sends)
{
    Py_buffer frames;
    Py_ssize_t at, end;
    int64_t count_max;
    SendLimits limits = {.has_producer = false};
    if (check_arguments("parse_sends", count, 6, 6) < 0 || to_int64(arguments[3], &count_max) < 0
        || to_int64(arguments[4], &limits.payload_bytes_max) < 0 || to_int64(arguments[5], &limits.message_bytes_max) < 0
        || PyObject_GetBuffer(arguments[0], &frames, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *list = to_range(arguments[1], arguments[2], frames.len, &at, &end) < 0 ? NULL : PyList_New(0);
    int outcome = list == NULL ? -1 : 1;
    while (outcome > 0 && PyList_GET_SIZE(list) < count_max)
        outcome = take_send(state_of(module), (const uint8_t *)frames.buf, &at, end, &limits, list);
    PyBuffer_Release(&frames);
    if (outcome < 0)
        Py_CLEAR(list);
    return list;
}

bool has_receipt(int64_t verdict, int64_t base_offset)
{
    return verdict == DUPLICATE || (verdict == ACCEPTED && base_offset >= 0);
}

static void put_id(Writer *writer, const ReceiptNames *names, int64_t base_offset)
{
    put_varint_field(writer, 1, base_offset < 0 ? UINT64_MAX : names->ledger_id);
    put_varint_field(writer, 2, base_offset < 0 ? UINT64_MAX : (uint64_t)base_offset);
    if (base_offset >= 0 && names->partition >= 0)
        put_varint_field(writer, 3, (uint64_t)names->partition);
}

void put_receipt(Writer *writer, const ReceiptNames *names, const Send *send, int64_t base_offset)
{
    uint8_t body_bytes[RECEIPT_BYTES_MAX], id_bytes[RECEIPT_BYTES_MAX];
    Writer body = {body_bytes, body_bytes + sizeof body_bytes, 0}, id = {id_bytes, id_bytes + sizeof id_bytes, 0};
    put_id(&id, names, base_offset);
    put_varint_field(&body, 1, names->producer_id);
    put_varint_field(&body, 2, send->sequence_id);
    put_bytes_field(&body, 3, &(Field){id_bytes, id.size});
    if (send->has_highest)
        put_varint_field(&body, 4, send->highest_id);
    const Field content = {body_bytes, body.size};
    Writer counter = {NULL};
    put_varint_field(&counter, COMMAND_TYPE, SEND_RECEIPT);
    put_bytes_field(&counter, SEND_RECEIPT, &content);
    put_u32(writer, (uint32_t)(SIZE_BYTES + counter.size));
    put_u32(writer, (uint32_t)counter.size);
    put_varint_field(writer, COMMAND_TYPE, SEND_RECEIPT);
    put_bytes_field(writer, SEND_RECEIPT, &content);
}

int to_receipt_names(PyObject *const *arguments, ReceiptNames *names)
{
    return to_uint64(arguments[0], &names->producer_id) < 0 || to_uint64(arguments[1], &names->ledger_id) < 0
        ? -1
        : to_int64(arguments[2], &names->partition);
}

static int to_ids(PyObject *ids, Send *send)
{
    PyObject *highest_id = PyTuple_GET_ITEM(ids, 1);
    *send = (Send){.has_highest = highest_id != Py_None};
    if (to_uint64(PyTuple_GET_ITEM(ids, 0), &send->sequence_id) < 0)
        return -1;
    return send->has_highest ? to_uint64(highest_id, &send->highest_id) : 0;
}

/* Appends one receipt: 1; 0 if the SEND gets none; -1 with an exception set. */
static int put_outcome(Output *output, const ReceiptNames *names, PyObject *ids, PyObject *result)
{
    int64_t outcome[OUTCOME_FIELDS];
    Send send;
    if (check_tuple(ids, IDS_FIELDS, "ids") < 0 || to_ids(ids, &send) < 0
        || check_tuple(result, OUTCOME_FIELDS, "a result") < 0 || to_numbers(result, 0, 1, outcome) < 0)
        return -1;
    if (!has_receipt(outcome[0], outcome[1]))
        return 0;
    if (!reserve(output, RECEIPT_BYTES_MAX))
        return -1;
    put_receipt(&output->writer, names, &send, outcome[1]);
    return 1;
}

KERNEL_FUNCTION(kernel_encode_receipts)
{
    int64_t start;
    ReceiptNames names;
    if (check_arguments("encode_receipts", count, 6, 6) < 0 || to_receipt_names(arguments, &names) < 0
        || check_list(arguments[3], "ids") < 0 || check_list(arguments[4], "results") < 0 || to_int64(arguments[5], &start) < 0)
        return NULL;
    PyObject *ids = arguments[3], *results = arguments[4];
    if (PyList_GET_SIZE(ids) != PyList_GET_SIZE(results) || start < 0 || start > PyList_GET_SIZE(ids))
        return PyErr_Format(PyExc_ValueError, "expected one result per SEND, and an index into them");
    Output output;
    Py_ssize_t at = (Py_ssize_t)start;
    if (!open_output(&output, RECEIPT_BYTES_MAX / 2 * (PyList_GET_SIZE(ids) - at) + 1, 0))
        return NULL;
    int outcome = 1;
    while (outcome > 0 && at < PyList_GET_SIZE(ids)) {
        outcome = put_outcome(&output, &names, PyList_GET_ITEM(ids, at), PyList_GET_ITEM(results, at));
        at += outcome > 0;
    }
    if (outcome < 0) {
        Py_XDECREF(output.bytes);
        return NULL;
    }
    PyObject *receipts = close_output(&output);
    return receipts == NULL ? NULL : Py_BuildValue("Nn", receipts, at);
}
