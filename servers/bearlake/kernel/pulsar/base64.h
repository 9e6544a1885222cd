/* Base64 of partition keys (RFC 4648, section 4): decodes only canonical base64. */
#ifndef BEARLAKE_PULSAR_BASE64_H
#define BEARLAKE_PULSAR_BASE64_H

#include "pulsar/output.h"

int64_t base64_decoded_size(const Field *text); /* -1: not canonical base64 */
void put_base64_decoded(Writer *writer, const Field *text);
int64_t base64_encoded_size(int64_t size);
void put_base64_encoded(Writer *writer, const Field *bytes);

#endif
