/* A write buffer becomes an object: its bytes, its index and its commits. Contract: buffer.py. */
#include "batch/batch.h"
#include "log/write_buffer.h"

#define ENTRY_BYTES 40

/* Releases a hold; an exception that is set stays. A hold that fails is reported. */
void write_buffer_release_hold(PyObject *hold, Py_ssize_t count)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethod(hold, "release", "n", count);
    if (done == NULL)
        PyErr_WriteUnraisable(hold);
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

static int compare(const void *left, const void *right)
{
    const Slice *one = left, *other = right;
    const int order = memcmp(one->stream_id, other->stream_id, STREAM_ID_BYTES);
    return order ? order : (one->partition > other->partition) - (one->partition < other->partition);
}

/* Puts the batches in the order of the object, whose first slice begins at `front`. -1 with an exception set, and nothing done. */
static int place_batches(WriteBuffer *buffer, int64_t front)
{
    uint32_t number = 0;
    buffer->order = PyMem_Malloc(buffer->batch_count * sizeof *buffer->order);
    if (buffer->order == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    qsort(buffer->slices.items, buffer->slice_count, sizeof(Slice), compare);
    buffer->is_joined = true;
    for (uint32_t at = 0; at < buffer->slice_count; at++)
        for (uint32_t next = slice_at(buffer, at)->first; next != NONE; next = batch_at(buffer, next)->next) {
            batch_at(buffer, next)->row[COMMIT_POSITION] = front;
            front += batch_at(buffer, next)->row[COMMIT_LENGTH];
            buffer->order[number++] = next;
        }
    return 0;
}

static void copy_batches(const WriteBuffer *buffer, uint8_t *target)
{
    for (uint32_t at = 0; at < buffer->batch_count; at++) {
        const Batch *batch = batch_at(buffer, buffer->order[at]);
        memcpy(target + batch->row[COMMIT_POSITION], batch->bytes, (size_t)batch->row[COMMIT_LENGTH]);
    }
}

/* Releases the memory of the batches: all views, then the holds, which run Python code. */
static void release_sources(WriteBuffer *buffer)
{
    const uint32_t count = buffer->source_count;
    buffer->source_count = 0;
    for (uint32_t at = 0; at < buffer->batch_count; at++)
        batch_at(buffer, at)->bytes = NULL;
    for (uint32_t at = 0; at < count; at++)
        PyBuffer_Release(&source_at(buffer, at)->view);
    for (uint32_t at = 0; at < count;) {
        PyObject *hold = source_at(buffer, at)->hold;
        const uint32_t first = at;
        Py_ssize_t batches = 0;
        for (; at < count && source_at(buffer, at)->hold == hold; at++) /* consecutive sources mostly share a hold */
            batches += source_at(buffer, at)->count;
        if (hold == NULL)
            continue;
        write_buffer_release_hold(hold, batches);
        for (uint32_t reference = first; reference < at; reference++)
            Py_DECREF(hold);
    }
}

PyObject *write_buffer_join(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    int64_t front, back;
    if (check_arguments("join", count, 2, 2) < 0 || to_int64(arguments[0], &front) < 0 || to_int64(arguments[1], &back) < 0
        || write_buffer_check_open(buffer) < 0)
        return NULL;
    if (front < 0 || front > INT32_MAX || back < 0 || back > INT32_MAX || buffer->batch_count == 0)
        return PyErr_Format(PyExc_ValueError, "join() takes sizes, and the buffer must have batches");
    PyObject *target = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(front + buffer->size + back));
    if (target == NULL || place_batches(buffer, front) < 0) {
        Py_XDECREF(target);
        return NULL;
    }
    uint8_t *bytes = (uint8_t *)PyByteArray_AS_STRING(target);
    memset(bytes, 0, (size_t)front);
    copy_batches(buffer, bytes);
    memset(bytes + front + buffer->size, 0, (size_t)back);
    release_sources(buffer);
    return target;
}

/* A view of the batch in its source, of which `whole` is a view. NULL with an exception set. */
static PyObject *view_of_batch(PyObject *whole, const Py_buffer *source, const Batch *batch)
{
    const Py_ssize_t start = batch->bytes - (const uint8_t *)source->buf, length = (Py_ssize_t)batch->row[COMMIT_LENGTH];
    PyObject *view = PySequence_GetSlice(whole, start, start + length);
    if (view != NULL && (PyMemoryView_GET_BUFFER(view)->buf != batch->bytes || PyMemoryView_GET_BUFFER(view)->len != length)) {
        PyErr_SetString(PyExc_ValueError, "arrange(): a batch is not in memory that can be viewed as bytes");
        Py_CLEAR(view);
    }
    return view;
}

PyObject *write_buffer_arrange(PyObject *self, PyObject *argument)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    int64_t front;
    if (to_int64(argument, &front) < 0 || write_buffer_check_open(buffer) < 0)
        return NULL;
    if (front < 0 || front > INT32_MAX || buffer->batch_count == 0)
        return PyErr_Format(PyExc_ValueError, "arrange() takes a size, and the buffer must have batches");
    PyObject *parts = PyList_New(buffer->batch_count), *whole = NULL;
    uint32_t source = NONE;
    if (parts != NULL && place_batches(buffer, front) < 0)
        Py_CLEAR(parts);
    for (uint32_t at = 0; parts != NULL && at < buffer->batch_count; at++) {
        const Batch *batch = batch_at(buffer, buffer->order[at]);
        const Py_buffer *memory = &source_at(buffer, batch->source)->view;
        if (source != batch->source) {
            Py_XDECREF(whole);
            whole = PyMemoryView_FromObject(memory->obj);
            source = batch->source;
        }
        PyObject *part = whole ? view_of_batch(whole, memory, batch) : NULL;
        if (part == NULL)
            Py_CLEAR(parts);
        else
            PyList_SET_ITEM(parts, at, part);
    }
    Py_XDECREF(whole);
    return parts;
}

PyObject *write_buffer_release(PyObject *self, PyObject *unused)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    if (!buffer->is_joined || buffer->is_reading)
        return PyErr_Format(PyExc_ValueError, buffer->is_joined ? "index() reads the batches" : "the buffer is not joined yet");
    release_sources(buffer);
    Py_RETURN_NONE;
}

static bool is_checked(const WriteBuffer *buffer, const Slice *slice)
{
    for (uint32_t next = slice->first; next != NONE; next = batch_at(buffer, next)->next)
        if (!batch_at(buffer, next)->is_checked)
            return false;
    return true;
}

/* The checksum of the slice at `bytes`. The checksums of checked batches, which cover all but the start of their headers, are joined: the object is
   not read again, and bytes that have changed since they were checked show when the object is read. */
static uint32_t slice_checksum(const WriteBuffer *buffer, const Slice *slice, const uint8_t *bytes)
{
    if (!checksums_join() || !is_checked(buffer, slice))
        return checksum_releasing(bytes, (Py_ssize_t)slice->length);
    uint32_t crc = 0;
    for (uint32_t next = slice->first; next != NONE; next = batch_at(buffer, next)->next) {
        const size_t size = (size_t)batch_at(buffer, next)->row[COMMIT_LENGTH];
        crc = checksum_joined(crc, bytes, size, size - CRC_START, load_u32(bytes + CRC_AT));
        bytes += size;
    }
    return crc;
}

/* As slice_checksum, of a slice whose batches are where they arrived. */
static uint32_t arranged_checksum(const WriteBuffer *buffer, const Slice *slice)
{
    uint32_t crc = 0;
    for (uint32_t next = slice->first; next != NONE; next = batch_at(buffer, next)->next) {
        const Batch *batch = batch_at(buffer, next);
        const size_t size = (size_t)batch->row[COMMIT_LENGTH], known = batch->is_checked ? size - CRC_START : size;
        const uint32_t checked = batch->is_checked ? load_u32(batch->bytes + CRC_AT) : checksum_releasing(batch->bytes, (Py_ssize_t)size);
        crc = checksum_joined(crc, batch->bytes, size, known, checked);
    }
    return crc;
}

/* `bytes`: the object; NULL if the batches are arranged. */
static PyObject *index_entries(const WriteBuffer *buffer, const uint8_t *bytes, int64_t size)
{
    PyObject *entries = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)buffer->slice_count * ENTRY_BYTES);
    if (entries == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(entries);
    for (uint32_t at = 0; at < buffer->slice_count; at++, out += ENTRY_BYTES) {
        const Slice *slice = slice_at(buffer, at);
        const int64_t position = batch_at(buffer, slice->first)->row[COMMIT_POSITION];
        if (position + slice->length > size || slice->length > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "index(): a slice is not in the object, or has 4 GiB or more");
            Py_CLEAR(entries);
            break;
        }
        memcpy(out, slice->stream_id, STREAM_ID_BYTES);
        store_u32(out + 16, (uint32_t)(slice->partition & ((1 << PARTITION_BITS) - 1)));
        store_u32(out + 20, slice->count);
        store_u64(out + 24, (uint64_t)position);
        store_u32(out + 32, (uint32_t)slice->length);
        store_u32(out + 36, bytes ? slice_checksum(buffer, slice, bytes + position) : arranged_checksum(buffer, slice));
    }
    return entries;
}

PyObject *write_buffer_index(PyObject *self, PyObject *object)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    if (buffer->is_joined && object == Py_None && buffer->source_count && checksums_join()) {
        if (buffer->is_reading)
            return PyErr_Format(PyExc_ValueError, "index() runs already");
        buffer->is_reading = true; /* long checksums let other threads run, which must not release the memory */
        PyObject *entries = index_entries(buffer, NULL, INT64_MAX);
        buffer->is_reading = false;
        return entries;
    }
    if (!buffer->is_joined || !PyByteArray_Check(object))
        return PyErr_Format(PyExc_ValueError, "index() takes the object that join() returned, or None after arrange()");
    Py_buffer view; /* keeps the object's size: long checksums let other threads run */
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *entries = index_entries(buffer, view.buf, view.len);
    PyBuffer_Release(&view);
    return entries;
}

PyObject *write_buffer_commits(PyObject *self, PyObject *unused)
{
    const WriteBuffer *buffer = (WriteBuffer *)self;
    const KernelState *state = PyType_GetModuleState(Py_TYPE(self));
    if (!buffer->is_joined)
        return PyErr_Format(PyExc_ValueError, "the buffer is not joined yet");
    PyObject *packed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)buffer->batch_count * COMMIT_FIELDS * FIELD_BYTES);
    if (packed == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(packed);
    for (uint32_t at = 0; at < buffer->batch_count; at++) {
        const int64_t *row = batch_at(buffer, buffer->order[at])->row;
        for (int field = 0; field < COMMIT_FIELDS; field++, out += FIELD_BYTES)
            store_row_field(out, row[field]);
    }
    PyObject *commits = PyObject_CallOneArg(state->commit_rows_type, packed);
    Py_DECREF(packed);
    return commits;
}
