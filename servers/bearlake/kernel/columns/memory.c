/* The memory of columns: a pool of blocks whose pages stay mapped, and the Python objects that hold taken blocks.

   The first touch of a fresh page costs more than decoding 4 KiB of records into it, so blocks are reused, last in first out. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* madvise */
#endif
#include "columns/columns.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT 64 /* bytes; what Arrow recommends */
#define CLASS_MIN 12 /* blocks have 2^12, 2^13 ... bytes */
#define CLASS_END 48
#define HUGE_PAGE_BYTES (2u << 20)
/* Limit of the pool: three sets of columns with 16 MiB of values each. */
#define POOL_BYTES_MAX (128u << 20)
#define ZEROS_BYTES 64

typedef struct Block {
    struct Block *next;
} Block;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static Block *pool_blocks[CLASS_END];
static size_t pool_bytes;
static uint8_t zeros[ZEROS_BYTES] __attribute__((aligned(ALIGNMENT)));

static int class_of(size_t size)
{
    const int bits = size > 1 ? 64 - __builtin_clzll((unsigned long long)size - 1) : 0;
    return bits < CLASS_MIN ? CLASS_MIN : bits;
}

static uint8_t *fresh_block(size_t capacity)
{
    void *bytes = NULL;
    if (posix_memalign(&bytes, capacity < HUGE_PAGE_BYTES ? ALIGNMENT : HUGE_PAGE_BYTES, capacity) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (capacity >= HUGE_PAGE_BYTES)
        (void)madvise(bytes, capacity, MADV_HUGEPAGE); /* one fault for 512 pages; only a hint */
#endif
    return bytes;
}

static uint8_t *acquire_block(int class)
{
    if (class >= CLASS_END)
        return NULL;
    pthread_mutex_lock(&pool_lock);
    Block *block = pool_blocks[class];
    if (block != NULL) {
        pool_blocks[class] = block->next;
        pool_bytes -= (size_t)1 << class;
    }
    pthread_mutex_unlock(&pool_lock);
    return block != NULL ? (uint8_t *)block : fresh_block((size_t)1 << class);
}

static void release_block(uint8_t *bytes, size_t capacity)
{
    if (capacity == 0)
        return;
    const int class = class_of(capacity);
    Block *block = (Block *)bytes;
    pthread_mutex_lock(&pool_lock);
    const bool is_pooled = capacity <= POOL_BYTES_MAX - pool_bytes;
    if (is_pooled) {
        block->next = pool_blocks[class];
        pool_blocks[class] = block;
        pool_bytes += capacity;
    }
    pthread_mutex_unlock(&pool_lock);
    if (!is_pooled)
        free(bytes);
}

bool column_grow(Column *column, size_t used, size_t size)
{
    const int class = class_of(size > column->wish ? size : column->wish);
    uint8_t *bytes = acquire_block(class);
    if (bytes == NULL)
        return false;
    if (column->capacity != 0)
        memcpy(bytes, column->bytes, used);
    release_block(column->bytes, column->capacity);
    column->bytes = bytes;
    column->capacity = (size_t)1 << class;
    return true;
}

void column_trim(Column *column, size_t size)
{
#ifdef MADV_HUGEPAGE
    const size_t used = (size + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (column->capacity > used && column->capacity >= HUGE_PAGE_BYTES)
        (void)madvise(column->bytes + used, column->capacity - used, MADV_DONTNEED);
#else
    (void)column, (void)size;
#endif
}

void column_free(Column *column)
{
    release_block(column->bytes, column->capacity);
    column->bytes = NULL;
    column->capacity = 0;
}

typedef struct {
    PyObject_HEAD
    uint8_t *bytes;
    size_t capacity; /* 0: `zeros` */
    Py_ssize_t size;
} MemoryObject;

PyObject *column_take(KernelState *state, Column *column, size_t size)
{
    PyTypeObject *type = (PyTypeObject *)state->column_memory_type;
    MemoryObject *memory = (MemoryObject *)type->tp_alloc(type, 0);
    if (memory == NULL)
        return NULL;
    memory->bytes = column->capacity ? column->bytes : zeros;
    memory->capacity = column->capacity;
    memory->size = (Py_ssize_t)size;
    /* Half the capacity if that suffices: one large set does not make all later sets large. */
    column->wish = column->capacity > 2 * size ? column->capacity / 2 : column->capacity;
    column->bytes = NULL;
    column->capacity = 0;
    PyObject *view = PyMemoryView_FromObject((PyObject *)memory);
    Py_DECREF(memory);
    return view;
}

static int memory_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const MemoryObject *memory = (MemoryObject *)self;
    return PyBuffer_FillInfo(view, self, memory->bytes, memory->size, 1, flags);
}

static void memory_dealloc(PyObject *self)
{
    const MemoryObject *memory = (MemoryObject *)self;
    PyTypeObject *type = Py_TYPE(self);
    release_block(memory->bytes, memory->capacity);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *make_column_memory_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_bf_getbuffer, (void *)memory_getbuffer},
        {Py_tp_dealloc, (void *)memory_dealloc},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.ColumnMemory",
        .basicsize = sizeof(MemoryObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
