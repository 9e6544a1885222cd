/* Checks of function arguments, all of which are positional. */
#include "native.h"

int check_arguments(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most)
{
    if (given >= least && given <= most)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments, %zd were given", name, least, most, given);
    return -1;
}

int to_int64(PyObject *number, int64_t *out)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (value == -1 && !overflow && PyErr_Occurred())
        return -1;
    *out = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
    return 0;
}

int to_uint64(PyObject *number, uint64_t *out)
{
    *out = PyLong_AsUnsignedLongLong(number);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

int to_range(PyObject *start, PyObject *end, Py_ssize_t size, Py_ssize_t *start_out, Py_ssize_t *end_out)
{
    int64_t from, to = size;
    if (to_int64(start, &from) < 0 || (end != Py_None && to_int64(end, &to) < 0))
        return -1;
    if (from < 0 || to < from || to > size) {
        PyErr_Format(
            PyExc_ValueError, "[%lld, %lld) is not inside a buffer of %zd bytes", (long long)from, (long long)to, size);
        return -1;
    }
    *start_out = (Py_ssize_t)from;
    *end_out = (Py_ssize_t)to;
    return 0;
}

PyObject *raise_too_large(KernelState *state, const char *what, int64_t size, int64_t most)
{
    PyObject *error = PyObject_CallFunction(state->too_large, "sLL", what, (long long)size, (long long)most);
    if (error != NULL)
        PyErr_SetObject(state->too_large, error);
    Py_XDECREF(error);
    return NULL;
}

int check_tuple(PyObject *value, Py_ssize_t fields, const char *what)
{
    if (PyTuple_Check(value) && PyTuple_GET_SIZE(value) == fields)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is not a tuple of %zd", what, fields);
    return -1;
}

int check_list(PyObject *value, const char *what)
{
    if (PyList_Check(value))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is not a list", what);
    return -1;
}

PyTypeObject *to_tuple_type(PyObject *value)
{
    if (PyType_Check(value) && PyType_IsSubtype((PyTypeObject *)value, &PyTuple_Type))
        return (PyTypeObject *)value;
    PyErr_SetString(PyExc_ValueError, "not a tuple type");
    return NULL;
}

int to_numbers(PyObject *tuple, int first, int last, int64_t *out)
{
    for (int at = first; at <= last; at++)
        if (to_int64(PyTuple_GET_ITEM(tuple, at), &out[at]) < 0)
            return -1;
    return 0;
}

int to_packed(KernelState *state, PyObject *value, Py_ssize_t width, PyObject **packed)
{
    if (!PyObject_TypeCheck(value, (PyTypeObject *)state->rows_type))
        return 0;
    PyObject *number = PyObject_GetAttr(value, state->names[NAME_width]);
    int64_t fields;
    const int outcome = number == NULL ? -1 : to_int64(number, &fields);
    Py_XDECREF(number);
    if (outcome < 0 || fields != width)
        return outcome;
    PyObject *bytes = PyObject_GetAttr(value, state->names[NAME_packed]);
    if (bytes == NULL)
        return -1;
    if (PyBytes_CheckExact(bytes) && PyBytes_GET_SIZE(bytes) % (width * 8) == 0) {
        *packed = bytes;
        return 1;
    }
    Py_DECREF(bytes);
    PyErr_SetString(PyExc_ValueError, "packed rows are not whole rows of bytes");
    return -1;
}
