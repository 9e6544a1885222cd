/* SENDs that were taken together, for their taking and their receipts. Contract: send_results.py. */
#ifndef BEARLAKE_PULSAR_SEND_RESULTS_H
#define BEARLAKE_PULSAR_SEND_RESULTS_H

#include "log/write_buffer.h"
#include "pulsar/sends.h"

/* send_results.SendResults */
typedef struct {
    Results base;
    Py_ssize_t send_count;
    Send *sends;
} SendResults;

SendResults *to_send_results(KernelState *state, PyObject *value); /* borrowed; NULL with an exception set if it is none, or has SENDs */
int send_results_set(SendResults *call, Send *sends, Py_ssize_t count); /* owns the memory then; -1 with an exception set, and nothing done */
void send_results_clear(SendResults *call);                             /* removes the SENDs */

#endif
