/* The records of a batch, and the reserved headers that show whether a Pulsar client wrote it. Contract: source.py. */
#include "pulsar/source.h"

#define ATTRIBUTE_LOG_APPEND_TIME 0x08
#define ATTRIBUTE_CONTROL 0x20

static void set_source(Source *source, const Py_buffer *batch, const Py_buffer *records)
{
    const uint8_t *bytes = batch->buf;
    const int16_t attributes = load_i16(bytes + 21);
    *source = (Source){
        .records = {bytes + HEADER_BYTES, bytes + batch->len},
        .last_delta = load_i32(bytes + DELTA_AT),
        .base_timestamp = load_i64(bytes + 27),
        .max_timestamp = load_i64(bytes + 35),
        .record_count = load_i32(bytes + 57),
        .is_control = attributes & ATTRIBUTE_CONTROL,
        .is_stamped = attributes & ATTRIBUTE_LOG_APPEND_TIME,
    };
    if (records->obj != NULL)
        source->records = (Cursor){records->buf, (const uint8_t *)records->buf + records->len};
}

int open_source(Source *source, PyObject *batch, PyObject *records, Py_buffer *batch_view, Py_buffer *records_view)
{
    records_view->obj = NULL;
    if (PyObject_GetBuffer(batch, batch_view, PyBUF_SIMPLE) < 0)
        return -1;
    if (records != Py_None && PyObject_GetBuffer(records, records_view, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(batch_view);
        return -1;
    }
    if (batch_view->len < HEADER_BYTES) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are less than the header of a record batch", batch_view->len);
        close_source(batch_view, records_view);
        return -1;
    }
    set_source(source, batch_view, records_view);
    return 0;
}

void close_source(Py_buffer *batch_view, Py_buffer *records_view)
{
    PyBuffer_Release(batch_view);
    PyBuffer_Release(records_view); /* no-op if it was not opened */
}

bool read_row(const Source *source, Cursor *records, int64_t last_delta, Row *row)
{
    Record record;
    int64_t timestamp;
    if (!read_record(records, &record) || source->record_count < 0 || record.offset_delta <= last_delta
        || record.offset_delta > source->last_delta
        || __builtin_add_overflow(source->base_timestamp, record.timestamp_delta, &timestamp))
        return false;
    *row = (Row){
        .delta = record.offset_delta,
        .timestamp = timestamp,
        .has_timestamp = !source->is_stamped,
        .key = record.key,
        .value = record.value,
        .headers = record.headers,
        .header_count = record.header_count,
    };
    return true;
}

static inline bool is_named(const Field *name, const char *wanted)
{
    return name->size == (int64_t)strlen(wanted) && memcmp(name->bytes, wanted, strlen(wanted)) == 0;
}

/* The last of the first `count` headers; the record is valid. */
static bool last_header(const Row *row, int32_t count, Field *name, Field *value)
{
    Cursor cursor = row->headers;
    for (int32_t index = 0; index < count; index++)
        if (!read_bytes(&cursor, name) || name->bytes == NULL || !read_bytes(&cursor, value))
            return false;
    return count > 0;
}

/* The last varint with this number; 0 if there is none. */
static uint64_t number_of(Cursor fields, uint32_t number, bool *is_there)
{
    uint64_t value = 0;
    PulsarField field;
    *is_there = false;
    while (fields.at < fields.end && read_field(&fields, &field)) {
        if (field.kind == WIRE_VARINT && field.number == number) {
            value = field.value;
            *is_there = true;
        }
    }
    return value;
}

bool read_stored_header(const Source *source, const Row *first, StoredHeader *header)
{
    Field name, value;
    if (first->delta != 0 || !last_header(first, first->header_count, &name, &value) || !is_named(&name, ENTRY_HEADER)
        || value.size < 2 || value.bytes[0] != ENTRY_VERSION || value.bytes[1] > ALL_FLAGS)
        return false;
    EntryFields *entry = &header->fields;
    header->flags = value.bytes[1];
    if (!read_entry((Cursor){value.bytes + 2, value.bytes + value.size}, entry) || !entry->has_name
        || !entry->has_sequence_id || !entry->has_publish_time || entry->message_count == -2)
        return false;
    header->is_batch = entry->message_count > 0 && !(header->flags & IS_OPAQUE);
    header->uncompressed_size = number_of(entry->fields, UNCOMPRESSED_SIZE, &header->has_uncompressed_size);
    return (header->is_batch ? entry->message_count : 1) == (int64_t)source->last_delta + 1;
}

bool strip_reserved(Row *row, bool has_entry_header)
{
    Field name, value;
    row->header_count -= has_entry_header;
    row->present = (Cursor){NULL, NULL};
    if (!last_header(row, row->header_count, &name, &value) || !is_named(&name, MESSAGE_HEADER))
        return true;
    if (value.bytes != NULL)
        row->present = (Cursor){value.bytes, value.bytes + value.size};
    row->header_count--;
    Cursor cursor = row->present;
    PulsarField field;
    while (cursor.at < cursor.end)
        if (!read_field(&cursor, &field))
            return false;
    return true;
}
