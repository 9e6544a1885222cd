/* Tokens of JSON. Contract: json_text.py. */
#include "typed/json.h"

#include "batch/batch.h"

#define ONES UINT64_C(0x0101010101010101)
#define HIGHS UINT64_C(0x8080808080808080)
#define LEAST_PRINTABLE 0x20

/* Whether one of eight octets ends a run of plain ones: a quote, a backslash or a control character. */
static inline bool has_special(uint64_t word)
{
    const uint64_t quote = word ^ ONES * '"', backslash = word ^ ONES * '\\';
    const uint64_t zeros = ((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash);
    return ((zeros | ((word - ONES * LEAST_PRINTABLE) & ~word)) & HIGHS) != 0;
}

Step json_peek(Decoder *decoder, const Node *node, uint8_t *octet)
{
    while (decoder->at < decoder->end && is_space(*decoder->at))
        decoder->at++;
    if (decoder->at == decoder->end)
        return stop(decoder, node, OUTCOME_TRUNCATED);
    *octet = *decoder->at;
    return STEP_OK;
}

Step json_word(Decoder *decoder, const Node *node, const char *word)
{
    for (; *word != 0; word++, decoder->at++) {
        if (decoder->at == decoder->end)
            return stop(decoder, node, OUTCOME_TRUNCATED);
        if (*decoder->at != (uint8_t)*word)
            return stop(decoder, node, OUTCOME_SYNTAX);
    }
    return STEP_OK;
}

/* Moves past an escape, which begins at `decoder->at`. */
static Step pass_escape(Decoder *decoder, const Node *node)
{
    const uint8_t *at = decoder->at + 1;
    if (at == decoder->end)
        return stop(decoder, node, OUTCOME_TRUNCATED);
    if (*at == 'u') {
        for (int digit = 1; digit <= 4; digit++) {
            if (at + digit == decoder->end)
                return stop(decoder, node, OUTCOME_TRUNCATED);
            if (hex_digit(at[digit]) < 0)
                return stop(decoder, node, OUTCOME_SYNTAX);
        }
        decoder->at = at + 5;
        return STEP_OK;
    }
    if (*at == 0 || strchr("\"\\/bfnrt", *at) == NULL)
        return stop(decoder, node, OUTCOME_SYNTAX);
    decoder->at = at + 1;
    return STEP_OK;
}

Step json_string(Decoder *decoder, const Node *node, JsonString *string)
{
    uint64_t seen = 0;
    string->text = ++decoder->at;
    string->has_escapes = false;
    for (;;) {
        const uint8_t *at = decoder->at;
        for (uint64_t word; decoder->end - at >= 8; at += 8) {
            memcpy(&word, at, 8);
            if (has_special(word))
                break;
            seen |= word;
        }
        for (; at < decoder->end && *at != '"' && *at != '\\' && *at >= LEAST_PRINTABLE; at++)
            seen |= *at;
        decoder->at = at;
        if (at == decoder->end)
            return stop(decoder, node, OUTCOME_TRUNCATED);
        if (*at == '"')
            break;
        if (*at != '\\')
            return stop(decoder, node, OUTCOME_SYNTAX);
        string->has_escapes = true;
        const Step step = pass_escape(decoder, node);
        if (step != STEP_OK)
            return step;
    }
    string->size = decoder->at++ - string->text;
    return (seen & HIGHS) != 0 && !is_text(string->text, (size_t)string->size) ? stop(decoder, node, OUTCOME_TEXT) : STEP_OK;
}

/* Moves past digits, of which there must be one. */
static Step pass_digits(Decoder *decoder, const Node *node)
{
    if (decoder->at == decoder->end)
        return stop(decoder, node, OUTCOME_TRUNCATED);
    if (!is_digit(*decoder->at))
        return stop(decoder, node, OUTCOME_SYNTAX);
    while (decoder->at < decoder->end && is_digit(*decoder->at))
        decoder->at++;
    return STEP_OK;
}

Step json_number(Decoder *decoder, const Node *node)
{
    Step step = STEP_OK;
    if (*decoder->at == '-')
        decoder->at++;
    if (decoder->at < decoder->end && *decoder->at == '0')
        decoder->at++;
    else if ((step = pass_digits(decoder, node)) != STEP_OK)
        return step;
    if (decoder->at < decoder->end && *decoder->at == '.') {
        decoder->at++;
        if ((step = pass_digits(decoder, node)) != STEP_OK)
            return step;
    }
    if (decoder->at < decoder->end && (*decoder->at | 0x20) == 'e') {
        decoder->at++;
        if (decoder->at < decoder->end && (*decoder->at == '+' || *decoder->at == '-'))
            decoder->at++;
        step = pass_digits(decoder, node);
    }
    return step;
}

Step json_key(Decoder *decoder, const Node *node, JsonString *string)
{
    uint8_t octet;
    Step step = json_peek(decoder, node, &octet);
    if (step != STEP_OK)
        return step;
    if (octet != '"')
        return stop(decoder, node, OUTCOME_SYNTAX);
    if ((step = json_string(decoder, node, string)) != STEP_OK || (step = json_peek(decoder, node, &octet)) != STEP_OK)
        return step;
    if (octet != ':')
        return stop(decoder, node, OUTCOME_SYNTAX);
    decoder->at++;
    return STEP_OK;
}

static Step pass_scalar(Decoder *decoder, const Node *node, uint8_t octet)
{
    JsonString string;
    switch (octet) {
    case '"': return json_string(decoder, node, &string);
    case 't': return json_word(decoder, node, "true");
    case 'f': return json_word(decoder, node, "false");
    case 'n': return json_word(decoder, node, "null");
    default:
        return octet == '-' || is_digit(octet) ? json_number(decoder, node) : stop(decoder, node, OUTCOME_SYNTAX);
    }
}

/* The objects (bit 1) and arrays (bit 0) around the place that is read. */
typedef struct {
    uint8_t is_object[JSON_LEVELS_MAX / 8];
    int count;
} Around;

static inline bool is_in_object(const Around *around) { return around->is_object[(around->count - 1) >> 3] >> ((around->count - 1) & 7) & 1; }

/* Moves into an object or array; `*is_empty`: and out of it. */
static Step enter(Decoder *decoder, const Node *node, int level, Around *around, uint8_t octet, bool *is_empty)
{
    JsonString key;
    if (level + around->count >= JSON_LEVELS_MAX)
        return stop(decoder, node, OUTCOME_DEPTH);
    const bool is_object = octet == '{';
    uint8_t *bits = &around->is_object[around->count >> 3];
    const unsigned bit = 1u << (around->count++ & 7);
    *bits = (uint8_t)((*bits & (bit - 1)) | (is_object ? bit : 0));
    decoder->at++;
    const Step step = json_peek(decoder, node, &octet);
    if (step != STEP_OK)
        return step;
    *is_empty = octet == (is_object ? '}' : ']');
    if (!*is_empty)
        return is_object ? json_key(decoder, node, &key) : STEP_OK;
    decoder->at++;
    around->count--;
    return STEP_OK;
}

/* Moves past what follows a value, to the next value or out of all objects and arrays. */
static Step leave(Decoder *decoder, const Node *node, Around *around)
{
    JsonString key;
    uint8_t octet;
    while (around->count > 0) {
        const Step step = json_peek(decoder, node, &octet);
        if (step != STEP_OK)
            return step;
        const bool is_object = is_in_object(around);
        if (octet != ',' && octet != (is_object ? '}' : ']'))
            return stop(decoder, node, OUTCOME_SYNTAX);
        decoder->at++;
        if (octet == ',')
            return is_object ? json_key(decoder, node, &key) : STEP_OK;
        around->count--;
    }
    return STEP_OK;
}

Step json_pass(Decoder *decoder, const Node *node, int level)
{
    Around around = {.count = 0};
    do {
        uint8_t octet;
        bool is_closed = true;
        Step step = json_peek(decoder, node, &octet);
        if (step == STEP_OK)
            step = octet == '{' || octet == '[' ? enter(decoder, node, level, &around, octet, &is_closed) : pass_scalar(decoder, node, octet);
        if (step == STEP_OK && is_closed)
            step = leave(decoder, node, &around);
        if (step != STEP_OK)
            return step;
    } while (around.count > 0);
    return STEP_OK;
}

/* The number of an escape \uXXXX, which is there. */
static uint32_t escaped_unit(const uint8_t *at)
{
    uint32_t unit = 0;
    for (int digit = 2; digit < 6; digit++)
        unit = unit << 4 | (uint32_t)hex_digit(at[digit]);
    return unit;
}

static uint8_t *put_character(uint8_t *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (uint8_t)code;
        return to;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *to++ = (uint8_t)((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | code >> (6 * more));
    for (int part = more - 1; part >= 0; part--)
        *to++ = (uint8_t)(0x80 | (code >> (6 * part) & 0x3F));
    return to;
}

/* Reads the escape at `*at`; false: half of a surrogate pair. */
static bool read_escape(const uint8_t **at, const uint8_t *end, uint32_t *code)
{
    static const char letters[] = "bfnrt", characters[] = "\b\f\n\r\t";
    const uint8_t letter = (*at)[1];
    if (letter != 'u') {
        const char *found = strchr(letters, letter);
        *code = found == NULL ? letter : (uint8_t)characters[found - letters];
        *at += 2;
        return true;
    }
    *code = escaped_unit(*at);
    *at += 6;
    if (*code < 0xD800 || *code > 0xDFFF)
        return true;
    if (*code > 0xDBFF || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u')
        return false;
    const uint32_t low = escaped_unit(*at);
    if (low < 0xDC00 || low > 0xDFFF)
        return false;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    *at += 6;
    return true;
}

bool json_unescape(Decoder *decoder, JsonString *string, Step *step)
{
    *step = STEP_OK;
    if (!string->has_escapes)
        return true;
    if (!column_reserve(&decoder->scratch, 0, (size_t)string->size + COPY_SLACK)) {
        *step = STEP_NO_MEMORY;
        return true;
    }
    uint8_t *to = decoder->scratch.bytes;
    for (const uint8_t *at = string->text, *end = at + string->size; at < end;) {
        uint32_t code;
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        if (!read_escape(&at, end, &code))
            return false;
        to = put_character(to, code);
    }
    string->text = decoder->scratch.bytes;
    string->size = to - decoder->scratch.bytes;
    return true;
}
