/* The states of partitions, as offsets.py reads and changes them. */
#include "log/visits.h"

#define SEQUENCE_MASK 0x7FFFFFFF
#define REMEMBERED 5
#define HEAD_FIELDS 2
#define OLDER_END (HEAD_FIELDS + 3 * (REMEMBERED - 1))

static int get_number(PyObject *object, PyObject *name, int64_t *out)
{
    PyObject *value = PyObject_GetAttr(object, name);
    const int outcome = value == NULL ? -1 : to_int64(value, out);
    Py_XDECREF(value);
    return outcome;
}

static int set_number(PyObject *object, PyObject *name, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    const int outcome = value == NULL ? -1 : PyObject_SetAttr(object, name, value);
    Py_XDECREF(value);
    return outcome;
}

static int read_is_open(KernelState *state, PyObject *partition, bool *out)
{
    PyObject *stream = PyObject_GetAttr(partition, state->names[NAME_stream]);
    PyObject *value = stream == NULL ? NULL : PyObject_GetAttr(stream, state->names[NAME_is_open]);
    const int is_open = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    Py_XDECREF(stream);
    *out = is_open > 0;
    return is_open < 0 ? -1 : 0;
}

void visit_clear(Visit *visit)
{
    Py_CLEAR(visit->key);
    Py_CLEAR(visit->state);
    Py_CLEAR(visit->known);
    Py_CLEAR(visit->producers);
}

int visit_read(KernelState *state, PyObject *partitions, Visit *visit)
{
    PyObject *const *names = state->names;
    if ((visit->key = PyLong_FromLongLong(visit->partition)) == NULL
        || (visit->state = PyObject_GetItem(partitions, visit->key)) == NULL
        || get_number(visit->state, names[NAME_start], &visit->start) < 0 || get_number(visit->state, names[NAME_end], &visit->end) < 0
        || get_number(visit->state, names[NAME_size], &visit->size) < 0
        || get_number(visit->state, names[NAME_epoch], &visit->epoch) < 0 || read_is_open(state, visit->state, &visit->is_open) < 0
        || (visit->known = PyObject_GetAttr(visit->state, names[NAME_producers])) == NULL)
        return -1;
    if (PyDict_Check(visit->known))
        return 0;
    PyErr_SetString(PyExc_ValueError, "the producers of a partition are not a dict");
    return -1;
}

PyObject *visit_known(const Visit *visit, int64_t producer_id)
{
    PyObject *key = PyLong_FromLongLong(producer_id);
    if (key == NULL)
        return NULL;
    PyObject *known = visit->producers == NULL ? NULL : PyDict_GetItemWithError(visit->producers, key);
    if (known == NULL && !PyErr_Occurred())
        known = PyDict_GetItemWithError(visit->known, key);
    Py_DECREF(key);
    return known;
}

/* Reads the epoch and the last sequence of a producer. -1 with an exception set. */
static int read_producer(PyObject *known, int64_t *epoch, int64_t *last)
{
    if (!PyTuple_Check(known) || PyTuple_GET_SIZE(known) < HEAD_FIELDS + 3) {
        PyErr_SetString(PyExc_ValueError, "what is remembered of a producer is not a tuple of at least 5");
        return -1;
    }
    return to_int64(PyTuple_GET_ITEM(known, 0), epoch) < 0 ? -1 : to_int64(PyTuple_GET_ITEM(known, HEAD_FIELDS + 1), last);
}

int producer_is_next(PyObject *known, const int64_t *batch)
{
    int64_t epoch, last;
    if (read_producer(known, &epoch, &last) < 0)
        return -1;
    return epoch == batch[COMMIT_PRODUCER_EPOCH] && (int64_t)(((uint64_t)last + 1) & SEQUENCE_MASK) == batch[COMMIT_BASE_SEQUENCE];
}

int named_is_next(PyObject *known, const int64_t *batch, int64_t partition_epoch)
{
    int64_t epoch, last;
    if (read_producer(known, &epoch, &last) < 0)
        return -1;
    return epoch == batch[COMMIT_PRODUCER_EPOCH] && epoch >= partition_epoch && batch[COMMIT_BASE_SEQUENCE] > last
        && batch[COMMIT_AFTER_SEQUENCE] <= last;
}

PyObject *producer_after(PyObject *known, PyObject *now_ms, const int64_t *batch, int64_t end)
{
    Py_ssize_t kept = PyTuple_GET_SIZE(known) < OLDER_END ? PyTuple_GET_SIZE(known) : OLDER_END;
    const uint64_t sequence = (uint64_t)batch[COMMIT_BASE_SEQUENCE], count = (uint64_t)batch[COMMIT_RECORD_COUNT];
    const bool is_named = batch[COMMIT_FLAGS] == BATCH_NAMED; /* such a producer counts appends, and never wraps */
    const int64_t numbers[] = {(int64_t)sequence, (int64_t)(is_named ? sequence : (sequence + count - 1) & SEQUENCE_MASK), end};
    PyObject *made = PyTuple_New(3 + kept);
    if (made == NULL)
        return NULL;
    PyTuple_SET_ITEM(made, 0, Py_NewRef(PyTuple_GET_ITEM(known, 0))); /* the batch's epoch */
    PyTuple_SET_ITEM(made, 1, Py_NewRef(now_ms));
    bool is_whole = true;
    for (Py_ssize_t at = 0; at < 3; at++) {
        PyObject *number = PyLong_FromLongLong(numbers[at]);
        is_whole = is_whole && number != NULL;
        PyTuple_SET_ITEM(made, HEAD_FIELDS + at, number);
    }
    for (Py_ssize_t at = HEAD_FIELDS; at < kept; at++)
        PyTuple_SET_ITEM(made, at + 3, Py_NewRef(PyTuple_GET_ITEM(known, at)));
    if (!is_whole)
        Py_CLEAR(made);
    return made;
}

int visit_adopt(KernelState *state, const Visit *visit, PyObject *position, PyObject *changed)
{
    PyObject *const *names = state->names;
    PyObject *tail = PyObject_GetAttr(visit->state, names[NAME_tail]);
    PyObject *end = tail == NULL ? NULL : PyObject_GetAttr(visit->state, names[NAME_end]);
    int outcome = tail == NULL || end == NULL || check_list(tail, "the tail") < 0 || PyList_Append(tail, end) < 0
            || PyList_Append(tail, position) < 0
        ? -1
        : 0;
    Py_XDECREF(tail);
    Py_XDECREF(end);
    if (outcome < 0 || set_number(visit->state, names[NAME_end], visit->end) < 0
        || set_number(visit->state, names[NAME_size], visit->size) < 0
        || PyObject_SetAttr(visit->state, names[NAME_changed], position) < 0
        || (visit->producers != NULL && PyDict_Update(visit->known, visit->producers) < 0))
        return -1;
    return PyObject_SetItem(changed, visit->key, visit->state);
}
