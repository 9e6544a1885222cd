/* Encodes the frame of a Produce response, versions 3-13. Contract: respond.py. */
#include "kafka/kafka.h"

#define RESULT_FIELDS 6
#define NAME_BYTES_MAX 0x7FFF
#define INLINE_BYTES 512

/* Bytes under construction: inline while they are few, then on the heap. */
struct ResponseWriter {
    uint8_t *bytes;
    size_t size;
    size_t room;
    uint8_t first[INLINE_BYTES];
};
typedef ResponseWriter Writer;

ResponseWriter *responses_new(void)
{
    ResponseWriter *writer = PyMem_Malloc(sizeof *writer);
    if (writer == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    writer->bytes = writer->first;
    writer->size = 0;
    writer->room = INLINE_BYTES;
    return writer;
}

void responses_free(ResponseWriter *writer)
{
    if (writer->bytes != writer->first)
        PyMem_Free(writer->bytes);
    PyMem_Free(writer);
}

PyObject *responses_bytes(ResponseWriter *writer)
{
    return PyBytes_FromStringAndSize((const char *)writer->bytes, (Py_ssize_t)writer->size);
}

/* Appends `size` bytes for the caller to fill; NULL with MemoryError set. */
static uint8_t *grow(Writer *writer, size_t size)
{
    if (writer->room - writer->size < size) {
        const size_t room = 2 * writer->room + size;
        const bool is_first = writer->bytes == writer->first;
        uint8_t *moved = PyMem_Realloc(is_first ? NULL : writer->bytes, room);
        if (moved == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        if (is_first)
            memcpy(moved, writer->first, writer->size);
        writer->bytes = moved;
        writer->room = room;
    }
    uint8_t *at = writer->bytes + writer->size;
    writer->size += size;
    return at;
}

static int put_u8(Writer *writer, uint8_t value)
{
    uint8_t *at = grow(writer, 1);
    if (at == NULL)
        return -1;
    *at = value;
    return 0;
}

static int put_u32(Writer *writer, uint32_t value)
{
    uint8_t *at = grow(writer, 4);
    if (at == NULL)
        return -1;
    store_u32(at, value);
    return 0;
}

static int put_varint(Writer *writer, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        if (put_u8(writer, (uint8_t)(value | 0x80)) < 0)
            return -1;
    return put_u8(writer, (uint8_t)value);
}

static int put_count(Writer *writer, int version, Py_ssize_t count)
{
    return version >= FLEXIBLE ? put_varint(writer, (uint64_t)count + 1) : put_u32(writer, (uint32_t)count);
}

static int put_topic(Writer *writer, int version, PyObject *topic)
{
    const char *name;
    Py_ssize_t size = 16;
    if (version >= TOPIC_IDS) {
        if (!PyBytes_Check(topic) || PyBytes_GET_SIZE(topic) != 16) {
            PyErr_SetString(PyExc_ValueError, "Produce response: a topic id has 16 bytes");
            return -1;
        }
        name = PyBytes_AS_STRING(topic);
    } else {
        name = PyUnicode_Check(topic) ? PyUnicode_AsUTF8AndSize(topic, &size) : NULL;
        if (name == NULL && PyErr_Occurred())
            return -1;
        if (name == NULL || size > NAME_BYTES_MAX) {
            PyErr_SetString(PyExc_ValueError, "Produce response: a topic name is a str of at most 32767 bytes");
            return -1;
        }
        uint8_t *at;
        if (version >= FLEXIBLE) {
            if (put_varint(writer, (uint64_t)size + 1) < 0)
                return -1;
        } else if ((at = grow(writer, 2)) == NULL) {
            return -1;
        } else {
            store_u16(at, (uint16_t)size);
        }
    }
    uint8_t *at = grow(writer, (size_t)size);
    if (at == NULL)
        return -1;
    memcpy(at, name, (size_t)size);
    return 0;
}

static int put_answer(Writer *writer, int version, const Answer *answer)
{
    const bool is_flexible = version >= FLEXIBLE;
    const size_t errors = version < RECORD_ERRORS ? 0 : is_flexible ? 3 : 6;
    uint8_t *at = grow(writer, (version >= LOG_START_OFFSET ? 30 : 22) + errors);
    if (at == NULL)
        return -1;
    store_u32(at, (uint32_t)answer->index);
    store_u16(at + 4, (uint16_t)answer->error_code);
    store_u64(at + 6, (uint64_t)answer->base_offset);
    store_u64(at + 14, (uint64_t)answer->append_time);
    at += 22;
    if (version >= LOG_START_OFFSET) {
        store_u64(at, (uint64_t)answer->log_start);
        at += 8;
    }
    if (errors) /* no record errors, no message, no tagged fields */
        memcpy(at, is_flexible ? "\1\0\0" : "\0\0\0\0\xff\xff", errors);
    return 0;
}

/* The end of the run of equal topics that begins at `start`, or -1 with an exception set. */
static Py_ssize_t run_end(const Answers *answers, Py_ssize_t start)
{
    Answer first, answer;
    if (answers->get(answers->source, start, &first) < 0)
        return -1;
    for (Py_ssize_t at = start + 1; at < answers->end; at++) {
        if (answers->get(answers->source, at, &answer) < 0)
            return -1;
        const int is_equal = first.topic == answer.topic ? 1 : PyObject_RichCompareBool(first.topic, answer.topic, Py_EQ);
        if (is_equal <= 0)
            return is_equal < 0 ? -1 : at;
    }
    return answers->end;
}

static int put_topics(Writer *writer, int version, const Answers *answers)
{
    Py_ssize_t runs = 0, end;
    Answer answer;
    for (Py_ssize_t start = answers->start; start < answers->end; start = end, runs++)
        if ((end = run_end(answers, start)) < 0)
            return -1;
    if (put_count(writer, version, runs) < 0)
        return -1;
    for (Py_ssize_t start = answers->start; start < answers->end; start = end) {
        if ((end = run_end(answers, start)) < 0 || answers->get(answers->source, start, &answer) < 0
            || put_topic(writer, version, answer.topic) < 0 || put_count(writer, version, end - start) < 0)
            return -1;
        for (Py_ssize_t at = start; at < end; at++)
            if (answers->get(answers->source, at, &answer) < 0 || put_answer(writer, version, &answer) < 0)
                return -1;
        if (version >= FLEXIBLE && put_u8(writer, 0) < 0)
            return -1;
    }
    return 0;
}

int responses_add(ResponseWriter *writer, int version, int32_t correlation_id, const Answers *answers, int32_t throttle_ms)
{
    const bool is_flexible = version >= FLEXIBLE;
    const size_t start = writer->size;
    if (put_u32(writer, 0) < 0 || put_u32(writer, (uint32_t)correlation_id) < 0 || (is_flexible && put_u8(writer, 0) < 0)
        || put_topics(writer, version, answers) < 0 || put_u32(writer, (uint32_t)throttle_ms) < 0
        || (is_flexible && put_u8(writer, 0) < 0))
        return -1;
    if (writer->size - start - 4 > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "Produce response: 2 GiB or more");
        return -1;
    }
    store_u32(writer->bytes + start, (uint32_t)(writer->size - start - 4)); /* the frame's size, known last */
    return 0;
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
    PyErr_Format(PyExc_ValueError, "Produce response: %S does not fit its field", number);
    return -1;
}

static int get_result(const void *source, Py_ssize_t at, Answer *answer)
{
    PyObject *result = PyList_GET_ITEM((PyObject *)source, at);
    if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != RESULT_FIELDS) {
        PyErr_Format(PyExc_ValueError, "Produce response: a result is a tuple of %d", RESULT_FIELDS);
        return -1;
    }
    answer->topic = PyTuple_GET_ITEM(result, 0);
    return to_field(PyTuple_GET_ITEM(result, 1), INT32_MIN, INT32_MAX, &answer->index) < 0
            || to_field(PyTuple_GET_ITEM(result, 2), INT16_MIN, INT16_MAX, &answer->error_code) < 0
            || to_field(PyTuple_GET_ITEM(result, 3), INT64_MIN, INT64_MAX, &answer->base_offset) < 0
            || to_field(PyTuple_GET_ITEM(result, 4), INT64_MIN, INT64_MAX, &answer->append_time) < 0
            || to_field(PyTuple_GET_ITEM(result, 5), INT64_MIN, INT64_MAX, &answer->log_start) < 0
        ? -1
        : 0;
}

KERNEL_FUNCTION(kernel_encode_produce_response)
{
    int64_t version, correlation_id, throttle_ms;
    if (check_arguments("encode_produce_response", count, 4, 4) < 0 || to_int64(arguments[0], &version) < 0)
        return NULL;
    if (version < 3 || version > 13)
        return PyErr_Format(state_of(module)->unsupported, "Produce version %S; supported: 3-13", arguments[0]);
    if (to_field(arguments[1], INT32_MIN, INT32_MAX, &correlation_id) < 0
        || to_field(arguments[3], INT32_MIN, INT32_MAX, &throttle_ms) < 0)
        return NULL;
    /* A list of our own: comparing topics may run Python code that changes the caller's. */
    PyObject *results = PySequence_List(arguments[2]), *frame = NULL;
    ResponseWriter *writer = results ? responses_new() : NULL;
    if (writer != NULL) {
        const Answers answers = {results, get_result, 0, PyList_GET_SIZE(results)};
        if (responses_add(writer, (int)version, (int32_t)correlation_id, &answers, (int32_t)throttle_ms) == 0)
            frame = responses_bytes(writer);
        responses_free(writer);
    }
    Py_XDECREF(results);
    return frame;
}
