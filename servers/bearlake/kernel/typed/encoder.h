/* What the encoders of all formats share: values that grow, and cells of columns to read. Contract: avro_encode.py. */
#ifndef BEARLAKE_TYPED_ENCODER_H
#define BEARLAKE_TYPED_ENCODER_H

#include "typed/typed.h"

#define VARINT_BYTES_MAX 10

/* The values as they grow. */
typedef struct {
    Column *column;
    int64_t size;
} Out;

static inline bool make_room(Out *out, int64_t more)
{
    return column_reserve(out->column, (size_t)out->size, (size_t)(out->size + more));
}

static inline Step put_bytes(Out *out, const uint8_t *bytes, int64_t size)
{
    if (!make_room(out, size))
        return STEP_NO_MEMORY;
    if (size > 0)
        memcpy(out->column->bytes + out->size, bytes, (size_t)size);
    out->size += size;
    return STEP_OK;
}

static inline bool is_null(const Node *node, int64_t slot)
{
    return node->read_validity != NULL && !bit_at(node->read_validity, node->start + slot);
}

static inline int64_t int64_cell(const Node *node, int64_t slot)
{
    int64_t value;
    memcpy(&value, node->read_content + 8 * (node->start + slot), sizeof value);
    return value;
}

static inline int32_t int32_cell(const Node *node, int64_t slot)
{
    int32_t value;
    memcpy(&value, node->read_content + 4 * (node->start + slot), sizeof value);
    return value;
}

static inline const uint8_t *wide_cell(const Node *node, int64_t slot)
{
    return node->read_content + (int64_t)node->width * (node->start + slot);
}

/* The bytes of a text; false if its index or its offsets are impossible. */
static inline bool text_cell(const Node *node, int64_t slot, const uint8_t **bytes, int64_t *size)
{
    int64_t at = node->start + slot;
    if (node->read_indices != NULL && ((at = offset_at(node->read_indices, at)) < 0 || at >= node->entry_count))
        return false;
    const int64_t low = offset_at(node->read_offsets, at), high = offset_at(node->read_offsets, at + 1);
    if (low < 0 || high < low || high > node->read_size)
        return false;
    *bytes = node->read_content + low;
    *size = high - low;
    return true;
}

/* Appends the value of a row that is not null. */
typedef Step (*EncodeRow)(Out *out, const Node *root, int64_t row);

/* Appends the row to `out`, which has `*size` bytes in use. */
static inline Step encode_row(EncodeRow encode, const Node *root, int64_t row, Column *out, int64_t *size)
{
    Out values = {out, *size};
    const Step step = encode(&values, root, row);
    *size = values.size;
    return step;
}

/* Does what is done once for a column, before rows are encoded. */
typedef Step (*PrepareColumn)(Node *node);

/* encode.c: the call that encodes values; `arguments` are those after the schema: columns, prefix. `prepare` may be NULL. */
PyObject *encode_values(PyObject *module, PyObject *const *arguments, Tree *tree, EncodeRow encode, PrepareColumn prepare);

/* avro_encode.c */
Step put_avro_node(Out *out, const Node *node, int64_t slot);

#endif
