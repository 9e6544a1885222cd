/* What the kernel's files share. The contract of every function is its docstring in bearlake/kernel/fallback. */
#ifndef BEARLAKE_KERNEL_H
#define BEARLAKE_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "positions are 64 bits wide");

#define HEADER_BYTES 61
#define LENGTH_END 12
#define MAGIC_AT 16
#define CRC_AT 17
#define CRC_START 21
#define DELTA_AT 23
#define COMMIT_FIELDS 11 /* of header.CommitLike */
#define RECORD_BYTES_MIN 7

/* The GIL is released for work on at least this many bytes (8 us of CRC32C). Below, giving it up costs more than it gives: no
   other thread wakes up as fast, and when one does it may keep it for 5 ms. */
#define RELEASE_BYTES (256 * 1024)
/* The same for walks over batches, which touch one cache line of each. */
#define RELEASE_WALK_BYTES (1024 * 1024)

typedef struct {
    PyObject *header_type;        /* bearlake.kernel.header.BatchHeader */
    PyObject *corrupt;            /* bearlake.errors.Corrupt */
    PyObject *unsupported;        /* bearlake.errors.Unsupported */
    PyObject *too_large;          /* bearlake.errors.TooLarge */
    PyObject *columns_type;       /* bearlake.kernel.header.Columns */
    PyObject *encoded_batch_type; /* bearlake.kernel.header.EncodedBatch */
    PyObject *decode_statuses;    /* the members of bearlake.kernel.header.DecodeStatus, in order */
    PyObject *results_name;       /* "results", interned */
    PyObject *waiting_name;       /* "waiting", interned */
    PyObject *column_memory_type; /* the buffers of columns that were taken */
    PyObject *column_builder_type;
} KernelState;

static inline KernelState *state_of(PyObject *module) { return (KernelState *)PyModule_GetState(module); }

/* header.BatchStatus */
typedef enum {
    STATUS_OK = 0,
    STATUS_EMPTY = -1,
    STATUS_TRUNCATED = -2,
    STATUS_OLD_MAGIC = -3,
    STATUS_UNKNOWN_MAGIC = -4,
    STATUS_MANY_BATCHES = -5,
    STATUS_BAD_CRC = -6,
    STATUS_UNKNOWN_COMPRESSION = -7,
    STATUS_CONTROL = -8,
    STATUS_BAD_COUNT = -9,
    STATUS_BAD_OFFSETS = -10,
    STATUS_BAD_PRODUCER = -11,
    STATUS_BAD_TIMESTAMP = -12,
    STATUS_ZSTD_TOO_EARLY = -13,
} Status;

/* header.BatchHeader */
typedef struct {
    int64_t length;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    int16_t attributes;
    int16_t producer_epoch;
} Header;

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

/* arguments.c: each returns -1 with an exception set when the argument is wrong */
int check_arguments(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most);
int to_int64(PyObject *number, int64_t *out); /* beyond 64 bits: the nearest int64 */
int check_tuple(PyObject *value, Py_ssize_t fields, const char *what);
int check_list(PyObject *value, const char *what);
int to_numbers(PyObject *tuple, int first, int last, int64_t *out); /* fields [first, last] into the same places of `out` */
PyTypeObject *to_tuple_type(PyObject *value); /* borrowed; NULL with an exception set */
int to_range(PyObject *start, PyObject *end, Py_ssize_t size, Py_ssize_t *start_out, Py_ssize_t *end_out);

/* checksum.c */
void checksum_setup(void);
uint32_t checksum(const uint8_t *bytes, size_t size);
uint32_t checksum_releasing(const uint8_t *bytes, Py_ssize_t size); /* holds the GIL on entry and on return */

/* batches.c */
Status inspect_bytes(const uint8_t *bytes, Py_ssize_t size, Header *header); /* holds the GIL, may release it meanwhile */

/* columns_text.c */
bool is_text(const uint8_t *bytes, size_t size); /* whether it is UTF-8 */

/* The functions of the module, METH_FASTCALL. */
#define KERNEL_FUNCTION(name) PyObject *name(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
KERNEL_FUNCTION(kernel_crc32c);
KERNEL_FUNCTION(kernel_inspect);
KERNEL_FUNCTION(kernel_batches);
KERNEL_FUNCTION(kernel_rebase);
KERNEL_FUNCTION(kernel_seek);
KERNEL_FUNCTION(kernel_take);
KERNEL_FUNCTION(kernel_parse_produce);
KERNEL_FUNCTION(kernel_parse_produces);
KERNEL_FUNCTION(kernel_admit_plain);
KERNEL_FUNCTION(kernel_assign_offsets);
KERNEL_FUNCTION(kernel_queue_appends);
KERNEL_FUNCTION(kernel_place_appends);
KERNEL_FUNCTION(kernel_release_appends);
KERNEL_FUNCTION(kernel_resolve_appends);
KERNEL_FUNCTION(kernel_encode_produce_appended);
KERNEL_FUNCTION(kernel_encode_produce_response);
KERNEL_FUNCTION(kernel_check_records);
KERNEL_FUNCTION(kernel_decode_records);
KERNEL_FUNCTION(kernel_find_timestamp);
KERNEL_FUNCTION(kernel_put_file);
KERNEL_FUNCTION(kernel_encode_columns);
KERNEL_FUNCTION(kernel_decode_entry);
KERNEL_FUNCTION(kernel_encode_entry);
KERNEL_FUNCTION(kernel_encode_messages);
KERNEL_FUNCTION(kernel_encode_receipts);
KERNEL_FUNCTION(kernel_entry_routing);
KERNEL_FUNCTION(kernel_parse_sends);

/* The types of the module, or NULL with an exception set. */
PyObject *make_column_memory_type(PyObject *module);  /* columns_memory.c */
PyObject *make_column_builder_type(PyObject *module); /* columns_builder.c */

#endif
