/* Kafka's Produce and Fetch: parse, admit and answer requests. */
#ifndef BEARLAKE_KAFKA_H
#define BEARLAKE_KAFKA_H

#include "batch/batch.h"
#include "native.h"

/* Versions of Produce; versions.py says what each version added. */
#define LOG_START_OFFSET 5
#define ZSTD_SINCE 7
#define RECORD_ERRORS 8
#define FLEXIBLE 9
#define TOPIC_IDS 13

#define ELEMENTS_MAX 20000 /* kafka/__init__.py */

/* Indices in kafka.ProduceEntry */
enum {
    TOPIC,
    INDEX,
    START,
    END,
    STATUS,
    ATTRIBUTES,
    RECORD_COUNT,
    BASE_TIME,
    MAX_TIME,
    PRODUCER,
    EPOCH,
    SEQUENCE,
    ENTRY_FIELDS,
};

#define COMPRESSION_MASK 0x07
#define TRANSACTIONAL 0x10
#define ZSTD 4

/* produce.c: the status of a batch, and its header; the header of a bad batch has defaults. `is_good`: as for inspect_records */
Status inspect_produced(const uint8_t *bytes, Py_ssize_t size, int version, Header *header, bool *is_good);
PyObject *make_entry(PyObject *topic, int32_t index, Py_ssize_t start, Py_ssize_t end, Status status, const Header *header);

/* kafka.PlainRules, without the stream id */
typedef struct {
    int64_t first_key, partition_count, bytes_max, earliest, latest, checks_records;
} Rules;

/* admission.c */
int to_rules(PyObject *tuple, Rules *rules, const uint8_t **stream_id); /* -1 with an exception set; the id is borrowed */
bool is_plain(const Rules *rules, int64_t index, Status status, const Header *header, const uint8_t *batch, int64_t size);
bool fits_rules(const Rules *rules, int64_t index, Status status, const Header *header, int64_t size); /* all but the records */

/* One partition of a Produce response. */
typedef struct {
    PyObject *topic; /* borrowed */
    int64_t index, error_code, base_offset, append_time, log_start;
} Answer;

/* The partitions [start, end) of a response; `get` returns -1 with an exception set. */
typedef struct {
    const void *source;
    int (*get)(const void *source, Py_ssize_t at, Answer *answer);
    Py_ssize_t start, end;
} Answers;

/* produce_response.c: response frames, back to back */
typedef struct ResponseWriter ResponseWriter;
ResponseWriter *responses_new(void);
int responses_add(ResponseWriter *writer, int version, int32_t correlation_id, const Answers *answers, int32_t throttle_ms);
PyObject *responses_bytes(ResponseWriter *writer); /* NULL with an exception set */
void responses_free(ResponseWriter *writer);

/* binding.c */
PyObject *make_produce_binding_type(PyObject *module);

/* turn.c */
PyObject *make_produce_turn_type(PyObject *module);
PyObject *import_turn_world_type(void); /* bearlake.kernel.kafka.TurnWorld */

/* produce_results.c */
PyObject *make_produce_results_type(PyObject *module);

KERNEL_FUNCTION(kernel_admit_plain);
KERNEL_FUNCTION(kernel_parse_produce);
KERNEL_FUNCTION(kernel_take_produces);
KERNEL_FUNCTION(kernel_encode_produce_response);
KERNEL_FUNCTION(kernel_encode_fetch);
KERNEL_FUNCTION(kernel_parse_fetch);

#endif
