/* Reads the fields of a Produce request. Contract: produce.py. */
#ifndef BEARLAKE_KAFKA_READER_H
#define BEARLAKE_KAFKA_READER_H

#include "kafka/kafka.h"

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

static inline int skip_tags(Reader *reader)
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
static inline PyObject *read_string(Reader *reader, const char *what, bool is_nullable)
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

static inline PyObject *read_topic(Reader *reader)
{
    if (reader->version < TOPIC_IDS)
        return read_string(reader, "topic name", false);
    const Py_ssize_t at = skip(reader, 16, "topic id");
    return at < 0 ? NULL : PyBytes_FromStringAndSize((const char *)reader->bytes + at, 16);
}

/* Skips the topic and returns true if read_topic would return an equal one; otherwise stays where it is. Sets no exception. */
static inline bool skip_topic(Reader *reader, PyObject *topic)
{
    const Py_ssize_t at = reader->position;
    const char *name = NULL;
    Py_ssize_t size = 0;
    int64_t length = 16;
    if (reader->version >= TOPIC_IDS) {
        if (PyBytes_Check(topic)) {
            name = PyBytes_AS_STRING(topic);
            size = PyBytes_GET_SIZE(topic);
        }
    } else if (PyUnicode_Check(topic) && (name = PyUnicode_AsUTF8AndSize(topic, &size)) != NULL
               && read_length(reader, 2, "topic name", false, &length) < 0) {
        name = NULL;
    }
    if (name != NULL && length == size && length <= reader->end - reader->position
        && memcmp(name, reader->bytes + reader->position, (size_t)length) == 0) {
        reader->position += (Py_ssize_t)length;
        return true;
    }
    PyErr_Clear();
    reader->position = at;
    return false;
}

#endif
