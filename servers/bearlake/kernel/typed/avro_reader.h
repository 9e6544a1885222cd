/* Reads the parts of Avro values. Contract: avro_reader.py. */
#ifndef BEARLAKE_AVRO_READER_H
#define BEARLAKE_AVRO_READER_H

#include "typed/decoder.h"

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
