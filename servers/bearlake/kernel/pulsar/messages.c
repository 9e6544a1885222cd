/* Encodes MESSAGE commands for a consumer. Contract: messages.py. */
#include "pulsar/decode.h"
#include "pulsar/pulsar.h"

#define MESSAGE 9 /* BaseCommand.type, and the number of its field */
#define CODEC_AT 22
#define CODEC_MASK 7
#define SIZE_BYTES 4
#define COMMAND_BYTES_MAX 96 /* eight varints, three of them sizes, their tags, two sizes of frames */

/* Indices in pulsar.DeliveryLike */
#define BASE_OFFSET 0
#define BATCH 2
#define REDELIVERIES 3
#define ACKNOWLEDGED 4
#define DELIVERY_FIELDS 5

typedef struct {
    uint64_t consumer_id, ledger_id;
    int64_t partition;
    bool has_epoch;
    uint64_t epoch;
    int64_t entry_bytes_max, bytes_max;
} Consumer;

static void put_command(Writer *writer, const Consumer *consumer, int64_t base_offset, int64_t redeliveries, int64_t entry_size)
{
    uint8_t id_bytes[COMMAND_BYTES_MAX], body_bytes[COMMAND_BYTES_MAX];
    Writer id = {id_bytes, id_bytes + sizeof id_bytes, 0}, body = {body_bytes, body_bytes + sizeof body_bytes, 0};
    put_varint_field(&id, 1, consumer->ledger_id);
    put_varint_field(&id, 2, (uint64_t)base_offset);
    put_varint_field(&id, 3, (uint64_t)consumer->partition);
    put_varint_field(&body, 1, consumer->consumer_id);
    put_bytes_field(&body, 2, &(Field){id_bytes, id.size});
    if (redeliveries > 0)
        put_varint_field(&body, 3, (uint64_t)redeliveries);
    if (consumer->has_epoch)
        put_varint_field(&body, 5, consumer->epoch);
    const Field content = {body_bytes, body.size};
    Writer counter = {NULL};
    put_varint_field(&counter, 1, MESSAGE);
    put_bytes_field(&counter, MESSAGE, &content);
    put_u32(writer, (uint32_t)(SIZE_BYTES + counter.size + entry_size));
    put_u32(writer, (uint32_t)counter.size);
    put_varint_field(writer, 1, MESSAGE);
    put_bytes_field(writer, MESSAGE, &content);
}

/* (entry, message count, is batch) of an uncompressed batch; NULL without an exception if it needs the slow path. */
static PyObject *decode_plain(KernelState *state, PyObject *batch, int64_t base_offset, int64_t bytes_max)
{
    Decoding decoding = {.base_offset = base_offset, .payload_bytes_max = bytes_max};
    Py_buffer view, unused;
    PyObject *entry = NULL;
    if (open_source(&decoding.source, batch, Py_None, &view, &unused) < 0)
        return NULL;
    const bool is_compressed = (((const uint8_t *)view.buf)[CODEC_AT] & CODEC_MASK) != 0;
    if (!is_compressed && !is_empty(&decoding.source))
        entry = decode_entry(state, &decoding);
    close_source(&view, &unused);
    if (entry == NULL && PyErr_Occurred()
        && (PyErr_ExceptionMatches(state->corrupt) || PyErr_ExceptionMatches(state->too_large)))
        PyErr_Clear();
    return entry;
}

/* Appends one delivery and counts its messages: 1; 0 if it needs the slow path; -1 with an exception set. */
static int put_delivery(KernelState *state, Output *output, const Consumer *consumer, PyObject *delivery, int64_t *count)
{
    int64_t base_offset, redeliveries, message_count;
    if (check_tuple(delivery, DELIVERY_FIELDS, "a delivery") < 0 || to_int64(PyTuple_GET_ITEM(delivery, BASE_OFFSET), &base_offset) < 0
        || to_int64(PyTuple_GET_ITEM(delivery, REDELIVERIES), &redeliveries) < 0)
        return -1;
    const Py_ssize_t known = PyObject_Size(PyTuple_GET_ITEM(delivery, ACKNOWLEDGED));
    if (known != 0)
        return known < 0 ? -1 : 0;
    PyObject *entry = decode_plain(state, PyTuple_GET_ITEM(delivery, BATCH), base_offset, consumer->entry_bytes_max);
    if (entry == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *bytes = PyTuple_GET_ITEM(entry, 0);
    const int64_t size = PyBytes_GET_SIZE(bytes);
    int outcome = size <= consumer->entry_bytes_max;
    if (outcome > 0 && (to_int64(PyTuple_GET_ITEM(entry, 1), &message_count) < 0 || !reserve(output, COMMAND_BYTES_MAX + size)))
        outcome = -1;
    if (outcome > 0) {
        put_command(&output->writer, consumer, base_offset, redeliveries, size);
        put(&output->writer, PyBytes_AS_STRING(bytes), size);
        *count += message_count;
    }
    Py_DECREF(entry);
    return outcome;
}

/* Estimates the size of the commands for deliveries from `at` on, up to `bytes_max`. */
static int64_t likely_size(PyObject *deliveries, Py_ssize_t at, int64_t bytes_max)
{
    int64_t size = 0;
    for (; at < PySequence_Fast_GET_SIZE(deliveries) && size < bytes_max; at++) {
        PyObject *delivery = PySequence_Fast_GET_ITEM(deliveries, at);
        const Py_buffer *view = NULL;
        if (!PyTuple_Check(delivery) || PyTuple_GET_SIZE(delivery) != DELIVERY_FIELDS)
            break; /* an error, reported later */
        if (PyMemoryView_Check(PyTuple_GET_ITEM(delivery, BATCH)))
            view = PyMemoryView_GET_BUFFER(PyTuple_GET_ITEM(delivery, BATCH));
        size += COMMAND_BYTES_MAX + (view == NULL ? 0 : view->len + view->len / 8);
    }
    return size;
}

static PyObject *encode(KernelState *state, PyObject *deliveries, Py_ssize_t at, const Consumer *consumer)
{
    Output output;
    int64_t count = 0;
    int outcome = 1;
    if (!open_output(&output, likely_size(deliveries, at, consumer->bytes_max), 0))
        return NULL;
    while (outcome > 0 && at < PySequence_Fast_GET_SIZE(deliveries) && output.writer.size < consumer->bytes_max) {
        PyObject *delivery = Py_NewRef(PySequence_Fast_GET_ITEM(deliveries, at)); /* buffers may run Python code */
        outcome = put_delivery(state, &output, consumer, delivery, &count);
        Py_DECREF(delivery);
        at += outcome > 0;
    }
    if (outcome < 0) {
        Py_XDECREF(output.bytes);
        return NULL;
    }
    PyObject *frames = close_output(&output);
    return frames == NULL ? NULL : Py_BuildValue("NLn", frames, (long long)count, at);
}

KERNEL_FUNCTION(kernel_encode_messages)
{
    int64_t start;
    Consumer consumer = {.has_epoch = false};
    if (check_arguments("encode_messages", count, 8, 8) < 0
        || to_int64(arguments[1], &start) < 0 || to_uint64(arguments[2], &consumer.consumer_id) < 0
        || to_uint64(arguments[3], &consumer.ledger_id) < 0 || to_int64(arguments[4], &consumer.partition) < 0
        || to_int64(arguments[6], &consumer.entry_bytes_max) < 0 || to_int64(arguments[7], &consumer.bytes_max) < 0)
        return NULL;
    consumer.has_epoch = arguments[5] != Py_None;
    if (consumer.has_epoch && to_uint64(arguments[5], &consumer.epoch) < 0)
        return NULL;
    PyObject *deliveries = PySequence_Fast(arguments[0], "deliveries is not a sequence");
    if (deliveries == NULL)
        return NULL;
    PyObject *messages = NULL;
    if (start < 0 || start > PySequence_Fast_GET_SIZE(deliveries) || consumer.bytes_max < 0 || consumer.bytes_max > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "expected an index into the deliveries and a size below 2 GiB");
    else
        messages = encode(state_of(module), deliveries, (Py_ssize_t)start, &consumer);
    Py_DECREF(deliveries);
    return messages;
}
