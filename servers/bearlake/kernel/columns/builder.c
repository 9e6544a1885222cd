/* The type ColumnBuilder. Contract: builder.py. */
#include "columns/columns.h"

#include <stddef.h>

#define ROW_BYTES 60
#define COLUMN_HEADER_BYTES 8
#define CODEC_MASK 0x07

typedef struct {
    PyObject_HEAD
    ColumnSet set;
    int64_t column_bytes_max;
    bool is_busy; /* a thread executes `append` without the GIL */
} Builder;

/* One call of `append`. */
typedef struct {
    const uint8_t *bytes;
    Py_ssize_t position;
    Py_ssize_t end;
    int64_t base_offset;
    int32_t partition_id;
    const Py_buffer *bodies; /* `obj` is NULL for a body that is None */
    Py_ssize_t body_count;
} Run;

/* Length of the batch at `position`; 0 if there is no batch. */
static int64_t batch_length(const uint8_t *bytes, Py_ssize_t position, Py_ssize_t end)
{
    const uint8_t *at = bytes + position;
    if (end - position < HEADER_BYTES || at[MAGIC_AT] != 2 || load_i32(at + DELTA_AT) < 0)
        return 0;
    const int64_t length = (int64_t)load_i32(at + 8) + LENGTH_END;
    return length < HEADER_BYTES || length > end - position ? 0 : length;
}

static inline bool is_compressed(const uint8_t *header) { return load_i16(header + CRC_START) & CODEC_MASK; }

static Py_ssize_t count_compressed(const uint8_t *bytes, Py_ssize_t position, Py_ssize_t end)
{
    Py_ssize_t count = 0;
    int64_t length;
    for (; position < end && (length = batch_length(bytes, position, end)) > 0; position += length)
        count += is_compressed(bytes + position);
    return count;
}

/* Decodes up to the first batch that is not OK, and stops at its position. */
static DecodeStatus decode_run(Builder *builder, Run *run)
{
    Py_ssize_t body = 0;
    while (run->position < run->end) {
        const uint8_t *header = run->bytes + run->position;
        const int64_t length = batch_length(run->bytes, run->position, run->end);
        if (length == 0)
            return DECODE_UNDECODABLE;
        Cursor section = {header + HEADER_BYTES, header + length};
        bool is_there = true;
        if (is_compressed(header)) {
            const Py_buffer *view = body < run->body_count ? &run->bodies[body] : NULL;
            body++;
            is_there = view != NULL && view->obj != NULL;
            if (is_there)
                section = (Cursor){(const uint8_t *)view->buf, (const uint8_t *)view->buf + view->len};
        }
        const int64_t last_delta = load_i32(header + DELTA_AT);
        const DecodeStatus status = decode_batch(
            &builder->set, builder->column_bytes_max, run->partition_id, run->base_offset, header, is_there ? &section : NULL);
        if (status != DECODE_OK)
            return status;
        run->base_offset += last_delta + 1;
        run->position += length;
    }
    return DECODE_OK;
}

static void release_bodies(Py_buffer *bodies, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++)
        if (bodies[index].obj != NULL)
            PyBuffer_Release(&bodies[index]);
    PyMem_Free(bodies);
}

/* The buffers of `items`, a list or tuple. */
static Py_buffer *open_bodies(PyObject *items)
{
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    Py_buffer *bodies = PyMem_Calloc((size_t)count + 1, sizeof *bodies);
    if (bodies == NULL)
        return (Py_buffer *)PyErr_NoMemory();
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, index);
        if (item != Py_None && PyObject_GetBuffer(item, &bodies[index], PyBUF_SIMPLE) < 0) {
            bodies[index].obj = NULL;
            release_bodies(bodies, index);
            return NULL;
        }
    }
    return bodies;
}

static int be_idle(const Builder *builder)
{
    if (!builder->is_busy)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the ColumnBuilder is in use by another thread");
    return -1;
}

/* Runs `decode_run`, without the GIL for large inputs. */
static DecodeStatus run_builder(Builder *builder, Run *run)
{
    DecodeStatus status;
    int64_t size = run->end - run->position;
    for (Py_ssize_t index = 0; index < run->body_count; index++)
        size += run->bodies[index].len;
    if (size < RELEASE_COLUMN_BYTES)
        return decode_run(builder, run);
    builder->is_busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = decode_run(builder, run);
    Py_END_ALLOW_THREADS
    builder->is_busy = false;
    return status;
}

static PyObject *append_run(Builder *builder, Run *run, PyObject *items)
{
    Py_buffer *bodies = open_bodies(items);
    if (bodies == NULL)
        return NULL;
    PyObject *result = NULL;
    run->bodies = bodies;
    run->body_count = PySequence_Fast_GET_SIZE(items);
    const Py_ssize_t wanted = count_compressed(run->bytes, run->position, run->end);
    if (run->body_count != wanted) {
        PyErr_Format(PyExc_ValueError, "%zd bodies for %zd compressed batches", run->body_count, wanted);
    } else if (be_idle(builder) == 0) { /* checked last: opening the buffers may have run Python code */
        const DecodeStatus status = run_builder(builder, run);
        const KernelState *state = PyType_GetModuleState(Py_TYPE(builder));
        if (status == DECODE_NO_MEMORY)
            PyErr_NoMemory();
        else
            result = Py_BuildValue("nO", run->position, PyTuple_GET_ITEM(state->decode_statuses, status));
    }
    release_bodies(bodies, run->body_count);
    return result;
}

static int to_place(PyObject *index, PyObject *offset, Run *run)
{
    int64_t partition_id;
    if (to_int64(index, &partition_id) < 0 || to_int64(offset, &run->base_offset) < 0)
        return -1;
    if (partition_id < 0 || partition_id > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "partition index %S is not a positive int32", index);
        return -1;
    }
    run->partition_id = (int32_t)partition_id;
    PyObject *most = run->base_offset == INT64_MAX ? PyLong_FromLongLong(INT64_MAX) : NULL;
    const int is_more = most ? PyObject_RichCompareBool(offset, most, Py_GT) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(most);
    if (run->base_offset < 0 || is_more > 0)
        PyErr_Format(PyExc_ValueError, "base offset %S is not a positive int64", offset);
    return run->base_offset < 0 || is_more != 0 ? -1 : 0;
}

static PyObject *builder_append(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Run run;
    Py_buffer view;
    if (check_arguments("append", count, 6, 6) < 0 || to_place(arguments[0], arguments[1], &run) < 0
        || PyObject_GetBuffer(arguments[2], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    run.bytes = view.buf;
    if (to_range(arguments[3], arguments[4], view.len, &run.position, &run.end) == 0) {
        PyObject *items = PySequence_Fast(arguments[5], "bodies are a sequence");
        if (items != NULL)
            result = append_run((Builder *)self, &run, items);
        Py_XDECREF(items);
    }
    PyBuffer_Release(&view);
    return result;
}

/* A column and its bytes in use; a missing column reads as None. */
typedef struct {
    Column *column;
    size_t size;
} Taken;

static Taken taken_offsets(Column *column, int64_t count) { return (Taken){column, 4 * ((size_t)count + 1)}; }

static Taken taken_validity(Text *text, int64_t count)
{
    return (Taken){text->null_count ? &text->validity : NULL, ((size_t)count + 7) / 8};
}

static PyObject *take_all(KernelState *state, const Taken *taken, int count, int64_t rows)
{
    PyTypeObject *type = (PyTypeObject *)state->columns_type;
    PyObject *columns = type->tp_alloc(type, count + 1);
    if (columns == NULL)
        return NULL;
    PyObject *value = PyLong_FromLongLong(rows);
    bool is_whole = value != NULL;
    PyTuple_SET_ITEM(columns, 0, value);
    for (int index = 0; is_whole && index < count; index++) {
        Column *column = taken[index].column;
        value = column ? column_take(state, column, taken[index].size) : Py_NewRef(Py_None);
        is_whole = value != NULL;
        PyTuple_SET_ITEM(columns, index + 1, value);
    }
    if (!is_whole)
        Py_CLEAR(columns);
    return columns;
}

static void forget(ColumnSet *set)
{
    Text *texts[4] = {&set->key, &set->value, &set->header_key, &set->header_value};
    set->row_count = set->header_count = 0;
    for (int index = 0; index < 4; index++)
        texts[index]->size = texts[index]->null_count = 0;
}

static PyObject *builder_take(PyObject *self, PyObject *unused)
{
    Builder *builder = (Builder *)self;
    ColumnSet *set = &builder->set;
    const int64_t rows = set->row_count, headers = set->header_count;
    const size_t narrow = 4 * (size_t)rows, wide = 8 * (size_t)rows;
    const Taken taken[] = {
        {&set->partition_id, narrow},
        {&set->offset, wide},
        {&set->timestamp, wide},
        taken_offsets(&set->key.offsets, rows),
        {&set->key.content, (size_t)set->key.size},
        taken_validity(&set->key, rows),
        taken_offsets(&set->header_list_offsets, rows),
        taken_offsets(&set->header_key.offsets, headers),
        {&set->header_key.content, (size_t)set->header_key.size},
        taken_offsets(&set->header_value.offsets, headers),
        {&set->header_value.content, (size_t)set->header_value.size},
        taken_validity(&set->header_value, headers),
        taken_offsets(&set->value.offsets, rows),
        {&set->value.content, (size_t)set->value.size},
        taken_validity(&set->value, rows),
        {&set->base_offset, wide},
        {&set->attributes, narrow},
        {&set->producer_id, wide},
        {&set->producer_epoch, narrow},
        {&set->base_sequence, narrow},
    };
    if (be_idle(builder) < 0)
        return NULL;
    PyObject *columns = take_all(PyType_GetModuleState(Py_TYPE(self)), taken, sizeof taken / sizeof *taken, rows);
    forget(set); /* also if memory ran out: the columns are gone */
    return columns;
}

static PyObject *builder_row_count(PyObject *self, void *unused)
{
    return PyLong_FromLongLong(((Builder *)self)->set.row_count);
}

static PyObject *builder_size_bytes(PyObject *self, void *unused)
{
    const ColumnSet *set = &((Builder *)self)->set;
    const int64_t content = set->key.size + set->value.size + set->header_key.size + set->header_value.size;
    return PyLong_FromLongLong(ROW_BYTES * set->row_count + COLUMN_HEADER_BYTES * set->header_count + content);
}

static PyObject *builder_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *number = NULL;
    int64_t column_bytes_max = INT32_MAX;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "ColumnBuilder() takes no keyword arguments");
    if (!PyArg_UnpackTuple(arguments, "ColumnBuilder", 0, 1, &number)
        || (number != NULL && to_int64(number, &column_bytes_max) < 0))
        return NULL;
    if (column_bytes_max < 0 || column_bytes_max > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "column_bytes_max %S is not a positive int32", number);
    Builder *builder = (Builder *)type->tp_alloc(type, 0); /* zeroed */
    if (builder != NULL)
        builder->column_bytes_max = column_bytes_max;
    return (PyObject *)builder;
}

static void free_text(Text *text)
{
    column_free(&text->offsets);
    column_free(&text->content);
    column_free(&text->validity);
}

static void builder_dealloc(PyObject *self)
{
    ColumnSet *set = &((Builder *)self)->set;
    PyTypeObject *type = Py_TYPE(self);
    Column *columns[] = {
        &set->partition_id, &set->offset,      &set->timestamp,      &set->header_list_offsets, &set->base_offset,
        &set->attributes,   &set->producer_id, &set->producer_epoch, &set->base_sequence,
    };
    for (size_t index = 0; index < sizeof columns / sizeof *columns; index++)
        column_free(columns[index]);
    free_text(&set->key);
    free_text(&set->value);
    free_text(&set->header_key);
    free_text(&set->header_value);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *make_column_builder_type(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"append", (PyCFunction)(void (*)(void))builder_append, METH_FASTCALL, "Native twin of bearlake.kernel.fallback.ColumnBuilder."},
        {"take", builder_take, METH_NOARGS, "Native twin of bearlake.kernel.fallback.ColumnBuilder."},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef properties[] = {
        {"row_count", builder_row_count, NULL, "Rows so far.", NULL},
        {"size_bytes", builder_size_bytes, NULL, "Bytes of the columns so far.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)builder_new},
        {Py_tp_dealloc, (void *)builder_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "bearlake.kernel._native.ColumnBuilder",
        .basicsize = sizeof(Builder),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
