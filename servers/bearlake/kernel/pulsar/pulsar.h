/* Pulsar entries: SENDs to record batches, record batches to MESSAGEs. */
#ifndef BEARLAKE_PULSAR_H
#define BEARLAKE_PULSAR_H

#include "native.h"

KERNEL_FUNCTION(kernel_decode_entry);
KERNEL_FUNCTION(kernel_encode_entry);
KERNEL_FUNCTION(kernel_encode_messages);
KERNEL_FUNCTION(kernel_encode_receipts);
KERNEL_FUNCTION(kernel_entry_routing);
KERNEL_FUNCTION(kernel_next_sender);
KERNEL_FUNCTION(kernel_parse_sends);
KERNEL_FUNCTION(kernel_take_sends);

PyObject *make_send_results_type(PyObject *module);

#endif
