/* Takes the Produce requests of one client for one topic, without a question. Contract: binding.py. */
#include "kafka/intake.h"

/* binding.ProduceBinding */
typedef struct {
    PyObject_HEAD
    int version;
    int64_t size_max;
    PyObject *lead;  /* bytes */
    PyObject *topic; /* str, or from version 13 on bytes */
    Rules rules;     /* its times are relative to now */
    uint8_t stream_id[STREAM_ID_BYTES];
} ProduceBinding;

static int64_t later(int64_t time, int64_t now_ms)
{
    int64_t sum;
    return __builtin_add_overflow(time, now_ms, &sum) ? (now_ms < 0 ? INT64_MIN : INT64_MAX) : sum;
}

int binding_take(PyObject *self, PyObject *const *from, const BindingLimits *limits, IntakeEnd *found)
{
    const ProduceBinding *binding = (ProduceBinding *)self;
    Intake intake = {
        .state = PyType_GetModuleState(Py_TYPE(self)),
        .lead = (const uint8_t *)PyBytes_AS_STRING(binding->lead),
        .lead_size = PyBytes_GET_SIZE(binding->lead),
        .version = binding->version,
        .size_max = binding->size_max,
        .count_max = limits->count_max,
        .check_left = limits->check_max,
        .topic = binding->topic,
        .has_rules = true,
        .rules = binding->rules,
    };
    memcpy(intake.stream_id, binding->stream_id, STREAM_ID_BYTES);
    intake.rules.earliest = later(intake.rules.earliest, limits->now_ms);
    intake.rules.latest = later(intake.rules.latest, limits->now_ms);
    Py_INCREF(self); /* acquiring the hold runs Python code */
    const int outcome = intake_take(&intake, from, limits->seen, found);
    Py_DECREF(self);
    return outcome;
}

static PyObject *binding_method_take(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    enum { COUNT_MAX = INTAKE_ARGUMENTS, CHECK_MAX, NOW_MS, SEEN, ARGUMENTS };
    BindingLimits limits;
    IntakeEnd end;
    if (check_arguments("take", count, ARGUMENTS, ARGUMENTS) < 0 || to_int64(arguments[COUNT_MAX], &limits.count_max) < 0
        || to_int64(arguments[CHECK_MAX], &limits.check_max) < 0 || to_int64(arguments[NOW_MS], &limits.now_ms) < 0
        || to_int64(arguments[SEEN], &limits.seen) < 0 || binding_take(self, arguments, &limits, &end) < 0)
        return NULL;
    return Py_BuildValue("nLL", end.at, (long long)(end.is_full ? -1 : end.need), (long long)end.checked);
}

static PyObject *binding_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    KernelState *state = PyType_GetModuleState(type);
    PyObject *version, *lead, *size_max, *topic, *tuple;
    int64_t number, most;
    const uint8_t *stream_id;
    Rules rules;
    if (!PyArg_ParseTuple(arguments, "OO!OOO:ProduceBinding", &version, &PyBytes_Type, &lead, &size_max, &topic, &tuple)
        || to_int64(version, &number) < 0 || to_int64(size_max, &most) < 0 || to_rules(tuple, &rules, &stream_id) < 0)
        return NULL;
    if (number < 3 || number > 13)
        return PyErr_Format(state->unsupported, "Produce version %S; supported: 3-13", version);
    if (number < TOPIC_IDS ? !PyUnicode_Check(topic) : !PyBytes_Check(topic))
        return PyErr_Format(PyExc_TypeError, "a topic is a str, or from version 13 on bytes");
    ProduceBinding *binding = (ProduceBinding *)type->tp_alloc(type, 0);
    if (binding == NULL)
        return NULL;
    binding->version = (int)number;
    binding->size_max = most;
    binding->lead = Py_NewRef(lead);
    binding->topic = Py_NewRef(topic);
    binding->rules = rules;
    memcpy(binding->stream_id, stream_id, STREAM_ID_BYTES);
    return (PyObject *)binding;
}

static void binding_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(((ProduceBinding *)self)->lead);
    Py_CLEAR(((ProduceBinding *)self)->topic);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *make_produce_binding_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"take", (PyCFunction)(void (*)(void))binding_method_take, METH_FASTCALL, "Native twin of bearlake.kernel.fallback.ProduceBinding."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)binding_new},
        {Py_tp_dealloc, (void *)binding_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.ProduceBinding",
        .basicsize = sizeof(ProduceBinding),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
