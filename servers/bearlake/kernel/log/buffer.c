/* The batches of one WAL object, from their arrival to their outcomes. Contract: buffer.py.

   Batches of a partition are linked in order of arrival; partitions are found by a hash table, and sorted once, when the buffer is joined. */
#include "log/buffer.h"

#include "batch/batch.h"

#define NONE UINT32_MAX
#define TABLE_MIN 16
#define ENTRY_BYTES 40

/* The batches of a partition. */
typedef struct {
    int64_t partition;
    int64_t length;
    uint8_t stream_id[STREAM_ID_BYTES];
    uint32_t first, last, count;
} Slice;

/* Memory that batches point into. */
typedef struct {
    Py_buffer view;
    PyObject *hold; /* or NULL */
    Py_ssize_t count;
} Source;

/* An array that grows. */
typedef struct {
    void *items;
    size_t room;
} Array;

struct WriteBuffer {
    PyObject_HEAD
    int64_t size, size_max, seen;
    bool is_joined;
    uint32_t batch_count, slice_count, source_count, table_size;
    Array batches, slices, sources;
    uint32_t *table; /* slices by hash; NONE: free */
    uint32_t *order; /* once joined: the batches, as in the object */
    PyTypeObject *commit_type;
};

static int grow(Array *array, size_t item_bytes, size_t count)
{
    if (count <= array->room)
        return 0;
    size_t room = 2 * array->room > count ? 2 * array->room : count;
    room = room < 8 ? 8 : room;
    void *items = room < NONE ? PyMem_Realloc(array->items, room * item_bytes) : NULL;
    if (items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    array->items = items;
    array->room = room;
    return 0;
}

static inline Batch *batch_at(const WriteBuffer *buffer, uint32_t at) { return (Batch *)buffer->batches.items + at; }
static inline Slice *slice_at(const WriteBuffer *buffer, uint32_t at) { return (Slice *)buffer->slices.items + at; }
static inline Source *source_at(const WriteBuffer *buffer, uint32_t at) { return (Source *)buffer->sources.items + at; }

/* -- partitions ---------------------------------------------------------------------------------------------------------------------- */

static inline uint32_t place_of(const WriteBuffer *buffer, int64_t partition)
{
    return (uint32_t)(((uint64_t)partition * 0x9E3779B97F4A7C15u) >> 32) & (buffer->table_size - 1);
}

static void enter(WriteBuffer *buffer, uint32_t slice)
{
    uint32_t place = place_of(buffer, slice_at(buffer, slice)->partition);
    while (buffer->table[place] != NONE)
        place = (place + 1) & (buffer->table_size - 1);
    buffer->table[place] = slice;
}

static int grow_table(WriteBuffer *buffer)
{
    const uint32_t size = buffer->table_size ? 2 * buffer->table_size : TABLE_MIN;
    uint32_t *table = PyMem_Realloc(buffer->table, size * sizeof *table);
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(table, 0xFF, size * sizeof *table);
    buffer->table = table;
    buffer->table_size = size;
    for (uint32_t at = 0; at < buffer->slice_count; at++)
        enter(buffer, at);
    return 0;
}

/* The slice of a batch's partition, or NONE. */
static uint32_t find(const WriteBuffer *buffer, const Batch *batch)
{
    if (buffer->table_size == 0)
        return NONE;
    for (uint32_t place = place_of(buffer, batch->row[COMMIT_PARTITION]);; place = (place + 1) & (buffer->table_size - 1)) {
        const uint32_t at = buffer->table[place];
        if (at == NONE)
            return NONE;
        const Slice *slice = slice_at(buffer, at);
        if (slice->partition == batch->row[COMMIT_PARTITION] && memcmp(slice->stream_id, batch->stream_id, STREAM_ID_BYTES) == 0)
            return at;
    }
}

/* The slice for a batch, made if it is the partition's first; NONE with an exception set. */
static uint32_t slice_for(WriteBuffer *buffer, const Batch *batch)
{
    const uint32_t found = find(buffer, batch);
    if (found != NONE)
        return found;
    if (2 * (buffer->slice_count + 1) > buffer->table_size && grow_table(buffer) < 0)
        return NONE;
    if (grow(&buffer->slices, sizeof(Slice), (size_t)buffer->slice_count + 1) < 0)
        return NONE;
    Slice *slice = slice_at(buffer, buffer->slice_count);
    *slice = (Slice){.partition = batch->row[COMMIT_PARTITION], .first = NONE, .last = NONE};
    memcpy(slice->stream_id, batch->stream_id, STREAM_ID_BYTES);
    enter(buffer, buffer->slice_count);
    return buffer->slice_count++;
}

/* -- batches ------------------------------------------------------------------------------------------------------------------------- */

int64_t write_buffer_room(const WriteBuffer *buffer) { return buffer->size_max - buffer->size; }
int64_t write_buffer_size_max(const WriteBuffer *buffer) { return buffer->size_max; }

int write_buffer_reserve(WriteBuffer *buffer, Py_ssize_t count)
{
    return grow(&buffer->batches, sizeof(Batch), (size_t)buffer->batch_count + (size_t)count);
}

int write_buffer_keep(WriteBuffer *buffer, PyObject *memory, PyObject *hold, Py_ssize_t count)
{
    if (grow(&buffer->sources, sizeof(Source), (size_t)buffer->source_count + 1) < 0)
        return -1;
    Source *source = source_at(buffer, buffer->source_count);
    if (PyObject_GetBuffer(memory, &source->view, PyBUF_SIMPLE) < 0)
        return -1;
    if (hold == Py_None)
        hold = NULL;
    PyObject *done = hold ? PyObject_CallMethod(hold, "acquire", "n", count) : Py_NewRef(Py_None);
    if (done == NULL) {
        PyBuffer_Release(&source_at(buffer, buffer->source_count)->view);
        return -1;
    }
    Py_DECREF(done);
    source = source_at(buffer, buffer->source_count++);
    source->hold = Py_XNewRef(hold);
    source->count = count;
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
    const uint32_t at = slice_for(buffer, batch), number = buffer->batch_count;
    if (at == NONE)
        return -1;
    Slice *slice = slice_at(buffer, at);
    Batch *added = batch_at(buffer, number);
    *added = *batch;
    added->next = NONE;
    Py_INCREF(added->results);
    if (slice->count++ == 0)
        slice->first = number;
    else
        batch_at(buffer, slice->last)->next = number;
    slice->last = number;
    slice->length += batch->row[COMMIT_LENGTH];
    buffer->batch_count++;
    buffer->size += batch->row[COMMIT_LENGTH];
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
    if (write_buffer_reserve(buffer, 1) < 0 || write_buffer_keep(buffer, field(item, APPEND_BATCH), field(item, APPEND_HOLD), 1) < 0)
        return -1;
    const Source *source = source_at(buffer, buffer->source_count - 1);
    if (source->view.len != batch->row[COMMIT_LENGTH] || source->view.len == 0) {
        PyErr_SetString(PyExc_ValueError, "a batch is a buffer of bytes that is not empty");
        return -1;
    }
    batch->bytes = source->view.buf;
    return write_buffer_push(buffer, batch, seen);
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
        outcome = to_batch(item, &batch);
        const bool fits = outcome == 0 && (buffer->size == 0 || batch.row[COMMIT_LENGTH] <= write_buffer_room(buffer));
        if (fits)
            outcome = add_one(buffer, item, &batch, seen);
        Py_DECREF(item);
        if (outcome == 0 && !fits)
            break;
    }
    Py_DECREF(items);
    return outcome < 0 ? NULL : PyLong_FromSsize_t(at);
}

/* -- the object ---------------------------------------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const Slice *one = left, *other = right;
    const int order = memcmp(one->stream_id, other->stream_id, STREAM_ID_BYTES);
    return order ? order : (one->partition > other->partition) - (one->partition < other->partition);
}

static void copy_batches(WriteBuffer *buffer, uint8_t *target, int64_t position)
{
    uint32_t number = 0;
    for (uint32_t at = 0; at < buffer->slice_count; at++)
        for (uint32_t next = slice_at(buffer, at)->first; next != NONE; next = batch_at(buffer, next)->next) {
            Batch *batch = batch_at(buffer, next);
            memcpy(target + position, batch->bytes, (size_t)batch->row[COMMIT_LENGTH]);
            batch->row[COMMIT_POSITION] = position;
            batch->bytes = NULL;
            position += batch->row[COMMIT_LENGTH];
            buffer->order[number++] = next;
        }
}

/* Releases the memory of the batches. A hold that fails is reported, and the others are released. */
static void release_sources(WriteBuffer *buffer)
{
    const uint32_t count = buffer->source_count;
    buffer->source_count = 0;
    for (uint32_t at = 0; at < count;) {
        PyObject *hold = source_at(buffer, at)->hold;
        Py_ssize_t batches = 0;
        for (; at < count && source_at(buffer, at)->hold == hold; at++) { /* consecutive sources mostly share a hold */
            batches += source_at(buffer, at)->count;
            PyBuffer_Release(&source_at(buffer, at)->view);
            if (batches != source_at(buffer, at)->count)
                Py_XDECREF(hold); /* the first reference is used below */
        }
        if (hold == NULL)
            continue;
        PyObject *done = PyObject_CallMethod(hold, "release", "n", batches);
        if (done == NULL)
            PyErr_WriteUnraisable(hold);
        Py_XDECREF(done);
        Py_DECREF(hold);
    }
}

static PyObject *buffer_join(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    int64_t front, back;
    if (check_arguments("join", count, 2, 2) < 0 || to_int64(arguments[0], &front) < 0 || to_int64(arguments[1], &back) < 0
        || to_write_buffer(PyType_GetModuleState(Py_TYPE(self)), self) == NULL)
        return NULL;
    if (front < 0 || front > INT32_MAX || back < 0 || back > INT32_MAX || buffer->batch_count == 0)
        return PyErr_Format(PyExc_ValueError, "join() takes sizes, and the buffer must have batches");
    PyObject *target = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(front + buffer->size + back));
    buffer->order = PyMem_Malloc(buffer->batch_count * sizeof *buffer->order);
    if (target == NULL || buffer->order == NULL) {
        Py_XDECREF(target);
        PyMem_Free(buffer->order);
        buffer->order = NULL;
        return PyErr_NoMemory();
    }
    uint8_t *bytes = (uint8_t *)PyByteArray_AS_STRING(target);
    qsort(buffer->slices.items, buffer->slice_count, sizeof(Slice), compare);
    buffer->is_joined = true;
    memset(bytes, 0, (size_t)front);
    copy_batches(buffer, bytes, front);
    memset(bytes + front + buffer->size, 0, (size_t)back);
    release_sources(buffer);
    return target;
}

static PyObject *buffer_index(PyObject *self, PyObject *object)
{
    const WriteBuffer *buffer = (WriteBuffer *)self;
    if (!buffer->is_joined || !PyByteArray_Check(object))
        return PyErr_Format(PyExc_ValueError, "index() takes the object that join() returned");
    PyObject *entries = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)buffer->slice_count * ENTRY_BYTES);
    if (entries == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(entries);
    const uint8_t *bytes = (uint8_t *)PyByteArray_AS_STRING(object);
    for (uint32_t at = 0; at < buffer->slice_count; at++, out += ENTRY_BYTES) {
        const Slice *slice = slice_at(buffer, at);
        const int64_t position = batch_at(buffer, slice->first)->row[COMMIT_POSITION];
        if (position + slice->length > PyByteArray_GET_SIZE(object) || slice->length > UINT32_MAX) {
            Py_DECREF(entries);
            return PyErr_Format(PyExc_ValueError, "index(): a slice is not in the object, or has 4 GiB or more");
        }
        memcpy(out, slice->stream_id, STREAM_ID_BYTES);
        store_u32(out + 16, (uint32_t)(slice->partition & ((1 << PARTITION_BITS) - 1)));
        store_u32(out + 20, slice->count);
        store_u64(out + 24, (uint64_t)position);
        store_u32(out + 32, (uint32_t)slice->length);
        store_u32(out + 36, checksum_releasing(bytes + position, (Py_ssize_t)slice->length));
    }
    return entries;
}

static PyObject *make_commit(PyTypeObject *type, const int64_t *row)
{
    PyObject *commit = type->tp_alloc(type, COMMIT_FIELDS);
    for (int at = 0; commit != NULL && at < COMMIT_FIELDS; at++) {
        PyObject *number = PyLong_FromLongLong(row[at]);
        if (number == NULL)
            Py_CLEAR(commit);
        else
            PyTuple_SET_ITEM(commit, at, number);
    }
    return commit;
}

static PyObject *buffer_commits(PyObject *self, PyObject *unused)
{
    const WriteBuffer *buffer = (WriteBuffer *)self;
    PyTypeObject *type = (PyTypeObject *)((KernelState *)PyType_GetModuleState(Py_TYPE(self)))->commit_type;
    if (!buffer->is_joined)
        return PyErr_Format(PyExc_ValueError, "the buffer is not joined yet");
    PyObject *commits = PyList_New(buffer->batch_count);
    for (uint32_t at = 0; commits != NULL && at < buffer->batch_count; at++) {
        PyObject *commit = make_commit(type, batch_at(buffer, buffer->order[at])->row);
        if (commit == NULL)
            Py_CLEAR(commits);
        else
            PyList_SET_ITEM(commits, at, commit);
    }
    return commits;
}

/* -- outcomes ------------------------------------------------------------------------------------------------------------------------ */

/* Sets the outcome of a batch, and appends its call to `calls` if that is the call's last. -1 with an exception set. */
static int resolve_one(const Batch *batch, PyObject *outcome, PyObject *calls)
{
    Results *results = batch->results;
    if (results->waiting <= 0 || batch->place >= results->count)
        return 0;
    Outcome *out = &results->outcomes[batch->place];
    if (!PyTuple_Check(outcome) || PyTuple_GET_SIZE(outcome) < 3) {
        PyErr_SetString(PyExc_ValueError, "an outcome is a tuple of 3");
        return -1;
    }
    if (to_int64(field(outcome, 0), &out->verdict) < 0 || to_int64(field(outcome, 1), &out->base_offset) < 0
        || to_int64(field(outcome, 2), &out->start_offset) < 0)
        return -1;
    return --results->waiting == 0 ? PyList_Append(calls, (PyObject *)results) : 0;
}

static PyObject *buffer_resolve(PyObject *self, PyObject *outcomes)
{
    const WriteBuffer *buffer = (WriteBuffer *)self;
    PyObject *items = PySequence_Fast(outcomes, "resolve() takes a sequence of outcomes");
    if (items == NULL)
        return NULL;
    PyObject *calls = NULL;
    if (!buffer->is_joined || PySequence_Fast_GET_SIZE(items) != buffer->batch_count)
        PyErr_Format(PyExc_ValueError, "%zd results for %u batches", PySequence_Fast_GET_SIZE(items), buffer->batch_count);
    else
        calls = PyList_New(0);
    for (uint32_t at = 0; calls != NULL && at < buffer->batch_count; at++)
        if (resolve_one(batch_at(buffer, buffer->order[at]), PySequence_Fast_GET_ITEM(items, at), calls) < 0)
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
    if (((WriteBuffer *)value)->is_joined) {
        PyErr_SetString(PyExc_ValueError, "the buffer is joined already");
        return NULL;
    }
    return (WriteBuffer *)value;
}

static int buffer_init(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    WriteBuffer *buffer = (WriteBuffer *)self;
    long long size_max;
    if (!PyArg_ParseTuple(arguments, "L:WriteBuffer", &size_max))
        return -1;
    if (buffer->batch_count) {
        PyErr_SetString(PyExc_ValueError, "the buffer has batches");
        return -1;
    }
    buffer->size_max = size_max;
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
static PyObject *get_slice_count(PyObject *self, void *unused) { return PyLong_FromUnsignedLong(((WriteBuffer *)self)->slice_count); }
static PyObject *get_seen(PyObject *self, void *unused) { return PyLong_FromLongLong(((WriteBuffer *)self)->seen); }

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
        {"add", (PyCFunction)(void (*)(void))buffer_add, METH_FASTCALL, "See bearlake.kernel.fallback.WriteBuffer."},
        {"join", (PyCFunction)(void (*)(void))buffer_join, METH_FASTCALL, "See bearlake.kernel.fallback.WriteBuffer."},
        {"index", buffer_index, METH_O, "See bearlake.kernel.fallback.WriteBuffer."},
        {"commits", buffer_commits, METH_NOARGS, "See bearlake.kernel.fallback.WriteBuffer."},
        {"resolve", buffer_resolve, METH_O, "See bearlake.kernel.fallback.WriteBuffer."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef properties[] = {
        {"size", get_size, NULL, "Bytes of the batches.", NULL},
        {"count", get_count, NULL, "Batches.", NULL},
        {"slice_count", get_slice_count, NULL, "Partitions.", NULL},
        {"seen", get_seen, set_seen, "See bearlake.kernel.fallback.WriteBuffer.", NULL},
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
