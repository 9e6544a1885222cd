/* Cells of numbers, dates, times and UUIDs that are written as text. Contract: json_cells.py. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* newlocale, strtod_l */
#endif
#include "typed/json.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

#define INTEGER_DIGITS_MAX 19
#define EXPONENT_MAX 1000000000
#define EXACT_POWER_MAX 22 /* 10^22 is the last power of ten that a double holds exactly */
#define EXACT_MANTISSA (UINT64_C(1) << 53)
#define DATE_BYTES 10
#define SECOND_MICROS INT64_C(1000000)
#define DAY_SECONDS INT64_C(86400)
#define SECONDS_MIN INT64_C(-62135596800) /* the year 1 begins */
#define SECONDS_END INT64_C(253402300800) /* the year 10000 begins */
#define UUID_TEXT_BYTES 36

static locale_t plain_locale; /* numbers with a point, whatever the process's locale is */

bool json_cells_open(void)
{
    if (plain_locale == (locale_t)0)
        plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain_locale != (locale_t)0;
}

/* A number as sign, significant digits and a power of ten: value = mantissa * 10^power. */
typedef struct {
    bool is_negative;
    uint64_t mantissa;   /* the first 19 significant digits, without zeros at either end */
    int64_t digit_count; /* all of them */
    int64_t power;
} Parsed;

int64_t json_exponent(const uint8_t *at, const uint8_t *end)
{
    const bool is_negative = *at == '-';
    int64_t exponent = 0;
    for (at += *at == '-' || *at == '+'; at < end; at++)
        if (exponent < EXPONENT_MAX)
            exponent = exponent * 10 + (*at - '0');
    exponent = exponent > EXPONENT_MAX ? EXPONENT_MAX : exponent;
    return is_negative ? -exponent : exponent;
}

/* Reads a number of JSON's grammar. */
static Parsed read_parts(const uint8_t *at, const uint8_t *end)
{
    Parsed parsed = {.is_negative = *at == '-'};
    int64_t zeros = 0; /* after the last digit of the mantissa */
    bool is_fraction = false;
    for (at += parsed.is_negative; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            is_fraction = true;
            continue;
        }
        parsed.power -= is_fraction;
        if (*at == '0') {
            zeros += parsed.digit_count > 0;
            continue;
        }
        for (zeros++; zeros > 0; zeros--)
            if (parsed.digit_count++ < INTEGER_DIGITS_MAX)
                parsed.mantissa = parsed.mantissa * 10 + (zeros == 1 ? (uint64_t)(*at - '0') : 0);
    }
    parsed.power += zeros;
    if (at < end)
        parsed.power += json_exponent(at + 1, end);
    return parsed;
}

TypedOutcome json_integer(const uint8_t *text, const uint8_t *end, int64_t *value)
{
    const Parsed parsed = read_parts(text, end);
    *value = 0;
    if (parsed.digit_count == 0)
        return OUTCOME_EXACT;
    if (parsed.power < 0)
        return OUTCOME_TYPE;
    if (parsed.digit_count + parsed.power > INTEGER_DIGITS_MAX)
        return OUTCOME_RANGE;
    uint64_t size = parsed.mantissa;
    for (int64_t at = 0; at < parsed.power; at++)
        size *= 10;
    if (size > (uint64_t)INT64_MAX + parsed.is_negative)
        return OUTCOME_RANGE;
    *value = (int64_t)(parsed.is_negative ? ~size + 1 : size);
    return OUTCOME_EXACT;
}

TypedOutcome json_double(Decoder *decoder, const uint8_t *text, const uint8_t *end, double *value, Step *step)
{
    static const double powers[EXACT_POWER_MAX + 1] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const Parsed parsed = read_parts(text, end);
    *step = STEP_OK;
    /* One operation on two exact numbers is rounded once, to the nearest double. */
    if (parsed.digit_count <= INTEGER_DIGITS_MAX && parsed.mantissa <= EXACT_MANTISSA && parsed.power >= -EXACT_POWER_MAX
        && parsed.power <= EXACT_POWER_MAX) {
        const double size = (double)parsed.mantissa;
        const double found = parsed.power < 0 ? size / powers[-parsed.power] : size * powers[parsed.power];
        *value = parsed.is_negative ? -found : found;
        return OUTCOME_EXACT;
    }
    const size_t size = (size_t)(end - text);
    if (!column_reserve(&decoder->scratch, 0, size + 1)) {
        *step = STEP_NO_MEMORY;
        return OUTCOME_EXACT;
    }
    memcpy(decoder->scratch.bytes, text, size);
    decoder->scratch.bytes[size] = 0;
    *value = strtod_l((const char *)decoder->scratch.bytes, NULL, plain_locale);
    return isinf(*value) ? OUTCOME_RANGE : OUTCOME_EXACT;
}

/* Reads `count` digits; false: others. */
static bool read_digits(const uint8_t *at, int count, int *number)
{
    *number = 0;
    for (int digit = 0; digit < count; digit++) {
        if (!is_digit(at[digit]))
            return false;
        *number = *number * 10 + (at[digit] - '0');
    }
    return true;
}

TypedOutcome json_date(const uint8_t *text, int64_t size, int32_t *days)
{
    static const uint8_t lengths[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (size != DATE_BYTES || !read_digits(text, 4, &year) || text[4] != '-' || !read_digits(text + 5, 2, &month) || text[7] != '-'
        || !read_digits(text + 8, 2, &day) || year < 1 || month < 1 || month > 12 || day < 1)
        return OUTCOME_FORMAT;
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > lengths[month - 1] + (month == 2 && is_leap))
        return OUTCOME_FORMAT;
    /* Years begin in March, so that the leap day is the last one: days since 1970-01-01. */
    const int shifted = year - (month <= 2), era = shifted / 400, of_era = shifted % 400;
    const int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    *days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
    return OUTCOME_EXACT;
}

/* Reads two digits of at most `most` after a character; false: others. */
static bool read_pair(const uint8_t *at, uint8_t before, int most, int *number)
{
    return at[0] == before && read_digits(at + 1, 2, number) && *number <= most;
}

TypedOutcome json_date_time(const uint8_t *text, int64_t size, int64_t *seconds, int64_t *fraction, const uint8_t **at)
{
    int32_t days;
    int hour, minute, second;
    const uint8_t *end = text + size;
    *at = text + 19;
    if (size < 19 || json_date(text, DATE_BYTES, &days) != OUTCOME_EXACT || ((text[10] | 0x20) != 't' && text[10] != ' ')
        || !read_pair(text + 10, text[10], 23, &hour) || !read_pair(text + 13, ':', 59, &minute) || !read_pair(text + 16, ':', 59, &second))
        return OUTCOME_FORMAT;
    *fraction = 0;
    if (*at < end && **at == '.') {
        int64_t unit = SECOND_MICROS;
        const uint8_t *first = ++*at;
        for (; *at < end && is_digit(**at); ++*at) {
            unit /= 10;
            *fraction += unit * (**at - '0');
        }
        if (*at == first)
            return OUTCOME_FORMAT;
    }
    *seconds = days * DAY_SECONDS + 60 * (60 * (int64_t)hour + minute) + second;
    return OUTCOME_EXACT;
}

TypedOutcome json_timestamp(const uint8_t *text, int64_t size, int64_t *micros)
{
    int zone_hour = 0, zone_minute = 0;
    int64_t seconds, fraction;
    const uint8_t *at, *end = text + size;
    if (json_date_time(text, size, &seconds, &fraction, &at) != OUTCOME_EXACT || at == end)
        return OUTCOME_FORMAT;
    const bool is_west = *at == '-';
    if ((*at | 0x20) == 'z') {
        if (at + 1 != end)
            return OUTCOME_FORMAT;
    } else if ((*at != '+' && *at != '-') || end - at != 6 || !read_pair(at, *at, 23, &zone_hour) || !read_pair(at + 3, ':', 59, &zone_minute)) {
        return OUTCOME_FORMAT;
    }
    const int64_t zone = 60 * (60 * (int64_t)zone_hour + zone_minute);
    seconds += is_west ? zone : -zone;
    if (seconds < SECONDS_MIN || seconds >= SECONDS_END)
        return OUTCOME_RANGE;
    *micros = seconds * SECOND_MICROS + fraction;
    return OUTCOME_EXACT;
}

TypedOutcome json_uuid(const uint8_t *text, int64_t size, uint8_t *cell)
{
    if (size != UUID_TEXT_BYTES)
        return OUTCOME_FORMAT;
    for (int at = 0, place = 0; at < UUID_TEXT_BYTES;) {
        if (at == 8 || at == 13 || at == 18 || at == 23) {
            if (text[at++] != '-')
                return OUTCOME_FORMAT;
            continue;
        }
        const int high = hex_digit(text[at]), low = hex_digit(text[at + 1]);
        if (high < 0 || low < 0)
            return OUTCOME_FORMAT;
        cell[place++] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return OUTCOME_EXACT;
}
