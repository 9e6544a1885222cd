/* Encodes the responses to ordinary Fetch requests, versions 4-18. Contract: fetch_response.py. */
#include "kafka/fetch.h"

#define FETCH_FIELDS 5
#define ANSWER_FIELDS 4
#define ANSWER_BYTES 64 /* an answer without its records takes at most 4+2+8+8+8+4+4+5 bytes and its tagged fields */
#define INLINE_BYTES_MAX 1024
#define NAME_BYTES_MAX 0x7FFF

/* A frame under construction: the chunks that are complete, and the bytes of the next one. */
typedef struct {
    PyObject *chunks;
    uint8_t *bytes;
    size_t size;
    size_t room;
    int64_t total; /* bytes of the complete chunks */
    int version;
} Writer;

/* Appends `size` bytes for the caller to fill; NULL with MemoryError set. */
static uint8_t *grow(Writer *writer, size_t size)
{
    if (writer->room - writer->size < size) {
        const size_t room = 2 * writer->room + size;
        uint8_t *moved = PyMem_Realloc(writer->bytes, room);
        if (moved == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        writer->bytes = moved;
        writer->room = room;
    }
    uint8_t *at = writer->bytes + writer->size;
    writer->size += size;
    return at;
}

static int put_bytes(Writer *writer, const void *bytes, size_t size)
{
    uint8_t *at = grow(writer, size);
    if (at == NULL)
        return -1;
    memcpy(at, bytes, size);
    return 0;
}

static uint8_t *store_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *store_count(uint8_t *at, int version, int64_t count)
{
    if (version >= FETCH_FLEXIBLE)
        return store_varint(at, (uint64_t)count + 1);
    store_u32(at, (uint32_t)count);
    return at + 4;
}

static int put_count(Writer *writer, int64_t count)
{
    uint8_t room[10];
    return put_bytes(writer, room, (size_t)(store_count(room, writer->version, count) - room));
}

/* The byte after a structure in a flexible version: no tagged fields. */
static int put_tags(Writer *writer) { return writer->version < FETCH_FLEXIBLE ? 0 : put_bytes(writer, "", 1); }

/* Completes the chunk under construction, if it has bytes. */
static int close_chunk(Writer *writer)
{
    if (writer->size == 0)
        return 0;
    PyObject *chunk = PyBytes_FromStringAndSize((const char *)writer->bytes, (Py_ssize_t)writer->size);
    const int outcome = chunk ? PyList_Append(writer->chunks, chunk) : -1;
    Py_XDECREF(chunk);
    writer->total += (int64_t)writer->size;
    writer->size = 0;
    return outcome;
}

static int put_view(Writer *writer, PyObject *view)
{
    Py_buffer buffer;
    int outcome;
    if (PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (buffer.len <= INLINE_BYTES_MAX) {
        outcome = put_bytes(writer, buffer.buf, (size_t)buffer.len);
    } else {
        outcome = close_chunk(writer) < 0 ? -1 : PyList_Append(writer->chunks, view);
        writer->total += buffer.len;
    }
    PyBuffer_Release(&buffer);
    return outcome;
}

static int put_topic(Writer *writer, PyObject *topic)
{
    const char *name;
    Py_ssize_t size = 16;
    uint8_t length[3];
    if (writer->version >= SINCE_TOPIC_IDS) {
        if (PyBytes_Check(topic) && PyBytes_GET_SIZE(topic) == 16)
            return put_bytes(writer, PyBytes_AS_STRING(topic), 16);
        PyErr_SetString(PyExc_ValueError, "Fetch response: a topic id has 16 bytes");
        return -1;
    }
    name = PyUnicode_Check(topic) ? PyUnicode_AsUTF8AndSize(topic, &size) : NULL;
    if (name == NULL && PyErr_Occurred())
        return -1;
    if (name == NULL || size > NAME_BYTES_MAX) {
        PyErr_SetString(PyExc_ValueError, "Fetch response: a topic name is a str of at most 32767 bytes");
        return -1;
    }
    uint8_t *end = length + 2;
    if (writer->version >= FETCH_FLEXIBLE)
        end = store_varint(length, (uint64_t)size + 1);
    else
        store_u16(length, (uint16_t)size);
    return put_bytes(writer, length, (size_t)(end - length)) < 0 ? -1 : put_bytes(writer, name, (size_t)size);
}

/* -1 with ValueError set unless least <= number <= most. */
static int to_field(PyObject *number, int64_t least, int64_t most, int64_t *out)
{
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (*out == -1 && !overflow && PyErr_Occurred())
        return -1;
    if (!overflow && *out >= least && *out <= most)
        return 0;
    PyErr_Format(PyExc_ValueError, "Fetch response: %S does not fit its field", number);
    return -1;
}

/* The bytes of all views, or -1 with an exception set. */
static int64_t size_of(PyObject *views)
{
    int64_t size = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(views); at++) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(PyList_GET_ITEM(views, at), &buffer, PyBUF_SIMPLE) < 0)
            return -1;
        size += buffer.len;
        PyBuffer_Release(&buffer);
    }
    if (size <= INT32_MAX)
        return size;
    PyErr_SetString(PyExc_ValueError, "Fetch response: 2 GiB or more");
    return -1;
}

static int put_answer(Writer *writer, PyObject *entry, PyObject *answer)
{
    int64_t index, start, end, last_stable, size;
    PyObject *views = PyTuple_GET_ITEM(answer, 3);
    const int version = writer->version;
    if (to_field(PyTuple_GET_ITEM(entry, 1), INT32_MIN, INT32_MAX, &index) < 0
        || to_field(PyTuple_GET_ITEM(answer, 1), INT64_MIN, INT64_MAX, &end) < 0
        || to_field(PyTuple_GET_ITEM(answer, 2), INT64_MIN, INT64_MAX, &last_stable) < 0
        || to_field(PyTuple_GET_ITEM(answer, 0), INT64_MIN, INT64_MAX, &start) < 0
        || check_list(views, "Fetch response: records") < 0 || (size = size_of(views)) < 0)
        return -1;
    uint8_t *const first = grow(writer, ANSWER_BYTES);
    if (first == NULL)
        return -1;
    store_u32(first, (uint32_t)index);
    store_u16(first + 4, 0);
    store_u64(first + 6, (uint64_t)end);
    store_u64(first + 14, (uint64_t)last_stable);
    uint8_t *at = first + 22;
    if (version >= SINCE_START_OFFSET) {
        store_u64(at, (uint64_t)start);
        at += 8;
    }
    if (version >= FETCH_FLEXIBLE) {
        *at++ = 1; /* no aborted transactions */
    } else {
        store_u32(at, 0);
        at += 4;
    }
    if (version >= SINCE_RACK) {
        store_u32(at, UINT32_MAX); /* no preferred read replica: -1 */
        at += 4;
    }
    at = store_count(at, version, size);
    writer->size -= ANSWER_BYTES - (size_t)(at - first);
    for (Py_ssize_t view = 0; view < PyList_GET_SIZE(views); view++)
        if (put_view(writer, PyList_GET_ITEM(views, view)) < 0)
            return -1;
    return put_tags(writer);
}

/* The end of the run of equal topics that begins at `start`, or -1 with an exception set. */
static Py_ssize_t run_end(PyObject *entries, Py_ssize_t start)
{
    const Py_ssize_t count = PyList_GET_SIZE(entries);
    PyObject *topic = PyTuple_GET_ITEM(PyList_GET_ITEM(entries, start), 0);
    for (Py_ssize_t at = start + 1; at < count; at++) {
        const int is_equal = PyObject_RichCompareBool(topic, PyTuple_GET_ITEM(PyList_GET_ITEM(entries, at), 0), Py_EQ);
        if (is_equal <= 0)
            return is_equal < 0 ? -1 : at;
    }
    return count;
}

static int put_topics(Writer *writer, PyObject *entries, PyObject *answers)
{
    const Py_ssize_t count = PyList_GET_SIZE(entries);
    Py_ssize_t runs = 0, end;
    for (Py_ssize_t start = 0; start < count; start = end, runs++)
        if ((end = run_end(entries, start)) < 0)
            return -1;
    if (put_count(writer, runs) < 0)
        return -1;
    for (Py_ssize_t start = 0; start < count; start = end) {
        if ((end = run_end(entries, start)) < 0 || put_topic(writer, PyTuple_GET_ITEM(PyList_GET_ITEM(entries, start), 0)) < 0
            || put_count(writer, end - start) < 0)
            return -1;
        for (Py_ssize_t at = start; at < end; at++)
            if (put_answer(writer, PyList_GET_ITEM(entries, at), PyList_GET_ITEM(answers, at)) < 0)
                return -1;
        if (put_tags(writer) < 0)
            return -1;
    }
    return put_tags(writer);
}

static int put_frame(Writer *writer, int32_t correlation_id, PyObject *entries, PyObject *answers)
{
    static const uint8_t zeros[10]; /* throttle time, error code, session id */
    uint8_t head[8] = {0};
    store_u32(head + 4, (uint32_t)correlation_id);
    if (put_bytes(writer, head, 8) < 0 || put_tags(writer) < 0
        || put_bytes(writer, zeros, writer->version >= SINCE_SESSIONS ? 10 : 4) < 0 || put_topics(writer, entries, answers) < 0
        || close_chunk(writer) < 0)
        return -1;
    if (writer->total - 4 > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "Fetch response: 2 GiB or more");
        return -1;
    }
    /* The first chunk is ours and nobody else has it yet. */
    store_u32((uint8_t *)PyBytes_AS_STRING(PyList_GET_ITEM(writer->chunks, 0)), (uint32_t)(writer->total - 4));
    return 0;
}

static int check_tuples(PyObject *list, Py_ssize_t fields, const char *what)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); at++)
        if (check_tuple(PyList_GET_ITEM(list, at), fields, what) < 0)
            return -1;
    return 0;
}

static PyObject *fetch_response(int version, int32_t correlation_id, PyObject *entries, PyObject *answers)
{
    if (PyList_GET_SIZE(entries) != PyList_GET_SIZE(answers))
        return PyErr_Format(PyExc_ValueError, "Fetch response: expected one answer per entry");
    if (check_tuples(entries, FETCH_FIELDS, "Fetch response: an entry") < 0
        || check_tuples(answers, ANSWER_FIELDS, "Fetch response: an answer") < 0)
        return NULL;
    Writer writer = {.chunks = PyList_New(0), .version = version};
    if (writer.chunks != NULL && put_frame(&writer, correlation_id, entries, answers) < 0)
        Py_CLEAR(writer.chunks);
    PyMem_Free(writer.bytes);
    return writer.chunks;
}

KERNEL_FUNCTION(kernel_encode_fetch)
{
    int version;
    int64_t correlation_id;
    if (check_arguments("encode_fetch", count, 4, 4) < 0 || check_fetch_version(module, arguments[0], &version) < 0
        || to_field(arguments[1], INT32_MIN, INT32_MAX, &correlation_id) < 0)
        return NULL;
    /* Lists of our own: comparing topics may run Python code that changes the caller's. */
    PyObject *entries = PySequence_List(arguments[2]);
    PyObject *answers = entries ? PySequence_List(arguments[3]) : NULL;
    PyObject *chunks = answers ? fetch_response(version, (int32_t)correlation_id, entries, answers) : NULL;
    Py_XDECREF(entries);
    Py_XDECREF(answers);
    return chunks;
}
