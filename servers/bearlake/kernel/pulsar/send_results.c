/* The outcomes of SENDs that were taken together, and their receipts. Contract: send_results.py. */
#include "pulsar/send_results.h"

static int check_unused(const SendResults *call)
{
    if (call->send_count == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the call has SENDs");
    return -1;
}

SendResults *to_send_results(KernelState *state, PyObject *value)
{
    if (!PyObject_TypeCheck(value, (PyTypeObject *)state->send_results_type)) {
        PyErr_SetString(PyExc_TypeError, "SENDs are taken into SendResults");
        return NULL;
    }
    return check_unused((SendResults *)value) < 0 ? NULL : (SendResults *)value;
}

int send_results_set(SendResults *call, Send *sends, Py_ssize_t count)
{
    if (check_unused(call) < 0 || results_reset(&call->base, count) < 0)
        return -1;
    call->sends = sends;
    call->send_count = count;
    return 0;
}

void send_results_clear(SendResults *call)
{
    PyMem_Free(call->sends);
    call->sends = NULL;
    call->send_count = 0;
    results_reset(&call->base, 0);
}

static PyObject *results_receipts(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const SendResults *call = (SendResults *)self;
    ReceiptNames names;
    Output output;
    if (check_arguments("receipts", count, 3, 3) < 0 || to_receipt_names(arguments, &names) < 0)
        return NULL;
    const Py_ssize_t send_count = call->send_count; /* runs no Python code from here on */
    Py_ssize_t at = 0;
    if (!open_output(&output, RECEIPT_BYTES_MAX / 2 * send_count + 1, 0))
        return NULL;
    for (; at < send_count; at++) {
        const Outcome *outcome = &call->base.outcomes[at];
        if (!has_receipt(outcome->verdict, outcome->base_offset))
            break;
        if (!reserve(&output, RECEIPT_BYTES_MAX)) {
            Py_XDECREF(output.bytes);
            return NULL;
        }
        put_receipt(&output.writer, &names, &call->sends[at], outcome->base_offset);
    }
    PyObject *receipts = close_output(&output);
    return receipts == NULL ? NULL : Py_BuildValue("Nn", receipts, at);
}

static int results_init_empty(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    if (((SendResults *)self)->send_count > 0 || PyTuple_GET_SIZE(arguments) != 1) {
        PyErr_SetString(PyExc_TypeError, "SendResults() takes the outcome of batches that have none");
        return -1;
    }
    PyObject *base = Py_BuildValue("iO", 0, PyTuple_GET_ITEM(arguments, 0));
    const int outcome = base == NULL ? -1 : results_init(self, base, keywords);
    Py_XDECREF(base);
    return outcome;
}

static void results_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    send_results_clear((SendResults *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *make_send_results_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"receipts", (PyCFunction)(void (*)(void))results_receipts, METH_FASTCALL, "Native twin of bearlake.kernel.fallback.SendResults."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_init, (void *)results_init_empty},
        {Py_tp_dealloc, (void *)results_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.SendResults",
        .basicsize = sizeof(SendResults),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, state_of(module)->results_type);
}
