/* Takes the bound requests of a connection into the write buffer. Contract: turn.py. */
#include "kafka/turn.h"

static int to_double(PyObject *number, double *out)
{
    if (number == NULL)
        return -1;
    *out = PyFloat_AsDouble(number);
    return *out == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* The open buffer, or None if no bound requests may be taken now. */
static PyObject *buffer_for(const Turn *turn, PyObject *binding)
{
    const ProduceTurn *self = turn->self;
    int64_t bound, present;
    if (get_number(binding, turn->names[NAME_generation], &bound) < 0
        || get_number(known(turn, WORLD_GENERATION), turn->names[NAME_number], &present) < 0)
        return NULL;
    int outcome = bound == present && !is_none(self->slab) && is_none(self->produce_tail);
    if (outcome > 0 && !is_none(self->session))
        outcome = get_truth(self->session, turn->names[NAME_is_logged_in]);
    if (outcome > 0)
        outcome = 1 - turn_must_wait(turn); /* 2 if that has failed */
    if (PyErr_Occurred())
        return NULL;
    return outcome > 0 ? PyObject_CallNoArgs(known(turn, WORLD_BUFFER_WITH_ROOM)) : Py_NewRef(Py_None);
}

/* Puts requests that were taken in the connection's order, and hands them to the write path. */
static int queue_calls(const Turn *turn, PyObject *binding, PyObject *calls)
{
    ProduceTurn *self = turn->self;
    const Py_ssize_t count = ((ProduceResults *)calls)->request_count;
    PyObject *caller = PyObject_GetAttr(binding, turn->names[NAME_caller]);
    PyObject *const began[] = {calls, (PyObject *)self, caller};
    PyObject *done = caller == NULL ? NULL : PyObject_VectorcallMethod(turn->names[NAME_began], began, 3, NULL);
    Py_XDECREF(caller);
    Py_XDECREF(done);
    if (done == NULL)
        return -1;
    PyObject *slots = Py_NewRef(self->slots == NULL ? Py_None : self->slots);
    done = PyObject_CallMethodOneArg(slots, turn->names[NAME_append], calls);
    Py_DECREF(slots);
    Py_XDECREF(done);
    if (done == NULL)
        return -1;
    self->request_count += count;
    if (count_up(known(turn, WORLD_REQUESTS), turn->names[NAME_value], count) < 0)
        return -1;
    done = PyObject_CallOneArg(known(turn, WORLD_ADDED), calls);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int read_limits(const Turn *turn, BindingLimits *limits)
{
    PyObject *now = PyObject_CallNoArgs(known(turn, WORLD_NOW_MS));
    const int outcome = now == NULL || to_int64(now, &limits->now_ms) < 0
            || get_limit(turn, WORLD_REQUEST_COUNT_MAX, &limits->count_max) < 0
            || get_number(known(turn, WORLD_BUDGET), turn->names[NAME_left], &limits->check_max) < 0
        ? -1
        : 0;
    Py_XDECREF(now);
    limits->count_max -= turn->self->request_count;
    limits->seen = turn->self->arrived;
    return outcome;
}

/* Takes bound requests into the open buffer, and moves `low` behind them. */
static int take_calls(const Turn *turn, PyObject *requests, PyObject *buffer, PyObject *calls, IntakeEnd *found)
{
    ProduceTurn *self = turn->self;
    BindingLimits limits;
    PyObject *slab = Py_NewRef(self->slab == NULL ? Py_None : self->slab);
    PyObject *view = PyObject_GetAttr(slab, turn->names[NAME_view]);
    PyObject *low = PyLong_FromSsize_t(self->low), *high = PyLong_FromSsize_t(self->high);
    PyObject *const from[INTAKE_ARGUMENTS] = {buffer, calls, view, slab, low, high};
    int outcome = view == NULL || low == NULL || high == NULL || read_limits(turn, &limits) < 0 ? -1 : 0;
    if (outcome == 0)
        outcome = binding_take(requests, from, &limits, found);
    Py_DECREF(slab);
    Py_XDECREF(view);
    Py_XDECREF(low);
    Py_XDECREF(high);
    if (outcome < 0)
        return -1;
    self->low = found->at;
    if (found->checked == 0)
        return 0;
    PyObject *spent = PyObject_CallMethod(known(turn, WORLD_BUDGET), "spend", "L", (long long)found->checked);
    Py_XDECREF(spent);
    return spent == NULL ? -1 : 0;
}

/* Takes bound requests into the open buffer. `need`: what ProduceBinding.take knows of the next request. */
static int take_into(const Turn *turn, PyObject *binding, PyObject *buffer, int64_t *need)
{
    IntakeEnd end;
    const int begun = PyObject_SetAttr(known(turn, WORLD_DOING), turn->names[NAME_request], known(turn, WORLD_WHAT));
    PyObject *requests = begun < 0 ? NULL : PyObject_GetAttr(binding, turn->names[NAME_requests]);
    PyObject *calls = requests == NULL ? NULL : PyObject_CallOneArg(known(turn, WORLD_CALLS), known(turn, WORLD_OUTCOME));
    int outcome = calls == NULL ? -1 : take_calls(turn, requests, buffer, calls, &end);
    if (outcome == 0 && ((ProduceResults *)calls)->request_count > 0)
        outcome = queue_calls(turn, binding, calls);
    Py_XDECREF(requests);
    Py_XDECREF(calls);
    *need = outcome < 0 ? 0 : end.is_full ? -1 : end.need;
    return outcome;
}

/* As Receiver._release_consumed, which does the rare part. All frames are consumed. */
static int release_consumed(const Turn *turn)
{
    ProduceTurn *self = turn->self;
    int64_t size, least, holders;
    if (is_none(self->slab))
        return 0;
    const int is_extra = get_truth(self->slab, turn->names[NAME_is_extra]);
    if (is_extra < 0 || get_number(self->slab, turn->names[NAME_size], &size) < 0 || get_limit(turn, WORLD_SLAB_BYTES_MIN, &least) < 0)
        return -1;
    if (is_extra || size > least)
        return call_method((PyObject *)self, turn->names[NAME__release_consumed]);
    if (get_number(self->slab, turn->names[NAME_holders], &holders) < 0)
        return -1;
    if (holders == 1)
        self->low = self->high = 0;
    return 0;
}

/* Notes what was taken from position `first` on, and paces: 1; 0 if something is left to do for the bytes that have arrived. */
static int turn_end(const Turn *turn, Py_ssize_t first, int64_t need)
{
    ProduceTurn *self = turn->self;
    double now;
    int64_t counts;
    PyObject *time = PyObject_CallNoArgs(known(turn, WORLD_TIME));
    const int is_told = time == NULL || to_double(time, &now) < 0 || get_limit(turn, WORLD_REQUEST_COUNT_MAX, &counts) < 0 ? -1 : 0;
    Py_XDECREF(time);
    if (is_told < 0)
        return -1;
    self->last_active = now;
    if (self->low != first)
        self->frame_since = 0.0; /* what is left has just begun to arrive */
    else if (need == 0)
        Py_CLEAR(self->binding); /* the next request is another one, and so may be those behind it */
    const bool is_empty = self->low == self->high;
    if (self->request_count >= counts || (need <= 0 && !is_empty))
        return 0;
    self->need = (Py_ssize_t)need;
    if (is_empty && release_consumed(turn) < 0)
        return -1;
    if (!is_empty && self->frame_since == 0.0)
        self->frame_since = now;
    const int must_pace = self->is_reading_paused ? 1 : turn_lacks_room_now(turn);
    return must_pace < 0 || (must_pace && call_method((PyObject *)self, turn->names[NAME__pace]) < 0) ? -1 : 1;
}

/* Takes bound requests: 1; 0 if something is left to do for the bytes that have arrived. */
int turn_takes_bound(const Turn *turn)
{
    if (is_none(turn->self->binding))
        return 0;
    PyObject *binding = Py_NewRef(turn->self->binding);
    PyObject *buffer = buffer_for(turn, binding);
    int outcome = buffer == NULL ? -1 : buffer != Py_None;
    if (outcome > 0) {
        const Py_ssize_t first = turn->self->low;
        int64_t need;
        outcome = take_into(turn, binding, buffer, &need) < 0 ? -1 : turn_end(turn, first, need);
    }
    Py_DECREF(binding);
    Py_XDECREF(buffer);
    return outcome;
}
