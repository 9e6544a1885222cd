/* Requests that were taken together, for their taking and their responses. Contract: produce_results.py. */
#ifndef BEARLAKE_KAFKA_PRODUCE_RESULTS_H
#define BEARLAKE_KAFKA_PRODUCE_RESULTS_H

#include "kafka/kafka.h"
#include "log/write_buffer.h"

/* What a response names of a batch. */
typedef struct {
    uint32_t topic; /* in the list of topics */
    int32_t index;
} Place;

typedef struct {
    int32_t correlation_id;
    uint32_t batch_count;
} Request;

/* produce_results.ProduceResults */
typedef struct {
    Results base;
    int version;
    Py_ssize_t request_count;
    Request *requests;
    Place *places;
    PyObject *topics; /* a list, of runs of equal topics */
} ProduceResults;

int produce_results_check_unused(const ProduceResults *call); /* -1 with ValueError set if the call has requests */
void produce_results_clear(ProduceResults *call);             /* removes the requests */

#endif
