/* Shared by all C files: Python's C API, the module's state, big-endian integers, and argument checks. The contract of every function is
   the docstring of its Python twin, in the .py file of the same name. */
#ifndef BEARLAKE_NATIVE_H
#define BEARLAKE_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "positions are 64 bits wide");

/* Names of attributes that the kernel reads from or sets in objects of others. */
#define ATTRIBUTES(NAME) \
    NAME(start) NAME(end) NAME(size) NAME(changed) NAME(tail) NAME(producers) NAME(stream) NAME(is_open) NAME(packed) NAME(width) NAME(epoch) \
    NAME(_find_room) NAME(_is_socket_empty) NAME(_pace) NAME(_proceed) NAME(_release_consumed) NAME(append) NAME(began) NAME(caller) \
    NAME(generation) NAME(holders) NAME(is_extra) NAME(is_logged_in) NAME(is_waiting) NAME(left) NAME(number) \
    NAME(position) NAME(request) NAME(requests) NAME(value) NAME(view) NAME(waiting_bytes)

#define NAME_OF_ATTRIBUTE(name) NAME_##name,
enum { ATTRIBUTES(NAME_OF_ATTRIBUTE) NAME_COUNT };
#undef NAME_OF_ATTRIBUTE

typedef struct Scratch Scratch;

typedef struct {
    PyObject *header_type;        /* bearlake.kernel.batch.BatchHeader */
    PyObject *corrupt;            /* bearlake.errors.Corrupt */
    PyObject *unsupported;        /* bearlake.errors.Unsupported */
    PyObject *too_large;          /* bearlake.errors.TooLarge */
    PyObject *decompress_zstd;    /* bearlake.kernel.batch.zstd.decompress */
    PyObject *columns_type;       /* bearlake.kernel.columns.Columns */
    PyObject *encoded_batch_type; /* bearlake.kernel.columns.EncodedBatch */
    PyObject *decode_statuses;    /* the members of bearlake.kernel.columns.DecodeStatus, in order */
    PyObject *append_type;        /* bearlake.kernel.log.Append */
    PyObject *commit_type;        /* bearlake.kernel.log.BatchCommit */
    PyObject *column_memory_type; /* the buffers of taken columns */
    PyObject *column_builder_type;
    PyObject *results_type;         /* Results, WriteBuffer, ProduceResults, ProduceBinding and SendResults */
    PyObject *write_buffer_type;
    PyObject *produce_results_type;
    PyObject *produce_binding_type;
    PyObject *send_results_type;
    PyObject *turn_world_type; /* bearlake.kernel.kafka.TurnWorld */
    PyObject *produce_turn_type;
    PyObject *rows_type;        /* bearlake.kernel.log.rows.Rows */
    PyObject *commit_rows_type; /* bearlake.kernel.log.rows.CommitRows */
    PyObject *offset_assignment_type;
    PyObject *typed_slots_type; /* bearlake.kernel.typed.TypedSlots */
    PyObject *names[NAME_COUNT]; /* interned */
    Scratch *scratches;          /* batch/compressed.c: memory that no check uses now */
    int scratch_count;
} KernelState;

static inline KernelState *state_of(PyObject *module) { return (KernelState *)PyModule_GetState(module); }

static inline uint16_t load_u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t load_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline uint64_t load_u64(const uint8_t *at) { return (uint64_t)load_u32(at) << 32 | load_u32(at + 4); }

static inline int16_t load_i16(const uint8_t *at) { return (int16_t)load_u16(at); }
static inline int32_t load_i32(const uint8_t *at) { return (int32_t)load_u32(at); }
static inline int64_t load_i64(const uint8_t *at) { return (int64_t)load_u64(at); }

static inline void store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void store_u32(uint8_t *at, uint32_t value)
{
    store_u16(at, (uint16_t)(value >> 16));
    store_u16(at + 2, (uint16_t)value);
}

static inline void store_u64(uint8_t *at, uint64_t value)
{
    store_u32(at, (uint32_t)(value >> 32));
    store_u32(at + 4, (uint32_t)value);
}

/* Little-endian, as in the packed rows of log/rows.py. */
static inline int64_t load_row_field(const uint8_t *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = (int64_t)__builtin_bswap64((uint64_t)value);
#endif
    return value;
}

static inline void store_row_field(uint8_t *at, int64_t value)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = (int64_t)__builtin_bswap64((uint64_t)value);
#endif
    memcpy(at, &value, sizeof value);
}

/* module.c: of a type of the module, or of a class that Python code derives from one; NULL with an exception set */
KernelState *state_of_subclass(PyTypeObject *type);

/* arguments.c: each returns -1 with an exception set if the argument is wrong */
int check_arguments(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most);
int to_int64(PyObject *number, int64_t *out); /* beyond 64 bits: the nearest int64 */
int to_uint64(PyObject *number, uint64_t *out);
int check_tuple(PyObject *value, Py_ssize_t fields, const char *what);
int check_list(PyObject *value, const char *what);
int to_numbers(PyObject *tuple, int first, int last, int64_t *out); /* copies fields [first, last] to the same indices of `out` */
PyTypeObject *to_tuple_type(PyObject *value); /* borrowed; NULL with an exception set */
/* The packed bytes of Rows (log/rows.py) with that many fields, as a new reference: 1; 0 if the value is none; -1 with an exception set. */
int to_packed(KernelState *state, PyObject *value, Py_ssize_t width, PyObject **packed);
int to_range(PyObject *start, PyObject *end, Py_ssize_t size, Py_ssize_t *start_out, Py_ssize_t *end_out);

/* Raises TooLarge; returns NULL. */
PyObject *raise_too_large(KernelState *state, const char *what, int64_t size, int64_t most);

/* imports.c: each returns a new reference, or NULL with an exception set */
PyObject *import_name(const char *module_name, const char *name);
PyObject *import_tuple_type(const char *module_name, const char *name); /* a NamedTuple */

/* A function of the module, METH_FASTCALL. */
#define KERNEL_FUNCTION(name) PyObject *name(PyObject *module, PyObject *const *arguments, Py_ssize_t count)

#endif
