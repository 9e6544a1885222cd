/* Kafka's Produce and Fetch: parse, admit and answer requests. */
#ifndef BEARLAKE_KAFKA_H
#define BEARLAKE_KAFKA_H

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

KERNEL_FUNCTION(kernel_admit_plain);
KERNEL_FUNCTION(kernel_parse_produce);
KERNEL_FUNCTION(kernel_parse_produces);
KERNEL_FUNCTION(kernel_encode_produce_appended);
KERNEL_FUNCTION(kernel_encode_produce_response);
KERNEL_FUNCTION(kernel_encode_fetch);
KERNEL_FUNCTION(kernel_parse_fetch);

#endif
