/* What the event loop calls for a connection whose Produce requests are bound, without a Python frame of its own. Contract: turn.py. */
#include "kafka/turn.h"

#include <structmember.h>

PyObject *import_turn_world_type(void)
{
#define NAME_OF(place, name) #name,
    static const char *const names[] = {WORLD_LAYOUT(NAME_OF)};
#undef NAME_OF
    return import_fields("bearlake.kernel.kafka", "TurnWorld", names, WORLD_FIELDS);
}

static int turn_begin(Turn *turn, PyObject *self)
{
    const KernelState *state = ((ProduceTurn *)self)->state;
    PyObject *world = ((ProduceTurn *)self)->world;
    if (is_none(world) || !PyObject_TypeCheck(world, (PyTypeObject *)state->turn_world_type)) {
        PyErr_SetString(PyExc_TypeError, "a turn needs a TurnWorld");
        return -1;
    }
    *turn = (Turn){(ProduceTurn *)self, Py_NewRef(world), state->names};
    return 0;
}

/* -- called by the event loop --------------------------------------------------------------------------------------------------------- */

static int turn_update(const Turn *turn, Py_ssize_t count)
{
    const ProduceTurn *self = turn->self;
    if (turn_note_arrival(turn, count) < 0 || count_up(known(turn, WORLD_RECEIVED), turn->names[NAME_value], count) < 0)
        return -1;
    if (self->high - self->low < self->need) {
        const int is_lacking = turn_lacks_room_now(turn);
        return is_lacking > 0 ? call_method((PyObject *)self, turn->names[NAME__pace]) : is_lacking;
    }
    const int is_done = turn_takes_bound(turn);
    return is_done == 0 ? call_method((PyObject *)self, turn->names[NAME__proceed]) : is_done;
}

/* The rest of the slab, or NULL; without an exception set if the connection has to find room. */
static PyObject *rest_of_slab(const Turn *turn)
{
    ProduceTurn *self = turn->self;
    int64_t size, holders, most;
    if (is_none(self->slab) || self->is_frugal)
        return NULL;
    int is_other = get_truth(self->slab, turn->names[NAME_is_extra]);
    if (is_other != 0 || get_number(self->slab, turn->names[NAME_size], &size) < 0
        || get_number(self->slab, turn->names[NAME_holders], &holders) < 0 || get_limit(turn, WORLD_READ_BYTES, &most) < 0)
        return NULL;
    if (self->low == self->high && holders == 1)
        self->low = self->high = 0;
    if (turn_lacks_room(turn, size) != 0)
        return NULL;
    const int64_t end = most < size - self->high ? self->high + most : size;
    PyObject *from = PyLong_FromSsize_t(self->high), *to = PyLong_FromLongLong(end);
    PyObject *range = from == NULL || to == NULL ? NULL : PySlice_New(from, to, NULL);
    PyObject *slab = Py_NewRef(self->slab == NULL ? Py_None : self->slab);
    PyObject *view = range == NULL ? NULL : PyObject_GetAttr(slab, turn->names[NAME_view]);
    PyObject *rest = view == NULL ? NULL : PyObject_GetItem(view, range);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(range);
    Py_XDECREF(view);
    Py_DECREF(slab);
    self->asked = rest == NULL ? self->asked : (Py_ssize_t)(end - self->high);
    return rest;
}

static PyObject *turn_get_buffer(PyObject *self, PyObject *hint)
{
    Turn turn;
    if (turn_begin(&turn, self) < 0)
        return NULL;
    PyObject *rest = rest_of_slab(&turn);
    if (rest == NULL && !PyErr_Occurred())
        rest = PyObject_CallMethodNoArgs(self, turn.names[NAME__find_room]);
    Py_DECREF(turn.world);
    return rest;
}

static PyObject *turn_buffer_updated(PyObject *self, PyObject *nbytes)
{
    Turn turn;
    int64_t count;
    if (to_int64(nbytes, &count) < 0 || turn_begin(&turn, self) < 0)
        return NULL;
    const int outcome = turn_update(&turn, (Py_ssize_t)count);
    Py_DECREF(turn.world);
    if (outcome < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *turn_method_must_wait(PyObject *self, PyObject *unused)
{
    Turn turn;
    if (turn_begin(&turn, self) < 0)
        return NULL;
    const int outcome = turn_must_wait(&turn);
    Py_DECREF(turn.world);
    return outcome < 0 ? NULL : PyBool_FromLong(outcome);
}

/* -- the type ------------------------------------------------------------------------------------------------------------------------- */

static int turn_traverse(PyObject *object, visitproc visit, void *arg)
{
    const ProduceTurn *self = (ProduceTurn *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->binding);
    Py_VISIT(self->fetches);
    Py_VISIT(self->produce_tail);
    Py_VISIT(self->quota_wait);
    Py_VISIT(self->seen);
    Py_VISIT(self->session);
    Py_VISIT(self->slab);
    Py_VISIT(self->slots);
    Py_VISIT(self->waiter);
    Py_VISIT(self->wish);
    Py_VISIT(self->world);
    return 0;
}

static int turn_clear(PyObject *object)
{
    ProduceTurn *self = (ProduceTurn *)object;
    Py_CLEAR(self->binding);
    Py_CLEAR(self->fetches);
    Py_CLEAR(self->produce_tail);
    Py_CLEAR(self->quota_wait);
    Py_CLEAR(self->seen);
    Py_CLEAR(self->session);
    Py_CLEAR(self->slab);
    Py_CLEAR(self->slots);
    Py_CLEAR(self->waiter);
    Py_CLEAR(self->wish);
    Py_CLEAR(self->world);
    return 0;
}

static PyObject *turn_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    const KernelState *state = state_of_subclass(type);
    ProduceTurn *self = state == NULL ? NULL : (ProduceTurn *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->state = state;
    return (PyObject *)self;
}

static void turn_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    turn_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

#define MEMBER(name, kind, field) {name, kind, offsetof(ProduceTurn, field), 0, NULL}

PyObject *make_produce_turn_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"get_buffer", turn_get_buffer, METH_O, "Native twin of bearlake.kernel.fallback.ProduceTurn."},
        {"buffer_updated", turn_buffer_updated, METH_O, "Native twin of bearlake.kernel.fallback.ProduceTurn."},
        {"_must_wait", turn_method_must_wait, METH_NOARGS, "Native twin of bearlake.kernel.fallback.ProduceTurn."},
        {NULL, NULL, 0, NULL},
    };
    static PyMemberDef members[] = {
        MEMBER("_low", T_PYSSIZET, low),
        MEMBER("_high", T_PYSSIZET, high),
        MEMBER("_need", T_PYSSIZET, need),
        MEMBER("_asked", T_PYSSIZET, asked),
        MEMBER("_last_bytes", T_PYSSIZET, last_bytes),
        MEMBER("arrived", T_LONGLONG, arrived),
        MEMBER("_emptied", T_LONGLONG, emptied),
        MEMBER("_last_arrived", T_LONGLONG, last_arrived),
        MEMBER("_request_count", T_PYSSIZET, request_count),
        MEMBER("_ready_bytes", T_PYSSIZET, ready_bytes),
        MEMBER("_waiting_bytes", T_PYSSIZET, waiting_bytes),
        MEMBER("_frame_since", T_DOUBLE, frame_since),
        MEMBER("_last_active", T_DOUBLE, last_active),
        MEMBER("_is_encrypted", T_BOOL, is_encrypted),
        MEMBER("_is_finishing", T_BOOL, is_finishing),
        MEMBER("_is_frugal", T_BOOL, is_frugal),
        MEMBER("_is_logging_in", T_BOOL, is_logging_in),
        MEMBER("_is_reading_paused", T_BOOL, is_reading_paused),
        MEMBER("_is_write_paused", T_BOOL, is_write_paused),
        MEMBER("_waits_for_budget", T_BOOL, waits_for_budget),
        MEMBER("_binding", T_OBJECT, binding),
        MEMBER("_fetches", T_OBJECT, fetches),
        MEMBER("produce_tail", T_OBJECT, produce_tail),
        MEMBER("quota_wait", T_OBJECT, quota_wait),
        MEMBER("_seen", T_OBJECT, seen),
        MEMBER("session", T_OBJECT, session),
        MEMBER("_slab", T_OBJECT, slab),
        MEMBER("_slots", T_OBJECT, slots),
        MEMBER("waiter", T_OBJECT, waiter),
        MEMBER("_wish", T_OBJECT, wish),
        MEMBER("_world", T_OBJECT, world),
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)turn_new},
        {Py_tp_dealloc, (void *)turn_dealloc},
        {Py_tp_traverse, (void *)turn_traverse},
        {Py_tp_clear, (void *)turn_clear},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.ProduceTurn",
        .basicsize = sizeof(ProduceTurn),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
