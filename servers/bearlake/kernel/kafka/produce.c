/* The body of a Produce request, versions 3-13. Contract: produce.py. */
#include "batch/batch.h"
#include "kafka/kafka.h"

#define ZSTD 4

/* A position in a frame. Functions return -1 with an exception set if the bytes do not match the structure. */
typedef struct {
    PyObject *corrupt;
    const uint8_t *bytes;
    Py_ssize_t position;
    Py_ssize_t end;
    int version;
    int elements_left;
} Reader;

static inline bool is_flexible(const Reader *reader) { return reader->version >= FLEXIBLE; }

/* Skips `size` bytes and returns the position before them. */
static inline Py_ssize_t skip(Reader *reader, int64_t size, const char *what)
{
    const Py_ssize_t at = reader->position;
    if (size > reader->end - at) {
        PyErr_Format(reader->corrupt, "Produce request: %s at %zd reaches beyond the end", what, at);
        return -1;
    }
    reader->position += size;
    return at;
}

/* Counts an element of the request's lists. */
static inline int take_element(Reader *reader)
{
    if (reader->elements_left-- > 0)
        return 0;
    PyErr_Format(reader->corrupt, "Produce request: more than %d topics, partitions and tagged fields", ELEMENTS_MAX);
    return -1;
}

static inline int read_i16(Reader *reader, const char *what, int16_t *out)
{
    const Py_ssize_t at = skip(reader, 2, what);
    if (at < 0)
        return -1;
    *out = load_i16(reader->bytes + at);
    return 0;
}

static inline int read_i32(Reader *reader, const char *what, int32_t *out)
{
    const Py_ssize_t at = skip(reader, 4, what);
    if (at < 0)
        return -1;
    *out = load_i32(reader->bytes + at);
    return 0;
}

static inline int read_varint(Reader *reader, const char *what, int64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const Py_ssize_t at = skip(reader, 1, what);
        if (at < 0)
            return -1;
        const uint64_t byte = reader->bytes[at];
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (value >> 32)
                break;
            *out = (int64_t)value;
            return 0;
        }
    }
    PyErr_Format(reader->corrupt, "Produce request: %s at %zd is not a varint of 32 bits", what, reader->position);
    return -1;
}

/* A length or count, `width` bytes wide below version 9; -1 stands for null. */
static inline int read_length(Reader *reader, int width, const char *what, bool is_nullable, int64_t *out)
{
    const Py_ssize_t at = reader->position;
    int16_t narrow;
    int32_t wide;
    if (is_flexible(reader)) {
        if (read_varint(reader, what, out) < 0)
            return -1;
        --*out;
    } else if (width == 2) {
        if (read_i16(reader, what, &narrow) < 0)
            return -1;
        *out = narrow;
    } else {
        if (read_i32(reader, what, &wide) < 0)
            return -1;
        *out = wide;
    }
    if (*out >= (is_nullable ? -1 : 0))
        return 0;
    PyErr_Format(reader->corrupt, "Produce request: %s at %zd has the length %lld", what, at, (long long)*out);
    return -1;
}

static int skip_tags(Reader *reader)
{
    int64_t tags, tag, size;
    if (!is_flexible(reader))
        return 0;
    if (read_varint(reader, "tagged field count", &tags) < 0)
        return -1;
    while (tags--)
        if (take_element(reader) < 0 || read_varint(reader, "tag", &tag) < 0 || read_varint(reader, "tagged field size", &size) < 0
            || skip(reader, size, "tagged field") < 0)
            return -1;
    return 0;
}

/* A str, or None where null is allowed; NULL with an exception set. */
static PyObject *read_string(Reader *reader, const char *what, bool is_nullable)
{
    int64_t length;
    if (read_length(reader, 2, what, is_nullable, &length) < 0)
        return NULL;
    if (length < 0)
        return Py_NewRef(Py_None);
    const Py_ssize_t at = skip(reader, length, what);
    if (at < 0)
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)reader->bytes + at, length, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        PyErr_Format(reader->corrupt, "Produce request: %s at %zd is not UTF-8", what, at);
    }
    return text;
}

static PyObject *read_topic(Reader *reader)
{
    if (reader->version < TOPIC_IDS)
        return read_string(reader, "topic name", false);
    const Py_ssize_t at = skip(reader, 16, "topic id");
    return at < 0 ? NULL : PyBytes_FromStringAndSize((const char *)reader->bytes + at, 16);
}

static PyObject *make_entry(const Reader *reader, PyObject *topic, int32_t index, Py_ssize_t start, Py_ssize_t end)
{
    Header header;
    Status status = inspect_bytes(reader->bytes + start, end - start, &header);
    if (status == STATUS_OK && reader->version < ZSTD_SINCE && (header.attributes & 0x07) == ZSTD)
        status = STATUS_ZSTD_TOO_EARLY;
    if (status != STATUS_OK)
        header = (Header){
            .base_timestamp = -1, .max_timestamp = -1, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    PyObject *entry = PyTuple_New(ENTRY_FIELDS);
    if (entry == NULL)
        return NULL;
    PyObject *fields[ENTRY_FIELDS] = {
        Py_NewRef(topic),
        PyLong_FromLong(index),
        PyLong_FromSsize_t(start),
        PyLong_FromSsize_t(end),
        PyLong_FromLong(status),
        PyLong_FromLong(header.attributes),
        PyLong_FromLong(header.record_count),
        PyLong_FromLongLong(header.base_timestamp),
        PyLong_FromLongLong(header.max_timestamp),
        PyLong_FromLongLong(header.producer_id),
        PyLong_FromLong(header.producer_epoch),
        PyLong_FromLong(header.base_sequence),
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
    PyObject *entry = make_entry(reader, topic, index, start, reader->position);
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

/* The common properties of requests that are parsed together: the header after the correlation id, and limits. */
typedef struct {
    const uint8_t *lead;
    Py_ssize_t lead_size;
    int version;
    int64_t size_max, count_max;
} Alike;

#define SIZE_BYTES 4
#define LEAD_AT 8 /* in a request: after API key, version and correlation id */
#define ALL_REPLICAS -1
#define LEADER 1

/* Whether the request has the common header. */
static bool is_alike(const uint8_t *request, int64_t size, const Alike *alike)
{
    return size >= LEAD_AT + alike->lead_size && size <= alike->size_max && load_i16(request) == 0
        && load_i16(request + 2) == alike->version && memcmp(request + LEAD_AT, alike->lead, (size_t)alike->lead_size) == 0;
}

/* Appends the entries of a request without transactional id that asks for a response: 1; 0 if it is not such a request or malformed; -1
   with an exception set. */
static int read_plain(Reader *reader, PyObject *entries)
{
    int16_t acks;
    int32_t timeout_ms;
    const Py_ssize_t before = PyList_GET_SIZE(entries);
    PyObject *transactional_id = read_string(reader, "transactional id", true);
    if (transactional_id == NULL)
        return -1;
    const bool is_transactional = transactional_id != Py_None;
    Py_DECREF(transactional_id);
    if (is_transactional)
        return 0;
    if (read_i16(reader, "acks", &acks) < 0 || read_i32(reader, "timeout", &timeout_ms) < 0)
        return -1;
    if (acks != ALL_REPLICAS && acks != LEADER)
        return 0;
    return read_topics(reader, entries) < 0 ? -1 : PyList_GET_SIZE(entries) > before;
}

/* Takes the request at `*at` and advances past it: 1; 0 if there is no matching request; -1 with an exception set. */
static int take_request(KernelState *state, const Py_buffer *frames, Py_ssize_t *at, Py_ssize_t end, const Alike *alike,
                        PyObject *requests, PyObject *entries)
{
    const uint8_t *request = (const uint8_t *)frames->buf + *at + SIZE_BYTES;
    if (end - *at < SIZE_BYTES)
        return 0;
    const int64_t size = load_i32(request - SIZE_BYTES);
    if (size > end - *at - SIZE_BYTES || !is_alike(request, size, alike))
        return 0;
    const Py_ssize_t before = PyList_GET_SIZE(entries), start = *at + SIZE_BYTES, next = start + (Py_ssize_t)size;
    Reader reader = {state->corrupt, frames->buf, start + LEAD_AT + alike->lead_size, next, alike->version, ELEMENTS_MAX};
    int outcome = read_plain(&reader, entries);
    if (outcome < 0 && PyErr_ExceptionMatches(state->corrupt)) { /* reported when this request is parsed alone */
        PyErr_Clear();
        outcome = 0;
    }
    if (outcome <= 0)
        return outcome < 0 || PyList_SetSlice(entries, before, PyList_GET_SIZE(entries), NULL) < 0 ? -1 : 0;
    *at = next;
    PyObject *taken = Py_BuildValue("nin", next, load_i32(request + 4), PyList_GET_SIZE(entries) - before);
    outcome = taken == NULL || PyList_Append(requests, taken) < 0 ? -1 : 1;
    Py_XDECREF(taken);
    return outcome;
}

static PyObject *take_requests(KernelState *state, const Py_buffer *frames, Py_ssize_t at, Py_ssize_t end, const Alike *alike)
{
    PyObject *requests = PyList_New(0), *entries = PyList_New(0);
    int outcome = requests == NULL || entries == NULL ? -1 : 1;
    while (outcome > 0 && PyList_GET_SIZE(requests) < alike->count_max && PyList_GET_SIZE(entries) < ELEMENTS_MAX)
        outcome = take_request(state, frames, &at, end, alike, requests, entries);
    if (outcome >= 0)
        return Py_BuildValue("NN", requests, entries);
    Py_XDECREF(requests);
    Py_XDECREF(entries);
    return NULL;
}

KERNEL_FUNCTION(kernel_parse_produces)
{
    Py_buffer frames, lead;
    Py_ssize_t at, end;
    int64_t version;
    Alike alike;
    PyObject *result = NULL;
    KernelState *state = state_of(module);
    if (check_arguments("parse_produces", count, 7, 7) < 0 || to_int64(arguments[3], &version) < 0
        || to_int64(arguments[5], &alike.size_max) < 0 || to_int64(arguments[6], &alike.count_max) < 0)
        return NULL;
    if (version < 3 || version > 13)
        return PyErr_Format(state->unsupported, "Produce version %S; supported: 3-13", arguments[3]);
    if (PyObject_GetBuffer(arguments[0], &frames, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[4], &lead, PyBUF_SIMPLE) == 0) {
        alike.lead = lead.buf;
        alike.lead_size = lead.len;
        alike.version = (int)version;
        if (to_range(arguments[1], arguments[2], frames.len, &at, &end) == 0)
            result = take_requests(state, &frames, at, end, &alike);
        PyBuffer_Release(&lead);
    }
    PyBuffer_Release(&frames);
    return result;
}
