/* How the nodes of a Protobuf message are written, and what was read of them. Contract: protobuf.py; wires, codings and labels have its
   names. */
#ifndef BEARLAKE_PROTOBUF_H
#define BEARLAKE_PROTOBUF_H

#include "typed/decoder.h"

#define FIELD_NUMBER_MAX ((1 << 29) - 1)
#define SKIPPED_LEVELS_MAX 100
#define SECOND_MICROS INT64_C(1000000)
#define MICRO_NANOS 1000
#define SECONDS_MIN INT64_C(-62135596800) /* a timestamp begins in the year 1 */
#define SECONDS_END INT64_C(253402300800) /* and ends before the year 10000 */

/* protobuf.ProtoCoding */
typedef enum {
    CODING_NONE, CODING_BOOL, CODING_INT32, CODING_INT64, CODING_UINT32, CODING_UINT64, CODING_SINT32, CODING_SINT64, CODING_FIXED32,
    CODING_FIXED64, CODING_SFIXED32, CODING_SFIXED64, CODING_FLOAT, CODING_DOUBLE, CODING_STRING, CODING_BYTES, CODING_ENUM,
    CODING_MESSAGE, CODING_GROUP, CODING_TIMESTAMP, CODING_COUNT,
} Coding;

/* protobuf.ProtoLabel */
typedef enum { LABEL_IMPLICIT, LABEL_EXPLICIT, LABEL_REPEATED, LABEL_PACKED, LABEL_ALWAYS, LABEL_COUNT } Label;

/* protobuf.WireType */
typedef enum { WIRE_VARINT, WIRE_I64, WIRE_LEN, WIRE_START, WIRE_END, WIRE_I32 } WireType;

/* What was read of a field that is not a list. A timestamp has its seconds in `bits`. */
typedef struct {
    uint64_t bits;       /* a number, as the lower bytes of its cell; an enum's number */
    const uint8_t *text; /* of a text or an OPAQUE */
    int64_t size;
    int32_t nanos;
    bool is_fit;    /* false: the column cannot hold it */
    bool is_joined; /* `text` is in the wire's own memory */
} FieldValue;

struct Wire {
    uint8_t coding, label;
    uint8_t wire_type; /* of a value that is not packed */
    bool is_wrapped, is_closed;
    bool is_spoiled; /* of a MAP: the entry has an unknown number of a closed enum */
    int32_t number, oneof;
    int32_t *numbers; /* of an ENUM's symbols */
    int32_t number_count;
    struct Numbered *by_number; /* NULL: they are few */
    int64_t message;     /* of a message or an entry: its number among all that were read */
    int64_t holder;      /* the message that has this field */
    int64_t write_count; /* of a message: how many were written */
    Oneof *oneofs;       /* of a message */
    FieldValue field;
    Column joined; /* an OPAQUE that came in pieces */
};

/* Which field of a oneof a message has. */
struct Oneof {
    int64_t message;
    Node *member;
    int64_t write; /* the last message that was written with one */
};

/* protobuf_wires.c: 0, or -1 with an exception set. Only what was opened may be closed. */
int message_open(Tree *tree, PyObject *schema, PyObject *wires);
void message_close(Tree *tree);
WireType wire_type_of(Coding coding); /* of a scalar that is neither packed nor wrapped */

/* symbols.c */
bool sort_numbers(Wire *wire); /* false: no memory */
int32_t number_place(const Wire *wire, int32_t number);

/* protobuf_parts.c: parts of a message. Errors name `node`. */
Step read_long_varint(Decoder *decoder, const Node *node, uint64_t *bits);
Step open_length(Decoder *decoder, const Node *node, const uint8_t **before); /* ends at it; `*before` is the end before */
/* A tag; WIRE_END: the message ends, or the group of that number does. */
Step read_tag(Decoder *decoder, const Node *node, int32_t group, int32_t *number, WireType *type);
Step skip_field(Decoder *decoder, const Node *node, int32_t number, WireType type, int level);
Step skip_group(Decoder *decoder, const Node *node, int32_t number, int level);
Step read_scalar(Decoder *decoder, const Node *node, Coding coding, bool is_implicit, FieldValue *field);

/* protobuf_reader.c: reads a message up to its end, or up to the end of the group of that number. */
Step read_fields(Decoder *decoder, Node *node, int32_t group);

/* protobuf_values.c: appends a slot; there is room, except for texts. */
Step add_value(Decoder *decoder, Node *node, bool is_there);    /* of what was read last, or of the default */
Step add_field(Decoder *decoder, Node *node, int64_t message); /* of a field of that message, whether the message has it or not */

/* protobuf_encode.c */
Step put_message(Out *out, const Node *node, int64_t slot);

/* Whether a list of the values can be packed. */
static inline bool is_packable(const Wire *wire)
{
    return wire->wire_type == WIRE_VARINT || wire->wire_type == WIRE_I32 || wire->wire_type == WIRE_I64;
}

static inline Step read_varint(Decoder *decoder, const Node *node, uint64_t *bits)
{
    if (decoder->at < decoder->end && *decoder->at < 0x80) {
        *bits = *decoder->at++;
        return STEP_OK;
    }
    return read_long_varint(decoder, node, bits);
}

/* The place of an enum's number among its symbols; -1: none. */
static inline int32_t symbol_of(const Wire *wire, int32_t number)
{
    if (number >= 0 && number < wire->number_count && wire->numbers[number] == number)
        return number;
    return number_place(wire, number);
}

#endif
