/* SENDs in a receive buffer, for those that parse them and those that take them; and their receipts. Contract: sends.py. */
#ifndef BEARLAKE_PULSAR_SENDS_H
#define BEARLAKE_PULSAR_SENDS_H

#include "pulsar/encode.h"
#include "pulsar/pulsar.h"

#define RECEIPT_BYTES_MAX 96 /* seven varints, two of them sizes, their tags, two sizes of frames */

typedef struct {
    uint64_t producer_id, sequence_id, highest_id;
    bool has_highest;
} Send;

typedef struct {
    int64_t count_max, payload_bytes_max, message_bytes_max;
    bool has_producer; /* only SENDs of `producer_id` are wanted */
    uint64_t producer_id;
} SendLimits;

/* A common SEND. */
typedef struct {
    Send send;
    Cursor metadata, payload;
    Py_ssize_t end;
} SendFrame;

/* Whether there is a whole common SEND at `at` whose checksum is right; may release the GIL in between. */
bool read_common_send(const uint8_t *bytes, Py_ssize_t at, Py_ssize_t end, const SendLimits *limits, SendFrame *found);
bool clear_refusal(const KernelState *state); /* clears the exception if it says that an entry is not common */

/* What all receipts of a producer name. */
typedef struct {
    uint64_t producer_id, ledger_id;
    int64_t partition; /* negative: none */
} ReceiptNames;

int to_receipt_names(PyObject *const *arguments, ReceiptNames *names); /* reads three; -1 with an exception set */
bool has_receipt(int64_t verdict, int64_t base_offset);                 /* whether a SEND with this outcome gets one */
/* Writes at most RECEIPT_BYTES_MAX bytes. */
void put_receipt(Writer *writer, const ReceiptNames *names, const Send *send, int64_t base_offset);

#endif
