/* Assigns offsets to accepted batches, and builds the slices that contain them. Contract: offsets.py. */
#include "batch/batch.h"
#include "log/log.h"

#define COMMIT_READ (COMMIT_PRODUCER_ID + 1) /* number of fields read from every batch */

/* A tuple of `type` from integers, after `first` if that is not NULL; NULL with an exception set. */
static PyObject *make_row(PyTypeObject *type, PyObject *first, const int64_t *numbers, Py_ssize_t count)
{
    const Py_ssize_t lead = first != NULL;
    PyObject *row = type->tp_alloc(type, lead + count);
    if (row == NULL)
        return NULL;
    if (first != NULL)
        PyTuple_SET_ITEM(row, 0, Py_NewRef(first));
    bool is_whole = true;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *number = PyLong_FromLongLong(numbers[at]);
        is_whole = is_whole && number != NULL;
        PyTuple_SET_ITEM(row, lead + at, number);
    }
    if (!is_whole)
        Py_CLEAR(row);
    return row;
}

static int append_row(PyObject *rows, PyObject *row)
{
    const int outcome = row == NULL ? -1 : PyList_Append(rows, row);
    Py_XDECREF(row);
    return outcome;
}

/* Reads the batch at `at`. Returns 1; 0 if there is none, or if the batch is of another partition, or has a producer or an expected
   offset; -1 with an exception set. */
static int next_batch(PyObject *batches, Py_ssize_t at, bool is_first, int64_t *batch)
{
    const int64_t partition = batch[COMMIT_PARTITION];
    if (at >= PyList_GET_SIZE(batches))
        return 0;
    PyObject *row = PyList_GET_ITEM(batches, at);
    if (check_tuple(row, COMMIT_FIELDS, "a batch") < 0 || to_numbers(row, COMMIT_PARTITION, COMMIT_PRODUCER_ID, batch) < 0)
        return -1;
    if (is_first)
        return 1;
    int64_t expected;
    if (to_int64(PyTuple_GET_ITEM(row, COMMIT_EXPECTED_OFFSET), &expected) < 0)
        return -1;
    return batch[COMMIT_PARTITION] == partition && batch[COMMIT_PRODUCER_ID] < 0 && expected < 0;
}

/* Whether the last of `slices` ends where the batch begins; if so, reads it into `slice`. */
static int reaches(PyObject *slices, const int64_t *batch, int64_t *slice)
{
    const Py_ssize_t count = PyList_GET_SIZE(slices);
    if (count == 0)
        return 0;
    PyObject *last = PyList_GET_ITEM(slices, count - 1);
    if (check_tuple(last, SLICE_FIELDS, "a slice") < 0 || to_numbers(last, SLICE_PARTITION, SLICE_TIME, slice) < 0)
        return -1;
    return slice[SLICE_PARTITION] == batch[COMMIT_PARTITION] && slice[SLICE_POSITION] + slice[SLICE_LENGTH] == batch[COMMIT_POSITION];
}

KERNEL_FUNCTION(kernel_assign_offsets)
{
    int64_t at, outcome[2], size = 0, batch[COMMIT_READ], slice[SLICE_FIELDS];
    PyTypeObject *outcome_type, *slice_type;
    if (check_arguments("assign_offsets", count, 9, 9) < 0 || (outcome_type = to_tuple_type(arguments[0])) == NULL
        || (slice_type = to_tuple_type(arguments[2])) == NULL || check_list(arguments[3], "batches") < 0
        || to_int64(arguments[4], &at) < 0 || to_int64(arguments[5], &outcome[1]) < 0
        || to_int64(arguments[6], &outcome[0]) < 0 || check_list(arguments[7], "outcomes") < 0
        || check_list(arguments[8], "slices") < 0)
        return NULL;
    PyObject *batches = arguments[3], *outcomes = arguments[7], *slices = arguments[8];
    if (at < 0 || at >= PyList_GET_SIZE(batches))
        return PyErr_Format(PyExc_ValueError, "index %lld is not in a list of %zd batches", (long long)at, PyList_GET_SIZE(batches));
    const Py_ssize_t first = (Py_ssize_t)at;
    int found;
    bool has_slice = false, is_merged = false;
    while ((found = next_batch(batches, (Py_ssize_t)at, at == first, batch)) > 0) {
        if (batch[COMMIT_RECORD_COUNT] <= 0)
            return PyErr_Format(PyExc_ValueError, "I2: a batch has at least one record, not %lld", (long long)batch[COMMIT_RECORD_COUNT]);
        if (append_row(outcomes, make_row(outcome_type, arguments[1], outcome, 2)) < 0)
            return NULL;
        if (at == first && (found = reaches(slices, batch, slice)) != 0) {
            if (found < 0)
                return NULL;
            has_slice = is_merged = true;
        }
        if (has_slice && slice[SLICE_POSITION] + slice[SLICE_LENGTH] != batch[COMMIT_POSITION]) {
            if (append_row(slices, make_row(slice_type, NULL, slice, SLICE_FIELDS)) < 0)
                return NULL;
            has_slice = false;
        }
        if (!has_slice)
            memcpy(slice, (int64_t[]){batch[COMMIT_PARTITION], outcome[0], 0, batch[COMMIT_POSITION], 0, batch[COMMIT_MAX_TIMESTAMP]}, sizeof slice);
        has_slice = true;
        slice[SLICE_COUNT] += batch[COMMIT_RECORD_COUNT];
        slice[SLICE_LENGTH] += batch[COMMIT_LENGTH];
        slice[SLICE_TIME] = batch[COMMIT_MAX_TIMESTAMP] > slice[SLICE_TIME] ? batch[COMMIT_MAX_TIMESTAMP] : slice[SLICE_TIME];
        if (is_merged && (PyList_SetSlice(slices, PyList_GET_SIZE(slices) - 1, PyList_GET_SIZE(slices), NULL) < 0))
            return NULL;
        is_merged = false;
        outcome[0] += batch[COMMIT_RECORD_COUNT];
        size += batch[COMMIT_LENGTH];
        at++;
    }
    if (found < 0 || append_row(slices, make_row(slice_type, NULL, slice, SLICE_FIELDS)) < 0)
        return NULL;
    return Py_BuildValue("LLL", (long long)at, (long long)outcome[0], (long long)size);
}
