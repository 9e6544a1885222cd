/* Values of a schema as typed columns. The contract is in __init__.py; nodes, kinds and outcomes have its names. */
#ifndef BEARLAKE_TYPED_H
#define BEARLAKE_TYPED_H

#include "columns/columns.h"

#define LEVELS_MAX 64
#define NODES_MAX 65536
#define FIXED_BYTES_MAX (1 << 24)
#define DECIMAL_DIGITS_MAX 38
#define OUTCOME_BITS 8
#define TYPED_BYTES_MAX INT32_MAX

/* typed.TypedKind */
typedef enum {
    KIND_NULL, KIND_PRESENT, KIND_BOOLEAN, KIND_INT, KIND_LONG, KIND_FLOAT, KIND_DOUBLE, KIND_BYTES, KIND_STRING, KIND_FIXED, KIND_ENUM,
    KIND_ARRAY, KIND_MAP, KIND_RECORD, KIND_UNION, KIND_DECIMAL, KIND_DECIMAL_FIXED, KIND_UUID, KIND_TIME_MILLIS, KIND_TIME_MICROS,
    KIND_TIMESTAMP_MILLIS, KIND_UINT32, KIND_OPAQUE, KIND_DATE, KIND_TIMESTAMP, KIND_JSON,
    KIND_LOCAL_TIMESTAMP, KIND_COUNT,
} TypedKind;

#define BINARY_KIND_COUNT KIND_DATE /* kinds of Avro and Protobuf; the others are of JSON only */

/* typed.TypedOutcome */
typedef enum {
    OUTCOME_EXACT = 0,
    OUTCOME_NULL = 1,
    OUTCOME_FORM = 2,
    OUTCOME_DOMAIN = 3,
    OUTCOME_TRUNCATED = 16,
    OUTCOME_VARINT = 17,
    OUTCOME_COUNT = 18,
    OUTCOME_TEXT = 19,
    OUTCOME_BRANCH = 20,
    OUTCOME_SYMBOL = 21,
    OUTCOME_BOOLEAN = 22,
    OUTCOME_RANGE = 23,
    OUTCOME_DEPTH = 24,
    OUTCOME_SIZE = 25,
    OUTCOME_TAG = 26,
    OUTCOME_SYNTAX = 27,
    OUTCOME_TYPE = 28,
    OUTCOME_FORMAT = 29,
    OUTCOME_REPEATED = 30,
} TypedOutcome;

/* What a column consists of. */
typedef enum { LAYOUT_BITMAP, LAYOUT_TEXT, LAYOUT_LIST, LAYOUT_STRUCT, LAYOUT_WIDTH } Layout;

/* Why a step ended. */
typedef enum {
    STEP_OK,
    STEP_STOP,       /* the value cannot be decoded */
    STEP_FULL,       /* the columns would exceed their limit */
    STEP_IMPOSSIBLE, /* the row cannot be encoded */
    STEP_UNKNOWN,    /* a closed enum does not have the number (Protobuf) */
    STEP_NO_MEMORY,
} Step;

typedef struct Node Node;
typedef struct Wire Wire;
typedef struct Oneof Oneof;

struct Node {
    uint8_t kind;
    uint8_t layout;
    int8_t null_branch;
    bool has_column;
    bool is_nullable; /* the column has a validity */
    bool is_prepared; /* `offsets` and `content` have the dictionary's texts as values, empty if impossible; avro_encode.c */
    int32_t index;
    int32_t size, precision; /* of a decimal of JSON, `size` is its scale */
    int32_t width; /* bytes of a slot; LAYOUT_WIDTH only */
    int32_t child_count;
    Node **children;
    Wire *wire;        /* how the node is written (Protobuf); protobuf.h */
    PyObject *symbols; /* a borrowed tuple of bytes, which the caller of the function holds; of a RECORD: the names of its fields (JSON) */
    struct Symbol *by_text; /* NULL: they are few */
    int64_t slot_bytes;
    unsigned __int128 limit; /* of a decimal: 10 to the power of `precision` */
    /* the column that grows */
    int64_t length, null_count, content_size; /* without nulls, `validity` is not written */
    int64_t room; /* slots that there is room for (JSON; of elements and entries) */
    Column validity, offsets, content;
    /* the column that is read: slots [start, start + count) */
    const uint8_t *read_validity, *read_offsets, *read_content;
    int64_t start, count, read_size;
    const uint8_t *read_indices; /* of texts: NULL, or where slots have their texts among the first `entry_count` ones */
    int64_t entry_count;
};

typedef struct {
    Node *nodes;
    Node **links; /* the children of all nodes */
    Wire *wires;  /* one per node, and a place per link (Protobuf) */
    Oneof *oneofs;
    int32_t node_count;
    int32_t column_count;
} Tree;

/* nodes.c: 0, or -1 with an exception set. */
int tree_open(Tree *tree, PyObject *schema);                      /* Avro: nodes and their columns */
/* Nodes without columns, of the first `kind_count` kinds. */
int tree_read(Tree *tree, PyObject *schema, int opaque_children, int kind_count);
void place_column(Tree *tree, Node *node, bool is_nullable); /* without those below it */
void tree_close(Tree *tree);

#define SYMBOLS_SCANNED 16 /* more symbols are sorted */

/* symbols.c; false: no memory */
bool sort_symbols(Node *node);
int64_t symbol_place(const Node *node, const uint8_t *text, int64_t size); /* the first symbol with this text; -1: none */

/* slots.c; none of these needs the GIL, except for the last */
bool reserve_slots(Node *node, int64_t count); /* room for `count` more slots, except for the content of texts; false: no memory */
void add_null(Node *node);                     /* there is room */
void cut_slots(Node *node, int64_t length);
PyObject *take_slots(KernelState *state, Tree *tree); /* a list of TypedSlots; NULL with an exception set */

/* sources.c: lets a node and those below it read their columns, a tuple of TypedSources; `*next` counts them, and each has SOURCE_BUFFERS
   that the caller releases. 0, or -1 with an exception set. */
#define SOURCE_BUFFERS 4
int open_sources(Node *node, PyObject *columns, Py_buffer *buffers, int32_t *next);

KERNEL_FUNCTION(kernel_decode_avro);
KERNEL_FUNCTION(kernel_encode_avro);
KERNEL_FUNCTION(kernel_decode_protobuf);
KERNEL_FUNCTION(kernel_encode_protobuf);
KERNEL_FUNCTION(kernel_check_protobuf);
KERNEL_FUNCTION(kernel_decode_json);

static inline int32_t offset_at(const uint8_t *offsets, int64_t at)
{
    int32_t value;
    memcpy(&value, offsets + 4 * at, sizeof value);
    return value;
}

static inline bool bit_at(const uint8_t *bitmap, int64_t at) { return bitmap[at >> 3] >> (at & 7) & 1; }

/* Writes bit `index` and clears the bits after it in its byte, which may be uninitialized. */
static inline void put_bit(Column *bitmap, int64_t index, bool is_set)
{
    uint8_t *at = bitmap->bytes + (index >> 3);
    const unsigned bit = 1u << (index & 7);
    *at = (uint8_t)((*at & (bit - 1)) | (is_set ? bit : 0));
}

static inline bool is_plain_null(const Node *node) { return node->kind == KIND_NULL && node->null_branch < 0; }

/* Whether two texts of the same size are equal. A call of memcmp costs more than a short text, and two comparisons may overlap. */
static inline bool is_equal(const uint8_t *left, const uint8_t *right, int64_t size)
{
    uint64_t words[4];
    if (size > 16)
        return memcmp(left, right, (size_t)size) == 0;
    if (size >= 8) {
        memcpy(&words[0], left, 8);
        memcpy(&words[1], right, 8);
        memcpy(&words[2], left + size - 8, 8);
        memcpy(&words[3], right + size - 8, 8);
        return ((words[0] ^ words[1]) | (words[2] ^ words[3])) == 0;
    }
    for (int64_t at = 0; at < size; at++)
        if (left[at] != right[at])
            return false;
    return true;
}

#define COPY_SLACK 16 /* bytes that `copy_short` may read and write beyond the end */

/* Copies `size` bytes; `has_slack`: both sides have COPY_SLACK more. A call of memcpy costs more than a short text. */
static inline void copy_short(uint8_t *to, const uint8_t *from, int64_t size, bool has_slack)
{
    if (has_slack && size <= COPY_SLACK)
        memcpy(to, from, COPY_SLACK);
    else if (size > 0)
        memcpy(to, from, (size_t)size);
}

/* Ends a slot of a column that has no offsets. The validity is written from the first null on: it says that all slots before are valid. */
static inline void end_cell(Node *node, bool is_valid)
{
    const int64_t slot = node->length++;
    if (!node->is_nullable || (is_valid && node->null_count == 0))
        return;
    if (node->null_count == 0)
        memset(node->validity.bytes, 0xFF, ((size_t)slot >> 3) + 1);
    put_bit(&node->validity, slot, is_valid);
    node->null_count += !is_valid;
}

/* Ends a slot of a column whose content, and whose slots in other columns, are there. */
static inline void end_slot(Node *node, bool is_valid)
{
    const int64_t slot = node->length;
    end_cell(node, is_valid);
    if (node->layout == LAYOUT_TEXT)
        ((int32_t *)node->offsets.bytes)[slot + 1] = (int32_t)node->content_size;
    else if (node->layout == LAYOUT_LIST)
        ((int32_t *)node->offsets.bytes)[slot + 1] = (int32_t)node->children[0]->length;
}

#endif
