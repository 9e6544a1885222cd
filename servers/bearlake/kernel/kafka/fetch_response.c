/* Encodes the responses to ordinary Fetch requests, versions 4-18. Contract: fetch_response.py. */
#include "kafka/fetch.h"
#include "kafka/frame.h"

#define NAME "Fetch response"
#define FETCH_FIELDS 5
#define ANSWER_FIELDS 4
#define INLINE_BYTES_MAX 1024
#define CHUNK_BYTES 65536

/* The chunks that are complete, and the bytes of the next one. */
typedef struct {
    PyObject *chunks;
    Frame frame;
    int64_t total; /* bytes of the complete chunks */
    int version;
    Encoding encoding;
} Writer;

/* Completes the chunk under construction, if it has bytes. */
static int close_chunk(Writer *writer)
{
    Frame *frame = &writer->frame;
    if (frame->size == 0)
        return 0;
    PyObject *chunk = PyBytes_FromStringAndSize((const char *)frame_bytes(frame), (Py_ssize_t)frame->size);
    const int outcome = chunk ? PyList_Append(writer->chunks, chunk) : -1;
    Py_XDECREF(chunk);
    writer->total += (int64_t)frame->size;
    frame->size = 0;
    return outcome;
}

static int put_view(Writer *writer, PyObject *view)
{
    Py_buffer buffer;
    int outcome;
    if (PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE) < 0)
        return -1;
    if (buffer.len <= INLINE_BYTES_MAX) {
        outcome = put_bytes(&writer->frame, buffer.buf, (size_t)buffer.len);
        if (outcome == 0 && writer->frame.size >= CHUNK_BYTES)
            outcome = close_chunk(writer);
    } else {
        outcome = close_chunk(writer) < 0 ? -1 : PyList_Append(writer->chunks, view);
        writer->total += buffer.len;
    }
    PyBuffer_Release(&buffer);
    return outcome;
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
    PyErr_SetString(PyExc_ValueError, NAME ": 2 GiB or more");
    return -1;
}

static int put_answer(Writer *writer, PyObject *entry, PyObject *answer)
{
    int64_t index, start, end, last_stable, size;
    PyObject *views = PyTuple_GET_ITEM(answer, 3);
    const Encoding *encoding = &writer->encoding;
    Frame *frame = &writer->frame;
    if (to_field(NAME, PyTuple_GET_ITEM(entry, 1), INT32_MIN, INT32_MAX, &index) < 0
        || to_field(NAME, PyTuple_GET_ITEM(answer, 1), INT64_MIN, INT64_MAX, &end) < 0
        || to_field(NAME, PyTuple_GET_ITEM(answer, 2), INT64_MIN, INT64_MAX, &last_stable) < 0
        || to_field(NAME, PyTuple_GET_ITEM(answer, 0), INT64_MIN, INT64_MAX, &start) < 0
        || check_list(views, NAME ": records") < 0 || (size = size_of(views)) < 0)
        return -1;
    const bool has_start = writer->version >= SINCE_START_OFFSET;
    uint8_t *at = frame_grow(frame, has_start ? 30 : 22);
    if (at == NULL)
        return -1;
    store_u32(at, (uint32_t)index);
    store_u16(at + 4, 0);
    store_u64(at + 6, (uint64_t)end);
    store_u64(at + 14, (uint64_t)last_stable);
    if (has_start)
        store_u64(at + 22, (uint64_t)start);
    if (put_count(frame, encoding, 0) < 0) /* aborted transactions */
        return -1;
    if (writer->version >= SINCE_RACK && put_bytes(frame, "\xff\xff\xff\xff", 4) < 0) /* no preferred read replica: -1 */
        return -1;
    if (put_count(frame, encoding, size) < 0)
        return -1;
    for (Py_ssize_t view = 0; view < PyList_GET_SIZE(views); view++)
        if (put_view(writer, PyList_GET_ITEM(views, view)) < 0)
            return -1;
    return put_tags(frame, encoding);
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
    const Encoding *encoding = &writer->encoding;
    Frame *frame = &writer->frame;
    Py_ssize_t runs = 0, end;
    for (Py_ssize_t start = 0; start < count; start = end, runs++)
        if ((end = run_end(entries, start)) < 0)
            return -1;
    if (put_count(frame, encoding, runs) < 0)
        return -1;
    for (Py_ssize_t start = 0; start < count; start = end) {
        PyObject *topic = PyTuple_GET_ITEM(PyList_GET_ITEM(entries, start), 0);
        if ((end = run_end(entries, start)) < 0 || put_topic(frame, encoding, topic) < 0
            || put_count(frame, encoding, end - start) < 0)
            return -1;
        for (Py_ssize_t at = start; at < end; at++)
            if (put_answer(writer, PyList_GET_ITEM(entries, at), PyList_GET_ITEM(answers, at)) < 0)
                return -1;
        if (put_tags(frame, encoding) < 0)
            return -1;
    }
    return put_tags(frame, encoding);
}

static int put_frame(Writer *writer, int32_t correlation_id, PyObject *entries, PyObject *answers)
{
    static const uint8_t zeros[10]; /* throttle time, error code, session id */
    Frame *frame = &writer->frame;
    uint8_t head[8] = {0};
    store_u32(head + 4, (uint32_t)correlation_id);
    if (put_bytes(frame, head, sizeof head) < 0 || put_tags(frame, &writer->encoding) < 0
        || put_bytes(frame, zeros, writer->version >= SINCE_SESSIONS ? 10 : 4) < 0 || put_topics(writer, entries, answers) < 0
        || close_chunk(writer) < 0)
        return -1;
    if (writer->total - 4 > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, NAME ": 2 GiB or more");
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

static Encoding encoding_of(int version)
{
    return (Encoding){NAME, version >= FETCH_FLEXIBLE, version >= SINCE_TOPIC_IDS};
}

static PyObject *fetch_response(int version, int32_t correlation_id, PyObject *entries, PyObject *answers)
{
    if (PyList_GET_SIZE(entries) != PyList_GET_SIZE(answers))
        return PyErr_Format(PyExc_ValueError, NAME ": expected one answer per entry");
    if (check_tuples(entries, FETCH_FIELDS, NAME ": an entry") < 0
        || check_tuples(answers, ANSWER_FIELDS, NAME ": an answer") < 0)
        return NULL;
    Writer writer;
    writer.chunks = PyList_New(0);
    writer.total = 0;
    writer.version = version;
    writer.encoding = encoding_of(version);
    frame_init(&writer.frame);
    if (writer.chunks != NULL && put_frame(&writer, correlation_id, entries, answers) < 0)
        Py_CLEAR(writer.chunks);
    frame_free(&writer.frame);
    return writer.chunks;
}

KERNEL_FUNCTION(kernel_encode_fetch)
{
    int version;
    int64_t correlation_id;
    if (check_arguments("encode_fetch", count, 4, 4) < 0 || check_fetch_version(module, arguments[0], &version) < 0)
        return NULL;
    if (to_field(NAME, arguments[1], INT32_MIN, INT32_MAX, &correlation_id) < 0)
        return NULL;
    /* Lists of our own: comparing topics may run Python code that changes the caller's. */
    PyObject *entries = PySequence_List(arguments[2]);
    PyObject *answers = entries ? PySequence_List(arguments[3]) : NULL;
    PyObject *chunks = answers ? fetch_response(version, (int32_t)correlation_id, entries, answers) : NULL;
    Py_XDECREF(entries);
    Py_XDECREF(answers);
    return chunks;
}
