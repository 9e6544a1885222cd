/* Encodes the frame of a Produce response, versions 3-13. Contract: produce_response.py. */
#include "kafka/frame.h"
#include "kafka/kafka.h"

#define NAME "Produce response"
#define RESULT_FIELDS 6

struct ResponseWriter {
    Frame frames;
};

ResponseWriter *responses_new(void)
{
    ResponseWriter *writer = PyMem_Malloc(sizeof *writer);
    if (writer == NULL)
        PyErr_NoMemory();
    else
        frame_init(&writer->frames);
    return writer;
}

void responses_free(ResponseWriter *writer)
{
    frame_free(&writer->frames);
    PyMem_Free(writer);
}

PyObject *responses_bytes(ResponseWriter *writer)
{
    return PyBytes_FromStringAndSize((const char *)frame_bytes(&writer->frames), (Py_ssize_t)writer->frames.size);
}

static Encoding encoding_of(int64_t version)
{
    return (Encoding){NAME, version >= FLEXIBLE, version >= TOPIC_IDS};
}

static int put_answer(Frame *frame, int version, const Answer *answer)
{
    const bool is_flexible = version >= FLEXIBLE;
    const size_t errors = version < RECORD_ERRORS ? 0 : is_flexible ? 3 : 6;
    uint8_t *at = frame_grow(frame, (version >= LOG_START_OFFSET ? 30 : 22) + errors);
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

static int put_topics(Frame *frame, int version, const Encoding *encoding, const Answers *answers)
{
    Py_ssize_t runs = 0, end;
    Answer answer;
    for (Py_ssize_t start = answers->start; start < answers->end; start = end, runs++)
        if ((end = run_end(answers, start)) < 0)
            return -1;
    if (put_count(frame, encoding, runs) < 0)
        return -1;
    for (Py_ssize_t start = answers->start; start < answers->end; start = end) {
        if ((end = run_end(answers, start)) < 0 || answers->get(answers->source, start, &answer) < 0
            || put_topic(frame, encoding, answer.topic) < 0 || put_count(frame, encoding, end - start) < 0)
            return -1;
        for (Py_ssize_t at = start; at < end; at++)
            if (answers->get(answers->source, at, &answer) < 0 || put_answer(frame, version, &answer) < 0)
                return -1;
        if (put_tags(frame, encoding) < 0)
            return -1;
    }
    return 0;
}

int responses_add(ResponseWriter *writer, int version, int32_t correlation_id, const Answers *answers, int32_t throttle_ms)
{
    const Encoding encoding = encoding_of(version);
    Frame *frame = &writer->frames;
    const size_t start = frame->size;
    uint8_t head[8] = {0}, throttle[4];
    store_u32(head + 4, (uint32_t)correlation_id);
    store_u32(throttle, (uint32_t)throttle_ms);
    if (put_bytes(frame, head, sizeof head) < 0 || put_tags(frame, &encoding) < 0
        || put_topics(frame, version, &encoding, answers) < 0 || put_bytes(frame, throttle, sizeof throttle) < 0
        || put_tags(frame, &encoding) < 0)
        return -1;
    const size_t size = frame->size - start - 4;
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, NAME ": 2 GiB or more");
        return -1;
    }
    store_u32(frame_bytes(frame) + start, (uint32_t)size); /* known last */
    return 0;
}

static int get_result(const void *source, Py_ssize_t at, Answer *answer)
{
    PyObject *result = PyList_GET_ITEM((PyObject *)source, at);
    if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != RESULT_FIELDS) {
        PyErr_Format(PyExc_ValueError, NAME ": a result is a tuple of %d", RESULT_FIELDS);
        return -1;
    }
    answer->topic = PyTuple_GET_ITEM(result, 0);
    return to_field(NAME, PyTuple_GET_ITEM(result, 1), INT32_MIN, INT32_MAX, &answer->index) < 0
            || to_field(NAME, PyTuple_GET_ITEM(result, 2), INT16_MIN, INT16_MAX, &answer->error_code) < 0
            || to_field(NAME, PyTuple_GET_ITEM(result, 3), INT64_MIN, INT64_MAX, &answer->base_offset) < 0
            || to_field(NAME, PyTuple_GET_ITEM(result, 4), INT64_MIN, INT64_MAX, &answer->append_time) < 0
            || to_field(NAME, PyTuple_GET_ITEM(result, 5), INT64_MIN, INT64_MAX, &answer->log_start) < 0
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
    if (to_field(NAME, arguments[1], INT32_MIN, INT32_MAX, &correlation_id) < 0
        || to_field(NAME, arguments[3], INT32_MIN, INT32_MAX, &throttle_ms) < 0)
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
