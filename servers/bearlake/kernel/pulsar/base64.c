/* Base64 of partition keys (RFC 4648, section 4): decodes only canonical base64. */
#include "pulsar/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* -1: not in the alphabet */
static inline int sextet_of(uint8_t digit)
{
    if (digit >= 'A' && digit <= 'Z')
        return digit - 'A';
    if (digit >= 'a' && digit <= 'z')
        return digit - 'a' + 26;
    if (digit >= '0' && digit <= '9')
        return digit - '0' + 52;
    return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

int64_t base64_decoded_size(const Field *text)
{
    if (text->size % 4 != 0)
        return -1;
    int64_t digits = text->size;
    while (digits > 0 && text->size - digits < 2 && text->bytes[digits - 1] == '=')
        digits--;
    for (int64_t at = 0; at < digits; at++)
        if (sextet_of(text->bytes[at]) < 0)
            return -1;
    const int64_t padding = text->size - digits;
    if (padding > 0 && sextet_of(text->bytes[digits - 1]) & (padding == 1 ? 0x03 : 0x0F))
        return -1;
    return text->size / 4 * 3 - padding;
}

void put_base64_decoded(Writer *writer, const Field *text)
{
    int64_t left = base64_decoded_size(text);
    for (const uint8_t *at = text->bytes; left > 0; at += 4, left -= 3) {
        uint32_t bits = 0;
        for (int digit = 0; digit < 4; digit++)
            bits = bits << 6 | (uint32_t)(at[digit] == '=' ? 0 : sextet_of(at[digit]));
        const uint8_t bytes[3] = {(uint8_t)(bits >> 16), (uint8_t)(bits >> 8), (uint8_t)bits};
        put(writer, bytes, left < 3 ? left : 3);
    }
}

int64_t base64_encoded_size(int64_t size) { return (size + 2) / 3 * 4; }

void put_base64_encoded(Writer *writer, const Field *bytes)
{
    for (int64_t at = 0; at < bytes->size; at += 3) {
        const int64_t left = bytes->size - at;
        const uint8_t *from = bytes->bytes + at;
        const uint32_t bits = (uint32_t)from[0] << 16 | (left > 1 ? (uint32_t)from[1] << 8 : 0) | (left > 2 ? from[2] : 0u);
        const char digits[4] = {
            alphabet[bits >> 18],
            alphabet[bits >> 12 & 63],
            left > 1 ? alphabet[bits >> 6 & 63] : '=',
            left > 2 ? alphabet[bits & 63] : '=',
        };
        put(writer, digits, 4);
    }
}
