/* The write buffer, for the rooms above: outcomes of calls, and batches on their way into a WAL object. Contract: buffer.py. */
#ifndef BEARLAKE_LOG_BUFFER_H
#define BEARLAKE_LOG_BUFFER_H

#include "log/log.h"

#define STREAM_ID_BYTES 16

/* log.ProduceOutcome */
typedef struct {
    int64_t verdict;
    int64_t base_offset;
    int64_t start_offset;
} Outcome;

/* buffer.Results, the base of other types */
typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    Py_ssize_t waiting;
    Outcome *outcomes; /* `single`, or on the heap */
    Outcome single;
} Results;

int results_reset(Results *results, Py_ssize_t count); /* outcome 0 is kept, and copied to the others */
int results_init(PyObject *self, PyObject *arguments, PyObject *keywords);
void results_free(Results *results); /* the outcomes */
PyObject *make_results_type(PyObject *module);

/* A batch of a buffer. */
typedef struct {
    int64_t row[COMMIT_FIELDS]; /* a BatchCommit; its position is known once the buffer is joined */
    uint8_t stream_id[STREAM_ID_BYTES];
    const uint8_t *bytes;
    Results *results;
    Py_ssize_t place; /* in the results */
    uint32_t next;    /* of the same partition */
} Batch;

typedef struct WriteBuffer WriteBuffer;

PyObject *make_write_buffer_type(PyObject *module);
WriteBuffer *to_write_buffer(KernelState *state, PyObject *value); /* borrowed; NULL with an exception set if it is none, or sealed */
int64_t write_buffer_room(const WriteBuffer *buffer);              /* bytes until it is full */
int64_t write_buffer_size_max(const WriteBuffer *buffer);
/* Keeps `memory` until the buffer is joined; the hold, or NULL, is acquired for `count` batches. -1 with an exception set. */
int write_buffer_keep(WriteBuffer *buffer, PyObject *memory, PyObject *hold, Py_ssize_t count);
/* Adds a batch, whose memory is kept. `seen`: as in WriteBuffer.add. -1 with an exception set. */
int write_buffer_push(WriteBuffer *buffer, const Batch *batch, int64_t seen);
/* Makes room for `count` batches, so that as many calls of write_buffer_push succeed. */
int write_buffer_reserve(WriteBuffer *buffer, Py_ssize_t count);

#endif
