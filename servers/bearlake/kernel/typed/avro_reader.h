/* Reads the parts of Avro values. Contract: avro_reader.py. */
#ifndef BEARLAKE_AVRO_READER_H
#define BEARLAKE_AVRO_READER_H

#include "typed/typed.h"

typedef struct {
    const uint8_t *at, *end; /* the value that is read */
    const uint8_t *slack;    /* from here on, fewer than COPY_SLACK bytes follow in the buffer of all values */
    int64_t credit;          /* elements that the value may still have */
    int64_t used, bytes_max; /* bytes of the columns */
    int32_t status;
    Column order, scratch;
} Decoder;

static inline Step stop(Decoder *decoder, const Node *node, TypedOutcome outcome)
{
    decoder->status = node->index << OUTCOME_BITS | (int32_t)outcome;
    return STEP_STOP;
}

/* Keeps the first outcome; DOMAIN counts more than FORM. */
static inline void found(Decoder *decoder, const Node *node, TypedOutcome outcome)
{
    if ((decoder->status & ((1 << OUTCOME_BITS) - 1)) < (int32_t)outcome)
        decoder->status = node->index << OUTCOME_BITS | (int32_t)outcome;
}

static inline Step use(Decoder *decoder, int64_t size)
{
    if (__builtin_add_overflow(decoder->used, size, &decoder->used))
        decoder->used = INT64_MAX;
    return decoder->used > decoder->bytes_max ? STEP_FULL : STEP_OK;
}

/* avro_reader.c; errors name `node`. */
Step read_long_number(Decoder *decoder, const Node *node, int64_t *out);
Step read_block(Decoder *decoder, const Node *node, int64_t *count); /* the head of a block */
/* Moves past a value of a node outside of the tree, below the OPAQUE `column`, which errors name. */
Step pass_node(Decoder *decoder, const Node *column, const Node *node, int level);

/* avro_values.c: appends a value; on an error, some columns have more slots than others. */
Step decode_node(Decoder *decoder, Node *node);

/* A zigzag varint of 64 bits. */
static inline Step read_number(Decoder *decoder, const Node *node, int64_t *out)
{
    if (decoder->at < decoder->end && *decoder->at < 0x80) {
        const int64_t value = *decoder->at++;
        *out = (value >> 1) ^ -(value & 1);
        return STEP_OK;
    }
    return read_long_number(decoder, node, out);
}

static inline Step read_int(Decoder *decoder, const Node *node, int64_t *out)
{
    const Step step = read_number(decoder, node, out);
    return step == STEP_OK && *out != (int32_t)*out ? stop(decoder, node, OUTCOME_RANGE) : step;
}

static inline Step read_size(Decoder *decoder, const Node *node, int64_t *out)
{
    const Step step = read_number(decoder, node, out);
    return step == STEP_OK && (*out < 0 || *out > decoder->end - decoder->at) ? stop(decoder, node, OUTCOME_COUNT) : step;
}

static inline Step read_bytes_of(Decoder *decoder, const Node *node, int64_t size, const uint8_t **bytes)
{
    if (size > decoder->end - decoder->at)
        return stop(decoder, node, OUTCOME_TRUNCATED);
    *bytes = decoder->at;
    decoder->at += size;
    return STEP_OK;
}

/* Whether a text of at most 32 bytes is ASCII, word by word. */
static inline bool is_short_ascii(const uint8_t *bytes, int64_t size)
{
    uint64_t seen = 0, word;
    if (size > 32)
        return false;
    for (; size >= 8; size -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        seen |= word;
    }
    for (; size > 0; size--, bytes++)
        seen |= *bytes;
    return (seen & UINT64_C(0x8080808080808080)) == 0;
}

/* Length and bytes; `is_utf8`: they must be UTF-8. */
static inline Step read_sized(Decoder *decoder, const Node *node, bool is_utf8, const uint8_t **bytes, int64_t *size)
{
    const Step step = read_size(decoder, node, size);
    if (step != STEP_OK)
        return step;
    *bytes = decoder->at;
    decoder->at += *size;
    return is_utf8 && !is_short_ascii(*bytes, *size) && !is_text(*bytes, (size_t)*size) ? stop(decoder, node, OUTCOME_TEXT) : STEP_OK;
}

/* The index of a union with null. */
static inline Step read_null(Decoder *decoder, const Node *node, bool *is_null)
{
    int64_t branch;
    const Step step = read_number(decoder, node, &branch);
    if (step != STEP_OK)
        return step;
    if (branch < 0 || branch > 1 || (node->kind == KIND_NULL && branch != node->null_branch))
        return stop(decoder, node, OUTCOME_BRANCH);
    *is_null = branch == node->null_branch;
    return STEP_OK;
}

#endif
