/* The outcomes of the batches of one call. Contract: results.py. */
#include "log/write_buffer.h"

#include <structmember.h>

static Outcome *room_for(Results *results, Py_ssize_t count)
{
    return count == 1 ? &results->single : PyMem_Malloc((size_t)count * sizeof(Outcome));
}

void results_free(Results *results)
{
    if (results->outcomes != &results->single)
        PyMem_Free(results->outcomes);
    results->outcomes = NULL;
    results->count = 0;
}

int results_reset(Results *results, Py_ssize_t count)
{
    const Outcome outcome = results->single;
    Outcome *outcomes = NULL;
    if (count > 0 && (outcomes = room_for(results, count)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    results_free(results);
    results->single = outcome;
    for (Py_ssize_t at = 0; at < count; at++)
        outcomes[at] = outcome;
    results->outcomes = outcomes;
    results->count = results->waiting = count;
    return 0;
}

int to_outcome(PyObject *value, Outcome *out)
{
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 3) {
        PyErr_SetString(PyExc_ValueError, "an outcome is a tuple of 3");
        return -1;
    }
    return to_int64(field(value, 0), &out->verdict) < 0 || to_int64(field(value, 1), &out->base_offset) < 0
            || to_int64(field(value, 2), &out->start_offset) < 0
        ? -1
        : 0;
}

int results_init(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    Results *results = (Results *)self;
    Py_ssize_t count;
    PyObject *value;
    Outcome outcome;
    if (!PyArg_ParseTuple(arguments, "nO:Results", &count, &value) || to_outcome(value, &outcome) < 0)
        return -1;
    if (count < 0 || count > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd results", count);
        return -1;
    }
    if (results->count > 0) { /* a buffer or a response may count on them */
        PyErr_SetString(PyExc_ValueError, "the call has results");
        return -1;
    }
    results->single = outcome;
    return results_reset(results, count);
}

static void results_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    results_free((Results *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t results_length(PyObject *self) { return ((Results *)self)->count; }

static PyObject *results_item(PyObject *self, Py_ssize_t at)
{
    const Results *results = (Results *)self;
    if (at < 0 || at >= results->count) {
        PyErr_SetString(PyExc_IndexError, "there is no such batch");
        return NULL;
    }
    const Outcome *outcome = &results->outcomes[at];
    return Py_BuildValue("LLL", outcome->verdict, outcome->base_offset, outcome->start_offset);
}

static PyObject *results_fill(PyObject *self, PyObject *value)
{
    Results *results = (Results *)self;
    Outcome outcome;
    if (to_outcome(value, &outcome) < 0)
        return NULL;
    for (Py_ssize_t at = 0; at < results->count; at++)
        results->outcomes[at] = outcome;
    results->waiting = 0;
    Py_RETURN_NONE;
}

static PyObject *results_close(PyObject *self, PyObject *unused)
{
    Results *results = (Results *)self;
    const bool is_missing = results->waiting > 0;
    results->waiting = 0;
    return PyBool_FromLong(is_missing);
}

PyObject *make_results_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"close", results_close, METH_NOARGS, "Native twin of bearlake.kernel.fallback.Results."},
        {"fill", results_fill, METH_O, "Native twin of bearlake.kernel.fallback.Results."},
        {NULL, NULL, 0, NULL},
    };
    static PyMemberDef members[] = {
        {"waiting", T_PYSSIZET, offsetof(Results, waiting), READONLY, "Batches without an outcome."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_init, (void *)results_init},     {Py_tp_dealloc, (void *)results_dealloc},
        {Py_tp_methods, methods},               {Py_tp_members, members},
        {Py_sq_length, (void *)results_length}, {Py_sq_item, (void *)results_item},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.Results",
        .basicsize = sizeof(Results),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
