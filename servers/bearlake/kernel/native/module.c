/* The extension module bearlake.kernel._native: the same functions as bearlake.kernel.fallback, in C. */
#include "kernel.h"

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))kernel_##name, METH_FASTCALL, "See bearlake.kernel.fallback." #name "."}

static PyMethodDef functions[] = {
    FUNCTION(batches),
    FUNCTION(check_records),
    FUNCTION(crc32c),
    FUNCTION(decode_records),
    FUNCTION(encode_produce_response),
    FUNCTION(find_timestamp),
    FUNCTION(inspect),
    FUNCTION(parse_produce),
    FUNCTION(put_file),
    FUNCTION(rebase),
    FUNCTION(seek),
    FUNCTION(take),
    {NULL, NULL, 0, NULL},
};

static PyObject *import_name(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    PyObject *value = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return value;
}

static int module_exec(PyObject *module)
{
    KernelState *state = state_of(module);
    checksum_setup();
    state->header_type = import_name("bearlake.kernel.header", "BatchHeader");
    state->corrupt = import_name("bearlake.errors", "Corrupt");
    state->unsupported = import_name("bearlake.errors", "Unsupported");
    if (state->header_type == NULL || state->corrupt == NULL || state->unsupported == NULL)
        return -1;
    if (!PyType_Check(state->header_type) || !PyType_IsSubtype((PyTypeObject *)state->header_type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "BatchHeader is not a tuple");
        return -1;
    }
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    KernelState *state = state_of(module);
    Py_VISIT(state->header_type);
    Py_VISIT(state->corrupt);
    Py_VISIT(state->unsupported);
    return 0;
}

static int module_clear(PyObject *module)
{
    KernelState *state = state_of(module);
    Py_CLEAR(state->header_type);
    Py_CLEAR(state->corrupt);
    Py_CLEAR(state->unsupported);
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bearlake.kernel._native",
    .m_doc = "The record-batch kernel in C; see bearlake.kernel.",
    .m_size = sizeof(KernelState),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
