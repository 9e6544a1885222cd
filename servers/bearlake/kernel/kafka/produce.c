/* The body of a Produce request, versions 3-13. Contract: produce.py. */
#include "kafka/reader.h"

Status inspect_produced(const uint8_t *bytes, Py_ssize_t size, int version, Header *header, bool *is_good)
{
    Status status = inspect_records(bytes, size, header, is_good);
    if (status == STATUS_OK && version < ZSTD_SINCE && (header->attributes & COMPRESSION_MASK) == ZSTD)
        status = STATUS_ZSTD_TOO_EARLY;
    if (status != STATUS_OK)
        *header = (Header){
            .base_timestamp = -1, .max_timestamp = -1, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    return status;
}

PyObject *make_entry(PyObject *topic, int32_t index, Py_ssize_t start, Py_ssize_t end, Status status, const Header *header)
{
    PyObject *entry = PyTuple_New(ENTRY_FIELDS);
    if (entry == NULL)
        return NULL;
    PyObject *fields[ENTRY_FIELDS] = {
        Py_NewRef(topic),
        PyLong_FromLong(index),
        PyLong_FromSsize_t(start),
        PyLong_FromSsize_t(end),
        PyLong_FromLong(status),
        PyLong_FromLong(header->attributes),
        PyLong_FromLong(header->record_count),
        PyLong_FromLongLong(header->base_timestamp),
        PyLong_FromLongLong(header->max_timestamp),
        PyLong_FromLongLong(header->producer_id),
        PyLong_FromLong(header->producer_epoch),
        PyLong_FromLong(header->base_sequence),
    };
    bool is_whole = true;
    for (int at = 0; at < ENTRY_FIELDS; at++) {
        is_whole = is_whole && fields[at] != NULL;
        PyTuple_SET_ITEM(entry, at, fields[at]);
    }
    if (!is_whole)
        Py_CLEAR(entry);
    return entry;
}

static int read_partition(Reader *reader, PyObject *topic, PyObject *entries)
{
    int32_t index;
    int64_t length;
    if (take_element(reader) < 0 || read_i32(reader, "partition index", &index) < 0
        || read_length(reader, 4, "records", true, &length) < 0)
        return -1;
    const Py_ssize_t start = skip(reader, length > 0 ? length : 0, "records");
    if (start < 0)
        return -1;
    Header header;
    const Status status = inspect_produced(reader->bytes + start, reader->position - start, reader->version, &header, NULL);
    PyObject *entry = make_entry(topic, index, start, reader->position, status, &header);
    if (entry == NULL)
        return -1;
    const int outcome = PyList_Append(entries, entry);
    Py_DECREF(entry);
    return outcome < 0 ? -1 : skip_tags(reader);
}

static int read_topic_data(Reader *reader, PyObject *entries)
{
    int64_t partitions;
    int outcome = 0;
    if (take_element(reader) < 0)
        return -1;
    PyObject *topic = read_topic(reader);
    if (topic == NULL)
        return -1;
    if (read_length(reader, 4, "partition count", false, &partitions) < 0)
        outcome = -1;
    while (outcome == 0 && partitions--)
        outcome = read_partition(reader, topic, entries);
    Py_DECREF(topic);
    return outcome < 0 ? -1 : skip_tags(reader);
}

static int read_topics(Reader *reader, PyObject *entries)
{
    int64_t topics;
    if (read_length(reader, 4, "topic count", false, &topics) < 0)
        return -1;
    while (topics--)
        if (read_topic_data(reader, entries) < 0)
            return -1;
    return skip_tags(reader);
}

static PyObject *read_request(Reader *reader)
{
    int16_t acks;
    int32_t timeout_ms;
    PyObject *transactional_id = read_string(reader, "transactional id", true);
    if (transactional_id == NULL)
        return NULL;
    if (read_i16(reader, "acks", &acks) == 0 && read_i32(reader, "timeout", &timeout_ms) == 0) {
        PyObject *entries = PyList_New(0);
        if (entries != NULL && read_topics(reader, entries) == 0)
            return Py_BuildValue("NhiN", transactional_id, acks, timeout_ms, entries);
        Py_XDECREF(entries);
    }
    Py_DECREF(transactional_id);
    return NULL;
}

KERNEL_FUNCTION(kernel_parse_produce)
{
    Py_buffer view;
    int64_t position, version;
    PyObject *result = NULL;
    KernelState *state = state_of(module);
    if (check_arguments("parse_produce", count, 3, 3) < 0 || to_int64(arguments[1], &position) < 0
        || to_int64(arguments[2], &version) < 0)
        return NULL;
    if (version < 3 || version > 13)
        return PyErr_Format(state->unsupported, "Produce version %S; supported: 3-13", arguments[2]);
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (position < 0 || position > view.len) {
        PyErr_Format(PyExc_ValueError, "position %S is not inside a frame of %zd bytes", arguments[1], view.len);
    } else {
        Reader reader = {state->corrupt, view.buf, position, view.len, (int)version, ELEMENTS_MAX};
        result = read_request(&reader);
    }
    PyBuffer_Release(&view);
    return result;
}
