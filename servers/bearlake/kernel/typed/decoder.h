/* What the decoders of all formats share: the value that is read, its status, and cells of columns. Contract: avro_decode.py. */
#ifndef BEARLAKE_TYPED_DECODER_H
#define BEARLAKE_TYPED_DECODER_H

#include "typed/encoder.h"

typedef struct {
    const uint8_t *at, *end; /* the value that is read */
    const uint8_t *slack;    /* from here on, fewer than COPY_SLACK bytes follow in the buffer of all values */
    int64_t credit;          /* elements that the value may still have */
    int64_t used, bytes_max; /* bytes of the columns */
    int32_t status;
    int64_t message_count; /* messages that were begun (Protobuf) */
    const uint8_t *tag_at; /* where the last tag begins (Protobuf) */
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

/* Appends the row of the value at `decoder->at`; on an error, some columns have more slots than others. */
typedef Step (*DecodeRow)(Decoder *decoder, Node *root);

/* decode.c: the call that decodes values; `arguments` are those after the schema: validity, offsets, content, start, end, skip,
   is_verified, bytes_max. */
PyObject *decode_values(PyObject *module, PyObject *const *arguments, Tree *tree, DecodeRow decode, EncodeRow encode);

/* map_keys.c: whether a key appears twice from slot `start` on: n log n comparisons, whatever the keys are. */
Step find_repeated(Decoder *decoder, const Node *keys, int64_t start, bool *is_repeated);

/* Adds a slot of a fixed width. */
static inline void add_cell(Node *node, const uint8_t *bytes)
{
    memcpy(node->content.bytes + node->length * node->width, bytes, (size_t)node->width);
    end_cell(node, true);
}

/* Adds a slot of 16 bytes: a copy of a known size needs no call. */
static inline void add_wide(Node *node, const uint8_t *bytes)
{
    memcpy(node->content.bytes + 16 * node->length, bytes, 16);
    end_cell(node, true);
}

static inline void add_int64(Node *node, int64_t value)
{
    ((int64_t *)node->content.bytes)[node->length] = value;
    end_cell(node, true);
}

static inline Step add_text(Decoder *decoder, Node *node, const uint8_t *bytes, int64_t size, bool has_slack)
{
    const Step step = use(decoder, size);
    if (step != STEP_OK)
        return step;
    if (!column_reserve(&node->content, (size_t)node->content_size, (size_t)(node->content_size + size + COPY_SLACK)))
        return STEP_NO_MEMORY;
    copy_short(node->content.bytes + node->content_size, bytes, size, has_slack);
    node->content_size += size;
    end_slot(node, true);
    return STEP_OK;
}

static inline Step add_misfit(Decoder *decoder, Node *node)
{
    found(decoder, node, OUTCOME_DOMAIN);
    add_null(node);
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

#endif
