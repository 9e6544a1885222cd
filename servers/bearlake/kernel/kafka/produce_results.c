/* The outcomes of requests that were taken together, and their responses. Contract: produce_results.py. */
#include "kafka/produce_results.h"

int produce_results_check_unused(const ProduceResults *call)
{
    if (call->request_count == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the call has requests");
    return -1;
}

void produce_results_clear(ProduceResults *call)
{
    PyMem_Free(call->requests);
    PyMem_Free(call->places);
    call->requests = NULL;
    call->places = NULL;
    call->request_count = 0;
    Py_CLEAR(call->topics);
    results_reset(&call->base, 0);
}

static int get_answer(const void *source, Py_ssize_t at, Answer *answer)
{
    const ProduceResults *call = source;
    const Outcome *outcome = &call->base.outcomes[at];
    *answer = (Answer){
        .topic = PyList_GET_ITEM(call->topics, call->places[at].topic),
        .index = call->places[at].index,
        .base_offset = outcome->base_offset,
        .append_time = -1,
        .log_start = outcome->start_offset,
    };
    return 0;
}

static PyObject *produce_frames(PyObject *self, PyObject *unused)
{
    const ProduceResults *call = (ProduceResults *)self;
    for (Py_ssize_t at = 0; at < call->base.count; at++)
        if (call->base.outcomes[at].verdict != 0)
            Py_RETURN_NONE;
    ResponseWriter *writer = responses_new();
    PyObject *frames = NULL;
    Answers answers = {call, get_answer, 0, 0};
    Py_ssize_t at = 0;
    for (; writer != NULL && at < call->request_count; at++) {
        answers.end = answers.start + call->requests[at].batch_count;
        if (responses_add(writer, call->version, call->requests[at].correlation_id, &answers, 0) < 0)
            break;
        answers.start = answers.end;
    }
    if (writer != NULL && at == call->request_count)
        frames = responses_bytes(writer);
    if (writer != NULL)
        responses_free(writer);
    return frames;
}

/* The request's correlation id, places and outcomes, or NULL with an exception set. */
static PyObject *request_at(const ProduceResults *call, const Request *request, Py_ssize_t start)
{
    PyObject *places = PyList_New(request->batch_count), *outcomes = PyList_New(request->batch_count);
    for (Py_ssize_t at = 0; places != NULL && outcomes != NULL && at < request->batch_count; at++) {
        const Place *place = &call->places[start + at];
        PyObject *named = Py_BuildValue("Oi", PyList_GET_ITEM(call->topics, place->topic), place->index);
        PyObject *outcome = PySequence_GetItem((PyObject *)call, start + at);
        if (named == NULL || outcome == NULL) {
            Py_XDECREF(named);
            Py_XDECREF(outcome);
            Py_CLEAR(places);
            break;
        }
        PyList_SET_ITEM(places, at, named);
        PyList_SET_ITEM(outcomes, at, outcome);
    }
    if (places != NULL && outcomes != NULL)
        return Py_BuildValue("iNN", request->correlation_id, places, outcomes);
    Py_XDECREF(places);
    Py_XDECREF(outcomes);
    return NULL;
}

static PyObject *produce_requests(PyObject *self, PyObject *unused)
{
    const ProduceResults *call = (ProduceResults *)self;
    PyObject *requests = PyList_New(call->request_count);
    Py_ssize_t start = 0;
    for (Py_ssize_t at = 0; requests != NULL && at < call->request_count; at++) {
        PyObject *request = request_at(call, &call->requests[at], start);
        start += call->requests[at].batch_count;
        if (request == NULL)
            Py_CLEAR(requests);
        else
            PyList_SET_ITEM(requests, at, request);
    }
    return requests;
}

static int produce_init(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    if (((ProduceResults *)self)->request_count > 0 || PyTuple_GET_SIZE(arguments) != 1) {
        PyErr_SetString(PyExc_TypeError, "ProduceResults() takes the outcome of batches that have none");
        return -1;
    }
    PyObject *base = Py_BuildValue("iO", 0, PyTuple_GET_ITEM(arguments, 0));
    const int outcome = base == NULL ? -1 : results_init(self, base, keywords);
    Py_XDECREF(base);
    return outcome;
}

static void produce_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    produce_results_clear((ProduceResults *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *get_request_count(PyObject *self, void *unused)
{
    return PyLong_FromSsize_t(((ProduceResults *)self)->request_count);
}

PyObject *make_produce_results_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"frames", produce_frames, METH_NOARGS, "Native twin of bearlake.kernel.fallback.ProduceResults."},
        {"requests", produce_requests, METH_NOARGS, "Native twin of bearlake.kernel.fallback.ProduceResults."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef properties[] = {
        {"request_count", get_request_count, NULL, "Requests that were taken.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_init, (void *)produce_init}, {Py_tp_dealloc, (void *)produce_dealloc}, {Py_tp_methods, methods},
        {Py_tp_getset, properties},         {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.ProduceResults",
        .basicsize = sizeof(ProduceResults),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, state_of(module)->results_type);
}
