/* Admits parsed Produce entries that need no further checks. Contract: admission.py. */
#include "batch/records.h"
#include "kafka/kafka.h"
#include "log/log.h"

/* kafka.PlainRules */
enum { STREAM_ID, FIRST_KEY, PARTITION_COUNT, BYTES_MAX, EARLIEST, LATEST, CHECKS_RECORDS, RULES_FIELDS };

int to_rules(PyObject *tuple, Rules *rules, const uint8_t **stream_id)
{
    int64_t rule[RULES_FIELDS];
    if (check_tuple(tuple, RULES_FIELDS, "rules") < 0 || to_numbers(tuple, FIRST_KEY, CHECKS_RECORDS, rule) < 0)
        return -1;
    PyObject *id = field(tuple, STREAM_ID);
    if (!PyBytes_Check(id) || PyBytes_GET_SIZE(id) != 16) {
        PyErr_SetString(PyExc_ValueError, "rules: a stream id has 16 bytes");
        return -1;
    }
    *stream_id = (const uint8_t *)PyBytes_AS_STRING(id);
    *rules = (Rules){rule[FIRST_KEY], rule[PARTITION_COUNT], rule[BYTES_MAX], rule[EARLIEST], rule[LATEST], rule[CHECKS_RECORDS]};
    return 0;
}

/* Whether the records of a batch are good, as far as this can be checked without decompression. */
static bool has_good_records(const Header *header, const uint8_t *batch, int64_t size)
{
    return (header->attributes & COMPRESSION_MASK) == 0 && size >= HEADER_BYTES
        && first_bad_record((Cursor){batch + HEADER_BYTES, batch + size}, header->record_count) < 0;
}

bool fits_rules(const Rules *rules, int64_t index, Status status, const Header *header, int64_t size)
{
    return status == STATUS_OK && index >= 0 && index < rules->partition_count && size <= rules->bytes_max
        && (header->attributes & ~COMPRESSION_MASK) == 0 && header->max_timestamp <= rules->latest
        && header->base_timestamp >= rules->earliest;
}

bool is_plain(const Rules *rules, int64_t index, Status status, const Header *header, const uint8_t *batch, int64_t size)
{
    return fits_rules(rules, index, status, header, size)
        && (rules->checks_records == 0 || has_good_records(header, batch, size));
}

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

/* Appends one batch to `items`: 1; 0 if it is not plain; -1 with an exception set. */
static int admit(PyTypeObject *type, PyObject *entry, PyObject *topic, PyObject *frame, const Py_buffer *view, PyObject *hold,
                 PyObject *tuple, const Rules *rules, PyObject *items)
{
    int64_t number[ENTRY_FIELDS];
    if (check_tuple(entry, ENTRY_FIELDS, "an entry") < 0 || to_numbers(entry, INDEX, MAX_TIME, number) < 0)
        return -1;
    if (field(entry, TOPIC) != topic) {
        const int is_equal = PyObject_RichCompareBool(field(entry, TOPIC), topic, Py_EQ);
        if (is_equal <= 0)
            return is_equal;
    }
    if (number[STATUS] != 0 || number[START] < 0 || number[START] > number[END] || number[END] > view->len
        || number[ATTRIBUTES] != (int16_t)number[ATTRIBUTES] || number[RECORD_COUNT] != (int32_t)number[RECORD_COUNT])
        return 0;
    const Header header = {
        .attributes = (int16_t)number[ATTRIBUTES],
        .record_count = (int32_t)number[RECORD_COUNT],
        .base_timestamp = number[BASE_TIME],
        .max_timestamp = number[MAX_TIME],
    };
    const uint8_t *batch = (const uint8_t *)view->buf + number[START];
    if (!is_plain(rules, number[INDEX], STATUS_OK, &header, batch, number[END] - number[START]))
        return 0;
    PyObject *item = make_append(type, entry, frame, hold, tuple, rules->first_key | number[INDEX]);
    const int outcome = item == NULL || PyList_Append(items, item) < 0 ? -1 : 1;
    Py_XDECREF(item);
    return outcome;
}

KERNEL_FUNCTION(kernel_admit_plain)
{
    Py_buffer view;
    int64_t start;
    Rules rules;
    const uint8_t *stream_id;
    PyTypeObject *type = (PyTypeObject *)state_of(module)->append_type;
    if (check_arguments("admit_plain", count, 6, 6) < 0 || check_list(arguments[0], "entries") < 0 || to_int64(arguments[1], &start) < 0
        || to_rules(arguments[4], &rules, &stream_id) < 0 || check_list(arguments[5], "appends") < 0)
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
        outcome = admit(type, entry, field(first, TOPIC), arguments[2], &view, arguments[3], arguments[4], &rules, arguments[5]);
        Py_DECREF(entry);
        at += outcome > 0;
    }
    Py_DECREF(first);
    PyBuffer_Release(&view);
    return outcome < 0 ? NULL : PyLong_FromSsize_t(at);
}
