/* UTF-8 as Python's "replace" decodes it: U+FFFD for each maximal part of a sequence that is not well-formed.

   Source: The Unicode Standard, 3.9, table 3-7 (well-formed sequences) and "U+FFFD Substitution of Maximal Subparts". */
#include "batch/batch.h"

/* The length of the sequence at `at`, `at < end`; if it is not well-formed, the negative length of its maximal part. */
static int step(const uint8_t *at, const uint8_t *end)
{
    const uint8_t first = at[0];
    uint8_t low = 0x80, high = 0xBF; /* range of the second byte */
    int length;
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return -1;
    if (first < 0xE0) {
        length = 2;
    } else if (first < 0xF0) {
        length = 3;
        low = first == 0xE0 ? 0xA0 : 0x80;  /* else it is an overlong form */
        high = first == 0xED ? 0x9F : 0xBF; /* else it is a surrogate */
    } else {
        length = 4;
        low = first == 0xF0 ? 0x90 : 0x80;
        high = first == 0xF4 ? 0x8F : 0xBF; /* else it is beyond U+10FFFF */
    }
    for (int index = 1; index < length; index++) {
        if (end - at <= index || at[index] < low || at[index] > high)
            return -index;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

static bool is_ascii(const uint8_t *bytes, size_t size)
{
    uint8_t seen = 0;
    for (size_t index = 0; index < size; index++)
        seen |= bytes[index];
    return seen < 0x80;
}

bool is_text(const uint8_t *bytes, size_t size)
{
    if (is_ascii(bytes, size))
        return true;
    for (const uint8_t *at = bytes, *end = bytes + size; at < end;) {
        const int length = step(at, end);
        if (length < 0)
            return false;
        at += length;
    }
    return true;
}

size_t replace_text(const uint8_t *bytes, size_t size, uint8_t *out, bool *is_exact)
{
    if (is_ascii(bytes, size)) {
        memcpy(out, bytes, size);
        return size;
    }
    uint8_t *to = out;
    for (const uint8_t *at = bytes, *end = bytes + size; at < end;) {
        const int length = step(at, end);
        if (length > 0) {
            memcpy(to, at, (size_t)length);
            to += length;
            at += length;
        } else {
            memcpy(to, "\xEF\xBF\xBD", 3);
            to += 3;
            at -= length;
            *is_exact = false;
        }
    }
    return (size_t)(to - out);
}
