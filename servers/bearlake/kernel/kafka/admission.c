/* Admits parsed Produce entries that need no further checks. Contract: admission.py. */
#include "batch/records.h"
#include "kafka/kafka.h"
#include "log/log.h"

/* kafka.PlainRules */
enum { STREAM_ID, FIRST_KEY, PARTITION_COUNT, BYTES_MAX, EARLIEST, LATEST, CHECKS_RECORDS, RULES_FIELDS };

#define COMPRESSION_MASK 0x07

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
    PyTuple_SET_ITEM(item, APPEND_STREAM_ID, Py_NewRef(field(rules, STREAM_ID)));
    PyTuple_SET_ITEM(item, APPEND_HOLD, Py_NewRef(hold));
    PyTuple_SET_ITEM(item, APPEND_RECORD_COUNT, Py_NewRef(field(entry, RECORD_COUNT)));
    PyTuple_SET_ITEM(item, APPEND_MAX_TIMESTAMP, Py_NewRef(field(entry, MAX_TIME)));
    PyTuple_SET_ITEM(item, APPEND_PRODUCER_ID, Py_NewRef(field(entry, PRODUCER)));
    PyTuple_SET_ITEM(item, APPEND_PRODUCER_EPOCH, Py_NewRef(field(entry, EPOCH)));
    PyTuple_SET_ITEM(item, APPEND_BASE_SEQUENCE, Py_NewRef(field(entry, SEQUENCE)));
    PyTuple_SET_ITEM(item, APPEND_FLAGS, PyLong_FromLong(0));
    PyTuple_SET_ITEM(item, APPEND_EXPECTED_OFFSET, PyLong_FromLong(-1));
    PyTuple_SET_ITEM(item, APPEND_AFTER_SEQUENCE, PyLong_FromLong(-1));
    PyTuple_SET_ITEM(item, APPEND_PARTITION, PyLong_FromLongLong(key));
    PyTuple_SET_ITEM(item, APPEND_BATCH, slice_of(frame, field(entry, START), field(entry, END)));
    if (field(item, APPEND_PARTITION) == NULL || field(item, APPEND_BATCH) == NULL)
        Py_CLEAR(item);
    return item;
}

/* Whether the records of a batch are good, as far as this can be checked without decompression. */
static bool has_good_records(const Py_buffer *frame, const int64_t *number)
{
    const int64_t start = number[START] + HEADER_BYTES, end = number[END];
    if ((number[ATTRIBUTES] & COMPRESSION_MASK) != 0 || number[START] < 0 || start > end || end > frame->len)
        return false;
    const uint8_t *bytes = frame->buf;
    return first_bad_record((Cursor){bytes + start, bytes + end}, number[RECORD_COUNT]) < 0;
}

/* Appends one batch to `items`: 1; 0 if it is not plain; -1 with an exception set. */
static int admit(PyTypeObject *type, PyObject *entry, PyObject *topic, PyObject *frame, const Py_buffer *view, PyObject *hold,
                 PyObject *rules, const int64_t *rule, PyObject *items)
{
    int64_t number[ENTRY_FIELDS];
    if (check_tuple(entry, ENTRY_FIELDS, "an entry") < 0 || to_numbers(entry, INDEX, MAX_TIME, number) < 0)
        return -1;
    if (field(entry, TOPIC) != topic) {
        const int is_equal = PyObject_RichCompareBool(field(entry, TOPIC), topic, Py_EQ);
        if (is_equal <= 0)
            return is_equal;
    }
    if (number[STATUS] != 0 || number[INDEX] < 0 || number[INDEX] >= rule[PARTITION_COUNT]
        || number[END] - number[START] > rule[BYTES_MAX] || (number[ATTRIBUTES] & ~(int64_t)COMPRESSION_MASK) != 0
        || number[MAX_TIME] > rule[LATEST] || number[BASE_TIME] < rule[EARLIEST]
        || (rule[CHECKS_RECORDS] != 0 && !has_good_records(view, number)))
        return 0;
    PyObject *item = make_append(type, entry, frame, hold, rules, rule[FIRST_KEY] | number[INDEX]);
    const int outcome = item == NULL || PyList_Append(items, item) < 0 ? -1 : 1;
    Py_XDECREF(item);
    return outcome;
}

KERNEL_FUNCTION(kernel_admit_plain)
{
    Py_buffer view;
    int64_t rule[RULES_FIELDS], start;
    PyTypeObject *type = (PyTypeObject *)state_of(module)->append_type;
    if (check_arguments("admit_plain", count, 6, 6) < 0 || check_list(arguments[0], "entries") < 0 || to_int64(arguments[1], &start) < 0
        || check_tuple(arguments[4], RULES_FIELDS, "rules") < 0 || to_numbers(arguments[4], FIRST_KEY, CHECKS_RECORDS, rule) < 0
        || check_list(arguments[5], "appends") < 0)
        return NULL;
    PyObject *entries = arguments[0];
    if (start < 0 || start >= PyList_GET_SIZE(entries))
        return PyErr_Format(PyExc_ValueError, "index %lld is not in a list of %zd entries", (long long)start, PyList_GET_SIZE(entries));
    if (PyObject_GetBuffer(arguments[2], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *first = Py_NewRef(PyList_GET_ITEM(entries, start)); /* comparing topics may run Python code */
    int outcome = check_tuple(first, ENTRY_FIELDS, "an entry") < 0 ? -1 : 1;
    Py_ssize_t at = start;
    while (outcome > 0 && at < PyList_GET_SIZE(entries)) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(entries, at));
        outcome = admit(type, entry, field(first, TOPIC), arguments[2], &view, arguments[3], arguments[4], rule, arguments[5]);
        Py_DECREF(entry);
        at += outcome > 0;
    }
    Py_DECREF(first);
    PyBuffer_Release(&view);
    return outcome < 0 ? NULL : PyLong_FromSsize_t(at);
}
