/* Cells of the types that only declared columns have: decimals, times without an offset, bytes. Contract: json_declared.py. */
#include "typed/json.h"

#define SECOND_MICROS INT64_C(1000000)
#define BASE64_PAD 64
#define BASE64_NONE 255

/* A decimal that is read: value = digits * 10^power, without zeros at either end of the digits. */
typedef struct {
    unsigned __int128 digits;
    int64_t count; /* of all digits; `digits` has the first DECIMAL_DIGITS_MAX */
    int64_t power;
} Digits;

static Digits read_digits(const uint8_t *at, const uint8_t *end)
{
    Digits read = {0};
    int64_t zeros = 0; /* after the last digit */
    bool is_fraction = false;
    for (; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            is_fraction = true;
            continue;
        }
        read.power -= is_fraction;
        if (*at == '0') {
            zeros += read.count > 0;
            continue;
        }
        for (zeros++; zeros > 0; zeros--)
            if (read.count++ < DECIMAL_DIGITS_MAX)
                read.digits = read.digits * 10 + (zeros == 1 ? (unsigned)(*at - '0') : 0);
    }
    read.power += zeros;
    if (at < end)
        read.power += json_exponent(at + 1, end);
    return read;
}

TypedOutcome json_decimal(const uint8_t *text, const uint8_t *end, const Node *node, uint8_t *cell)
{
    const bool is_negative = *text == '-';
    const Digits read = read_digits(text + is_negative, end);
    unsigned __int128 size = read.digits;
    if (read.count > 0) {
        const int64_t shift = read.power + node->size;
        if (shift < 0 || read.count + shift > node->precision)
            return OUTCOME_RANGE;
        for (int64_t at = 0; at < shift; at++)
            size *= 10;
    }
    if (is_negative)
        size = ~size + 1;
    memcpy(cell, &size, sizeof size);
    return OUTCOME_EXACT;
}

bool json_is_number(const uint8_t *text, int64_t size)
{
    const uint8_t *at = text, *end = text + size;
    at += at < end && *at == '-';
    if (at == end || !is_digit(*at))
        return false;
    if (*at++ != '0')
        while (at < end && is_digit(*at))
            at++;
    for (int part = 0; part < 2; part++) {
        if (at == end || (part == 0 ? *at != '.' : (*at | 0x20) != 'e'))
            continue;
        at++;
        if (part == 1 && at < end && (*at == '+' || *at == '-'))
            at++;
        const uint8_t *first = at;
        while (at < end && is_digit(*at))
            at++;
        if (at == first)
            return false;
    }
    return at == end;
}

TypedOutcome json_local_timestamp(const uint8_t *text, int64_t size, int64_t *micros)
{
    int64_t seconds, fraction;
    const uint8_t *at;
    if (json_date_time(text, size, &seconds, &fraction, &at) != OUTCOME_EXACT || at != text + size)
        return OUTCOME_FORMAT;
    *micros = seconds * SECOND_MICROS + fraction;
    return OUTCOME_EXACT;
}

static uint8_t sextet(uint8_t octet)
{
    if (octet >= 'A' && octet <= 'Z')
        return octet - 'A';
    if (octet >= 'a' && octet <= 'z')
        return octet - 'a' + 26;
    if (is_digit(octet))
        return octet - '0' + 52;
    return octet == '+' ? 62 : octet == '/' ? 63 : octet == '=' ? BASE64_PAD : BASE64_NONE;
}

TypedOutcome json_base64(Decoder *decoder, JsonString *string, Step *step)
{
    *step = STEP_OK;
    if (string->size % 4 != 0)
        return OUTCOME_FORMAT;
    if (string->text != decoder->scratch.bytes) {
        if (!column_reserve(&decoder->scratch, 0, (size_t)string->size + COPY_SLACK)) {
            *step = STEP_NO_MEMORY;
            return OUTCOME_EXACT;
        }
        memcpy(decoder->scratch.bytes, string->text, (size_t)string->size);
    }
    uint8_t *bytes = decoder->scratch.bytes, *to = bytes; /* in place: four octets become at most three */
    for (int64_t at = 0; at < string->size; at += 4) {
        const uint8_t first = sextet(bytes[at]), second = sextet(bytes[at + 1]), third = sextet(bytes[at + 2]), last = sextet(bytes[at + 3]);
        const bool is_end = at + 4 == string->size;
        if (first >= BASE64_PAD || second >= BASE64_PAD || third > BASE64_PAD || last > BASE64_PAD || (third == BASE64_PAD && last != BASE64_PAD)
            || (last == BASE64_PAD && !is_end))
            return OUTCOME_FORMAT;
        *to++ = (uint8_t)(first << 2 | second >> 4);
        if (third < BASE64_PAD)
            *to++ = (uint8_t)(second << 4 | third >> 2);
        if (last < BASE64_PAD)
            *to++ = (uint8_t)(third << 6 | last);
    }
    string->text = bytes;
    string->size = to - bytes;
    return OUTCOME_EXACT;
}
