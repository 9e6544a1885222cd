/* The state of a turn: what it reads of the connection and of others. Contract: turn.py, and Receiver for the bytes that have arrived. */
#include "kafka/turn.h"

/* An attribute of an object that one of the connection's attributes refers to: getting it may run Python code, which may change that. */
static PyObject *get_attribute(PyObject *object, PyObject *name)
{
    object = Py_NewRef(object == NULL ? Py_None : object);
    PyObject *value = PyObject_GetAttr(object, name);
    Py_DECREF(object);
    return value;
}

int get_number(PyObject *object, PyObject *name, int64_t *out)
{
    PyObject *value = get_attribute(object, name);
    const int outcome = value == NULL ? -1 : to_int64(value, out);
    Py_XDECREF(value);
    return outcome;
}

int get_truth(PyObject *object, PyObject *name)
{
    PyObject *value = get_attribute(object, name);
    const int truth = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return truth;
}

int count_up(PyObject *counter, PyObject *name, Py_ssize_t count)
{
    PyObject *value = PyObject_GetAttr(counter, name), *more = PyLong_FromSsize_t(count);
    PyObject *sum = value == NULL || more == NULL ? NULL : PyNumber_Add(value, more);
    const int outcome = sum == NULL ? -1 : PyObject_SetAttr(counter, name, sum);
    Py_XDECREF(value);
    Py_XDECREF(more);
    Py_XDECREF(sum);
    return outcome;
}

int get_answer(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_CallMethodNoArgs(self, name);
    const int truth = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return truth;
}

int call_method(PyObject *self, PyObject *name)
{
    PyObject *done = PyObject_CallMethodNoArgs(self, name);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int turn_lacks_room(const Turn *turn, int64_t size)
{
    const ProduceTurn *self = turn->self;
    int64_t most, least;
    if (get_limit(turn, WORLD_SLAB_BYTES_MAX, &most) < 0 || get_limit(turn, WORLD_ROOM_BYTES_MIN, &least) < 0)
        return -1;
    if (self->need && (self->need <= size - self->low || self->need <= most))
        return self->need > size - self->low;
    return size - self->high < least;
}

int turn_lacks_room_now(const Turn *turn)
{
    int64_t size;
    if (is_none(turn->self->slab))
        return 0;
    return get_number(turn->self->slab, turn->names[NAME_size], &size) < 0 ? -1 : turn_lacks_room(turn, size);
}

int turn_note_arrival(const Turn *turn, Py_ssize_t count)
{
    ProduceTurn *self = turn->self;
    if (self->high == self->low)
        self->arrived = self->emptied;
    else if (self->high - self->low <= self->last_bytes)
        self->arrived = self->last_arrived;
    self->last_arrived = self->emptied;
    self->last_bytes = count;
    self->high += count;
    if (is_none(self->slab) || count >= self->asked)
        return 0;
    const int is_empty = self->is_encrypted ? get_answer((PyObject *)self, turn->names[NAME__is_socket_empty]) : 1;
    int64_t position;
    if (is_empty <= 0)
        return is_empty;
    if (get_number(self->seen, turn->names[NAME_position], &position) < 0)
        return -1;
    self->emptied = position;
    return 0;
}

int turn_must_wait(const Turn *turn)
{
    const ProduceTurn *self = turn->self;
    int64_t counts, ready, waiting, fetching;
    if (self->is_write_paused || self->waits_for_budget || self->is_finishing || self->is_logging_in || !is_none(self->quota_wait)
        || !is_none(self->wish))
        return 1;
    if (get_limit(turn, WORLD_REQUEST_COUNT_MAX, &counts) < 0 || get_limit(turn, WORLD_READY_BYTES_MAX, &ready) < 0
        || get_limit(turn, WORLD_WAITING_BYTES_MAX, &waiting) < 0
        || get_number(self->fetches, turn->names[NAME_waiting_bytes], &fetching) < 0)
        return -1;
    if (self->request_count >= counts || self->ready_bytes >= ready || self->waiting_bytes + fetching >= waiting)
        return 1;
    return get_truth(self->waiter, turn->names[NAME_is_waiting]);
}
