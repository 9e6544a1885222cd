/* Whether bytes are Protobuf messages; no columns are made. Contract: protobuf_check.py. */
#include "typed/protobuf.h"

/* protobuf_check.ProtoCheck */
typedef enum { CHECK_TEXT, CHECK_MESSAGE, CHECK_GROUP, CHECK_VARINTS, CHECK_I32, CHECK_I64, CHECK_COUNT } Check;

/* What a part consists of: int32 each. */
enum { PART_NUMBER, PART_CHECK, PART_TYPE, PART_FIELDS };

enum { BUFFER_STARTS, BUFFER_PARTS, BUFFER_ROOTS, BUFFER_BEGINS, BUFFER_ENDS, BUFFER_CONTENT, BUFFER_COUNT };

typedef struct {
    Decoder decoder;
    Node type; /* errors name its index: the type of the message that is read */
    Py_buffer buffers[BUFFER_COUNT];
    int64_t type_count, part_count, value_count;
    Column statuses;
} Checker;

static inline int32_t start_of(const Checker *checker, int64_t type) { return offset_at(checker->buffers[BUFFER_STARTS].buf, type); }

static inline int32_t part_field(const Checker *checker, int64_t part, int field)
{
    return offset_at(checker->buffers[BUFFER_PARTS].buf, PART_FIELDS * part + field);
}

/* The part of a field among [low, high), -1: none. `*next` guesses it, and is then the part after it. */
static inline int32_t part_of(const Checker *checker, int32_t low, int32_t high, int32_t number, int32_t *next)
{
    if (*next > low && part_field(checker, *next - 1, PART_NUMBER) == number)
        return *next - 1;
    if (*next < high && part_field(checker, *next, PART_NUMBER) == number)
        return (*next)++;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2, found = part_field(checker, middle, PART_NUMBER);
        if (found == number) {
            *next = middle + 1;
            return middle;
        }
        if (found < number)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static Step check_text(Decoder *decoder, const Node *type)
{
    const uint8_t *before;
    const Step step = open_length(decoder, type, &before);
    if (step != STEP_OK)
        return step;
    const uint8_t *text = decoder->at;
    const int64_t size = decoder->end - text;
    if (!is_short_ascii(text, size) && !is_text(text, (size_t)size))
        return stop(decoder, type, OUTCOME_TEXT);
    decoder->at = decoder->end;
    decoder->end = before;
    return STEP_OK;
}

static Step check_packed(Decoder *decoder, const Node *type, Check check)
{
    const uint8_t *before;
    uint64_t bits;
    Step step = open_length(decoder, type, &before);
    if (step != STEP_OK)
        return step;
    if (check != CHECK_VARINTS) {
        if ((decoder->end - decoder->at) % (check == CHECK_I32 ? 4 : 8) != 0)
            return stop(decoder, type, OUTCOME_TRUNCATED);
        decoder->at = decoder->end;
    }
    while (step == STEP_OK && decoder->at < decoder->end)
        step = read_varint(decoder, type, &bits);
    decoder->end = before;
    return step;
}

static Step check_fields(Checker *checker, int32_t type, int32_t group, int level);

static Step check_submessage(Checker *checker, int32_t type, int32_t group, int level)
{
    Decoder *decoder = &checker->decoder;
    const uint8_t *before = decoder->end;
    const int32_t index = checker->type.index;
    if (level >= SKIPPED_LEVELS_MAX)
        return stop(decoder, &checker->type, OUTCOME_DEPTH);
    Step step = group > 0 ? STEP_OK : open_length(decoder, &checker->type, &before);
    if (step == STEP_OK)
        step = check_fields(checker, type, group, level + 1);
    decoder->end = before;
    checker->type.index = index;
    return step;
}

/* Checks the fields of a message up to its end, or up to the end of the group of that number. */
static Step check_fields(Checker *checker, int32_t type, int32_t group, int level)
{
    Decoder *decoder = &checker->decoder;
    const int32_t low = start_of(checker, type), high = start_of(checker, type + 1);
    checker->type.index = type;
    for (int32_t next = low;;) {
        int32_t number;
        WireType wire;
        Step step = read_tag(decoder, &checker->type, group, &number, &wire);
        if (step != STEP_OK || wire == WIRE_END)
            return step;
        const int32_t part = part_of(checker, low, high, number, &next);
        const Check check = part < 0 ? CHECK_COUNT : (Check)part_field(checker, part, PART_CHECK);
        if (part < 0 || wire != (check == CHECK_GROUP ? WIRE_START : WIRE_LEN))
            step = skip_field(decoder, &checker->type, number, wire, level);
        else if (check == CHECK_TEXT)
            step = check_text(decoder, &checker->type);
        else if (check == CHECK_MESSAGE || check == CHECK_GROUP)
            step = check_submessage(checker, part_field(checker, part, PART_TYPE), check == CHECK_GROUP ? number : 0, level);
        else
            step = check_packed(decoder, &checker->type, check);
        if (step != STEP_OK)
            return step;
    }
}

static bool is_type_right(const Checker *checker, int64_t type)
{
    const int64_t low = start_of(checker, type), high = start_of(checker, type + 1);
    if (low < 0 || high < low || high > checker->part_count)
        return false;
    for (int64_t part = low, last = 0; part < high; part++) {
        const int32_t number = part_field(checker, part, PART_NUMBER), check = part_field(checker, part, PART_CHECK);
        const int32_t inner = part_field(checker, part, PART_TYPE);
        if (number <= last || number > FIELD_NUMBER_MAX || check < 0 || check >= CHECK_COUNT || inner < 0 || inner >= checker->type_count)
            return false;
        last = number;
    }
    return true;
}

/* Checks the tables and the places of the values: 0, or -1 with an exception set. */
static int check_tables(Checker *checker)
{
    const Py_buffer *buffers = checker->buffers;
    checker->type_count = buffers[BUFFER_STARTS].len / 4 - 1;
    checker->part_count = buffers[BUFFER_PARTS].len / (4 * PART_FIELDS);
    checker->value_count = buffers[BUFFER_ROOTS].len / 4;
    bool is_right = checker->type_count >= 0 && checker->type_count <= NODES_MAX;
    for (int64_t type = 0; is_right && type < checker->type_count; type++)
        is_right = is_type_right(checker, type);
    if (!is_right) {
        PyErr_SetString(PyExc_ValueError, "the types of messages are malformed");
        return -1;
    }
    if (buffers[BUFFER_BEGINS].len / 4 != checker->value_count || buffers[BUFFER_ENDS].len / 4 != checker->value_count) {
        PyErr_SetString(PyExc_ValueError, "there is not one place for each value");
        return -1;
    }
    for (int64_t at = 0; at < checker->value_count; at++) {
        const int64_t root = offset_at(buffers[BUFFER_ROOTS].buf, at);
        const int64_t begin = offset_at(buffers[BUFFER_BEGINS].buf, at), end = offset_at(buffers[BUFFER_ENDS].buf, at);
        if (root < 0 || root >= checker->type_count || begin < 0 || end < begin || end > buffers[BUFFER_CONTENT].len) {
            PyErr_Format(PyExc_ValueError, "value %lld is of no type, or not inside the content", (long long)at);
            return -1;
        }
    }
    return 0;
}

static void check_values(Checker *checker)
{
    const Py_buffer *buffers = checker->buffers;
    Decoder *decoder = &checker->decoder;
    int32_t *statuses = (int32_t *)checker->statuses.bytes;
    for (int64_t at = 0; at < checker->value_count; at++) {
        decoder->status = OUTCOME_EXACT;
        decoder->at = (const uint8_t *)buffers[BUFFER_CONTENT].buf + offset_at(buffers[BUFFER_BEGINS].buf, at);
        decoder->end = (const uint8_t *)buffers[BUFFER_CONTENT].buf + offset_at(buffers[BUFFER_ENDS].buf, at);
        const Step step = check_fields(checker, offset_at(buffers[BUFFER_ROOTS].buf, at), 0, 0);
        statuses[at] = step == STEP_OK ? OUTCOME_EXACT : decoder->status;
    }
}

static PyObject *check_all(KernelState *state, Checker *checker)
{
    if (!column_reserve(&checker->statuses, 0, 4 * (size_t)checker->value_count))
        return PyErr_NoMemory();
    if (checker->buffers[BUFFER_CONTENT].len < RELEASE_COLUMN_BYTES) {
        check_values(checker);
    } else {
        Py_BEGIN_ALLOW_THREADS
        check_values(checker);
        Py_END_ALLOW_THREADS
    }
    return column_take(state, &checker->statuses, 4 * (size_t)checker->value_count);
}

KERNEL_FUNCTION(kernel_check_protobuf)
{
    Checker checker = {0};
    PyObject *result = NULL;
    int opened = 0;
    if (check_arguments("check_protobuf", count, BUFFER_COUNT, BUFFER_COUNT) < 0)
        return NULL;
    while (opened < BUFFER_COUNT && PyObject_GetBuffer(arguments[opened], &checker.buffers[opened], PyBUF_SIMPLE) == 0)
        opened++;
    if (opened == BUFFER_COUNT && check_tables(&checker) == 0)
        result = check_all(state_of(module), &checker);
    for (int at = 0; at < opened; at++)
        PyBuffer_Release(&checker.buffers[at]);
    column_free(&checker.statuses);
    return result;
}
