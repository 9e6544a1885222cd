/* Types shared by the files of the write buffer and by the rooms above: outcomes of calls, and batches on their way into a WAL object.
   Contract: buffer.py. */
#ifndef BEARLAKE_LOG_WRITE_BUFFER_H
#define BEARLAKE_LOG_WRITE_BUFFER_H

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

int results_reset(Results *results, Py_ssize_t count); /* outcome 0 is kept, and copied to the others; runs no Python code */
int to_outcome(PyObject *value, Outcome *out); /* -1 with an exception set; may run Python code */
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
    bool is_checked;  /* its header has the checksum of its bytes */
    uint32_t source;  /* the memory that `bytes` is in */
    uint32_t next;    /* of the same partition */
} Batch;

/* The batches of a partition, linked in order of arrival. */
typedef struct {
    int64_t partition;
    int64_t length;
    uint8_t stream_id[STREAM_ID_BYTES];
    uint32_t first, last, count;
} Slice;

/* Memory that batches point into. */
typedef struct {
    Py_buffer view;
    PyObject *hold; /* or NULL */
    Py_ssize_t count;
} Source;

/* An array that grows. */
typedef struct {
    void *items;
    size_t room;
} Array;

#define NONE UINT32_MAX

/* buffer.WriteBuffer */
typedef struct {
    PyObject_HEAD
    int64_t size, size_max, count_max, seen;
    int64_t flags; /* those that any batch has */
    bool is_joined;  /* the batches have their positions, and no more are added */
    bool is_reading; /* index() reads the batches where they arrived */
    uint32_t batch_count, slice_count, source_count, table_size;
    Array batches, slices, sources;
    uint32_t *table; /* slices by hash; NONE: free */
    uint32_t *order; /* once joined: the batches, as in the object */
} WriteBuffer;

static inline Batch *batch_at(const WriteBuffer *buffer, uint32_t at) { return (Batch *)buffer->batches.items + at; }
static inline Slice *slice_at(const WriteBuffer *buffer, uint32_t at) { return (Slice *)buffer->slices.items + at; }
static inline Source *source_at(const WriteBuffer *buffer, uint32_t at) { return (Source *)buffer->sources.items + at; }

/* -1 with ValueError set if the buffer is joined. */
static inline int write_buffer_check_open(const WriteBuffer *buffer)
{
    if (!buffer->is_joined)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the buffer is joined already");
    return -1;
}

PyObject *make_write_buffer_type(PyObject *module);
WriteBuffer *to_write_buffer(KernelState *state, PyObject *value); /* borrowed; NULL with an exception set if it is none, or sealed */
bool write_buffer_fits(const WriteBuffer *buffer, int64_t bytes, int64_t count); /* whether there is room for `count` batches */
bool write_buffer_may_ever_fit(const WriteBuffer *buffer, int64_t bytes, int64_t count); /* as above, if the buffer were empty */
/* Keeps the memory of `count` batches until the buffer is joined: takes `view`, whose owner is NULL then, and acquires the hold, unless that
   is None. Acquiring runs Python code. -1 with an exception set, and nothing kept, also if that code joined the buffer. */
int write_buffer_keep(WriteBuffer *buffer, Py_buffer *view, PyObject *hold, Py_ssize_t count);
/* Adds a batch, whose memory is kept. `seen`: as in WriteBuffer.add. -1 with an exception set. */
int write_buffer_push(WriteBuffer *buffer, const Batch *batch, int64_t seen);
int write_buffer_reserve(WriteBuffer *buffer, Py_ssize_t count); /* makes room for `count` batches */

/* partitions.c */
int write_buffer_grow(Array *array, size_t item_bytes, size_t count); /* room for `count` items; -1 with an exception set */
uint32_t write_buffer_slice(WriteBuffer *buffer, const Batch *batch); /* of the batch's partition; NONE with an exception set */

/* object.c: methods of WriteBuffer */
PyObject *write_buffer_join(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *write_buffer_arrange(PyObject *self, PyObject *front);
PyObject *write_buffer_release(PyObject *self, PyObject *unused);
PyObject *write_buffer_index(PyObject *self, PyObject *object);
PyObject *write_buffer_commits(PyObject *self, PyObject *unused);
void write_buffer_release_hold(PyObject *hold, Py_ssize_t count); /* an error is reported as unraisable */

#endif
