/* Parses ordinary Fetch requests, versions 4-18. Contract: fetch.py. */
#include "kafka/fetch.h"

/* A position in a body. Functions return false at bytes that do not fit the structure, and then no other function is called. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int version;
} Reader;

/* Skips `size` bytes; `*bytes` is their beginning. */
static inline bool take_bytes(Reader *reader, int64_t size, const uint8_t **bytes)
{
    if (size < 0 || size > reader->end - reader->at)
        return false;
    *bytes = reader->at;
    reader->at += size;
    return true;
}

static inline bool take_i32(Reader *reader, int32_t *out)
{
    const uint8_t *bytes;
    if (!take_bytes(reader, 4, &bytes))
        return false;
    *out = load_i32(bytes);
    return true;
}

static bool take_varint(Reader *reader, int64_t *out)
{
    uint64_t value = 0;
    const uint8_t *byte;
    for (int shift = 0; shift < 35; shift += 7) {
        if (!take_bytes(reader, 1, &byte))
            return false;
        value |= (uint64_t)(*byte & 0x7F) << shift;
        if (*byte < 0x80) {
            *out = (int64_t)value;
            return !(value >> 32);
        }
    }
    return false;
}

/* A length or count that is not null, `width` bytes wide below version 12. */
static bool take_length(Reader *reader, int width, int64_t *out)
{
    const uint8_t *bytes;
    if (reader->version >= FETCH_FLEXIBLE) {
        if (!take_varint(reader, out))
            return false;
        --*out;
    } else {
        if (!take_bytes(reader, width, &bytes))
            return false;
        *out = width == 2 ? load_i16(bytes) : load_i32(bytes);
    }
    return *out >= 0;
}

static bool skip_tags(Reader *reader)
{
    int64_t tags, tag, size;
    const uint8_t *bytes;
    if (reader->version < FETCH_FLEXIBLE)
        return true;
    if (!take_varint(reader, &tags))
        return false;
    while (tags--)
        if (!take_varint(reader, &tag) || !take_varint(reader, &size) || !take_bytes(reader, size, &bytes))
            return false;
    return true;
}

/* Appends the entry of one partition: 1; 0 if it does not fit the structure; -1 with an exception set. */
static int take_partition(Reader *reader, PyObject *topic, PyObject *entries)
{
    int32_t index, epoch = -1, bytes_max;
    const uint8_t *offset, *skipped;
    const int unused = (reader->version >= FETCH_FLEXIBLE ? 4 : 0) + (reader->version >= SINCE_START_OFFSET ? 8 : 0);
    if (!take_i32(reader, &index) || (reader->version >= SINCE_EPOCHS && !take_i32(reader, &epoch)) || !take_bytes(reader, 8, &offset)
        || !take_bytes(reader, unused, &skipped) || !take_i32(reader, &bytes_max) || !skip_tags(reader))
        return 0;
    PyObject *entry = Py_BuildValue("OiiLi", topic, index, epoch, (long long)load_i64(offset), bytes_max);
    const int outcome = entry ? PyList_Append(entries, entry) : -1;
    Py_XDECREF(entry);
    return outcome < 0 ? -1 : 1;
}

/* A new reference; NULL, with or without an exception set. */
static PyObject *take_topic(Reader *reader)
{
    int64_t length;
    const uint8_t *bytes;
    if (reader->version >= SINCE_TOPIC_IDS)
        return take_bytes(reader, 16, &bytes) ? PyBytes_FromStringAndSize((const char *)bytes, 16) : NULL;
    if (!take_length(reader, 2, &length) || !take_bytes(reader, length, &bytes))
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)bytes, length, NULL);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

/* As `take_partition`, for one topic. */
static int take_partitions(Reader *reader, int64_t count_max, PyObject *entries)
{
    int64_t partitions;
    PyObject *topic = take_topic(reader);
    if (topic == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int outcome = take_length(reader, 4, &partitions);
    while (outcome > 0 && partitions--)
        outcome = PyList_GET_SIZE(entries) < count_max ? take_partition(reader, topic, entries) : 0;
    Py_DECREF(topic);
    return outcome > 0 ? skip_tags(reader) : outcome;
}

/* As `take_partition`, for the whole request; the three limits go to `limits`. */
static int take_request(Reader *reader, int64_t count_max, int32_t *limits, PyObject *entries)
{
    int32_t replica, session, epoch = -1;
    int64_t topics, forgotten = 0, length;
    const uint8_t *bytes;
    if (reader->version < SINCE_REPLICA_STATE && (!take_i32(reader, &replica) || replica != -1))
        return 0;
    if (!take_i32(reader, &limits[0]) || !take_i32(reader, &limits[1]) || !take_i32(reader, &limits[2]) || !take_bytes(reader, 1, &bytes))
        return 0;
    if (reader->version >= SINCE_SESSIONS && (!take_i32(reader, &session) || !take_i32(reader, &epoch)))
        return 0;
    if ((epoch != 0 && epoch != -1) || !take_length(reader, 4, &topics))
        return 0;
    while (topics--) {
        const int outcome = take_partitions(reader, count_max, entries);
        if (outcome <= 0)
            return outcome;
    }
    if (reader->version >= SINCE_SESSIONS && (!take_length(reader, 4, &forgotten) || forgotten > 0))
        return 0;
    if (reader->version >= SINCE_RACK && (!take_length(reader, 2, &length) || !take_bytes(reader, length, &bytes)))
        return 0;
    return skip_tags(reader) && PyList_GET_SIZE(entries) > 0;
}

int check_fetch_version(PyObject *module, PyObject *number, int *out)
{
    int64_t version;
    if (to_int64(number, &version) < 0)
        return -1;
    if (version < 4 || version > 18) {
        PyErr_Format(state_of(module)->unsupported, "Fetch version %S; supported: 4-18", number);
        return -1;
    }
    *out = (int)version;
    return 0;
}

KERNEL_FUNCTION(kernel_parse_fetch)
{
    Py_buffer view;
    int64_t count_max;
    int32_t limits[3];
    Reader reader;
    if (check_arguments("parse_fetch", count, 3, 3) < 0 || check_fetch_version(module, arguments[1], &reader.version) < 0
        || to_int64(arguments[2], &count_max) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    reader.at = view.buf;
    reader.end = reader.at + view.len;
    PyObject *entries = PyList_New(0);
    const int outcome = entries ? take_request(&reader, count_max, limits, entries) : -1;
    PyBuffer_Release(&view);
    if (outcome > 0)
        return Py_BuildValue("iiiN", limits[0], limits[1], limits[2], entries);
    Py_XDECREF(entries);
    return outcome < 0 ? NULL : Py_NewRef(Py_None);
}
