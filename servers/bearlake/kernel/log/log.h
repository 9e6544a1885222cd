/* Batches between a request and its commit: the field order of the tuples of bearlake.kernel.log, defined in C only here. Importing the
   module fails if the types have other fields. */
#ifndef BEARLAKE_LOG_H
#define BEARLAKE_LOG_H

#include "native.h"

#define PARTITION_BITS 20 /* log/__init__.py */
#define BATCH_NAMED 4     /* log/__init__.py */
#define FIELD_BYTES 8     /* of a packed row: log/rows.py */

#define APPEND_LAYOUT(FIELD) \
    FIELD(APPEND, PARTITION, partition) \
    FIELD(APPEND, STREAM_ID, stream_id) \
    FIELD(APPEND, BATCH, batch) \
    FIELD(APPEND, HOLD, hold) \
    FIELD(APPEND, RECORD_COUNT, record_count) \
    FIELD(APPEND, MAX_TIMESTAMP, max_timestamp) \
    FIELD(APPEND, PRODUCER_ID, producer_id) \
    FIELD(APPEND, PRODUCER_EPOCH, producer_epoch) \
    FIELD(APPEND, BASE_SEQUENCE, base_sequence) \
    FIELD(APPEND, FLAGS, flags) \
    FIELD(APPEND, EXPECTED_OFFSET, expected_offset) \
    FIELD(APPEND, AFTER_SEQUENCE, after_sequence)

#define COMMIT_LAYOUT(FIELD) \
    FIELD(COMMIT, PARTITION, partition) \
    FIELD(COMMIT, POSITION, position) \
    FIELD(COMMIT, LENGTH, length) \
    FIELD(COMMIT, RECORD_COUNT, record_count) \
    FIELD(COMMIT, MAX_TIMESTAMP, max_timestamp) \
    FIELD(COMMIT, PRODUCER_ID, producer_id) \
    FIELD(COMMIT, PRODUCER_EPOCH, producer_epoch) \
    FIELD(COMMIT, BASE_SEQUENCE, base_sequence) \
    FIELD(COMMIT, FLAGS, flags) \
    FIELD(COMMIT, EXPECTED_OFFSET, expected_offset) \
    FIELD(COMMIT, AFTER_SEQUENCE, after_sequence)

#define PLACE_OF(type, place, name) type##_##place,
enum { APPEND_LAYOUT(PLACE_OF) APPEND_FIELDS };
enum { COMMIT_LAYOUT(PLACE_OF) COMMIT_FIELDS };
#undef PLACE_OF

/* layout.c: a NamedTuple; NULL with an exception set if it has other fields than these */
PyObject *import_fields(const char *module_name, const char *name, const char *const *names, Py_ssize_t count);
/* layout.c: the type bearlake.kernel.log.Append or .BatchCommit; NULL with an exception set if it has other fields */
PyObject *import_append_type(void);
PyObject *import_commit_type(void);

static inline PyObject *field(PyObject *tuple, int at) { return PyTuple_GET_ITEM(tuple, at); }

PyObject *make_offset_assignment_type(PyObject *module);

#endif
