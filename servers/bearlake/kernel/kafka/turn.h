/* The state of a connection that a turn of the event loop reads and changes. Contract: turn.py. */
#ifndef BEARLAKE_KAFKA_TURN_H
#define BEARLAKE_KAFKA_TURN_H

#include "kafka/intake.h"

/* turn.ProduceTurn: the attributes of the connection that a turn reads and changes. */
typedef struct {
    PyObject_HEAD
    const KernelState *state;
    Py_ssize_t low, high, need, asked, last_bytes;
    long long arrived, emptied, last_arrived; /* log positions */
    Py_ssize_t request_count, ready_bytes, waiting_bytes;
    double frame_since, last_active;
    char is_encrypted, is_finishing, is_frugal, is_logging_in, is_reading_paused, is_write_paused, waits_for_budget;
    /* Any of these may be NULL, which is None. */
    PyObject *binding, *fetches, *produce_tail, *quota_wait, *seen, *session, *slab, *slots, *waiter, *wish, *world;
} ProduceTurn;

#define WORLD_LAYOUT(FIELD) \
    FIELD(GENERATION, generation) FIELD(BUFFER_WITH_ROOM, buffer_with_room) FIELD(ADDED, added) FIELD(CALLS, calls) \
    FIELD(OUTCOME, outcome) FIELD(NOW_MS, now_ms) FIELD(TIME, time) FIELD(BUDGET, budget) FIELD(DOING, doing) FIELD(WHAT, what) \
    FIELD(RECEIVED, received) FIELD(REQUESTS, requests) FIELD(REQUEST_COUNT_MAX, request_count_max) \
    FIELD(READY_BYTES_MAX, ready_bytes_max) FIELD(WAITING_BYTES_MAX, waiting_bytes_max) FIELD(READ_BYTES, read_bytes) \
    FIELD(ROOM_BYTES_MIN, room_bytes_min) FIELD(SLAB_BYTES_MIN, slab_bytes_min) FIELD(SLAB_BYTES_MAX, slab_bytes_max)

#define PLACE_OF(place, name) WORLD_##place,
enum { WORLD_LAYOUT(PLACE_OF) WORLD_FIELDS };
#undef PLACE_OF

/* A connection, and what a turn needs beside its attributes. The world lives as long as the turn. */
typedef struct {
    ProduceTurn *self;
    PyObject *world, *const *names;
} Turn;

static inline PyObject *known(const Turn *turn, int place) { return PyTuple_GET_ITEM(turn->world, place); }

static inline int get_limit(const Turn *turn, int place, int64_t *out) { return to_int64(known(turn, place), out); }

static inline bool is_none(PyObject *value) { return value == NULL || value == Py_None; }

/* turn_state.c: all return -1 with an exception set */
int get_number(PyObject *object, PyObject *name, int64_t *out);
int get_truth(PyObject *object, PyObject *name);
int get_answer(PyObject *self, PyObject *name);                      /* the truth of what a method returns */
int call_method(PyObject *self, PyObject *name);                     /* without arguments */
int count_up(PyObject *counter, PyObject *name, Py_ssize_t count);   /* counter.value += count */
int turn_must_wait(const Turn *turn);                                /* as ProduceTurn._must_wait */
int turn_lacks_room(const Turn *turn, int64_t size);                 /* as Receiver._lacks_room; `size`: the slab's */
int turn_lacks_room_now(const Turn *turn);                           /* as above, of the present slab; 0 if there is none */
int turn_note_arrival(const Turn *turn, Py_ssize_t count);           /* as Receiver._received */

/* turn_taking.c: takes bound requests: 1; 0 if something is left to do for the bytes that have arrived; -1 with an exception set */
int turn_takes_bound(const Turn *turn);

#endif
