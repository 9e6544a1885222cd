/* Takes SENDs from a receive buffer into the write buffer, without a Python object per SEND. Contract: intake.py. */
#include "pulsar/send_results.h"

/* Indices in pulsar.SendBinding */
enum {
    PRODUCER, PARTITION, STREAM_ID, BATCH_BYTES_MAX, EARLIEST, LATEST, STORED_ID, EPOCH, NEWEST, IS_DEDUPLICATED, BINDING_FIELDS
};

#define ROOM_BYTES 1024 /* first room for batches that are larger than their frames; the output grows as needed */

/* What is the same for all SENDs of a call. */
typedef struct {
    KernelState *state;
    SendLimits limits;
    const uint8_t *stream_id;
    int64_t number[BINDING_FIELDS]; /* the binding */
    int64_t seen;
} Intake;

/* The SENDs taken so far. Their batches are in one output, which is opened for the first; COMMIT_POSITION is where one begins in it. */
typedef struct {
    Py_ssize_t count, room;
    Send *sends;
    Batch *batches;
    Output output;
    int64_t newest; /* sequence of the producer */
} Taken;

/* Opens the output for the batches of `arrived` bytes of frames, as far as the buffer has room; false with an exception set. */
static bool open_batches(const WriteBuffer *buffer, Taken *taken, int64_t arrived)
{
    const int64_t room = buffer->size_max > buffer->size ? buffer->size_max - buffer->size : 0;
    return taken->output.bytes != NULL || open_output(&taken->output, ROOM_BYTES + (arrived < room ? arrived : room), 0);
}

static int make_room(Taken *taken)
{
    if (taken->count < taken->room)
        return 0;
    const Py_ssize_t room = taken->room ? 2 * taken->room : 16;
    Send *sends = PyMem_Realloc(taken->sends, (size_t)room * sizeof *sends);
    if (sends != NULL)
        taken->sends = sends;
    Batch *batches = PyMem_Realloc(taken->batches, (size_t)room * sizeof *batches);
    if (batches != NULL)
        taken->batches = batches;
    if (sends == NULL || batches == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    taken->room = room;
    return 0;
}

/* Whether the buffer has room for one more batch of that size; if not, sets whether another buffer would have. */
static bool fits(const WriteBuffer *buffer, const Taken *taken, int64_t bytes, bool *is_full)
{
    if (write_buffer_fits(buffer, output_size(&taken->output) + bytes, taken->count + 1))
        return true;
    *is_full = write_buffer_may_ever_fit(buffer, bytes, 1);
    return false;
}

/* Notes the names of the next batch of the producer. */
static void name_batch(const Intake *intake, Taken *taken, const Send *send, int64_t *row)
{
    const int64_t *number = intake->number, before = taken->newest;
    row[COMMIT_PRODUCER_ID] = row[COMMIT_PRODUCER_EPOCH] = row[COMMIT_BASE_SEQUENCE] = row[COMMIT_AFTER_SEQUENCE] = -1;
    row[COMMIT_FLAGS] = 0;
    if (number[STORED_ID] < 0)
        return;
    const uint64_t sent = send->highest_id > send->sequence_id ? send->highest_id : send->sequence_id; /* at most INT64_MAX */
    const int64_t sequence = number[IS_DEDUPLICATED] ? (int64_t)sent : before + 1;
    row[COMMIT_PRODUCER_ID] = number[STORED_ID];
    row[COMMIT_PRODUCER_EPOCH] = number[EPOCH];
    row[COMMIT_BASE_SEQUENCE] = sequence;
    row[COMMIT_FLAGS] = BATCH_NAMED;
    row[COMMIT_AFTER_SEQUENCE] = before;
    if (sequence > before)
        taken->newest = sequence;
}

static void add_batch(const Intake *intake, Taken *taken, SendResults *call, const Send *send, const Encoded *encoded, int64_t start)
{
    Batch *batch = &taken->batches[taken->count];
    batch->row[COMMIT_PARTITION] = intake->number[PARTITION];
    batch->row[COMMIT_POSITION] = start;
    batch->row[COMMIT_LENGTH] = output_size(&taken->output) - start;
    batch->row[COMMIT_RECORD_COUNT] = encoded->record_count;
    batch->row[COMMIT_MAX_TIMESTAMP] = encoded->max_timestamp;
    batch->row[COMMIT_EXPECTED_OFFSET] = -1;
    name_batch(intake, taken, send, batch->row);
    memcpy(batch->stream_id, intake->stream_id, STREAM_ID_BYTES);
    batch->results = &call->base;
    batch->place = taken->count;
    batch->is_checked = true;
    taken->sends[taken->count++] = *send;
}

/* Takes the SEND at `*at` and advances past it: 1; 0 if it is not taken; -1 with an exception set. */
static int take_send(const Intake *intake, const WriteBuffer *buffer, SendResults *call, Taken *taken, const uint8_t *bytes, Py_ssize_t *at,
                     Py_ssize_t end, bool *is_full)
{
    const int64_t *number = intake->number;
    SendFrame frame;
    Encoded encoded;
    if ((number[IS_DEDUPLICATED] == 0 && taken->newest == INT64_MAX) || !read_common_send(bytes, *at, end, &intake->limits, &frame))
        return 0;
    if (!open_batches(buffer, taken, end - *at) || make_room(taken) < 0)
        return -1;
    const int64_t start = output_size(&taken->output);
    if (!fits(buffer, taken, frame.payload.end - frame.payload.at, is_full)) /* before the work is done */
        return 0;
    const bool is_encoded = put_entry(intake->state, &taken->output, frame.metadata, frame.payload, false, &encoded) == 0;
    if (!is_encoded && !clear_refusal(intake->state))
        return -1;
    const int64_t size = output_size(&taken->output) - start;
    taken->output.writer.at = output_at(&taken->output, start); /* the next batch overwrites one that is not taken */
    if (!is_encoded || size > number[BATCH_BYTES_MAX] || encoded.base_timestamp < number[EARLIEST]
        || encoded.max_timestamp > number[LATEST] || !fits(buffer, taken, size, is_full))
        return 0;
    taken->output.writer.at += size;
    add_batch(intake, taken, call, &frame.send, &encoded, start);
    *at = frame.end;
    return 1;
}

/* Moves the SENDs to the call, and their batches to the buffer. Both are checked again: a checksum may have released the GIL. */
static int hand_over(SendResults *call, WriteBuffer *buffer, Taken *taken, int64_t seen)
{
    PyObject *bytes = close_output(&taken->output);
    Py_buffer view;
    if (bytes == NULL || PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0)
        return -1;
    int outcome = write_buffer_check_open(buffer);
    if (outcome == 0 && (outcome = send_results_set(call, taken->sends, taken->count)) == 0) {
        taken->sends = NULL;
        if (write_buffer_reserve(buffer, taken->count) < 0 || write_buffer_keep(buffer, &view, Py_None, taken->count) < 0) {
            send_results_clear(call);
            outcome = -1;
        }
    }
    for (Py_ssize_t at = 0; outcome == 0 && at < taken->count; at++) {
        Batch *batch = &taken->batches[at];
        batch->bytes = (const uint8_t *)PyBytes_AS_STRING(bytes) + batch->row[COMMIT_POSITION];
        batch->row[COMMIT_POSITION] = 0;
        outcome = write_buffer_push(buffer, batch, seen);
    }
    PyBuffer_Release(&view); /* nothing, if the buffer keeps it */
    return outcome;
}

/* Takes SENDs from [*at, end). Returns 0, with `*at` behind the last one that was taken; -1 with an exception set. */
static int take_all(Intake *intake, WriteBuffer *buffer, SendResults *call, const uint8_t *bytes, Py_ssize_t *at, Py_ssize_t end,
                    bool *is_full)
{
    Taken taken = {.newest = intake->number[NEWEST]};
    int outcome = 1;
    while (outcome > 0 && taken.count < intake->limits.count_max)
        outcome = take_send(intake, buffer, call, &taken, bytes, at, end, is_full);
    if (outcome >= 0 && taken.count > 0)
        outcome = hand_over(call, buffer, &taken, intake->seen);
    intake->number[NEWEST] = taken.newest;
    PyMem_Free(taken.sends);
    PyMem_Free(taken.batches);
    Py_XDECREF(taken.output.bytes);
    return outcome < 0 ? -1 : 0;
}

/* Reads a pulsar.SendBinding. -1 with an exception set. */
static int to_binding(PyObject *value, Intake *intake)
{
    if (check_tuple(value, BINDING_FIELDS, "a binding") < 0 || to_uint64(field(value, PRODUCER), &intake->limits.producer_id) < 0
        || to_int64(field(value, PARTITION), &intake->number[PARTITION]) < 0
        || to_numbers(value, BATCH_BYTES_MAX, IS_DEDUPLICATED, intake->number) < 0)
        return -1;
    PyObject *stream_id = field(value, STREAM_ID);
    if (!PyBytes_Check(stream_id) || PyBytes_GET_SIZE(stream_id) != STREAM_ID_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a stream id has 16 bytes");
        return -1;
    }
    intake->stream_id = (const uint8_t *)PyBytes_AS_STRING(stream_id);
    intake->limits.has_producer = true;
    return 0;
}

KERNEL_FUNCTION(kernel_take_sends)
{
    enum { BUFFER, CALL, MEMORY, FROM, TO, BINDING, COUNT_MAX, PAYLOAD_BYTES_MAX, MESSAGE_BYTES_MAX, SEEN, ARGUMENTS };
    KernelState *state = state_of(module);
    Intake intake = {.state = state};
    Py_buffer frames;
    Py_ssize_t at, end;
    bool is_full = false;
    if (check_arguments("take_sends", count, ARGUMENTS, ARGUMENTS) < 0 || to_binding(arguments[BINDING], &intake) < 0
        || to_int64(arguments[COUNT_MAX], &intake.limits.count_max) < 0
        || to_int64(arguments[PAYLOAD_BYTES_MAX], &intake.limits.payload_bytes_max) < 0
        || to_int64(arguments[MESSAGE_BYTES_MAX], &intake.limits.message_bytes_max) < 0 || to_int64(arguments[SEEN], &intake.seen) < 0)
        return NULL;
    WriteBuffer *buffer = to_write_buffer(state, arguments[BUFFER]);
    SendResults *call = buffer == NULL ? NULL : to_send_results(state, arguments[CALL]);
    if (call == NULL || PyObject_GetBuffer(arguments[MEMORY], &frames, PyBUF_SIMPLE) < 0)
        return NULL;
    int outcome = to_range(arguments[FROM], arguments[TO], frames.len, &at, &end);
    if (outcome == 0)
        outcome = take_all(&intake, buffer, call, frames.buf, &at, end, &is_full);
    PyBuffer_Release(&frames);
    return outcome < 0 ? NULL : Py_BuildValue("nOL", at, is_full ? Py_True : Py_False, (long long)intake.number[NEWEST]);
}
