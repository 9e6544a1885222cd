/* A batch on its way from its request to its answer: what the server does with each one, in loops without an interpreter between
   them. With a thousand small partitions per object these loops were half of the server. Contract: bearlake.kernel.fallback.appends. */
#include "kernel.h"

/* header.ProduceEntry */
enum { TOPIC, INDEX, START, END, STATUS, ATTRIBUTES, RECORD_COUNT, BASE_TIME, MAX_TIME, PRODUCER, EPOCH, SEQUENCE, PRODUCE_ENTRY_FIELDS };
/* header.AppendLike */
enum { PARTITION, STREAM, BATCH, HOLD, COUNT, TIME, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, FLAGS, EXPECTED, AFTER, APPEND_FIELDS };
/* header.PlainRules */
enum { STREAM_ID, FIRST_KEY, PARTITION_COUNT, BYTES_MAX, EARLIEST, LATEST, RULES_FIELDS };
/* header.QueuedBatch */
enum { CALL, PLACE, ITEM, QUEUED_FIELDS };

#define COMPRESSION_MASK 0x07

static inline PyObject *field(PyObject *tuple, int at) { return PyTuple_GET_ITEM(tuple, at); }

static PyObject *slice_of(PyObject *frame, PyObject *start, PyObject *end)
{
    PyObject *range = PySlice_New(start, end, NULL);
    PyObject *part = range ? PyObject_GetItem(frame, range) : NULL;
    Py_XDECREF(range);
    return part;
}

static PyObject *make_append(PyTypeObject *type, PyObject *entry, PyObject *frame, PyObject *hold, PyObject *rules, int64_t key)
{
    PyObject *item = type->tp_alloc(type, APPEND_FIELDS);
    if (item == NULL)
        return NULL;
    PyTuple_SET_ITEM(item, STREAM, Py_NewRef(field(rules, STREAM_ID)));
    PyTuple_SET_ITEM(item, HOLD, Py_NewRef(hold));
    PyTuple_SET_ITEM(item, COUNT, Py_NewRef(field(entry, RECORD_COUNT)));
    PyTuple_SET_ITEM(item, TIME, Py_NewRef(field(entry, MAX_TIME)));
    PyTuple_SET_ITEM(item, PRODUCER_ID, Py_NewRef(field(entry, PRODUCER)));
    PyTuple_SET_ITEM(item, PRODUCER_EPOCH, Py_NewRef(field(entry, EPOCH)));
    PyTuple_SET_ITEM(item, BASE_SEQUENCE, Py_NewRef(field(entry, SEQUENCE)));
    PyTuple_SET_ITEM(item, FLAGS, PyLong_FromLong(0));
    PyTuple_SET_ITEM(item, EXPECTED, PyLong_FromLong(-1));
    PyTuple_SET_ITEM(item, AFTER, PyLong_FromLong(-1));
    PyTuple_SET_ITEM(item, PARTITION, PyLong_FromLongLong(key));
    PyTuple_SET_ITEM(item, BATCH, slice_of(frame, field(entry, START), field(entry, END)));
    if (field(item, PARTITION) == NULL || field(item, BATCH) == NULL)
        Py_CLEAR(item);
    return item;
}

/* Appends one batch to `items`: 1, or 0 when it is not plain, or -1 with an exception set. */
static int admit(PyTypeObject *type, PyObject *entry, PyObject *topic, PyObject *frame, PyObject *hold, PyObject *rules,
                 const int64_t *rule, PyObject *items)
{
    int64_t number[PRODUCE_ENTRY_FIELDS];
    if (check_tuple(entry, PRODUCE_ENTRY_FIELDS, "an entry") < 0 || to_numbers(entry, INDEX, MAX_TIME, number) < 0)
        return -1;
    if (field(entry, TOPIC) != topic) {
        const int is_equal = PyObject_RichCompareBool(field(entry, TOPIC), topic, Py_EQ);
        if (is_equal <= 0)
            return is_equal;
    }
    if (number[STATUS] != 0 || number[INDEX] < 0 || number[INDEX] >= rule[PARTITION_COUNT]
        || number[END] - number[START] > rule[BYTES_MAX] || (number[ATTRIBUTES] & ~(int64_t)COMPRESSION_MASK) != 0
        || number[MAX_TIME] > rule[LATEST] || number[BASE_TIME] < rule[EARLIEST])
        return 0;
    PyObject *item = make_append(type, entry, frame, hold, rules, rule[FIRST_KEY] | number[INDEX]);
    const int outcome = item == NULL || PyList_Append(items, item) < 0 ? -1 : 1;
    Py_XDECREF(item);
    return outcome;
}

KERNEL_FUNCTION(kernel_admit_plain)
{
    int64_t rule[RULES_FIELDS], start;
    PyTypeObject *type;
    if (check_arguments("admit_plain", count, 7, 7) < 0 || (type = to_tuple_type(arguments[0])) == NULL
        || check_list(arguments[1], "entries") < 0 || to_int64(arguments[2], &start) < 0
        || check_tuple(arguments[5], RULES_FIELDS, "rules") < 0 || to_numbers(arguments[5], FIRST_KEY, LATEST, rule) < 0
        || check_list(arguments[6], "appends") < 0)
        return NULL;
    PyObject *entries = arguments[1];
    if (start < 0 || start >= PyList_GET_SIZE(entries))
        return PyErr_Format(PyExc_ValueError, "%lld is not a place among %zd entries", (long long)start, PyList_GET_SIZE(entries));
    PyObject *first = Py_NewRef(PyList_GET_ITEM(entries, start)); /* comparing topics may run Python code */
    int outcome = check_tuple(first, PRODUCE_ENTRY_FIELDS, "an entry") < 0 ? -1 : 1;
    Py_ssize_t at = start;
    while (outcome > 0 && at < PyList_GET_SIZE(entries)) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(entries, at));
        outcome = admit(type, entry, field(first, TOPIC), arguments[3], arguments[4], arguments[5], rule, arguments[6]);
        Py_DECREF(entry);
        at += outcome > 0;
    }
    Py_DECREF(first);
    return outcome < 0 ? NULL : PyLong_FromSsize_t(at);
}

/* Calls hold.acquire(count) or hold.release(count), unless hold is None. */
static int call_hold(PyObject *hold, const char *method, Py_ssize_t count)
{
    if (count == 0 || hold == Py_None)
        return 0;
    PyObject *result = PyObject_CallMethod(hold, method, "n", count);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Consecutive batches mostly lie in the same memory: one call of the hold for all of them. */
typedef struct {
    PyObject *hold; /* borrowed: its batch is alive */
    Py_ssize_t count;
    const char *method;
} HoldRun;

static int run_over(HoldRun *run, PyObject *hold)
{
    if (run->hold != hold) {
        if (call_hold(run->hold, run->method, run->count) < 0)
            return -1;
        run->hold = hold;
        run->count = 0;
    }
    run->count++;
    return 0;
}

static int queue(PyObject *partitions, PyObject *call, Py_ssize_t place, PyObject *item)
{
    PyObject *entries = PyDict_GetItemWithError(partitions, field(item, PARTITION));
    if (entries == NULL) {
        if (PyErr_Occurred() || (entries = PyList_New(0)) == NULL)
            return -1;
        const int outcome = PyDict_SetItem(partitions, field(item, PARTITION), entries);
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
        return PyErr_Format(PyExc_ValueError, "queue_appends() takes a dict of partitions and a place");
    PyObject *items = PySequence_Fast(arguments[1], "appends is not a sequence");
    if (items == NULL)
        return NULL;
    HoldRun run = {Py_None, 0, "acquire"};
    Py_ssize_t at = start;
    int outcome = 0;
    for (; outcome == 0 && at < PySequence_Fast_GET_SIZE(items); at++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, at);
        const Py_ssize_t length = check_tuple(item, APPEND_FIELDS, "an append") < 0 ? -1 : PyObject_Size(field(item, BATCH));
        if (length < 0) {
            outcome = -1;
        } else if (size > 0 && size + length > limit) {
            break;
        } else {
            size += length;
            if (queue(arguments[3], arguments[0], at, item) < 0 || run_over(&run, field(item, HOLD)) < 0)
                outcome = -1;
        }
    }
    if (outcome == 0)
        outcome = call_hold(run.hold, run.method, run.count);
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

static PyObject *make_commit(PyTypeObject *type, PyObject *item, int64_t position, Py_ssize_t length)
{
    PyObject *commit = type->tp_alloc(type, COMMIT_FIELDS);
    if (commit == NULL)
        return NULL;
    PyTuple_SET_ITEM(commit, 0, Py_NewRef(field(item, PARTITION)));
    PyTuple_SET_ITEM(commit, 1, PyLong_FromLongLong(position));
    PyTuple_SET_ITEM(commit, 2, PyLong_FromSsize_t(length));
    for (int at = COUNT; at < APPEND_FIELDS; at++)
        PyTuple_SET_ITEM(commit, at - COUNT + 3, Py_NewRef(field(item, at)));
    if (field(commit, 1) == NULL || field(commit, 2) == NULL)
        Py_CLEAR(commit);
    return commit;
}

KERNEL_FUNCTION(kernel_place_appends)
{
    int64_t position;
    PyTypeObject *type;
    if (check_arguments("place_appends", count, 3, 3) < 0 || (type = to_tuple_type(arguments[0])) == NULL
        || check_list(arguments[1], "entries") < 0 || to_int64(arguments[2], &position) < 0)
        return NULL;
    PyObject *entries = arguments[1];
    PyObject *commits = PyList_New(0);
    for (Py_ssize_t at = 0; commits != NULL && at < PyList_GET_SIZE(entries); at++) {
        PyObject *item = item_of(PyList_GET_ITEM(entries, at));
        const Py_ssize_t length = item == NULL ? -1 : PyObject_Size(field(item, BATCH));
        PyObject *commit = length < 0 ? NULL : make_commit(type, item, position, length);
        if (commit == NULL || PyList_Append(commits, commit) < 0)
            Py_CLEAR(commits);
        Py_XDECREF(commit);
        position += length;
    }
    return commits;
}

KERNEL_FUNCTION(kernel_release_appends)
{
    if (check_arguments("release_appends", count, 1, 1) < 0 || check_list(arguments[0], "entries") < 0)
        return NULL;
    HoldRun run = {Py_None, 0, "release"};
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(arguments[0]); at++) {
        PyObject *item = item_of(PyList_GET_ITEM(arguments[0], at));
        if (item == NULL || run_over(&run, field(item, HOLD)) < 0)
            return NULL;
    }
    return call_hold(run.hold, run.method, run.count) < 0 ? NULL : Py_NewRef(Py_None);
}

/* Gives one result to its call; appends the call to `done` when it was the last one. */
static int resolve(KernelState *state, PyObject *entry, PyObject *result, PyObject *done)
{
    int64_t waiting, place;
    if (check_tuple(entry, QUEUED_FIELDS, "a queued batch") < 0 || to_int64(field(entry, PLACE), &place) < 0)
        return -1;
    PyObject *call = field(entry, CALL);
    PyObject *number = PyObject_GetAttr(call, state->waiting_name);
    const int failed = number == NULL || to_int64(number, &waiting) < 0;
    Py_XDECREF(number);
    if (failed)
        return -1;
    if (waiting <= 0)
        return 0;
    PyObject *results = PyObject_GetAttr(call, state->results_name);
    int outcome = results == NULL || check_list(results, "the results of a call") < 0 ? -1 : 0;
    if (outcome == 0)
        outcome = PyList_SetItem(results, (Py_ssize_t)place, Py_NewRef(result));
    Py_XDECREF(results);
    if (outcome < 0 || (number = PyLong_FromLongLong(waiting - 1)) == NULL)
        return -1;
    outcome = PyObject_SetAttr(call, state->waiting_name, number);
    Py_DECREF(number);
    return outcome == 0 && waiting == 1 ? PyList_Append(done, call) : outcome;
}

KERNEL_FUNCTION(kernel_resolve_appends)
{
    if (check_arguments("resolve_appends", count, 2, 2) < 0 || check_list(arguments[0], "entries") < 0
        || check_list(arguments[1], "results") < 0)
        return NULL;
    PyObject *entries = arguments[0], *results = arguments[1];
    if (PyList_GET_SIZE(entries) != PyList_GET_SIZE(results))
        return PyErr_Format(
            PyExc_ValueError, "%zd results for %zd batches", PyList_GET_SIZE(results), PyList_GET_SIZE(entries));
    PyObject *done = PyList_New(0);
    for (Py_ssize_t at = 0; done != NULL && at < PyList_GET_SIZE(entries); at++)
        if (resolve(state_of(module), PyList_GET_ITEM(entries, at), PyList_GET_ITEM(results, at), done) < 0)
            Py_CLEAR(done);
    return done;
}
