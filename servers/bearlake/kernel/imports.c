/* Imports from Python when the module is loaded. */
#include "native.h"

PyObject *import_name(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    PyObject *value = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return value;
}

PyObject *import_tuple_type(const char *module_name, const char *name)
{
    PyObject *type = import_name(module_name, name);
    if (type == NULL || (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)))
        return type;
    Py_DECREF(type);
    return PyErr_Format(PyExc_TypeError, "%s is not a tuple", name);
}
