/* The loops that run once per batch between its request and its commit, without the interpreter. With a thousand small partitions per
   object, these loops took half of a server's time. Contract: appends.py. */
#include "log/log.h"

/* log.QueuedBatch */
enum { CALL, PLACE, ITEM, QUEUED_FIELDS };

/* Calls hold.acquire(count), unless hold is None. */
static int acquire(PyObject *hold, Py_ssize_t count)
{
    if (count == 0 || hold == Py_None)
        return 0;
    PyObject *result = PyObject_CallMethod(hold, "acquire", "n", count);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Consecutive batches mostly lie in the same memory: call their hold once for all of them. */
typedef struct {
    PyObject *hold; /* borrowed: its batch is alive */
    Py_ssize_t count;
} HoldRun;

static int run_over(HoldRun *run, PyObject *hold)
{
    if (run->hold != hold) {
        if (acquire(run->hold, run->count) < 0)
            return -1;
        run->hold = hold;
        run->count = 0;
    }
    run->count++;
    return 0;
}

static int queue(PyObject *partitions, PyObject *call, Py_ssize_t place, PyObject *item)
{
    PyObject *entries = PyDict_GetItemWithError(partitions, field(item, APPEND_PARTITION));
    if (entries == NULL) {
        if (PyErr_Occurred() || (entries = PyList_New(0)) == NULL)
            return -1;
        const int outcome = PyDict_SetItem(partitions, field(item, APPEND_PARTITION), entries);
        Py_DECREF(entries);
        if (outcome < 0)
            return -1;
    }
    if (check_list(entries, "the batches of a partition") < 0)
        return -1;
    PyObject *number = PyLong_FromSsize_t(place);
    PyObject *entry = number ? PyTuple_Pack(QUEUED_FIELDS, call, number, item) : NULL;
    const int outcome = entry == NULL ? -1 : PyList_Append(entries, entry);
    Py_XDECREF(number);
    Py_XDECREF(entry);
    return outcome;
}

KERNEL_FUNCTION(kernel_queue_appends)
{
    int64_t start, size, limit;
    if (check_arguments("queue_appends", count, 6, 6) < 0 || to_int64(arguments[2], &start) < 0
        || to_int64(arguments[4], &size) < 0 || to_int64(arguments[5], &limit) < 0)
        return NULL;
    if (!PyDict_Check(arguments[3]) || start < 0)
        return PyErr_Format(PyExc_ValueError, "queue_appends() takes a dict of partitions and an index");
    PyObject *items = PySequence_Fast(arguments[1], "appends is not a sequence");
    if (items == NULL)
        return NULL;
    HoldRun run = {Py_None, 0};
    Py_ssize_t at = start;
    int outcome = 0;
    for (; outcome == 0 && at < PySequence_Fast_GET_SIZE(items); at++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, at);
        const Py_ssize_t length = check_tuple(item, APPEND_FIELDS, "an append") < 0 ? -1 : PyObject_Size(field(item, APPEND_BATCH));
        if (length < 0) {
            outcome = -1;
        } else if (size > 0 && size + length > limit) {
            break;
        } else {
            size += length;
            if (queue(arguments[3], arguments[0], at, item) < 0 || run_over(&run, field(item, APPEND_HOLD)) < 0)
                outcome = -1;
        }
    }
    if (outcome == 0)
        outcome = acquire(run.hold, run.count);
    Py_DECREF(items);
    return outcome < 0 ? NULL : Py_BuildValue("nL", at, (long long)size);
}

/* The item of a queued batch, or NULL with an exception set. */
static PyObject *item_of(PyObject *entry)
{
    if (check_tuple(entry, QUEUED_FIELDS, "a queued batch") < 0 || check_tuple(field(entry, ITEM), APPEND_FIELDS, "an append") < 0)
        return NULL;
    return field(entry, ITEM);
}

/* After the fields that locate the batch, a BatchCommit has the same fields as an Append. */
_Static_assert(COMMIT_FIELDS - COMMIT_RECORD_COUNT == APPEND_FIELDS - APPEND_RECORD_COUNT, "the same fields behind the length");

static PyObject *make_commit(PyTypeObject *type, PyObject *item, int64_t position, Py_ssize_t length)
{
    PyObject *commit = type->tp_alloc(type, COMMIT_FIELDS);
    if (commit == NULL)
        return NULL;
    PyTuple_SET_ITEM(commit, COMMIT_PARTITION, Py_NewRef(field(item, APPEND_PARTITION)));
    PyTuple_SET_ITEM(commit, COMMIT_POSITION, PyLong_FromLongLong(position));
    PyTuple_SET_ITEM(commit, COMMIT_LENGTH, PyLong_FromSsize_t(length));
    for (int at = 0; at < COMMIT_FIELDS - COMMIT_RECORD_COUNT; at++)
        PyTuple_SET_ITEM(commit, COMMIT_RECORD_COUNT + at, Py_NewRef(field(item, APPEND_RECORD_COUNT + at)));
    if (field(commit, COMMIT_POSITION) == NULL || field(commit, COMMIT_LENGTH) == NULL)
        Py_CLEAR(commit);
    return commit;
}

KERNEL_FUNCTION(kernel_place_appends)
{
    int64_t position;
    PyTypeObject *type = (PyTypeObject *)state_of(module)->commit_type;
    if (check_arguments("place_appends", count, 2, 2) < 0 || check_list(arguments[0], "entries") < 0
        || to_int64(arguments[1], &position) < 0)
        return NULL;
    PyObject *entries = arguments[0];
    PyObject *commits = PyList_New(0);
    for (Py_ssize_t at = 0; commits != NULL && at < PyList_GET_SIZE(entries); at++) {
        PyObject *item = item_of(PyList_GET_ITEM(entries, at));
        const Py_ssize_t length = item == NULL ? -1 : PyObject_Size(field(item, APPEND_BATCH));
        PyObject *commit = length < 0 ? NULL : make_commit(type, item, position, length);
        if (commit == NULL || PyList_Append(commits, commit) < 0)
            Py_CLEAR(commits);
        Py_XDECREF(commit);
        position += length;
    }
    return commits;
}
