/* Takes the Produce requests of one client for one topic, without a question. Contract: binding.py. */
#include "kafka/intake.h"

/* binding.ProduceBinding */
typedef struct {
    PyObject_HEAD
    int version;
    int64_t size_max;
    PyObject *lead;  /* bytes */
    PyObject *topic; /* str, or from version 13 on bytes */
    PyObject *transactional_id; /* str, or NULL */
    int64_t producer_id, producer_flags;
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
        .transactional_size = -1,
        .producer_id = binding->producer_id,
        .producer_flags = binding->producer_flags,
        .has_rules = true,
        .rules = binding->rules,
    };
    if (binding->transactional_id != NULL) {
        Py_ssize_t size;
        intake.transactional_id = (const uint8_t *)PyUnicode_AsUTF8AndSize(binding->transactional_id, &size);
        if (intake.transactional_id == NULL)
            return -1;
        intake.transactional_size = size;
    }
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

/* Reads a kafka.BoundTransaction, or None. -1 with an exception set. */
static int to_transaction(PyObject *value, PyObject **transactional_id, int64_t *producer)
{
    enum { ID, PRODUCER_ID, FLAGS, FIELDS };
    *transactional_id = NULL;
    producer[0] = producer[1] = -1;
    if (value == Py_None)
        return 0;
    if (check_tuple(value, FIELDS, "a transaction") < 0 || to_int64(field(value, PRODUCER_ID), &producer[0]) < 0
        || to_int64(field(value, FLAGS), &producer[1]) < 0)
        return -1;
    *transactional_id = field(value, ID);
    if (PyUnicode_Check(*transactional_id) && producer[0] >= 0 && producer[1] >= 0)
        return PyUnicode_AsUTF8(*transactional_id) == NULL ? -1 : 0;
    PyErr_SetString(PyExc_ValueError, "a transaction: a str, a producer id and flags");
    return -1;
}

static PyObject *binding_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    KernelState *state = PyType_GetModuleState(type);
    PyObject *version, *lead, *size_max, *topic, *tuple, *transaction, *transactional_id;
    int64_t number, most, producer[2];
    const uint8_t *stream_id;
    Rules rules;
    if (!PyArg_ParseTuple(arguments, "OO!OOOO:ProduceBinding", &version, &PyBytes_Type, &lead, &size_max, &topic, &tuple,
                          &transaction)
        || to_int64(version, &number) < 0 || to_int64(size_max, &most) < 0 || to_rules(tuple, &rules, &stream_id) < 0
        || to_transaction(transaction, &transactional_id, producer) < 0)
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
    binding->transactional_id = Py_XNewRef(transactional_id);
    binding->producer_id = producer[0];
    binding->producer_flags = producer[1];
    binding->rules = rules;
    memcpy(binding->stream_id, stream_id, STREAM_ID_BYTES);
    return (PyObject *)binding;
}

static void binding_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(((ProduceBinding *)self)->lead);
    Py_CLEAR(((ProduceBinding *)self)->topic);
    Py_CLEAR(((ProduceBinding *)self)->transactional_id);
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
