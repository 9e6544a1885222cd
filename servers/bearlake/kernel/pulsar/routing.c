/* The fields of an entry that a dispatcher needs. Contract: routing.py. */
#include "pulsar/pulsar.h"
#include "pulsar/source.h"

typedef struct {
    Field ordering_key, uuid;
    uint64_t deliver_at, chunk_id, chunk_count;
} Routing;

/* Stores the routing fields of an entry, or of its first message. */
static void take_routing(Cursor fields, bool is_entry, Routing *routing)
{
    PulsarField field;
    while (fields.at < fields.end && read_field(&fields, &field)) {
        const uint64_t natural = field.kind == WIRE_VARINT && field.value <= INT64_MAX ? field.value : 0;
        if (field.kind == WIRE_BYTES && field.number == (is_entry ? ORDERING_KEY : SINGLE_ORDERING_KEY))
            routing->ordering_key = field.content;
        else if (is_entry && field.kind == WIRE_BYTES && field.number == UUID)
            routing->uuid = field.content;
        else if (is_entry && field.kind == WIRE_VARINT && field.number == DELIVER_AT)
            routing->deliver_at = natural;
        else if (is_entry && field.kind == WIRE_VARINT && field.number == CHUNK_ID)
            routing->chunk_id = natural;
        else if (is_entry && field.kind == WIRE_VARINT && field.number == CHUNK_COUNT)
            routing->chunk_count = natural;
    }
}

/* Returns false if the first record is malformed. */
static bool find_routing(const Source *source, Routing *routing)
{
    Cursor records = source->records;
    Row first;
    StoredHeader header;
    if (is_empty(source))
        return true;
    if (!read_row(source, &records, -1, &first))
        return false;
    if (first.key.bytes != NULL)
        routing->ordering_key = first.key;
    if (!read_stored_header(source, &first, &header))
        return true;
    if (header.is_batch && strip_reserved(&first, true))
        take_routing(first.present, false, routing);
    take_routing(header.fields.fields, true, routing);
    return true;
}

KERNEL_FUNCTION(kernel_entry_routing)
{
    static const uint8_t nothing[1];
    Routing routing = {.ordering_key = {nothing, 0}, .uuid = {nothing, 0}};
    Source source;
    Py_buffer batch, records;
    if (check_arguments("entry_routing", count, 2, 2) < 0
        || open_source(&source, arguments[0], arguments[1], &batch, &records) < 0)
        return NULL;
    PyObject *result;
    if (find_routing(&source, &routing))
        result = Py_BuildValue(
            "y#Ky#KK", (const char *)routing.ordering_key.bytes, (Py_ssize_t)routing.ordering_key.size,
            (unsigned long long)routing.deliver_at, (const char *)routing.uuid.bytes, (Py_ssize_t)routing.uuid.size,
            (unsigned long long)routing.chunk_id, (unsigned long long)routing.chunk_count);
    else
        result = PyErr_Format(state_of(module)->corrupt, "record 0 of a batch is malformed");
    close_source(&batch, &records);
    return result;
}
