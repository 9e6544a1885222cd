/* A partition of an object whose batches get offsets: its state, and what the decisions so far make of it. */
#ifndef BEARLAKE_LOG_VISITS_H
#define BEARLAKE_LOG_VISITS_H

#include "log/write_buffer.h"

/* The state before, and the end, size and changed producers after the batches decided so far. */
typedef struct {
    PyObject *key, *state;
    PyObject *known;     /* the dict of the state's producers */
    PyObject *producers; /* dict of the changed producers, or NULL */
    int64_t partition, start, end, size, epoch;
    bool is_open, is_changed;
} Visit;

/* Reads the state of visit->partition from a mapping; may run Python code. -1 with an exception set: then clear the visit. */
int visit_read(KernelState *state, PyObject *partitions, Visit *visit);
void visit_clear(Visit *visit);
PyObject *visit_known(const Visit *visit, int64_t producer_id); /* of a producer: borrowed; NULL, with an exception set or not */
/* Whether the batch (fields of a BatchCommit) is the next one of a producer of which that is remembered; -1 with an exception set. */
int producer_is_next(PyObject *known, const int64_t *batch);
/* The same for a named producer, which may skip sequences; `partition_epoch` fences older ones. */
int named_is_next(PyObject *known, const int64_t *batch, int64_t partition_epoch);
/* What is remembered of the producer after that batch, whose first record gets the offset `end`; NULL with an exception set. */
PyObject *producer_after(PyObject *known, PyObject *now_ms, const int64_t *batch, int64_t end);
/* Applies what was decided to the state, and adds the state to the mapping `changed`. -1 with an exception set. */
int visit_adopt(KernelState *state, const Visit *visit, PyObject *position, PyObject *changed);

#endif
