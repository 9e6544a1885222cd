/* A record batch as the source of a Pulsar entry: its records and its entry header. */
#ifndef BEARLAKE_PULSAR_SOURCE_H
#define BEARLAKE_PULSAR_SOURCE_H

#include "pulsar/fields.h"

typedef struct {
    Cursor records;
    int64_t base_timestamp, max_timestamp;
    int32_t last_delta, record_count;
    bool is_control, is_stamped; /* stamped: the server set the timestamps */
} Source;

/* A record; its headers exclude the reserved headers of an entry. */
typedef struct {
    int64_t delta, timestamp;
    bool has_timestamp;
    Field key, value;
    Cursor headers;
    int32_t header_count;
    Cursor present; /* the fields of the message header; for an entry that is a single message, those of the entry header */
} Row;

/* The content of the entry header. */
typedef struct {
    EntryFields fields;
    uint8_t flags;
    bool is_batch;
    bool has_uncompressed_size;
    uint64_t uncompressed_size; /* size of the payload as received */
} StoredHeader;

static inline bool is_empty(const Source *source) { return source->is_control || source->record_count == 0; }

/* source.c */
/* -1 with an exception set; else the buffers are open until `close_source`, the second buffer only if `records` is not None. */
int open_source(Source *source, PyObject *batch, PyObject *records, Py_buffer *batch_view, Py_buffer *records_view);
void close_source(Py_buffer *batch_view, Py_buffer *records_view);
bool read_row(const Source *source, Cursor *records, int64_t last_delta, Row *row); /* false: it is malformed */
bool read_stored_header(const Source *source, const Row *first, StoredHeader *header); /* false: no valid entry header */
bool strip_reserved(Row *row, bool has_entry_header);                                  /* false: `present` is malformed */

#endif
