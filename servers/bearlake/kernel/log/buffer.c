/* The batches of one WAL object, from their arrival to their outcomes. Contract: buffer.py. */
#include "batch/batch.h"
#include "log/write_buffer.h"

/* -- batches ------------------------------------------------------------------------------------------------------------------------- */

bool write_buffer_fits(const WriteBuffer *buffer, int64_t bytes, int64_t count)
{
    return bytes <= buffer->size_max - buffer->size && count <= buffer->count_max - (int64_t)buffer->batch_count;
}

bool write_buffer_may_ever_fit(const WriteBuffer *buffer, int64_t bytes, int64_t count)
{
    return bytes <= buffer->size_max && count <= buffer->count_max;
}

int write_buffer_reserve(WriteBuffer *buffer, Py_ssize_t count)
{
    return write_buffer_grow(&buffer->batches, sizeof(Batch), (size_t)buffer->batch_count + (size_t)count);
}

int write_buffer_keep(WriteBuffer *buffer, Py_buffer *view, PyObject *hold, Py_ssize_t count)
{
    if (hold == Py_None)
        hold = NULL;
    if (hold != NULL) {
        PyObject *done = PyObject_CallMethod(hold, "acquire", "n", count);
        if (done == NULL)
            return -1;
        Py_DECREF(done);
    }
    if (write_buffer_check_open(buffer) < 0 || write_buffer_grow(&buffer->sources, sizeof(Source), (size_t)buffer->source_count + 1) < 0) {
        if (hold != NULL)
            write_buffer_release_hold(hold, count);
        return -1;
    }
    *source_at(buffer, buffer->source_count++) = (Source){*view, Py_XNewRef(hold), count};
    view->obj = NULL;
    return 0;
}

/* Whether the batch may be its producer's first. */
static bool may_begin(const int64_t *row)
{
    return row[COMMIT_PRODUCER_ID] >= 0
        && (row[COMMIT_BASE_SEQUENCE] == 0 || ((row[COMMIT_FLAGS] & BATCH_NAMED) && row[COMMIT_AFTER_SEQUENCE] < 0));
}

int write_buffer_push(WriteBuffer *buffer, const Batch *batch, int64_t seen)
{
    if (write_buffer_reserve(buffer, 1) < 0)
        return -1;
    const uint32_t at = write_buffer_slice(buffer, batch), number = buffer->batch_count;
    if (at == NONE)
        return -1;
    Slice *slice = slice_at(buffer, at);
    Batch *added = batch_at(buffer, number);
    *added = *batch;
    added->next = NONE;
    added->source = buffer->source_count - 1; /* the one that was kept last */
    Py_INCREF(added->results);
    if (slice->count++ == 0)
        slice->first = number;
    else
        batch_at(buffer, slice->last)->next = number;
    slice->last = number;
    slice->length += batch->row[COMMIT_LENGTH];
    buffer->batch_count++;
    buffer->size += batch->row[COMMIT_LENGTH];
    buffer->flags |= batch->row[COMMIT_FLAGS];
    if (seen < buffer->seen && may_begin(batch->row))
        buffer->seen = seen;
    return 0;
}

/* Reads an Append, whose memory is not kept yet. -1 with an exception set. */
static int to_batch(PyObject *item, Batch *batch)
{
    static const int fields[] = {APPEND_PARTITION,      APPEND_RECORD_COUNT,  APPEND_MAX_TIMESTAMP, APPEND_PRODUCER_ID,
                                 APPEND_PRODUCER_EPOCH, APPEND_BASE_SEQUENCE, APPEND_FLAGS,         APPEND_EXPECTED_OFFSET,
                                 APPEND_AFTER_SEQUENCE};
    static const int places[] = {COMMIT_PARTITION,      COMMIT_RECORD_COUNT,  COMMIT_MAX_TIMESTAMP, COMMIT_PRODUCER_ID,
                                 COMMIT_PRODUCER_EPOCH, COMMIT_BASE_SEQUENCE, COMMIT_FLAGS,         COMMIT_EXPECTED_OFFSET,
                                 COMMIT_AFTER_SEQUENCE};
    if (check_tuple(item, APPEND_FIELDS, "an append") < 0)
        return -1;
    PyObject *stream_id = field(item, APPEND_STREAM_ID);
    if (!PyBytes_Check(stream_id) || PyBytes_GET_SIZE(stream_id) != STREAM_ID_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a stream id has 16 bytes");
        return -1;
    }
    memcpy(batch->stream_id, PyBytes_AS_STRING(stream_id), STREAM_ID_BYTES);
    for (size_t at = 0; at < sizeof fields / sizeof *fields; at++)
        if (to_int64(field(item, fields[at]), &batch->row[places[at]]) < 0)
            return -1;
    const Py_ssize_t length = PyObject_Size(field(item, APPEND_BATCH));
    batch->row[COMMIT_POSITION] = 0;
    batch->row[COMMIT_LENGTH] = length;
    return length < 0 ? -1 : 0;
}

static int add_one(WriteBuffer *buffer, PyObject *item, Batch *batch, int64_t seen)
{
    Py_buffer view;
    if (PyObject_GetBuffer(field(item, APPEND_BATCH), &view, PyBUF_SIMPLE) < 0)
        return -1;
    int outcome = 0;
    if (view.len != batch->row[COMMIT_LENGTH] || view.len == 0) {
        PyErr_SetString(PyExc_ValueError, "a batch is a buffer of bytes that is not empty");
        outcome = -1;
    }
    batch->bytes = view.buf;
    if (outcome < 0 || write_buffer_keep(buffer, &view, field(item, APPEND_HOLD), 1) < 0 || write_buffer_push(buffer, batch, seen) < 0)
        outcome = -1;
    PyBuffer_Release(&view); /* nothing, if it is kept */
    return outcome;
}

static PyObject *buffer_add(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    KernelState *state = PyType_GetModuleState(Py_TYPE(self));
    int64_t start, seen;
    if (check_arguments("add", count, 4, 4) < 0 || to_int64(arguments[2], &start) < 0 || to_int64(arguments[3], &seen) < 0
        || to_write_buffer(state, self) == NULL)
        return NULL;
    if (!PyObject_TypeCheck(arguments[0], (PyTypeObject *)state->results_type))
        return PyErr_Format(PyExc_TypeError, "add() takes the results of the batches");
    Results *results = (Results *)arguments[0];
    PyObject *items = PySequence_Fast(arguments[1], "appends is not a sequence");
    if (items == NULL)
        return NULL;
    Py_ssize_t at = start;
    int outcome = 0;
    if (start < 0 || PySequence_Fast_GET_SIZE(items) != results->count) {
        PyErr_SetString(PyExc_ValueError, "add() takes one append per result, and an index");
        outcome = -1;
    }
    for (; outcome == 0 && at < PySequence_Fast_GET_SIZE(items); at++) {
        Batch batch = {.results = results, .place = at};
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(items, at));
        outcome = to_batch(item, &batch); /* may run Python code, as acquiring a hold does */
        const bool fits = outcome == 0 && (buffer->size == 0 || write_buffer_fits(buffer, batch.row[COMMIT_LENGTH], 1));
        if (fits)
            outcome = add_one(buffer, item, &batch, seen);
        Py_DECREF(item);
        if (outcome == 0 && !fits)
            break;
    }
    Py_DECREF(items);
    return outcome < 0 ? NULL : PyLong_FromSsize_t(at);
}

/* -- outcomes ------------------------------------------------------------------------------------------------------------------------ */

/* Sets the outcome of a batch, and appends its call to `calls` if that is the call's last. -1 with an exception set. */
static int resolve_one(const Batch *batch, const Outcome *outcome, PyObject *calls)
{
    Results *results = batch->results;
    if (results->waiting <= 0 || batch->place >= results->count)
        return 0;
    results->outcomes[batch->place] = *outcome;
    return --results->waiting == 0 ? PyList_Append(calls, (PyObject *)results) : 0;
}

static int resolve_packed(const WriteBuffer *buffer, PyObject *packed, PyObject *calls)
{
    const uint8_t *row = (const uint8_t *)PyBytes_AS_STRING(packed);
    int outcome = 0;
    for (uint32_t at = 0; outcome == 0 && at < buffer->batch_count; at++, row += 3 * FIELD_BYTES) {
        const Outcome given = {load_row_field(row), load_row_field(row + FIELD_BYTES), load_row_field(row + 2 * FIELD_BYTES)};
        outcome = resolve_one(batch_at(buffer, buffer->order[at]), &given, calls);
    }
    return outcome;
}

static int resolve_tuple(const WriteBuffer *buffer, PyObject *items, PyObject *calls)
{
    int outcome = 0;
    for (uint32_t at = 0; outcome == 0 && at < buffer->batch_count; at++) {
        const Batch *batch = batch_at(buffer, buffer->order[at]);
        Outcome given;
        if (batch->results->waiting <= 0)
            continue;
        outcome = to_outcome(PyTuple_GET_ITEM(items, at), &given); /* may run Python code, which may close the call */
        if (outcome == 0)
            outcome = resolve_one(batch, &given, calls);
    }
    return outcome;
}

static PyObject *buffer_resolve(PyObject *self, PyObject *outcomes)
{
    const WriteBuffer *buffer = (WriteBuffer *)self;
    PyObject *items = NULL, *calls = NULL;
    const int is_packed = to_packed(PyType_GetModuleState(Py_TYPE(self)), outcomes, 3, &items);
    if (is_packed == 0)
        items = PySequence_Tuple(outcomes); /* of our own: reading numbers may run Python code that changes the caller's */
    if (items == NULL)
        return NULL;
    const Py_ssize_t count = is_packed ? PyBytes_GET_SIZE(items) / (3 * FIELD_BYTES) : PyTuple_GET_SIZE(items);
    if (!buffer->is_joined)
        PyErr_SetString(PyExc_ValueError, "the buffer is not joined yet");
    else if (count != buffer->batch_count)
        PyErr_Format(PyExc_ValueError, "%zd results for %u batches", count, buffer->batch_count);
    else
        calls = PyList_New(0);
    if (calls != NULL && (is_packed ? resolve_packed : resolve_tuple)(buffer, items, calls) < 0)
        Py_CLEAR(calls);
    Py_DECREF(items);
    return calls;
}

/* -- the type ------------------------------------------------------------------------------------------------------------------------ */

WriteBuffer *to_write_buffer(KernelState *state, PyObject *value)
{
    if (!PyObject_TypeCheck(value, (PyTypeObject *)state->write_buffer_type)) {
        PyErr_SetString(PyExc_TypeError, "not a WriteBuffer");
        return NULL;
    }
    return write_buffer_check_open((WriteBuffer *)value) < 0 ? NULL : (WriteBuffer *)value;
}

static int buffer_init(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    long long size_max, count_max = INT32_MAX;
    if (!PyArg_ParseTuple(arguments, "L|L:WriteBuffer", &size_max, &count_max))
        return -1;
    if (size_max < 0 || count_max <= 0 || count_max > INT32_MAX || buffer->batch_count) {
        PyErr_SetString(PyExc_ValueError,
                        buffer->batch_count ? "the buffer has batches" : "a buffer has a size, and room for a batch");
        return -1;
    }
    buffer->size_max = size_max;
    buffer->count_max = count_max;
    return 0;
}

static int buffer_traverse(PyObject *self, visitproc visit, void *arg)
{
    const WriteBuffer *buffer = (WriteBuffer *)self;
    Py_VISIT(Py_TYPE(self));
    for (uint32_t at = 0; at < buffer->batch_count; at++)
        Py_VISIT(batch_at(buffer, at)->results);
    for (uint32_t at = 0; at < buffer->source_count; at++)
        Py_VISIT(source_at(buffer, at)->hold);
    return 0;
}

static int buffer_clear(PyObject *self)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    const uint32_t count = buffer->batch_count, sources = buffer->source_count;
    buffer->batch_count = buffer->source_count = 0;
    for (uint32_t at = 0; at < count; at++)
        Py_CLEAR(batch_at(buffer, at)->results);
    for (uint32_t at = 0; at < sources; at++) {
        PyBuffer_Release(&source_at(buffer, at)->view);
        Py_CLEAR(source_at(buffer, at)->hold);
    }
    return 0;
}

static void buffer_dealloc(PyObject *self)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    buffer_clear(self);
    PyMem_Free(buffer->batches.items);
    PyMem_Free(buffer->slices.items);
    PyMem_Free(buffer->sources.items);
    PyMem_Free(buffer->table);
    PyMem_Free(buffer->order);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *get_size(PyObject *self, void *unused) { return PyLong_FromLongLong(((WriteBuffer *)self)->size); }
static PyObject *get_count(PyObject *self, void *unused) { return PyLong_FromUnsignedLong(((WriteBuffer *)self)->batch_count); }
static PyObject *get_flags(PyObject *self, void *unused) { return PyLong_FromLongLong(((WriteBuffer *)self)->flags); }
static PyObject *get_slice_count(PyObject *self, void *unused) { return PyLong_FromUnsignedLong(((WriteBuffer *)self)->slice_count); }
static PyObject *get_seen(PyObject *self, void *unused) { return PyLong_FromLongLong(((WriteBuffer *)self)->seen); }

static PyObject *get_can_arrange(PyObject *self, void *unused) { return PyBool_FromLong(checksums_join()); }

static int set_seen(PyObject *self, PyObject *value, void *unused)
{
    if (value != NULL)
        return to_int64(value, &((WriteBuffer *)self)->seen);
    PyErr_SetString(PyExc_TypeError, "seen cannot be deleted");
    return -1;
}

PyObject *make_write_buffer_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"add", (PyCFunction)(void (*)(void))buffer_add, METH_FASTCALL, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {"join", (PyCFunction)(void (*)(void))write_buffer_join, METH_FASTCALL, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {"arrange", write_buffer_arrange, METH_O, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {"release", write_buffer_release, METH_NOARGS, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {"index", write_buffer_index, METH_O, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {"commits", write_buffer_commits, METH_NOARGS, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {"resolve", buffer_resolve, METH_O, "Native twin of bearlake.kernel.fallback.WriteBuffer."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef properties[] = {
        {"size", get_size, NULL, "Bytes of the batches.", NULL},
        {"count", get_count, NULL, "Batches.", NULL},
        {"flags", get_flags, NULL, "Native twin of bearlake.kernel.fallback.WriteBuffer.", NULL},
        {"slice_count", get_slice_count, NULL, "Partitions.", NULL},
        {"can_arrange", get_can_arrange, NULL, "Native twin of bearlake.kernel.fallback.WriteBuffer.", NULL},
        {"seen", get_seen, set_seen, "Native twin of bearlake.kernel.fallback.WriteBuffer.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_init, (void *)buffer_init},         {Py_tp_dealloc, (void *)buffer_dealloc}, {Py_tp_methods, methods},
        {Py_tp_getset, properties},                {Py_tp_clear, (void *)buffer_clear},     {Py_tp_traverse, (void *)buffer_traverse},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.WriteBuffer",
        .basicsize = sizeof(WriteBuffer),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
