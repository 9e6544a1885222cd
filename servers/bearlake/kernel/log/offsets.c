/* Assigns offsets to the batches of one object, and builds the slices that contain them. Contract: offsets.py. */
#include "batch/batch.h"
#include "log/visits.h"

enum { OUTCOME_KIND, OUTCOME_BASE, OUTCOME_START, OUTCOME_FIELDS };
enum { SEQUENCE_FIELDS = 7 };

/* Packed rows that grow. */
typedef struct {
    Array array;
    size_t count;
} PackedRows;

typedef struct {
    PyObject_HEAD
    PyObject *partitions, *batches, *now;
    int64_t rule_flags;
    uint32_t count, at, visit_count, table_size;
    uint32_t current; /* the visit of the batch at which assign() stopped */
    bool is_stopped, is_busy;
    Array visits;
    uint32_t *table; /* visits by hash of the partition; NONE: free */
    PackedRows outcomes, slices, sequences;
} Assignment;

static inline Visit *visit_at(const Assignment *self, uint32_t at) { return (Visit *)self->visits.items + at; }

static void read_batch(const Assignment *self, int64_t *batch)
{
    const uint8_t *row = (const uint8_t *)PyBytes_AS_STRING(self->batches) + (size_t)self->at * COMMIT_FIELDS * FIELD_BYTES;
    for (int at = 0; at < COMMIT_FIELDS; at++)
        batch[at] = load_row_field(row + at * FIELD_BYTES);
}

static int push_row(PackedRows *rows, const int64_t *fields, size_t width)
{
    if (write_buffer_grow(&rows->array, width * FIELD_BYTES, rows->count + 1) < 0)
        return -1;
    uint8_t *row = (uint8_t *)rows->array.items + rows->count++ * width * FIELD_BYTES;
    for (size_t at = 0; at < width; at++)
        store_row_field(row + at * FIELD_BYTES, fields[at]);
    return 0;
}

static PyObject *rows_bytes(const PackedRows *rows, size_t width)
{
    return PyBytes_FromStringAndSize(rows->array.items, (Py_ssize_t)(rows->count * width * FIELD_BYTES));
}

/* -- partitions ---------------------------------------------------------------------------------------------------------------------- */

static uint32_t *place_of(const Assignment *self, int64_t partition)
{
    uint32_t at = (uint32_t)(((uint64_t)partition * 0x9E3779B97F4A7C15u) >> 32) & (self->table_size - 1);
    while (self->table[at] != NONE && visit_at(self, self->table[at])->partition != partition)
        at = (at + 1) & (self->table_size - 1);
    return &self->table[at];
}

/* The partition's visit, made if the object's former batches had none of the partition; NONE with an exception set. */
static uint32_t find_visit(KernelState *state, Assignment *self, int64_t partition)
{
    uint32_t *place = place_of(self, partition);
    if (*place != NONE)
        return *place;
    if (write_buffer_grow(&self->visits, sizeof(Visit), (size_t)self->visit_count + 1) < 0)
        return NONE;
    Visit visit = {.partition = partition};
    if (visit_read(state, self->partitions, &visit) < 0) {
        visit_clear(&visit);
        return NONE;
    }
    *visit_at(self, self->visit_count) = visit;
    return *place = self->visit_count++;
}

/* -- decisions ----------------------------------------------------------------------------------------------------------------------- */

static int remember(Assignment *self, Visit *visit, const int64_t *batch, PyObject *producer)
{
    if (visit->producers == NULL && (visit->producers = PyDict_New()) == NULL)
        return -1;
    const int64_t row[SEQUENCE_FIELDS] = {
        batch[COMMIT_PARTITION],    batch[COMMIT_PRODUCER_ID], batch[COMMIT_PRODUCER_EPOCH], batch[COMMIT_BASE_SEQUENCE],
        batch[COMMIT_RECORD_COUNT], visit->end,                batch[COMMIT_FLAGS]};
    PyObject *key = PyLong_FromLongLong(batch[COMMIT_PRODUCER_ID]);
    int outcome = key == NULL ? -1 : PyDict_SetItem(visit->producers, key, producer);
    Py_XDECREF(key);
    return outcome < 0 ? -1 : push_row(&self->sequences, row, SEQUENCE_FIELDS);
}

/* Whether the last slice ends where the batch begins; if so, the slice takes the batch. */
static bool extend_slice(const PackedRows *slices, const int64_t *batch)
{
    if (slices->count == 0)
        return false;
    uint8_t *row = (uint8_t *)slices->array.items + (slices->count - 1) * SLICE_FIELDS * FIELD_BYTES;
    int64_t piece[SLICE_FIELDS], end;
    for (int at = 0; at < SLICE_FIELDS; at++)
        piece[at] = load_row_field(row + at * FIELD_BYTES);
    if (piece[SLICE_PARTITION] != batch[COMMIT_PARTITION]
        || __builtin_add_overflow(piece[SLICE_POSITION], piece[SLICE_LENGTH], &end) || end != batch[COMMIT_POSITION])
        return false;
    store_row_field(row + SLICE_COUNT * FIELD_BYTES, piece[SLICE_COUNT] + batch[COMMIT_RECORD_COUNT]);
    store_row_field(row + SLICE_LENGTH * FIELD_BYTES, (int64_t)((uint64_t)piece[SLICE_LENGTH] + (uint64_t)batch[COMMIT_LENGTH]));
    if (batch[COMMIT_MAX_TIMESTAMP] > piece[SLICE_TIME])
        store_row_field(row + SLICE_TIME * FIELD_BYTES, batch[COMMIT_MAX_TIMESTAMP]);
    return true;
}

/* `producer`: NULL for a batch without one. */
static int accept_batch(Assignment *self, Visit *visit, const int64_t *batch, PyObject *producer)
{
    const int64_t base = visit->end;
    int64_t end, size;
    if (batch[COMMIT_RECORD_COUNT] <= 0) {
        PyErr_Format(PyExc_ValueError, "I2: a batch has at least one record, not %lld", (long long)batch[COMMIT_RECORD_COUNT]);
        return -1;
    }
    if (__builtin_add_overflow(base, batch[COMMIT_RECORD_COUNT], &end)) {
        PyErr_SetString(PyExc_ValueError, "I2: an offset has 63 bits");
        return -1;
    }
    if (__builtin_add_overflow(visit->size, batch[COMMIT_LENGTH], &size)) {
        PyErr_SetString(PyExc_ValueError, "the size of a partition has 63 bits");
        return -1;
    }
    if (producer != NULL && remember(self, visit, batch, producer) < 0)
        return -1;
    const int64_t outcome[OUTCOME_FIELDS] = {0, base, visit->start};
    const int64_t piece[SLICE_FIELDS] = {batch[COMMIT_PARTITION], base,
                                         batch[COMMIT_RECORD_COUNT], batch[COMMIT_POSITION],
                                         batch[COMMIT_LENGTH], batch[COMMIT_MAX_TIMESTAMP]};
    if (push_row(&self->outcomes, outcome, OUTCOME_FIELDS) < 0
        || (!extend_slice(&self->slices, batch) && push_row(&self->slices, piece, SLICE_FIELDS) < 0))
        return -1;
    visit->end = end;
    visit->size = size;
    visit->is_changed = true;
    self->at++;
    self->is_stopped = false;
    return 0;
}

/* Decides the batch at `at`. Returns 1; 0 if it needs all the rules; -1 with an exception set. */
static int decide_one(KernelState *state, Assignment *self)
{
    int64_t batch[COMMIT_FIELDS];
    read_batch(self, batch);
    const uint32_t found = find_visit(state, self, batch[COMMIT_PARTITION]);
    if (found == NONE)
        return -1;
    self->current = found;
    self->is_stopped = true; /* unless the batch is accepted */
    Visit *visit = visit_at(self, found);
    if (!visit->is_open || batch[COMMIT_EXPECTED_OFFSET] >= 0)
        return 0;
    if (batch[COMMIT_PRODUCER_ID] < 0)
        return accept_batch(self, visit, batch, NULL) < 0 ? -1 : 1;
    const bool is_named = batch[COMMIT_FLAGS] == BATCH_NAMED;
    if (!is_named && (batch[COMMIT_FLAGS] & self->rule_flags))
        return 0;
    PyObject *known = visit_known(visit, batch[COMMIT_PRODUCER_ID]);
    if (known == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(known);
    int outcome = is_named ? named_is_next(known, batch, visit->epoch) : producer_is_next(known, batch);
    if (outcome > 0) {
        PyObject *producer = producer_after(known, self->now, batch, visit->end);
        if (producer == NULL || accept_batch(self, visit, batch, producer) < 0)
            outcome = -1;
        Py_XDECREF(producer);
    }
    Py_DECREF(known);
    return outcome;
}

/* Python code that the methods run must not come back: it would move the arrays. */
static int begin(Assignment *self)
{
    if (self->is_busy || self->batches == NULL) {
        PyErr_SetString(PyExc_ValueError, "the assignment is in use");
        return -1;
    }
    self->is_busy = true;
    return 0;
}

static int check_stopped(const Assignment *self)
{
    if (self->is_stopped && !self->is_busy)
        return 0;
    PyErr_SetString(PyExc_ValueError, "assign() has not stopped at a batch");
    return -1;
}

static PyObject *assignment_assign(PyObject *object, PyObject *unused)
{
    Assignment *self = (Assignment *)object;
    KernelState *state = PyType_GetModuleState(Py_TYPE(object));
    if (begin(self) < 0)
        return NULL;
    int outcome = 1;
    while (outcome > 0 && self->at < self->count)
        outcome = decide_one(state, self);
    self->is_busy = false;
    if (outcome < 0)
        return NULL;
    return outcome > 0 ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(self->at);
}

static PyObject *assignment_known(PyObject *object, PyObject *unused)
{
    const Assignment *self = (Assignment *)object;
    int64_t batch[COMMIT_FIELDS];
    if (check_stopped(self) < 0)
        return NULL;
    read_batch(self, batch);
    PyObject *known = visit_known(visit_at(self, self->current), batch[COMMIT_PRODUCER_ID]);
    return known != NULL ? Py_NewRef(known) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *assignment_accept(PyObject *object, PyObject *producer)
{
    Assignment *self = (Assignment *)object;
    int64_t batch[COMMIT_FIELDS];
    if (check_stopped(self) < 0)
        return NULL;
    read_batch(self, batch);
    if (accept_batch(self, visit_at(self, self->current), batch, producer == Py_None ? NULL : producer) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *assignment_refuse(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Assignment *self = (Assignment *)object;
    int64_t outcome[OUTCOME_FIELDS];
    if (check_arguments("refuse", count, OUTCOME_FIELDS, OUTCOME_FIELDS) < 0)
        return NULL;
    for (int at = 0; at < OUTCOME_FIELDS; at++)
        if (to_int64(arguments[at], &outcome[at]) < 0)
            return NULL;
    if (check_stopped(self) < 0 || push_row(&self->outcomes, outcome, OUTCOME_FIELDS) < 0)
        return NULL;
    self->at++;
    self->is_stopped = false;
    Py_RETURN_NONE;
}

/* -- the end ------------------------------------------------------------------------------------------------------------------------- */

static PyObject *assignment_adopt(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Assignment *self = (Assignment *)object;
    KernelState *state = PyType_GetModuleState(Py_TYPE(object));
    if (check_arguments("adopt", count, 2, 2) < 0)
        return NULL;
    if (self->at < self->count)
        return PyErr_Format(PyExc_ValueError, "not all batches are decided");
    if (begin(self) < 0)
        return NULL;
    int outcome = 0;
    for (uint32_t at = 0; outcome == 0 && at < self->visit_count; at++)
        if (visit_at(self, at)->is_changed)
            outcome = visit_adopt(state, visit_at(self, at), arguments[0], arguments[1]);
    self->is_busy = false;
    return outcome < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *get_outcomes(PyObject *self, void *unused) { return rows_bytes(&((Assignment *)self)->outcomes, OUTCOME_FIELDS); }
static PyObject *get_slices(PyObject *self, void *unused) { return rows_bytes(&((Assignment *)self)->slices, SLICE_FIELDS); }
static PyObject *get_sequences(PyObject *self, void *unused) { return rows_bytes(&((Assignment *)self)->sequences, SEQUENCE_FIELDS); }

static PyObject *get_state(PyObject *object, void *unused)
{
    const Assignment *self = (Assignment *)object;
    return check_stopped(self) < 0 ? NULL : Py_NewRef(visit_at(self, self->current)->state);
}

static PyObject *get_end(PyObject *object, void *unused)
{
    const Assignment *self = (Assignment *)object;
    return check_stopped(self) < 0 ? NULL : PyLong_FromLongLong(visit_at(self, self->current)->end);
}

/* -- the type ------------------------------------------------------------------------------------------------------------------------ */

static int assignment_init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    Assignment *self = (Assignment *)object;
    PyObject *partitions, *batches, *now;
    long long rule_flags;
    if (!PyArg_ParseTuple(arguments, "OSOL:OffsetAssignment", &partitions, &batches, &now, &rule_flags))
        return -1;
    const Py_ssize_t row_bytes = COMMIT_FIELDS * FIELD_BYTES, count = PyBytes_GET_SIZE(batches) / row_bytes;
    if (self->batches != NULL || PyBytes_GET_SIZE(batches) % row_bytes || count >= INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "an assignment takes whole rows of batches, once");
        return -1;
    }
    self->table_size = 4;
    while (self->table_size < 2 * (size_t)count)
        self->table_size *= 2;
    self->table = PyMem_Malloc(self->table_size * sizeof *self->table);
    if (self->table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(self->table, 0xFF, self->table_size * sizeof *self->table);
    self->partitions = Py_NewRef(partitions);
    self->batches = Py_NewRef(batches);
    self->now = Py_NewRef(now);
    self->rule_flags = rule_flags;
    self->count = (uint32_t)count;
    return 0;
}

static int assignment_traverse(PyObject *object, visitproc visit, void *arg)
{
    const Assignment *self = (Assignment *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->partitions);
    for (uint32_t at = 0; at < self->visit_count; at++) {
        Py_VISIT(visit_at(self, at)->state);
        Py_VISIT(visit_at(self, at)->known);
        Py_VISIT(visit_at(self, at)->producers);
    }
    return 0;
}

static int assignment_clear(PyObject *object)
{
    Assignment *self = (Assignment *)object;
    const uint32_t count = self->visit_count;
    self->visit_count = 0;
    self->is_stopped = false;
    self->at = self->count;
    for (uint32_t at = 0; at < count; at++)
        visit_clear(visit_at(self, at));
    Py_CLEAR(self->partitions);
    return 0;
}

static void assignment_dealloc(PyObject *object)
{
    Assignment *self = (Assignment *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    assignment_clear(object);
    Py_CLEAR(self->batches);
    Py_CLEAR(self->now);
    PyMem_Free(self->visits.items);
    PyMem_Free(self->table);
    PyMem_Free(self->outcomes.array.items);
    PyMem_Free(self->slices.array.items);
    PyMem_Free(self->sequences.array.items);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *make_offset_assignment_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"assign", assignment_assign, METH_NOARGS, "See bearlake.kernel.fallback.OffsetAssignment."},
        {"known", assignment_known, METH_NOARGS, "See bearlake.kernel.fallback.OffsetAssignment."},
        {"accept", assignment_accept, METH_O, "See bearlake.kernel.fallback.OffsetAssignment."},
        {"refuse", (PyCFunction)(void (*)(void))assignment_refuse, METH_FASTCALL, "See bearlake.kernel.fallback.OffsetAssignment."},
        {"adopt", (PyCFunction)(void (*)(void))assignment_adopt, METH_FASTCALL, "See bearlake.kernel.fallback.OffsetAssignment."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef properties[] = {
        {"state", get_state, NULL, "See bearlake.kernel.fallback.OffsetAssignment.", NULL},
        {"end", get_end, NULL, "See bearlake.kernel.fallback.OffsetAssignment.", NULL},
        {"outcomes", get_outcomes, NULL, "See bearlake.kernel.fallback.OffsetAssignment.", NULL},
        {"slices", get_slices, NULL, "See bearlake.kernel.fallback.OffsetAssignment.", NULL},
        {"sequences", get_sequences, NULL, "See bearlake.kernel.fallback.OffsetAssignment.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_init, (void *)assignment_init},       {Py_tp_dealloc, (void *)assignment_dealloc},
        {Py_tp_methods, methods},                    {Py_tp_getset, properties},
        {Py_tp_traverse, (void *)assignment_traverse}, {Py_tp_clear, (void *)assignment_clear},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.OffsetAssignment",
        .basicsize = sizeof(Assignment),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
