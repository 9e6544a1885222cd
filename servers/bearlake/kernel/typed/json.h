/* Reads JSON texts into columns. Contract: json_values.py; kinds and outcomes have the names of __init__.py. */
#ifndef BEARLAKE_JSON_H
#define BEARLAKE_JSON_H

#include "typed/decoder.h"

#define JSON_LEVELS_MAX 1000 /* objects and arrays around a value, in parts that have no columns */

/* A string without its quotes, as it is written. */
typedef struct {
    const uint8_t *text;
    int64_t size;
    bool has_escapes;
} JsonString;

/* json_text.c: tokens, from `decoder->at` on; errors name `node`. */
Step json_peek(Decoder *decoder, const Node *node, uint8_t *octet); /* the next octet that is not space, which stays */
Step json_word(Decoder *decoder, const Node *node, const char *word);
Step json_string(Decoder *decoder, const Node *node, JsonString *string);
Step json_number(Decoder *decoder, const Node *node);
Step json_key(Decoder *decoder, const Node *node, JsonString *string); /* with its colon */
Step json_pass(Decoder *decoder, const Node *node, int level);         /* a value of any type, below `level` objects and arrays */

/* Resolves escapes in the decoder's own memory; false: half of a surrogate pair, which is no text. `*step`: whether there is memory. */
bool json_unescape(Decoder *decoder, JsonString *string, Step *step);

/* json_cells.c: the cell of a number or a text; OUTCOME_EXACT, or why there is none. */
TypedOutcome json_integer(const uint8_t *text, const uint8_t *end, int64_t *value);
TypedOutcome json_double(Decoder *decoder, const uint8_t *text, const uint8_t *end, double *value, Step *step);
TypedOutcome json_date(const uint8_t *text, int64_t size, int32_t *days);
/* The date and time at the beginning of a text; `*at`: where they end. */
TypedOutcome json_date_time(const uint8_t *text, int64_t size, int64_t *seconds, int64_t *fraction, const uint8_t **at);
TypedOutcome json_timestamp(const uint8_t *text, int64_t size, int64_t *micros);
TypedOutcome json_uuid(const uint8_t *text, int64_t size, uint8_t *cell);
int64_t json_exponent(const uint8_t *at, const uint8_t *end); /* at most a billion in size */
bool json_cells_open(void); /* before the first call; needs the GIL; false: no memory */

/* json_declared.c: the same, of the types that only declared columns have. */
TypedOutcome json_decimal(const uint8_t *text, const uint8_t *end, const Node *node, uint8_t *cell);
bool json_is_number(const uint8_t *text, int64_t size); /* whether a text is a number of JSON's grammar */
TypedOutcome json_local_timestamp(const uint8_t *text, int64_t size, int64_t *micros);
/* Decodes base64 in the decoder's own memory, and makes it the string. */
TypedOutcome json_base64(Decoder *decoder, JsonString *string, Step *step);

static inline bool is_digit(uint8_t octet) { return octet >= '0' && octet <= '9'; }

static inline bool is_space(uint8_t octet) { return octet == ' ' || octet == '\n' || octet == '\r' || octet == '\t'; }

static inline int hex_digit(uint8_t octet)
{
    if (is_digit(octet))
        return octet - '0';
    octet |= 0x20;
    return octet >= 'a' && octet <= 'f' ? octet - 'a' + 10 : -1;
}

#endif
