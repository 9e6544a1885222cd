/* Compares the fields of tuples, as Python defines them, with the order that C uses. */
#include "log/log.h"

#define NAME_OF(type, place, name) #name,
static const char *const append_names[] = {APPEND_LAYOUT(NAME_OF)};
static const char *const commit_names[] = {COMMIT_LAYOUT(NAME_OF)};
#undef NAME_OF

/* Returns whether `fields` are exactly these names, in this order; -1 with an exception set. */
static int are_named(PyObject *fields, const char *const *names, Py_ssize_t count)
{
    if (!PyTuple_Check(fields) || PyTuple_GET_SIZE(fields) != count)
        return 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *name = PyTuple_GET_ITEM(fields, at);
        if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, names[at]) != 0)
            return 0;
    }
    return 1;
}

PyObject *import_fields(const char *module_name, const char *name, const char *const *names, Py_ssize_t count)
{
    PyObject *type = import_tuple_type(module_name, name);
    PyObject *fields = type == NULL ? NULL : PyObject_GetAttrString(type, "_fields");
    if (fields != NULL && !are_named(fields, names, count))
        PyErr_Format(PyExc_ImportError, "the native kernel was built for other fields of %s than %R", name, fields);
    Py_XDECREF(fields);
    if (PyErr_Occurred())
        Py_CLEAR(type);
    return type;
}

PyObject *import_append_type(void) { return import_fields("bearlake.kernel.log", "Append", append_names, APPEND_FIELDS); }

PyObject *import_commit_type(void) { return import_fields("bearlake.kernel.log", "BatchCommit", commit_names, COMMIT_FIELDS); }
