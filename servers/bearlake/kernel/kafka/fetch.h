/* Versions of Fetch. Contract: fetch.py. */
#ifndef BEARLAKE_KAFKA_FETCH_H
#define BEARLAKE_KAFKA_FETCH_H

#include "kafka/kafka.h"

/* What each version added; fetch.py has the same names. */
#define SINCE_START_OFFSET 5
#define SINCE_SESSIONS 7
#define SINCE_EPOCHS 9
#define SINCE_RACK 11
#define FETCH_FLEXIBLE 12
#define SINCE_TOPIC_IDS 13
#define SINCE_REPLICA_STATE 15

int check_fetch_version(PyObject *module, PyObject *number, int *out); /* -1 with an exception set if it is not supported */

#endif
