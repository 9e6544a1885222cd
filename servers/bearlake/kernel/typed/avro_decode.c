/* Avro values to typed columns. Contract: avro_decode.py. */
#include "typed/typed.h"

#define DAY_MILLIS INT64_C(86400000)
#define MICROSECONDS 1000
#define PAIRS_MAX 16 /* keys of a map that are compared pair by pair */

typedef struct {
    const uint8_t *at, *end; /* the value that is read */
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

static Step read_long_number(Decoder *decoder, const Node *node, int64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (decoder->at == decoder->end)
            return stop(decoder, node, OUTCOME_TRUNCATED);
        const uint64_t byte = *decoder->at++;
        if (shift == 63 && byte > 1)
            return stop(decoder, node, OUTCOME_VARINT);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift > 0)
                found(decoder, node, OUTCOME_FORM);
            *out = (int64_t)(value >> 1 ^ (~(value & 1) + 1));
            return STEP_OK;
        }
    }
}

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
    return is_utf8 && !is_text(*bytes, (size_t)*size) ? stop(decoder, node, OUTCOME_TEXT) : STEP_OK;
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

/* The head of a block; errors name `node`. */
static Step read_block(Decoder *decoder, const Node *node, int64_t *count)
{
    Step step = read_number(decoder, node, count);
    if (step != STEP_OK)
        return step;
    if (*count < 0) {
        int64_t size;
        found(decoder, node, OUTCOME_FORM);
        if ((step = read_number(decoder, node, &size)) != STEP_OK)
            return step;
        if (size < 0 || *count == INT64_MIN)
            return stop(decoder, node, OUTCOME_COUNT);
        *count = -*count;
    }
    if (*count > decoder->end - decoder->at || *count > decoder->credit)
        return stop(decoder, node, OUTCOME_COUNT);
    decoder->credit -= *count;
    return STEP_OK;
}

/* Adds a slot of a fixed width. */
static inline void add_cell(Node *node, const uint8_t *bytes)
{
    memcpy(node->content.bytes + node->length * node->width, bytes, (size_t)node->width);
    end_slot(node, true);
}

static inline void add_int64(Node *node, int64_t value)
{
    ((int64_t *)node->content.bytes)[node->length] = value;
    end_slot(node, true);
}

static inline Step add_text(Decoder *decoder, Node *node, const uint8_t *bytes, int64_t size)
{
    const Step step = use(decoder, size);
    if (step != STEP_OK)
        return step;
    if (!column_reserve(&node->content, (size_t)node->content_size, (size_t)(node->content_size + size)))
        return STEP_NO_MEMORY;
    if (size > 0)
        memcpy(node->content.bytes + node->content_size, bytes, (size_t)size);
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

/* Big-endian two's complement as a little-endian int128; false if it has more digits than the node. */
static bool to_decimal(const Node *node, const uint8_t *bytes, int64_t size, uint8_t *cell, bool *is_shortest)
{
    const uint8_t sign = size > 0 && bytes[0] & 0x80 ? 0xFF : 0;
    int64_t lead = 0;
    while (size - lead > 1 && bytes[lead] == sign && (bytes[lead + 1] & 0x80) == (sign & 0x80))
        lead++;
    *is_shortest = size > 0 && lead == 0;
    if (size - lead > 16)
        return false;
    unsigned __int128 value = sign ? ~(unsigned __int128)0 : 0;
    for (int64_t at = lead; at < size; at++)
        value = value << 8 | bytes[at];
    unsigned __int128 limit = 1;
    for (int digit = 0; digit < node->precision; digit++)
        limit *= 10;
    if ((sign ? ~value + 1 : value) >= limit)
        return false;
    for (int at = 0; at < 16; at++)
        cell[at] = (uint8_t)(value >> (8 * at));
    return true;
}

static Step read_decimal(Decoder *decoder, Node *node)
{
    const uint8_t *bytes;
    int64_t size = node->size;
    const Step step = node->kind == KIND_DECIMAL ? read_sized(decoder, node, false, &bytes, &size)
                                                 : read_bytes_of(decoder, node, size, &bytes);
    if (step != STEP_OK)
        return step;
    uint8_t cell[16];
    bool is_shortest;
    if (!to_decimal(node, bytes, size, cell, &is_shortest))
        return add_misfit(decoder, node);
    if (node->kind == KIND_DECIMAL && !is_shortest)
        found(decoder, node, OUTCOME_FORM);
    add_cell(node, cell);
    return STEP_OK;
}

static inline int hexadecimal(uint8_t digit)
{
    return digit >= '0' && digit <= '9' ? digit - '0'
        : digit >= 'a' && digit <= 'f'  ? digit - 'a' + 10
        : digit >= 'A' && digit <= 'F'  ? digit - 'A' + 10
                                        : -1;
}

static Step read_uuid(Decoder *decoder, Node *node)
{
    const uint8_t *text;
    int64_t size;
    const Step step = read_sized(decoder, node, true, &text, &size);
    if (step != STEP_OK)
        return step;
    uint8_t cell[16];
    bool is_lower = true;
    if (size != 36)
        return add_misfit(decoder, node);
    for (int at = 0, place = 0; at < 36;) {
        if (at == 8 || at == 13 || at == 18 || at == 23) {
            if (text[at++] != '-')
                return add_misfit(decoder, node);
            continue;
        }
        const int high = hexadecimal(text[at]), low = hexadecimal(text[at + 1]);
        if (high < 0 || low < 0)
            return add_misfit(decoder, node);
        is_lower = is_lower && !(text[at] >= 'A' && text[at] <= 'F') && !(text[at + 1] >= 'A' && text[at + 1] <= 'F');
        cell[place++] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    if (!is_lower)
        found(decoder, node, OUTCOME_FORM);
    add_cell(node, cell);
    return STEP_OK;
}

static Step read_time(Decoder *decoder, Node *node)
{
    int64_t value, micros;
    const Step step = node->kind == KIND_TIME_MILLIS ? read_int(decoder, node, &value) : read_number(decoder, node, &value);
    if (step != STEP_OK)
        return step;
    if (node->kind == KIND_TIME_MICROS)
        micros = value;
    else if (__builtin_mul_overflow(value, (int64_t)MICROSECONDS, &micros))
        return add_misfit(decoder, node);
    if (node->kind != KIND_TIMESTAMP_MILLIS && (micros < 0 || micros >= DAY_MILLIS * MICROSECONDS))
        return add_misfit(decoder, node);
    add_int64(node, micros);
    return STEP_OK;
}

static Step read_symbol(Decoder *decoder, const Node *node, int64_t *symbol)
{
    const Step step = read_number(decoder, node, symbol);
    return step == STEP_OK && (*symbol < 0 || *symbol >= PyTuple_GET_SIZE(node->symbols)) ? stop(decoder, node, OUTCOME_SYMBOL) : step;
}

static Step decode_node(Decoder *decoder, Node *node);

static Step decode_blocks(Decoder *decoder, Node *node)
{
    int64_t cost = 0;
    for (int32_t at = 0; at < node->child_count; at++)
        cost += node->children[at]->slot_bytes;
    for (int blocks = 1;; blocks++) {
        int64_t count, size;
        Step step = read_block(decoder, node, &count);
        if (step != STEP_OK || count == 0)
            return step;
        if ((step = use(decoder, __builtin_mul_overflow(count, cost, &size) ? INT64_MAX : size)) != STEP_OK)
            return step;
        if (blocks == 2)
            found(decoder, node, OUTCOME_FORM);
        for (int32_t at = 0; at < node->child_count; at++)
            if (!reserve_slots(node->children[at], count))
                return STEP_NO_MEMORY;
        for (; count > 0; count--)
            for (int32_t at = 0; at < node->child_count; at++)
                if ((step = decode_node(decoder, node->children[at])) != STEP_OK)
                    return step;
    }
}

static inline int compare_keys(const Node *keys, int64_t left, int64_t right)
{
    const int32_t *offsets = (const int32_t *)keys->offsets.bytes;
    const int32_t size = offsets[left + 1] - offsets[left], other = offsets[right + 1] - offsets[right];
    if (size != other)
        return size < other ? -1 : 1;
    return size == 0 ? 0 : memcmp(keys->content.bytes + offsets[left], keys->content.bytes + offsets[right], (size_t)size);
}

static void sift_down(const Node *keys, int32_t *heap, int64_t root, int64_t count)
{
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare_keys(keys, heap[child], heap[child + 1]) < 0)
            child++;
        if (compare_keys(keys, heap[root], heap[child]) >= 0)
            return;
        const int32_t slot = heap[root];
        heap[root] = heap[child];
        heap[child] = slot;
    }
}

/* Whether a key appears twice from slot `start` on: n log n comparisons, whatever the keys are. */
static Step find_repeated(Decoder *decoder, const Node *keys, int64_t start, bool *is_repeated)
{
    const int64_t count = keys->length - start;
    *is_repeated = false;
    if (count <= PAIRS_MAX) {
        for (int64_t right = start + 1; right < keys->length; right++)
            for (int64_t left = start; left < right; left++)
                *is_repeated = *is_repeated || compare_keys(keys, left, right) == 0;
        return STEP_OK;
    }
    if (!column_reserve(&decoder->order, 0, 4 * (size_t)count))
        return STEP_NO_MEMORY;
    int32_t *heap = (int32_t *)decoder->order.bytes;
    for (int64_t at = 0; at < count; at++)
        heap[at] = (int32_t)(start + at);
    for (int64_t root = count / 2 - 1; root >= 0; root--)
        sift_down(keys, heap, root, count);
    for (int64_t last = count - 1; last > 0; last--) {
        const int32_t slot = heap[0];
        heap[0] = heap[last];
        heap[last] = slot;
        sift_down(keys, heap, 0, last);
        if (last < count - 1 && compare_keys(keys, heap[last], heap[last + 1]) == 0) {
            *is_repeated = true;
            return STEP_OK;
        }
    }
    *is_repeated = compare_keys(keys, heap[0], heap[1]) == 0;
    return STEP_OK;
}

static Step decode_map(Decoder *decoder, Node *node)
{
    const int64_t start = node->children[0]->length;
    Step step = decode_blocks(decoder, node);
    bool is_repeated;
    if (step != STEP_OK || (step = find_repeated(decoder, node->children[0], start, &is_repeated)) != STEP_OK)
        return step;
    if (!is_repeated) {
        end_slot(node, true);
        return STEP_OK;
    }
    cut_slots(node->children[0], start);
    cut_slots(node->children[1], start);
    return add_misfit(decoder, node);
}

static Step decode_union(Decoder *decoder, Node *node)
{
    int64_t branch;
    Step step = read_number(decoder, node, &branch);
    if (step != STEP_OK)
        return step;
    if (branch < 0 || branch >= node->child_count)
        return stop(decoder, node, OUTCOME_BRANCH);
    for (int32_t at = 0; at < node->child_count; at++) {
        Node *child = node->children[at];
        if (!child->has_column)
            continue;
        if (at != branch)
            add_null(child);
        else if ((step = decode_node(decoder, child)) != STEP_OK)
            return step;
    }
    end_slot(node, node->children[branch]->has_column);
    return STEP_OK;
}

static Step pass(Decoder *decoder, const Node *column, const Node *node, int level);

/* Moves past a value without children. */
static Step pass_leaf(Decoder *decoder, const Node *column, const Node *node)
{
    const uint8_t *bytes;
    int64_t number;
    switch ((TypedKind)node->kind) {
    case KIND_BOOLEAN: {
        const Step step = read_bytes_of(decoder, column, 1, &bytes);
        return step == STEP_OK && *bytes > 1 ? stop(decoder, column, OUTCOME_BOOLEAN) : step;
    }
    case KIND_INT:
    case KIND_TIME_MILLIS:
        return read_int(decoder, column, &number);
    case KIND_LONG:
    case KIND_TIME_MICROS:
    case KIND_TIMESTAMP_MILLIS:
        return read_number(decoder, column, &number);
    case KIND_FLOAT:
    case KIND_UINT32:
        return read_bytes_of(decoder, column, 4, &bytes);
    case KIND_DOUBLE: return read_bytes_of(decoder, column, 8, &bytes);
    case KIND_FIXED:
    case KIND_DECIMAL_FIXED:
        return read_bytes_of(decoder, column, node->size, &bytes);
    case KIND_BYTES:
    case KIND_DECIMAL:
        return read_sized(decoder, column, false, &bytes, &number);
    case KIND_STRING:
    case KIND_UUID:
        return read_sized(decoder, column, true, &bytes, &number);
    case KIND_ENUM: {
        const Step step = read_number(decoder, column, &number);
        const bool is_there = step == STEP_OK && number >= 0 && number < PyTuple_GET_SIZE(node->symbols);
        return step == STEP_OK && !is_there ? stop(decoder, column, OUTCOME_SYMBOL) : step;
    }
    default: return STEP_OK; /* no bytes */
    }
}

static Step pass_value(Decoder *decoder, const Node *column, const Node *node, int level)
{
    Step step = STEP_OK;
    int64_t number;
    switch ((TypedKind)node->kind) {
    case KIND_RECORD:
    case KIND_OPAQUE:
        for (int32_t at = 0; step == STEP_OK && at < node->child_count; at++)
            step = pass(decoder, column, node->children[at], level + 1);
        return step;
    case KIND_UNION:
        if ((step = read_number(decoder, column, &number)) != STEP_OK)
            return step;
        if (number < 0 || number >= node->child_count)
            return stop(decoder, column, OUTCOME_BRANCH);
        return pass(decoder, column, node->children[number], level + 1);
    case KIND_ARRAY:
    case KIND_MAP:
        for (;;) {
            if ((step = read_block(decoder, column, &number)) != STEP_OK || number == 0)
                return step;
            for (; number > 0; number--)
                for (int32_t at = 0; at < node->child_count; at++)
                    if ((step = pass(decoder, column, node->children[at], level + 1)) != STEP_OK)
                        return step;
        }
    default: return pass_leaf(decoder, column, node);
    }
}

/* Moves past a value of a node outside of the tree, below the OPAQUE `column`, which errors name. */
static Step pass(Decoder *decoder, const Node *column, const Node *node, int level)
{
    if (level >= LEVELS_MAX)
        return stop(decoder, column, OUTCOME_DEPTH);
    if (node->null_branch >= 0) {
        int64_t branch;
        const Step step = read_number(decoder, column, &branch);
        if (step != STEP_OK)
            return step;
        if (branch < 0 || branch > 1 || (node->kind == KIND_NULL && branch != node->null_branch))
            return stop(decoder, column, OUTCOME_BRANCH);
        if (branch == node->null_branch)
            return STEP_OK;
    }
    return pass_value(decoder, column, node, level);
}

static Step decode_opaque(Decoder *decoder, Node *node)
{
    const uint8_t *start = decoder->at;
    const int32_t status = decoder->status;
    const Step step = pass(decoder, node, node->children[0], 0);
    if (step != STEP_OK)
        return step;
    decoder->status = status; /* the bytes are kept as they are */
    return add_text(decoder, node, start, decoder->at - start);
}

static Step decode_node(Decoder *decoder, Node *node)
{
    const uint8_t *bytes;
    int64_t number;
    Step step;
    if (node->null_branch >= 0) {
        bool is_null;
        if ((step = read_null(decoder, node, &is_null)) != STEP_OK)
            return step;
        if (is_null) {
            add_null(node);
            return STEP_OK;
        }
    }
    switch ((TypedKind)node->kind) {
    case KIND_NULL: add_null(node); return STEP_OK;
    case KIND_PRESENT:
        put_bit(&node->content, node->length, true);
        end_slot(node, true);
        return STEP_OK;
    case KIND_BOOLEAN:
        if ((step = read_bytes_of(decoder, node, 1, &bytes)) != STEP_OK)
            return step;
        if (*bytes > 1)
            return stop(decoder, node, OUTCOME_BOOLEAN);
        put_bit(&node->content, node->length, *bytes);
        end_slot(node, true);
        return STEP_OK;
    case KIND_INT:
        if ((step = read_int(decoder, node, &number)) != STEP_OK)
            return step;
        ((int32_t *)node->content.bytes)[node->length] = (int32_t)number;
        end_slot(node, true);
        return STEP_OK;
    case KIND_LONG:
        if ((step = read_number(decoder, node, &number)) != STEP_OK)
            return step;
        add_int64(node, number);
        return STEP_OK;
    case KIND_FLOAT:
    case KIND_DOUBLE:
    case KIND_FIXED:
        if ((step = read_bytes_of(decoder, node, node->width, &bytes)) != STEP_OK)
            return step;
        add_cell(node, bytes);
        return STEP_OK;
    case KIND_UINT32:
        if ((step = read_bytes_of(decoder, node, 4, &bytes)) != STEP_OK)
            return step;
        add_int64(node, (int64_t)((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24));
        return STEP_OK;
    case KIND_BYTES:
    case KIND_STRING:
        step = read_sized(decoder, node, node->kind == KIND_STRING, &bytes, &number);
        return step == STEP_OK ? add_text(decoder, node, bytes, number) : step;
    case KIND_ENUM: {
        if ((step = read_symbol(decoder, node, &number)) != STEP_OK)
            return step;
        PyObject *symbol = PyTuple_GET_ITEM(node->symbols, number);
        return add_text(decoder, node, (const uint8_t *)PyBytes_AS_STRING(symbol), PyBytes_GET_SIZE(symbol));
    }
    case KIND_ARRAY:
        if ((step = decode_blocks(decoder, node)) == STEP_OK)
            end_slot(node, true);
        return step;
    case KIND_MAP: return decode_map(decoder, node);
    case KIND_RECORD:
        for (int32_t at = 0; at < node->child_count; at++)
            if ((step = decode_node(decoder, node->children[at])) != STEP_OK)
                return step;
        end_slot(node, true);
        return STEP_OK;
    case KIND_UNION: return decode_union(decoder, node);
    case KIND_DECIMAL:
    case KIND_DECIMAL_FIXED:
        return read_decimal(decoder, node);
    case KIND_UUID: return read_uuid(decoder, node);
    case KIND_OPAQUE: return decode_opaque(decoder, node);
    default: return read_time(decoder, node);
    }
}

/* The values of one call. */
typedef struct {
    Decoder decoder;
    Tree tree;
    Py_buffer validity, offsets, content; /* `obj` is NULL for no validity */
    int64_t start, row_count, skip;
    bool is_verified;
    Column statuses;
} Decoding;

/* Reads the value at `decoder->at`, and appends its row or removes all that it has added. */
static Step decode_value(Decoding *decoding, Node *root)
{
    Decoder *decoder = &decoding->decoder;
    const int64_t row = root->length, used = decoder->used;
    Step step = decoder->credit < 0 ? stop(decoder, root, OUTCOME_TRUNCATED) : use(decoder, 0);
    if (step == STEP_OK)
        step = decode_node(decoder, root);
    if (step == STEP_OK && decoder->at != decoder->end)
        found(decoder, root, OUTCOME_FORM);
    if (step == STEP_FULL && decoding->row_count == 1)
        step = stop(decoder, root, OUTCOME_SIZE);
    if (step != STEP_STOP)
        return step;
    decoder->used = used;
    cut_slots(root, row);
    add_null(root);
    return STEP_OK;
}

static Step decode_rows(Decoding *decoding)
{
    Decoder *decoder = &decoding->decoder;
    Node *root = &decoding->tree.nodes[0];
    const uint8_t *content = decoding->content.buf, *validity = decoding->validity.obj != NULL ? decoding->validity.buf : NULL;
    if (!column_reserve(&decoding->statuses, 0, 4 * (size_t)decoding->row_count) || !reserve_slots(root, decoding->row_count))
        return STEP_NO_MEMORY;
    int32_t *statuses = (int32_t *)decoding->statuses.bytes;
    for (int64_t row = 0; row < decoding->row_count; row++) {
        const int64_t place = decoding->start + row;
        decoder->status = OUTCOME_EXACT;
        if (validity != NULL && !bit_at(validity, place)) {
            decoder->status = OUTCOME_NULL;
            add_null(root);
        } else {
            decoder->at = content + offset_at(decoding->offsets.buf, place) + decoding->skip;
            decoder->end = content + offset_at(decoding->offsets.buf, place + 1);
            decoder->credit = decoder->end - decoder->at;
            const Step step = decode_value(decoding, root);
            if (step != STEP_OK)
                return step;
        }
        statuses[row] = decoder->status;
    }
    return STEP_OK;
}

/* Lets the nodes read the columns that they have. */
static void read_own(Tree *tree)
{
    for (int32_t at = 0; at < tree->node_count; at++) {
        Node *node = &tree->nodes[at];
        node->read_validity = node->null_count > 0 ? node->validity.bytes : NULL;
        node->read_offsets = node->offsets.bytes;
        node->read_content = node->content.bytes;
        node->read_size = node->content_size;
        node->start = 0;
        node->count = node->length;
    }
}

/* Encodes the exact rows and compares them with their values. */
static Step verify_rows(Decoding *decoding)
{
    const uint8_t *content = decoding->content.buf;
    int32_t *statuses = (int32_t *)decoding->statuses.bytes;
    read_own(&decoding->tree);
    for (int64_t row = 0; row < decoding->row_count; row++) {
        if (statuses[row] != OUTCOME_EXACT)
            continue;
        const uint8_t *value = content + offset_at(decoding->offsets.buf, decoding->start + row) + decoding->skip;
        const uint8_t *end = content + offset_at(decoding->offsets.buf, decoding->start + row + 1);
        int64_t size = 0;
        const Step step = encode_avro_row(&decoding->tree.nodes[0], row, &decoding->decoder.scratch, &size);
        if (step == STEP_NO_MEMORY)
            return step;
        if (step != STEP_OK || size != end - value || (size > 0 && memcmp(decoding->decoder.scratch.bytes, value, (size_t)size) != 0))
            statuses[row] = OUTCOME_FORM;
    }
    return STEP_OK;
}

/* Checks that the buffers have all values. */
static int check_values(const Decoding *decoding, int64_t end)
{
    const Py_buffer *offsets = &decoding->offsets, *validity = &decoding->validity;
    if (decoding->row_count > 0 && offsets->len / 4 - 1 < end) {
        PyErr_Format(PyExc_ValueError, "offsets have %zd bytes, %lld are needed", offsets->len, 4 * ((long long)end + 1));
        return -1;
    }
    if (validity->obj != NULL && validity->len < (end + 7) / 8) {
        PyErr_Format(PyExc_ValueError, "the validity has %zd bytes, %lld are needed", validity->len, ((long long)end + 7) / 8);
        return -1;
    }
    for (int64_t at = decoding->start; at < end; at++) {
        const int64_t low = offset_at(offsets->buf, at), high = offset_at(offsets->buf, at + 1);
        if (low < 0 || high < low || high > decoding->content.len) {
            PyErr_Format(PyExc_ValueError, "value %lld is not inside the content", (long long)at);
            return -1;
        }
    }
    return 0;
}

static PyObject *decode_all(KernelState *state, Decoding *decoding)
{
    Decoder *decoder = &decoding->decoder;
    const int64_t slot_bytes = decoding->tree.nodes[0].slot_bytes;
    if (__builtin_mul_overflow(decoding->row_count, slot_bytes, &decoder->used))
        decoder->used = INT64_MAX;
    Step step = use(decoder, 0);
    if (step == STEP_OK || decoding->row_count == 1) {
        if (decoding->content.len < RELEASE_COLUMN_BYTES) {
            step = decode_rows(decoding);
            if (step == STEP_OK && decoding->is_verified)
                step = verify_rows(decoding);
        } else {
            Py_BEGIN_ALLOW_THREADS
            step = decode_rows(decoding);
            if (step == STEP_OK && decoding->is_verified)
                step = verify_rows(decoding);
            Py_END_ALLOW_THREADS
        }
    }
    if (step == STEP_NO_MEMORY)
        return PyErr_NoMemory();
    if (step == STEP_FULL)
        return raise_too_large(state, "a set of typed columns", decoder->used, decoder->bytes_max);
    PyObject *statuses = column_take(state, &decoding->statuses, 4 * (size_t)decoding->row_count);
    PyObject *slots = statuses != NULL ? take_slots(state, &decoding->tree) : NULL;
    PyObject *result = slots != NULL ? PyTuple_Pack(2, statuses, slots) : NULL;
    Py_XDECREF(statuses);
    Py_XDECREF(slots);
    return result;
}

/* Reads the arguments after the buffers. */
static int read_limits(Decoding *decoding, PyObject *const *arguments, int64_t *end)
{
    int64_t numbers[5];
    for (int at = 0; at < 5; at++)
        if (to_int64(arguments[4 + at], &numbers[at]) < 0)
            return -1;
    if (numbers[0] < 0 || numbers[1] < numbers[0])
        PyErr_Format(PyExc_ValueError, "[%S, %S) are no rows", arguments[4], arguments[5]);
    else if (numbers[4] < 0 || numbers[4] > TYPED_BYTES_MAX)
        PyErr_Format(PyExc_ValueError, "%S bytes are no limit of columns", arguments[8]);
    else if (numbers[2] < 0)
        PyErr_Format(PyExc_ValueError, "%S bytes cannot be skipped", arguments[6]);
    else {
        decoding->start = numbers[0];
        decoding->row_count = numbers[1] - numbers[0];
        decoding->skip = numbers[2] > TYPED_BYTES_MAX ? TYPED_BYTES_MAX : numbers[2];
        decoding->is_verified = numbers[3] != 0;
        decoding->decoder.bytes_max = numbers[4];
        *end = numbers[1];
        return 0;
    }
    return -1;
}

static int open_buffer(Py_buffer *buffer, PyObject *object)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) == 0)
        return 0;
    buffer->obj = NULL;
    return -1;
}

KERNEL_FUNCTION(kernel_decode_avro)
{
    Decoding decoding = {.start = 0};
    PyObject *result = NULL;
    int64_t end;
    if (check_arguments("decode_avro", count, 9, 9) < 0 || tree_open(&decoding.tree, arguments[0]) < 0)
        return NULL;
    if (read_limits(&decoding, arguments, &end) == 0 && (arguments[1] == Py_None || open_buffer(&decoding.validity, arguments[1]) == 0)
        && open_buffer(&decoding.offsets, arguments[2]) == 0 && open_buffer(&decoding.content, arguments[3]) == 0
        && check_values(&decoding, end) == 0)
        result = decode_all(state_of(module), &decoding);
    Py_buffer *buffers[3] = {&decoding.validity, &decoding.offsets, &decoding.content};
    for (int at = 0; at < 3; at++)
        if (buffers[at]->obj != NULL)
            PyBuffer_Release(buffers[at]);
    column_free(&decoding.statuses);
    column_free(&decoding.decoder.order);
    column_free(&decoding.decoder.scratch);
    tree_close(&decoding.tree);
    return result;
}
