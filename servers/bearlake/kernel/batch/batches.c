/* Whole record batches: check one, iterate over many, and write their offsets. */
#include "batch/records.h"

#define ATTRIBUTE_LOG_APPEND_TIME 0x08
#define ATTRIBUTE_CONTROL 0x20

static void load_header(const uint8_t *at, Header *header)
{
    header->length = (int64_t)load_i32(at + 8) + LENGTH_END;
    header->attributes = load_i16(at + 21);
    header->last_offset_delta = load_i32(at + DELTA_AT);
    header->base_timestamp = load_i64(at + 27);
    header->max_timestamp = load_i64(at + 35);
    header->producer_id = load_i64(at + 43);
    header->producer_epoch = load_i16(at + 51);
    header->base_sequence = load_i32(at + 53);
    header->record_count = load_i32(at + 57);
    if (header->producer_id < 0) {
        header->producer_id = -1;
        header->producer_epoch = -1;
        header->base_sequence = -1;
    }
}

static Status check_header(const uint8_t *at, const Header *header)
{
    const int codec = header->attributes & 0x07;
    const int64_t records = header->record_count;
    if (codec > 4)
        return STATUS_UNKNOWN_COMPRESSION;
    if (header->attributes & ATTRIBUTE_CONTROL)
        return STATUS_CONTROL;
    if (records <= 0 || records > RECORDS_MAX || (codec == 0 && records > (header->length - HEADER_BYTES) / RECORD_BYTES_MIN))
        return STATUS_BAD_COUNT;
    if (load_u64(at) != 0 || header->last_offset_delta != records - 1)
        return STATUS_BAD_OFFSETS;
    if (header->producer_id >= 0 && (header->producer_epoch < 0 || header->base_sequence < 0))
        return STATUS_BAD_PRODUCER;
    if (header->base_timestamp < -1 || header->max_timestamp < -1 || header->attributes & ATTRIBUTE_LOG_APPEND_TIME)
        return STATUS_BAD_TIMESTAMP;
    return STATUS_OK;
}

/* Bytes whose checksum is computed before their records are looked at: they are still in the processor's cache then. */
#define PASS_BYTES (36 * 1024)

/* The checksum of an uncompressed batch, and whether its records are good, in one pass over memory. */
static uint32_t check_in_one_pass(const uint8_t *bytes, Py_ssize_t size, int64_t record_count, bool *is_good)
{
    const uint8_t *const end = bytes + size, *at = bytes + CRC_START;
    Cursor section = {bytes + HEADER_BYTES, end};
    Record record;
    uint32_t crc = 0;
    int64_t index = 0;
    bool is_bad = false;
    while (at < end) {
        const size_t step = end - at < PASS_BYTES ? (size_t)(end - at) : PASS_BYTES;
        crc = checksum_continued(crc, at, step);
        at += step;
        while (!is_bad && index < record_count && section.at < at) {
            is_bad = !read_record(&section, &record) || record.offset_delta != index;
            index++;
        }
    }
    *is_good = !is_bad && index == record_count && section.at == end;
    return crc;
}

static uint32_t check_releasing(const uint8_t *bytes, Py_ssize_t size, int64_t record_count, bool *is_good)
{
    uint32_t crc;
    if (size < RELEASE_BYTES)
        return check_in_one_pass(bytes, size, record_count, is_good);
    Py_BEGIN_ALLOW_THREADS
    crc = check_in_one_pass(bytes, size, record_count, is_good);
    Py_END_ALLOW_THREADS
    return crc;
}

Status inspect_bytes(const uint8_t *bytes, Py_ssize_t size, Header *header) { return inspect_records(bytes, size, header, NULL); }

Status inspect_records(const uint8_t *bytes, Py_ssize_t size, Header *header, bool *is_good)
{
    if (size == 0)
        return STATUS_EMPTY;
    if (size <= MAGIC_AT)
        return STATUS_TRUNCATED;
    if (bytes[MAGIC_AT] != 2)
        return bytes[MAGIC_AT] < 2 ? STATUS_OLD_MAGIC : STATUS_UNKNOWN_MAGIC;
    if (size < HEADER_BYTES)
        return STATUS_TRUNCATED;
    load_header(bytes, header);
    if (header->length < HEADER_BYTES || header->length > size)
        return STATUS_TRUNCATED;
    if (header->length < size)
        return STATUS_MANY_BATCHES;
    const bool looks = is_good != NULL && (header->attributes & 0x07) == 0;
    const uint32_t crc = looks ? check_releasing(bytes, size, header->record_count, is_good)
                               : checksum_releasing(bytes + CRC_START, size - CRC_START);
    if (crc != load_u32(bytes + CRC_AT))
        return STATUS_BAD_CRC;
    return check_header(bytes, header);
}

static PyObject *header_value(KernelState *state, const Header *header)
{
    PyTypeObject *type = (PyTypeObject *)state->header_type;
    PyObject *value = type->tp_alloc(type, 9);
    if (value == NULL)
        return NULL;
    PyObject *fields[9] = {
        PyLong_FromLongLong(header->length),         PyLong_FromLong(header->attributes),
        PyLong_FromLong(header->last_offset_delta),  PyLong_FromLongLong(header->base_timestamp),
        PyLong_FromLongLong(header->max_timestamp),  PyLong_FromLongLong(header->producer_id),
        PyLong_FromLong(header->producer_epoch),     PyLong_FromLong(header->base_sequence),
        PyLong_FromLong(header->record_count),
    };
    bool is_whole = true;
    for (int at = 0; at < 9; at++) {
        is_whole = is_whole && fields[at] != NULL;
        PyTuple_SET_ITEM(value, at, fields[at]);
    }
    if (!is_whole)
        Py_CLEAR(value);
    return value;
}

KERNEL_FUNCTION(kernel_inspect)
{
    Py_buffer view;
    Py_ssize_t start, end;
    Header header;
    PyObject *result = NULL;
    if (check_arguments("inspect", count, 3, 3) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (to_range(arguments[1], arguments[2], view.len, &start, &end) == 0) {
        Status status = inspect_bytes((const uint8_t *)view.buf + start, end - start, &header);
        result = status == STATUS_OK ? header_value(state_of(module), &header) : PyLong_FromLong(status);
    }
    PyBuffer_Release(&view);
    return result;
}

/* A walk over batches that lie back to back in [position, end). It does not need the GIL; the caller raises its errors afterwards. */
typedef enum { STEP_BATCH, STEP_END, STEP_SHORT, STEP_IMPOSSIBLE } Step;

typedef struct {
    uint8_t *bytes;
    Py_ssize_t position; /* start of the batch of the last STEP_BATCH, or where the walk stopped */
    Py_ssize_t next;
    Py_ssize_t end;
    int64_t delta;
} Walk;

static inline Walk walk_over(void *bytes, Py_ssize_t start, Py_ssize_t end)
{
    return (Walk){.bytes = bytes, .position = start, .next = start, .end = end};
}

static inline Step walk_step(Walk *walk)
{
    walk->position = walk->next;
    const Py_ssize_t left = walk->end - walk->position;
    if (left == 0)
        return STEP_END;
    if (left < HEADER_BYTES)
        return STEP_SHORT;
    const uint8_t *at = walk->bytes + walk->position;
    const int64_t length = (int64_t)load_i32(at + 8) + LENGTH_END;
    walk->delta = load_i32(at + DELTA_AT);
    if (at[MAGIC_AT] != 2 || length < HEADER_BYTES || length > left || walk->delta < 0)
        return STEP_IMPOSSIBLE;
    walk->next += length;
    return STEP_BATCH;
}

static PyObject *walk_fault(KernelState *state, const Walk *walk, Step step)
{
    if (step == STEP_SHORT)
        return PyErr_Format(
            state->corrupt, "record batch at %zd: %zd bytes are less than a header", walk->position, walk->end - walk->position);
    return PyErr_Format(
        state->corrupt, "record batch at %zd: its magic, length or last offset delta is impossible", walk->position);
}

static PyObject *batches_in(KernelState *state, Walk walk)
{
    Step step = STEP_END;
    PyObject *found = PyList_New(0);
    while (found != NULL && (step = walk_step(&walk)) == STEP_BATCH) {
        const uint8_t *at = walk.bytes + walk.position;
        Header header;
        load_header(at, &header);
        PyObject *value = header_value(state, &header);
        /* N transfers ownership of `value`, even if building fails */
        PyObject *entry = value ? Py_BuildValue("nLN", walk.position, (long long)load_i64(at), value) : NULL;
        if (entry == NULL || PyList_Append(found, entry) < 0)
            Py_CLEAR(found);
        Py_XDECREF(entry);
    }
    if (found == NULL || step == STEP_END)
        return found;
    Py_DECREF(found);
    return walk_fault(state, &walk, step);
}

KERNEL_FUNCTION(kernel_batches)
{
    Py_buffer view;
    Py_ssize_t start, end;
    PyObject *result = NULL;
    if (check_arguments("batches", count, 3, 3) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (to_range(arguments[1], arguments[2], view.len, &start, &end) == 0)
        result = batches_in(state_of(module), walk_over(view.buf, start, end));
    PyBuffer_Release(&view);
    return result;
}

/* Walks to the batch that contains `offset`, or to the first batch after it. */
static Step walk_to_offset(Walk *walk, int64_t offset)
{
    Step step;
    while ((step = walk_step(walk)) == STEP_BATCH) {
        int64_t last;
        if (__builtin_add_overflow(load_i64(walk->bytes + walk->position), walk->delta, &last) || last >= offset)
            break;
    }
    return step;
}

/* Walks as far as `bytes_max` allows, but over the first batch if `is_first`; walk->position is the end of the run. */
static Step walk_bytes(Walk *walk, int64_t bytes_max, bool is_first)
{
    const Py_ssize_t start = walk->position;
    Step step;
    walk->next = start;
    while ((step = walk_step(walk)) == STEP_BATCH)
        if (walk->next - start > bytes_max && (walk->position > start || !is_first))
            break;
    return step;
}

KERNEL_FUNCTION(kernel_seek)
{
    Py_buffer view;
    Py_ssize_t start, end;
    int64_t offset;
    PyObject *result = NULL;
    if (check_arguments("seek", count, 4, 4) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (to_range(arguments[1], arguments[2], view.len, &start, &end) == 0 && to_int64(arguments[3], &offset) == 0) {
        Walk walk = walk_over(view.buf, start, end);
        Step step;
        if (end - start < RELEASE_WALK_BYTES) {
            step = walk_to_offset(&walk, offset);
        } else {
            Py_BEGIN_ALLOW_THREADS
            step = walk_to_offset(&walk, offset);
            Py_END_ALLOW_THREADS
        }
        if (step == STEP_BATCH || step == STEP_END)
            result = PyLong_FromSsize_t(walk.position);
        else
            result = walk_fault(state_of(module), &walk, step);
    }
    PyBuffer_Release(&view);
    return result;
}

/* Finds the run [*start, *end) within the walk; STEP_SHORT or STEP_IMPOSSIBLE if the walk fails. */
static Step walk_run(Walk *walk, int64_t offset, int64_t bytes_max, bool is_first, Py_ssize_t *start, Py_ssize_t *end)
{
    Step step = walk_to_offset(walk, offset);
    *start = walk->position;
    *end = walk->end;
    if ((step == STEP_BATCH || step == STEP_END) && *end - *start > bytes_max) {
        step = walk_bytes(walk, bytes_max, is_first);
        *end = walk->position;
    }
    return step;
}

KERNEL_FUNCTION(kernel_find_run)
{
    Py_buffer view;
    Py_ssize_t start, end;
    int64_t offset, bytes_max, is_first;
    PyObject *result = NULL;
    if (check_arguments("find_run", count, 6, 6) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (to_range(arguments[1], arguments[2], view.len, &start, &end) == 0 && to_int64(arguments[3], &offset) == 0
        && to_int64(arguments[4], &bytes_max) == 0 && to_int64(arguments[5], &is_first) == 0) {
        Walk walk = walk_over(view.buf, start, end);
        Step step;
        if (end - start < RELEASE_WALK_BYTES) {
            step = walk_run(&walk, offset, bytes_max, is_first != 0, &start, &end);
        } else {
            Py_BEGIN_ALLOW_THREADS
            step = walk_run(&walk, offset, bytes_max, is_first != 0, &start, &end);
            Py_END_ALLOW_THREADS
        }
        if (step == STEP_BATCH || step == STEP_END)
            result = Py_BuildValue("nn", start, end);
        else
            result = walk_fault(state_of(module), &walk, step);
    }
    PyBuffer_Release(&view);
    return result;
}

/* Writes offsets [offset, offset_end) and the epoch into the walk's batches; STEP_END if they fit exactly, else STEP_BATCH. */
static Step walk_rebasing(Walk *walk, int64_t offset, int64_t offset_end, int32_t leader_epoch)
{
    Step step;
    while ((step = walk_step(walk)) == STEP_BATCH) {
        if (walk->delta >= offset_end - offset)
            return STEP_BATCH;
        uint8_t *at = walk->bytes + walk->position;
        store_u64(at, (uint64_t)offset);
        store_u32(at + LENGTH_END, (uint32_t)leader_epoch);
        offset += walk->delta + 1;
    }
    return step == STEP_END && offset != offset_end ? STEP_BATCH : step;
}

/* Returns 0, or -1 with an exception set. */
static int rebase_slice(KernelState *state, const Py_buffer *view, const int64_t *field, int64_t origin, int32_t leader_epoch)
{
    int64_t start;
    const int64_t base_offset = field[SLICE_BASE], record_count = field[SLICE_COUNT];
    const int64_t position = field[SLICE_POSITION], length = field[SLICE_LENGTH];
    if (base_offset < 0 || record_count < 0 || base_offset > INT64_MAX - record_count) {
        PyErr_Format(PyExc_ValueError, "offsets from %lld, %lld records: not in the range of an int64", (long long)base_offset,
                     (long long)record_count);
        return -1;
    }
    if (__builtin_sub_overflow(position, origin, &start) || start < 0 || length < 0 || start > view->len
        || length > view->len - start) {
        PyErr_Format(state->corrupt, "slice at %lld with %lld bytes is outside the %zd bytes from %lld on", (long long)position,
                     (long long)length, view->len, (long long)origin);
        return -1;
    }
    Walk walk = walk_over(view->buf, start, start + length);
    Step step;
    if (length < RELEASE_WALK_BYTES) {
        step = walk_rebasing(&walk, base_offset, base_offset + record_count, leader_epoch);
    } else {
        Py_BEGIN_ALLOW_THREADS
        step = walk_rebasing(&walk, base_offset, base_offset + record_count, leader_epoch);
        Py_END_ALLOW_THREADS
    }
    if (step == STEP_END)
        return 0;
    if (step != STEP_BATCH)
        walk_fault(state, &walk, step);
    else
        PyErr_Format(state->corrupt, "slice at %lld: its batches do not hold %lld offsets", (long long)position,
                     (long long)record_count);
    return -1;
}

static int rebase_packed(KernelState *state, const Py_buffer *view, PyObject *packed, int64_t origin, int32_t leader_epoch)
{
    const uint8_t *row = (const uint8_t *)PyBytes_AS_STRING(packed), *end = row + PyBytes_GET_SIZE(packed);
    int outcome = 0;
    for (; outcome == 0 && row < end; row += 8 * SLICE_FIELDS) {
        int64_t field[SLICE_FIELDS];
        for (int at = 0; at < SLICE_FIELDS; at++)
            field[at] = load_row_field(row + 8 * at);
        outcome = rebase_slice(state, view, field, origin, leader_epoch);
    }
    return outcome;
}

static int rebase_sequence(KernelState *state, const Py_buffer *view, PyObject *slices, int64_t origin, int32_t leader_epoch)
{
    int outcome = 0;
    for (Py_ssize_t at = 0; outcome == 0 && at < PySequence_Fast_GET_SIZE(slices); at++) {
        PyObject *slice = Py_NewRef(PySequence_Fast_GET_ITEM(slices, at)); /* the list may change while the GIL is free */
        int64_t field[SLICE_FIELDS];
        outcome = PyTuple_Check(slice) && PyTuple_GET_SIZE(slice) == SLICE_FIELDS ? 0 : -1;
        if (outcome < 0)
            PyErr_SetString(PyExc_ValueError, "a slice is a tuple of 6");
        if (outcome < 0 || to_numbers(slice, SLICE_BASE, SLICE_LENGTH, field) < 0
            || rebase_slice(state, view, field, origin, leader_epoch) < 0)
            outcome = -1;
        Py_DECREF(slice);
    }
    return outcome;
}

KERNEL_FUNCTION(kernel_rebase)
{
    Py_buffer view;
    int64_t leader_epoch, origin = 0;
    if (check_arguments("rebase", count, 3, 4) < 0 || to_int64(arguments[2], &leader_epoch) < 0
        || (count > 3 && to_int64(arguments[3], &origin) < 0))
        return NULL;
    if (leader_epoch < INT32_MIN || leader_epoch > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "leader epoch %S is not an int32", arguments[2]);
    PyObject *slices = NULL;
    const int is_packed = to_packed(state_of(module), arguments[1], SLICE_FIELDS, &slices);
    if (is_packed == 0)
        slices = PySequence_Fast(arguments[1], "slices is not a sequence");
    if (slices == NULL)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &view, PyBUF_WRITABLE) < 0) {
        Py_DECREF(slices);
        return NULL;
    }
    const int outcome = (is_packed ? rebase_packed : rebase_sequence)(state_of(module), &view, slices, origin, (int32_t)leader_epoch);
    PyBuffer_Release(&view);
    Py_DECREF(slices);
    return outcome < 0 ? NULL : Py_NewRef(Py_None);
}
