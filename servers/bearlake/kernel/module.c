/* The extension module bearlake.kernel._native: the same functions as bearlake.kernel.fallback, in C. */
#include "batch/batch.h"
#include "batch/compressed.h"
#include "columns/columns.h"
#include "files/files.h"
#include "kafka/kafka.h"
#include "log/write_buffer.h"
#include "pulsar/pulsar.h"
#include "typed/typed.h"

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))kernel_##name, METH_FASTCALL, "Native twin of bearlake.kernel.fallback." #name "."}

static PyMethodDef functions[] = {
    FUNCTION(admit_plain),
    FUNCTION(batches),
    FUNCTION(check_batch),
    FUNCTION(check_protobuf),
    FUNCTION(check_records),
    FUNCTION(crc32c),
    FUNCTION(decode_avro),
    FUNCTION(decode_entry),
    FUNCTION(decode_json),
    FUNCTION(decode_part),
    FUNCTION(decode_protobuf),
    FUNCTION(decode_records),
    FUNCTION(encode_avro),
    FUNCTION(encode_columns),
    FUNCTION(encode_entry),
    FUNCTION(encode_fetch),
    FUNCTION(encode_messages),
    FUNCTION(encode_pages),
    FUNCTION(encode_produce_response),
    FUNCTION(encode_protobuf),
    FUNCTION(encode_receipts),
    FUNCTION(entry_routing),
    FUNCTION(find_run),
    FUNCTION(find_timestamp),
    FUNCTION(inspect),
    FUNCTION(next_sender),
    FUNCTION(parse_fetch),
    FUNCTION(parse_produce),
    FUNCTION(parse_sends),
    FUNCTION(put_file),
    FUNCTION(rebase),
    FUNCTION(seek),
    FUNCTION(take_produces),
    FUNCTION(take_sends),
    {NULL, NULL, 0, NULL},
};

static PyObject *import_statuses(void)
{
    PyObject *type = import_name("bearlake.kernel.columns", "DecodeStatus");
    PyObject *members = type ? PySequence_Tuple(type) : NULL;
    Py_XDECREF(type);
    return members;
}

static int intern_names(KernelState *state)
{
#define TEXT_OF(name) #name,
    static const char *const texts[] = {ATTRIBUTES(TEXT_OF)};
#undef TEXT_OF
    for (int at = 0; at < NAME_COUNT; at++)
        if ((state->names[at] = PyUnicode_InternFromString(texts[at])) == NULL)
            return -1;
    return 0;
}

static int module_exec(PyObject *module)
{
    KernelState *state = state_of(module);
    checksum_setup();
    if ((state->header_type = import_tuple_type("bearlake.kernel.batch", "BatchHeader")) == NULL
        || (state->columns_type = import_tuple_type("bearlake.kernel.columns", "Columns")) == NULL
        || (state->encoded_batch_type = import_tuple_type("bearlake.kernel.columns", "EncodedBatch")) == NULL
        || (state->decode_statuses = import_statuses()) == NULL
        || (state->append_type = import_append_type()) == NULL
        || (state->commit_type = import_commit_type()) == NULL
        || (state->corrupt = import_name("bearlake.errors", "Corrupt")) == NULL
        || (state->unsupported = import_name("bearlake.errors", "Unsupported")) == NULL
        || (state->too_large = import_name("bearlake.errors", "TooLarge")) == NULL
        || (state->decompress_zstd = import_name("bearlake.kernel.batch.zstd", "decompress")) == NULL
        || (state->column_memory_type = make_column_memory_type(module)) == NULL
        || (state->column_builder_type = make_column_builder_type(module)) == NULL
        || (state->results_type = make_results_type(module)) == NULL
        || (state->write_buffer_type = make_write_buffer_type(module)) == NULL
        || (state->produce_results_type = make_produce_results_type(module)) == NULL
        || (state->produce_binding_type = make_produce_binding_type(module)) == NULL
        || (state->send_results_type = make_send_results_type(module)) == NULL
        || (state->turn_world_type = import_turn_world_type()) == NULL
        || (state->produce_turn_type = make_produce_turn_type(module)) == NULL
        || (state->rows_type = import_name("bearlake.kernel.log.rows", "Rows")) == NULL
        || (state->commit_rows_type = import_name("bearlake.kernel.log.rows", "CommitRows")) == NULL
        || (state->typed_slots_type = import_tuple_type("bearlake.kernel.typed", "TypedSlots")) == NULL
        || (state->offset_assignment_type = make_offset_assignment_type(module)) == NULL || intern_names(state) < 0
        || PyModule_AddObjectRef(module, "OffsetAssignment", state->offset_assignment_type) < 0
        || PyModule_AddObjectRef(module, "ColumnBuilder", state->column_builder_type) < 0
        || PyModule_AddObjectRef(module, "ProduceBinding", state->produce_binding_type) < 0
        || PyModule_AddObjectRef(module, "ProduceTurn", state->produce_turn_type) < 0
        || PyModule_AddObjectRef(module, "Results", state->results_type) < 0
        || PyModule_AddObjectRef(module, "SendResults", state->send_results_type) < 0
        || PyModule_AddObjectRef(module, "WriteBuffer", state->write_buffer_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "ProduceResults", state->produce_results_type);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    KernelState *state = state_of(module);
    Py_VISIT(state->header_type);
    Py_VISIT(state->corrupt);
    Py_VISIT(state->unsupported);
    Py_VISIT(state->too_large);
    Py_VISIT(state->decompress_zstd);
    Py_VISIT(state->columns_type);
    Py_VISIT(state->encoded_batch_type);
    Py_VISIT(state->decode_statuses);
    Py_VISIT(state->append_type);
    Py_VISIT(state->commit_type);
    Py_VISIT(state->column_memory_type);
    Py_VISIT(state->column_builder_type);
    Py_VISIT(state->results_type);
    Py_VISIT(state->write_buffer_type);
    Py_VISIT(state->produce_results_type);
    Py_VISIT(state->produce_binding_type);
    Py_VISIT(state->send_results_type);
    Py_VISIT(state->turn_world_type);
    Py_VISIT(state->produce_turn_type);
    Py_VISIT(state->rows_type);
    Py_VISIT(state->commit_rows_type);
    Py_VISIT(state->offset_assignment_type);
    Py_VISIT(state->typed_slots_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    KernelState *state = state_of(module);
    Py_CLEAR(state->header_type);
    Py_CLEAR(state->corrupt);
    Py_CLEAR(state->unsupported);
    Py_CLEAR(state->too_large);
    Py_CLEAR(state->decompress_zstd);
    Py_CLEAR(state->columns_type);
    Py_CLEAR(state->encoded_batch_type);
    Py_CLEAR(state->decode_statuses);
    Py_CLEAR(state->append_type);
    Py_CLEAR(state->commit_type);
    Py_CLEAR(state->column_memory_type);
    Py_CLEAR(state->column_builder_type);
    Py_CLEAR(state->results_type);
    Py_CLEAR(state->write_buffer_type);
    Py_CLEAR(state->produce_results_type);
    Py_CLEAR(state->produce_binding_type);
    Py_CLEAR(state->send_results_type);
    Py_CLEAR(state->turn_world_type);
    Py_CLEAR(state->produce_turn_type);
    Py_CLEAR(state->rows_type);
    Py_CLEAR(state->commit_rows_type);
    Py_CLEAR(state->offset_assignment_type);
    Py_CLEAR(state->typed_slots_type);
    for (int at = 0; at < NAME_COUNT; at++)
        Py_CLEAR(state->names[at]);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
    scratches_free(state_of(module));
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bearlake.kernel._native",
    .m_doc = "The record-batch kernel in C; see bearlake.kernel.",
    .m_size = sizeof(KernelState),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

KernelState *state_of_subclass(PyTypeObject *type)
{
    PyObject *module = PyType_GetModuleByDef(type, &definition);
    return module == NULL ? NULL : state_of(module);
}

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
