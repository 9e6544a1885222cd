/* Takes Produce requests from a receive buffer into the write buffer. Contract: intake.py. */
#ifndef BEARLAKE_KAFKA_INTAKE_H
#define BEARLAKE_KAFKA_INTAKE_H

#include "kafka/produce_results.h"

/* The common properties of the requests, and limits. */
typedef struct {
    KernelState *state;
    const uint8_t *frames;
    const uint8_t *lead;
    Py_ssize_t lead_size;
    int version;
    int64_t size_max, count_max;
    int64_t check_left; /* bytes of compressed records that may still be checked */
    PyObject *admission; /* NULL: nobody is asked, and what is not plain is not taken */
    PyObject *topic;     /* NULL, or the topic whose rules are known from the beginning */
    const uint8_t *transactional_id;
    int64_t transactional_size; /* of the id that needs no question; -1: requests without an id */
    int64_t producer_id;        /* whose transactional batches get `producer_flags` without a question; -1: of none */
    int64_t producer_flags;
    ProduceResults *call;
    bool has_rules; /* of the newest topic */
    Rules rules;
    uint8_t stream_id[STREAM_ID_BYTES];
    bool has_failed; /* an exception of the admission is set, which the caller raises */
} Intake;

/* What was taken. */
typedef struct {
    Py_ssize_t at;   /* the position behind the last request that was taken */
    bool is_full;    /* the next request needs another buffer */
    int64_t need;    /* bytes of the next request, with its length, if only its end is missing; otherwise 0 */
    int64_t checked; /* bytes of compressed records that were checked */
} IntakeEnd;

#define INTAKE_ARGUMENTS 6 /* buffer, call, memory, hold, start, end: of the functions that take requests */

/* Takes requests as these arguments say, of which `intake` has the rest. -1 with an exception set. */
int intake_take(Intake *intake, PyObject *const *from, int64_t seen, IntakeEnd *found);

/* What a call of ProduceBinding.take has besides these arguments. */
typedef struct {
    int64_t count_max, check_max, now_ms, seen;
} BindingLimits;

/* binding.c: as ProduceBinding.take. -1 with an exception set. */
int binding_take(PyObject *binding, PyObject *const *from, const BindingLimits *limits, IntakeEnd *found);

#endif
