/* Takes Produce requests from a receive buffer into the write buffer, without a Python object per request or batch. Contract: intake.py. */
#include "batch/compressed.h"
#include "kafka/intake.h"
#include "kafka/reader.h"

#define SIZE_BYTES 4
#define LEAD_AT 8 /* in a request: after API key, version and correlation id */
#define ALL_REPLICAS -1
#define LEADER 1

/* The requests taken so far. The arrays grow with `room`. Batches from `batch_count` on belong to the request that is parsed now; they are
   dropped if it is not taken. */
typedef struct {
    Py_ssize_t request_count, request_room, batch_count, batch_room;
    Request *requests;
    Place *places;
    Batch *batches;
    PyObject *topics;
    int64_t size;
} Taken;

/* -- parse ----------------------------------------------------------------------------------------------------------------------------- */

/* Makes room for one more batch. */
static int make_room(Taken *taken, Py_ssize_t batch_count)
{
    if (batch_count < taken->batch_room)
        return 0;
    const Py_ssize_t room = taken->batch_room ? 2 * taken->batch_room : 16;
    Place *places = PyMem_Realloc(taken->places, (size_t)room * sizeof *places);
    if (places != NULL)
        taken->places = places;
    Batch *batches = PyMem_Realloc(taken->batches, (size_t)room * sizeof *batches);
    if (batches != NULL)
        taken->batches = batches;
    if (places == NULL || batches == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    taken->batch_room = room;
    return 0;
}

/* Reads the topic and its number of partitions. If the topic differs from the topic before, asks the admission for its rules. Returns 1; 0 if
   its batches need special handling; -1 with an exception set. */
static int take_topic(Intake *intake, Reader *reader, Taken *taken, int64_t *partitions)
{
    const Py_ssize_t topics = PyList_GET_SIZE(taken->topics);
    if (topics && skip_topic(reader, PyList_GET_ITEM(taken->topics, topics - 1))) {
        const int length = read_length(reader, 4, "partition count", false, partitions);
        return length < 0 ? -1 : *partitions == 0 || intake->has_rules;
    }
    PyObject *topic = read_topic(reader);
    if (topic == NULL)
        return -1;
    const int length = read_length(reader, 4, "partition count", false, partitions);
    if (length < 0 || *partitions == 0 || intake->admission == NULL) {
        Py_DECREF(topic);
        return length < 0 ? -1 : *partitions == 0;
    }
    intake->has_rules = false;
    PyObject *rules = PyObject_CallMethod(intake->admission, "rules", "(O)", topic);
    const uint8_t *stream_id;
    int outcome = rules == NULL || PyList_Append(taken->topics, topic) < 0 ? -1 : rules != Py_None;
    if (outcome > 0 && (outcome = to_rules(rules, &intake->rules, &stream_id) < 0 ? -1 : 1) > 0) {
        memcpy(intake->stream_id, stream_id, STREAM_ID_BYTES);
        intake->has_rules = true;
    }
    Py_XDECREF(rules);
    Py_DECREF(topic);
    intake->has_failed = outcome < 0;
    return outcome;
}

/* Asks for the flags of a batch that is not plain; -1 if it needs special handling, -2 with an exception set. */
static int64_t ask_flags(Intake *intake, const Taken *taken, int32_t index, Py_ssize_t start, Py_ssize_t end, Status status,
                         const Header *header)
{
    if (intake->admission == NULL)
        return -1;
    PyObject *topic = PyList_GET_ITEM(taken->topics, PyList_GET_SIZE(taken->topics) - 1);
    PyObject *entry = make_entry(topic, index, start, end, status, header);
    PyObject *answer = entry ? PyObject_CallMethod(intake->admission, "flags", "(O)", entry) : NULL;
    int64_t flags = -2;
    if (answer != NULL && to_int64(answer, &flags) == 0 && flags < -1)
        flags = -1;
    else if (PyErr_Occurred())
        flags = -2;
    intake->has_failed = flags == -2;
    Py_XDECREF(entry);
    Py_XDECREF(answer);
    return flags;
}

/* Whether the batch is plain, or is compressed, would be plain otherwise, and has good records. `is_good`: of a batch that is not compressed,
   whether its records are. */
static bool is_admitted(Intake *intake, int32_t index, Status status, const Header *header, const uint8_t *batch, int64_t size, bool is_good)
{
    const Rules *rules = &intake->rules;
    if (!fits_rules(rules, index, status, header, size))
        return false;
    if (rules->checks_records == 0 || (header->attributes & COMPRESSION_MASK) == 0)
        return rules->checks_records == 0 || is_good;
    if (intake->check_left <= 0 || !is_checkable(header->attributes))
        return false;
    const int64_t found = check_section(intake->state, header, batch, size, SECTION_BYTES_MAX);
    intake->check_left -= found < 0 ? SECTION_BYTES_MAX : found;
    return found >= 0;
}

/* The flags of a batch that needs no question; -1 if it needs one. `bytes`, `size`, `is_good`: as for is_admitted. */
static int64_t known_flags(Intake *intake, int32_t index, Status status, const Header *header, const uint8_t *bytes, int64_t size, bool is_good)
{
    if ((header->attributes & TRANSACTIONAL) == 0)
        return is_admitted(intake, index, status, header, bytes, size, is_good) ? 0 : -1;
    if (intake->producer_id < 0 || header->producer_id != intake->producer_id)
        return -1;
    Header plain = *header;
    plain.attributes &= ~TRANSACTIONAL;
    return is_admitted(intake, index, status, &plain, bytes, size, is_good) ? intake->producer_flags : -1;
}

/* Reads a partition and admits its batch as number `at`: 1; 0 if it needs special handling; -1 with an exception set. */
static int take_partition(Intake *intake, Reader *reader, Taken *taken, Py_ssize_t at)
{
    int32_t index;
    int64_t length;
    Header header;
    if (take_element(reader) < 0 || read_i32(reader, "partition index", &index) < 0
        || read_length(reader, 4, "records", true, &length) < 0)
        return -1;
    const Py_ssize_t start = skip(reader, length > 0 ? length : 0, "records");
    if (start < 0 || skip_tags(reader) < 0 || make_room(taken, at) < 0)
        return -1;
    const Py_ssize_t size = length > 0 ? (Py_ssize_t)length : 0;
    const uint8_t *bytes = intake->frames + start;
    bool is_good = false;
    const Status status = inspect_produced(bytes, size, intake->version, &header, intake->rules.checks_records ? &is_good : NULL);
    int64_t flags = known_flags(intake, index, status, &header, bytes, size, is_good);
    if (flags < 0 && (flags = ask_flags(intake, taken, index, start, start + size, status, &header)) < 0)
        return flags == -1 ? 0 : -1;
    taken->places[at] = (Place){(uint32_t)PyList_GET_SIZE(taken->topics) - 1, index};
    Batch *batch = &taken->batches[at];
    *batch = (Batch){
        .row = {
            [COMMIT_PARTITION] = intake->rules.first_key | index,
            [COMMIT_LENGTH] = size,
            [COMMIT_RECORD_COUNT] = header.record_count,
            [COMMIT_MAX_TIMESTAMP] = header.max_timestamp,
            [COMMIT_PRODUCER_ID] = header.producer_id,
            [COMMIT_PRODUCER_EPOCH] = header.producer_epoch,
            [COMMIT_BASE_SEQUENCE] = header.base_sequence,
            [COMMIT_FLAGS] = flags,
            [COMMIT_EXPECTED_OFFSET] = -1,
            [COMMIT_AFTER_SEQUENCE] = -1,
        },
        .bytes = bytes,
        .results = &intake->call->base,
        .place = at,
        .is_checked = status == STATUS_OK,
    };
    memcpy(batch->stream_id, intake->stream_id, STREAM_ID_BYTES);
    return 1;
}

/* Reads the topics and admits their batches from number `*at` on. Returns as take_partition does. */
static int take_topics(Intake *intake, Reader *reader, Taken *taken, Py_ssize_t *at)
{
    int64_t topics, partitions;
    if (read_length(reader, 4, "topic count", false, &topics) < 0)
        return -1;
    for (; topics > 0; topics--) {
        if (take_element(reader) < 0)
            return -1;
        int outcome = take_topic(intake, reader, taken, &partitions);
        if (outcome <= 0)
            return outcome;
        for (; partitions > 0; partitions--, ++*at)
            if ((outcome = take_partition(intake, reader, taken, *at)) <= 0)
                return outcome;
        if (skip_tags(reader) < 0)
            return -1;
    }
    return skip_tags(reader) < 0 ? -1 : 1;
}

/* Reads the transactional id. If it differs from the id before, asks the admission. Returns as take_partition does. */
static int take_transactional_id(Intake *intake, Reader *reader)
{
    Reader before = *reader;
    int64_t size;
    if (read_length(reader, 2, "transactional id", true, &size) < 0)
        return -1;
    const Py_ssize_t start = skip(reader, size > 0 ? size : 0, "transactional id");
    if (start < 0)
        return -1;
    const uint8_t *id = intake->frames + start;
    if (size == intake->transactional_size && (size <= 0 || memcmp(id, intake->transactional_id, (size_t)size) == 0))
        return 1;
    if (intake->admission == NULL)
        return 0;
    PyObject *name = read_string(&before, "transactional id", true);
    PyObject *answer = name == NULL ? NULL : PyObject_CallMethod(intake->admission, "transaction", "(O)", name);
    const int outcome = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    intake->has_failed = outcome < 0 && name != NULL;
    Py_XDECREF(name);
    if (outcome > 0) {
        intake->transactional_id = id;
        intake->transactional_size = size;
    }
    return outcome;
}

/* Reads the body of a request. Returns as take_partition does. */
static int take_body(Intake *intake, Reader *reader, Taken *taken, Py_ssize_t *at)
{
    int16_t acks;
    int32_t timeout_ms;
    const int is_known = take_transactional_id(intake, reader);
    if (is_known <= 0)
        return is_known;
    if (read_i16(reader, "acks", &acks) < 0 || read_i32(reader, "timeout", &timeout_ms) < 0)
        return -1;
    if (acks != ALL_REPLICAS && acks != LEADER)
        return 0;
    const Py_ssize_t before = *at;
    const int outcome = take_topics(intake, reader, taken, at);
    return outcome > 0 ? *at > before : outcome;
}

/* Whether the request has the common header. */
static bool is_alike(const Intake *intake, const uint8_t *request, int64_t size)
{
    return size >= LEAD_AT + intake->lead_size && size <= intake->size_max && load_i16(request) == 0
        && load_i16(request + 2) == intake->version
        && memcmp(request + LEAD_AT, intake->lead, (size_t)intake->lead_size) == 0;
}

static int note_request(Taken *taken, int32_t correlation_id, Py_ssize_t batch_count)
{
    if (taken->request_count == taken->request_room) {
        const Py_ssize_t room = taken->request_room ? 2 * taken->request_room : 16;
        Request *requests = PyMem_Realloc(taken->requests, (size_t)room * sizeof *requests);
        if (requests == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        taken->requests = requests;
        taken->request_room = room;
    }
    taken->requests[taken->request_count++] = (Request){correlation_id, (uint32_t)(batch_count - taken->batch_count)};
    for (; taken->batch_count < batch_count; taken->batch_count++)
        taken->size += taken->batches[taken->batch_count].row[COMMIT_LENGTH];
    return 0;
}

static int64_t bytes_behind(const Taken *taken, Py_ssize_t batch_count)
{
    int64_t size = 0;
    for (Py_ssize_t at = taken->batch_count; at < batch_count; at++)
        size += taken->batches[at].row[COMMIT_LENGTH];
    return size;
}

/* Takes the request at `*at` and advances past it: 1; 0 if it is not taken; -1 with an exception set. */
static int take_request(Intake *intake, const WriteBuffer *buffer, Taken *taken, Py_ssize_t *at, Py_ssize_t end, bool *is_full)
{
    if (end - *at < SIZE_BYTES)
        return 0;
    const uint8_t *request = intake->frames + *at + SIZE_BYTES;
    const int64_t size = load_i32(request - SIZE_BYTES);
    if (size > end - *at - SIZE_BYTES || !is_alike(intake, request, size))
        return 0;
    const Py_ssize_t start = *at + SIZE_BYTES, next = start + (Py_ssize_t)size;
    Reader reader = {
        intake->state->corrupt, intake->frames, start + LEAD_AT + intake->lead_size, next, intake->version, ELEMENTS_MAX};
    Py_ssize_t batch_count = taken->batch_count;
    const int outcome = take_body(intake, &reader, taken, &batch_count);
    if (outcome < 0 && !intake->has_failed && PyErr_ExceptionMatches(intake->state->corrupt)) { /* reported when this request is parsed alone */
        PyErr_Clear();
        return 0;
    }
    if (outcome <= 0)
        return outcome;
    const int64_t bytes = bytes_behind(taken, batch_count);
    if (!write_buffer_fits(buffer, taken->size + bytes, batch_count)) { /* which counts those of `taken` */
        *is_full = write_buffer_may_ever_fit(buffer, bytes, batch_count - taken->batch_count);
        return 0;
    }
    *at = next;
    return note_request(taken, load_i32(request + 4), batch_count) < 0 ? -1 : 1;
}

/* -- take ------------------------------------------------------------------------------------------------------------------------------ */

/* Moves the requests to the call, and their batches to the buffer. The admission and the acquiring of the hold run Python code, which may use
   both objects. So the call is checked and gets the requests before the hold is acquired, and the buffer is checked afterwards. */
static int hand_over(ProduceResults *call, WriteBuffer *buffer, Taken *taken, Py_buffer *view, PyObject *hold, int version, int64_t seen)
{
    if (produce_results_check_unused(call) < 0 || results_reset(&call->base, taken->batch_count) < 0)
        return -1;
    call->version = version;
    call->request_count = taken->request_count;
    call->requests = taken->requests;
    call->places = taken->places;
    call->topics = Py_NewRef(taken->topics);
    taken->requests = NULL;
    taken->places = NULL;
    if (write_buffer_reserve(buffer, taken->batch_count) < 0 || write_buffer_keep(buffer, view, hold, taken->batch_count) < 0) {
        produce_results_clear(call);
        return -1;
    }
    for (Py_ssize_t at = 0; at < taken->batch_count; at++)
        if (write_buffer_push(buffer, &taken->batches[at], seen) < 0)
            return -1;
    return 0;
}

/* Takes requests from [*at, end) of `view`. Returns 0, with `*at` behind the last one that was taken; -1 with an exception set. */
static int take_requests(Intake *intake, WriteBuffer *buffer, Py_buffer *view, PyObject *hold, Py_ssize_t *at, Py_ssize_t end, int64_t seen,
                         bool *is_full)
{
    Taken taken = {.topics = PyList_New(0)};
    int outcome = taken.topics == NULL || (intake->topic != NULL && PyList_Append(taken.topics, intake->topic) < 0) ? -1 : 1;
    while (outcome > 0 && taken.request_count < intake->count_max && taken.batch_count < ELEMENTS_MAX)
        outcome = take_request(intake, buffer, &taken, at, end, is_full);
    if (outcome >= 0 && taken.request_count > 0)
        outcome = hand_over(intake->call, buffer, &taken, view, hold, intake->version, seen);
    PyMem_Free(taken.requests);
    PyMem_Free(taken.places);
    PyMem_Free(taken.batches);
    Py_XDECREF(taken.topics);
    return outcome < 0 ? -1 : 0;
}

/* The size of the request at `at`, with its length, if more of it is to come and its header is the common one; otherwise 0. */
static int64_t incomplete_size(const Intake *intake, Py_ssize_t at, Py_ssize_t end)
{
    if (end - at < SIZE_BYTES + LEAD_AT + intake->lead_size)
        return 0;
    const uint8_t *request = intake->frames + at + SIZE_BYTES;
    const int64_t size = load_i32(request - SIZE_BYTES);
    return size > end - at - SIZE_BYTES && is_alike(intake, request, size) ? size + SIZE_BYTES : 0;
}

int intake_take(Intake *intake, PyObject *const *from, int64_t seen, IntakeEnd *found)
{
    enum { BUFFER, CALL, MEMORY, HOLD, FROM, TO };
    Py_buffer frames;
    Py_ssize_t end;
    int outcome = -1;
    WriteBuffer *buffer = to_write_buffer(intake->state, from[BUFFER]);
    if (buffer == NULL)
        return -1;
    if (!PyObject_TypeCheck(from[CALL], (PyTypeObject *)intake->state->produce_results_type)) {
        PyErr_SetString(PyExc_TypeError, "requests are taken into ProduceResults");
        return -1;
    }
    intake->call = (ProduceResults *)from[CALL];
    if (produce_results_check_unused(intake->call) < 0 || PyObject_GetBuffer(from[MEMORY], &frames, PyBUF_SIMPLE) < 0)
        return -1;
    intake->frames = frames.buf;
    if (to_range(from[FROM], from[TO], frames.len, &found->at, &end) == 0) {
        const int64_t check_max = intake->check_left;
        found->is_full = false;
        outcome = take_requests(intake, buffer, &frames, from[HOLD], &found->at, end, seen, &found->is_full);
        found->checked = check_max - intake->check_left;
        found->need = outcome < 0 ? 0 : incomplete_size(intake, found->at, end);
    }
    PyBuffer_Release(&frames); /* nothing, if the buffer keeps it */
    return outcome;
}

KERNEL_FUNCTION(kernel_take_produces)
{
    enum { VERSION = INTAKE_ARGUMENTS, LEAD, SIZE_MAX_, COUNT_MAX, CHECK_MAX, ADMISSION, SEEN, ARGUMENTS };
    Py_buffer lead;
    int64_t version, seen;
    IntakeEnd end;
    KernelState *state = state_of(module);
    Intake intake = {.state = state, .transactional_size = -1, .producer_id = -1};
    if (check_arguments("take_produces", count, ARGUMENTS, ARGUMENTS) < 0 || to_int64(arguments[VERSION], &version) < 0
        || to_int64(arguments[SIZE_MAX_], &intake.size_max) < 0 || to_int64(arguments[COUNT_MAX], &intake.count_max) < 0
        || to_int64(arguments[CHECK_MAX], &intake.check_left) < 0 || to_int64(arguments[SEEN], &seen) < 0)
        return NULL;
    if (version < 3 || version > 13)
        return PyErr_Format(state->unsupported, "Produce version %S; supported: 3-13", arguments[VERSION]);
    if (PyObject_GetBuffer(arguments[LEAD], &lead, PyBUF_SIMPLE) < 0)
        return NULL;
    intake.lead = lead.buf;
    intake.lead_size = lead.len;
    intake.version = (int)version;
    intake.admission = arguments[ADMISSION];
    const int outcome = intake_take(&intake, arguments, seen, &end);
    PyBuffer_Release(&lead);
    return outcome < 0 ? NULL : Py_BuildValue("nOL", end.at, end.is_full ? Py_True : Py_False, (long long)end.checked);
}
