/* The uncompressed records section of a batch. Layout: records.py. */
#include "batch/records.h"

bool read_record(Cursor *section, Record *record)
{
    int64_t length, offset_delta, header_count;
    if (!read_zigzag(section, 32, &length) || length <= 0 || length > section->end - section->at)
        return false;
    Cursor cursor = {section->at + 1, section->at + length}; /* + 1: the attributes, unused */
    if (!read_zigzag(&cursor, 64, &record->timestamp_delta) || !read_zigzag(&cursor, 32, &offset_delta))
        return false;
    if (!read_bytes(&cursor, &record->key) || !read_bytes(&cursor, &record->value)
        || !read_zigzag(&cursor, 32, &header_count))
        return false;
    if (header_count < 0 || header_count > cursor.end - cursor.at)
        return false;
    record->offset_delta = (int32_t)offset_delta;
    record->header_count = (int32_t)header_count;
    record->headers = cursor;
    while (header_count--) {
        Field key, value;
        if (!read_bytes(&cursor, &key) || key.bytes == NULL || !read_bytes(&cursor, &value))
            return false;
    }
    section->at = cursor.end;
    return cursor.at == cursor.end;
}

int64_t first_bad_record(Cursor section, int64_t record_count)
{
    Record record;
    for (int64_t index = 0; index < record_count; index++)
        if (!read_record(&section, &record) || record.offset_delta != index)
            return index;
    return section.at == section.end ? -1 : record_count;
}

/* Returns 1 if found, in `record` with its full timestamp; 0 if there is none; -1 if record `*index` is malformed. */
static int first_at_time(Cursor section, int64_t record_count, int64_t base, int64_t timestamp, Record *record, int64_t *index)
{
    for (*index = 0; *index < record_count; ++*index) {
        if (!read_record(&section, record) || __builtin_add_overflow(base, record->timestamp_delta, &record->timestamp_delta))
            return -1;
        if (record->timestamp_delta >= timestamp)
            return 1;
    }
    return 0;
}

static int to_count(PyObject *number, int64_t *out)
{
    if (to_int64(number, out) < 0)
        return -1;
    if (*out >= 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "record count %S is negative", number);
    return -1;
}

static inline Cursor whole(const Py_buffer *view)
{
    return (Cursor){(const uint8_t *)view->buf, (const uint8_t *)view->buf + view->len};
}

static PyObject *bytes_value(const Field *field)
{
    return field->bytes ? PyBytes_FromStringAndSize((const char *)field->bytes, field->size) : Py_NewRef(Py_None);
}

/* The headers of a record that `read_record` accepted. */
static PyObject *headers_value(const Record *record)
{
    PyObject *headers = PyTuple_New(record->header_count);
    Cursor cursor = record->headers;
    for (int32_t at = 0; headers != NULL && at < record->header_count; at++) {
        Field key = {NULL, 0}, value = {NULL, 0};
        read_bytes(&cursor, &key);
        read_bytes(&cursor, &value);
        PyObject *name = PyUnicode_DecodeUTF8((const char *)key.bytes, key.size, "surrogateescape");
        PyObject *content = name ? bytes_value(&value) : NULL;
        PyObject *header = content ? PyTuple_Pack(2, name, content) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(content);
        if (header == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, at, header);
    }
    return headers;
}

static PyObject *record_value(const Record *record)
{
    PyObject *fields[5] = {
        PyLong_FromLong(record->offset_delta), PyLong_FromLongLong(record->timestamp_delta), bytes_value(&record->key),
        bytes_value(&record->value),           headers_value(record),
    };
    PyObject *value = PyTuple_New(5);
    bool is_whole = value != NULL;
    for (int at = 0; at < 5; at++) {
        is_whole = is_whole && fields[at] != NULL;
        if (value != NULL)
            PyTuple_SET_ITEM(value, at, fields[at]);
        else
            Py_XDECREF(fields[at]);
    }
    if (!is_whole)
        Py_CLEAR(value);
    return value;
}

/* The next record as a value; NULL with an exception set, which names `index`. */
static PyObject *next_value(KernelState *state, Cursor *section, int64_t index, int64_t base)
{
    Record record;
    if (read_record(section, &record) && !__builtin_add_overflow(base, record.timestamp_delta, &record.timestamp_delta))
        return record_value(&record);
    return PyErr_Format(state->corrupt, "record %lld of a batch is malformed", (long long)index);
}

static PyObject *record_values(KernelState *state, Cursor *section, int64_t index, int64_t end, int64_t base)
{
    PyObject *values = PyList_New(0);
    for (; values != NULL && index < end; index++) {
        PyObject *value = next_value(state, section, index, base);
        if (value == NULL || PyList_Append(values, value) < 0)
            Py_CLEAR(values);
        Py_XDECREF(value);
    }
    return values;
}

KERNEL_FUNCTION(kernel_decode_records)
{
    Py_buffer view;
    int64_t record_count, base;
    if (check_arguments("decode_records", count, 3, 3) < 0 || to_count(arguments[1], &record_count) < 0
        || to_int64(arguments[2], &base) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Cursor section = whole(&view);
    PyObject *values = record_values(state_of(module), &section, 0, record_count, base);
    if (values != NULL && section.at != section.end) {
        PyErr_Format(state_of(module)->corrupt, "record %lld of a batch is malformed", (long long)record_count);
        Py_CLEAR(values);
    }
    PyBuffer_Release(&view);
    return values;
}

KERNEL_FUNCTION(kernel_decode_part)
{
    Py_buffer view;
    int64_t position, index, end, base;
    PyObject *result = NULL;
    if (check_arguments("decode_part", count, 5, 5) < 0 || to_int64(arguments[1], &position) < 0 || to_count(arguments[2], &index) < 0
        || to_count(arguments[3], &end) < 0 || to_int64(arguments[4], &base) < 0
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (position < 0 || position > view.len) {
        PyErr_Format(PyExc_ValueError, "position %lld is not inside %zd bytes", (long long)position, view.len);
    } else {
        Cursor section = whole(&view);
        section.at += position;
        PyObject *values = record_values(state_of(module), &section, index, end, base);
        if (values != NULL)
            result = Py_BuildValue("Nn", values, (Py_ssize_t)(section.at - (const uint8_t *)view.buf));
    }
    PyBuffer_Release(&view);
    return result;
}

KERNEL_FUNCTION(kernel_check_records)
{
    Py_buffer view;
    int64_t record_count, bad;
    if (check_arguments("check_records", count, 2, 2) < 0 || to_count(arguments[1], &record_count) < 0
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len < RELEASE_BYTES) {
        bad = first_bad_record(whole(&view), record_count);
    } else {
        Py_BEGIN_ALLOW_THREADS
        bad = first_bad_record(whole(&view), record_count);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(bad);
}

KERNEL_FUNCTION(kernel_find_timestamp)
{
    Py_buffer view;
    int64_t record_count, base, timestamp, index;
    Record record;
    int found;
    if (check_arguments("find_timestamp", count, 4, 4) < 0 || to_count(arguments[1], &record_count) < 0
        || to_int64(arguments[2], &base) < 0 || to_int64(arguments[3], &timestamp) < 0
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (view.len < RELEASE_BYTES) {
        found = first_at_time(whole(&view), record_count, base, timestamp, &record, &index);
    } else {
        Py_BEGIN_ALLOW_THREADS
        found = first_at_time(whole(&view), record_count, base, timestamp, &record, &index);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    if (found < 0)
        return PyErr_Format(state_of(module)->corrupt, "record %lld of a batch is malformed", (long long)index);
    if (found == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("iL", record.offset_delta, (long long)record.timestamp_delta);
}
