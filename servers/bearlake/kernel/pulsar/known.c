/* The fields of a message that follow from its record. Contract: decode.py. */
#include "pulsar/known.h"

#include "pulsar/base64.h"

void put_known(Writer *writer, const Known *known, const Row *row)
{
    const Roles *roles = known->roles;
    const bool has_key = known->key.bytes != NULL;
    if (has_key && known->is_base64) {
        put_bytes_head(writer, roles->key, base64_encoded_size(known->key.size));
        put_base64_encoded(writer, &known->key);
    } else if (has_key) {
        put_bytes_field(writer, roles->key, &known->key);
    }
    if (roles->size != 0)
        put_varint_field(writer, roles->size, row->value.bytes == NULL ? 0 : (uint64_t)row->value.size);
    if (known->event_time != 0)
        put_varint_field(writer, roles->event_time, known->event_time);
    if (has_key && known->is_base64)
        put_varint_field(writer, roles->base64, 1);
    if (known->has_sequence)
        put_varint_field(writer, roles->sequence, known->sequence);
    if (row->value.bytes == NULL)
        put_varint_field(writer, roles->null_value, 1);
}
