/* Writers of bytes: into memory of a known size, into a growing object, or only counting. */
#ifndef BEARLAKE_PULSAR_OUTPUT_H
#define BEARLAKE_PULSAR_OUTPUT_H

#include "batch/records.h"

/* Writes while there is room, or only counts (`at` is NULL). Never writes beyond `end`. */
typedef struct {
    uint8_t *at, *end;
    int64_t size; /* bytes written or counted; exceeds the room if bytes were left out */
} Writer;

#define VARINT_BYTES_MAX 10

static inline int64_t varint_size(uint64_t value) { return (70 - __builtin_clzll(value | 1)) / 7; }

static inline int64_t zigzag_size(int64_t value)
{
    return varint_size(((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static inline void put(Writer *writer, const void *bytes, int64_t size)
{
    writer->size += size;
    if (writer->at == NULL || size > writer->end - writer->at)
        return;
    if (size > 0) /* `bytes` may be NULL if there are none */
        memcpy(writer->at, bytes, (size_t)size);
    writer->at += size;
}

static inline void put_byte(Writer *writer, uint8_t byte) { put(writer, &byte, 1); }

static inline int64_t write_varint(uint8_t *at, uint64_t value)
{
    uint8_t *const start = at;
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at - start;
}

static inline void put_varint(Writer *writer, uint64_t value)
{
    if (writer->at == NULL) {
        writer->size += varint_size(value);
    } else if (writer->end - writer->at >= VARINT_BYTES_MAX) {
        const int64_t size = write_varint(writer->at, value);
        writer->at += size;
        writer->size += size;
    } else {
        uint8_t bytes[VARINT_BYTES_MAX];
        put(writer, bytes, write_varint(bytes, value));
    }
}

static inline void put_zigzag(Writer *writer, int64_t value)
{
    put_varint(writer, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static inline void put_u32(Writer *writer, uint32_t value)
{
    uint8_t bytes[4];
    store_u32(bytes, value);
    put(writer, bytes, 4);
}

static inline int64_t text_size(const Field *text)
{
    return text->bytes == NULL ? 1 : zigzag_size(text->size) + text->size;
}

/* Length-prefixed bytes, as in records. */
static inline void put_text(Writer *writer, const Field *text)
{
    put_zigzag(writer, text->bytes == NULL ? -1 : text->size);
    if (text->bytes != NULL)
        put(writer, text->bytes, text->size);
}

/* output.c: bytes that grow while they are written */
typedef struct {
    PyObject *bytes; /* NULL after an error */
    Writer writer;
} Output;
bool open_output(Output *output, int64_t capacity, int64_t start); /* writing begins at `start`; false with an exception set */
bool grow_output(Output *output, int64_t room);                     /* false with an exception set */
PyObject *close_output(Output *output);                             /* NULL with an exception set */

static inline uint8_t *output_at(const Output *output, int64_t at) { return (uint8_t *)PyBytes_AS_STRING(output->bytes) + at; }
static inline int64_t output_size(const Output *output) { return output->writer.at - output_at(output, 0); }

static inline bool reserve(Output *output, int64_t room)
{
    return room <= output->writer.end - output->writer.at || grow_output(output, room);
}

#endif
