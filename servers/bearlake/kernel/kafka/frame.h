/* Response frames under construction, and the fields that Produce and Fetch share. Contract of the fields: frame.py. */
#ifndef BEARLAKE_KAFKA_FRAME_H
#define BEARLAKE_KAFKA_FRAME_H

#include "native.h"

#define FRAME_INLINE_BYTES 512
#define NAME_BYTES_MAX 0x7FFF
#define VARINT_BYTES_MAX 10

/* Bytes under construction: inline while they are few, then on the heap. */
typedef struct {
    uint8_t *heap; /* NULL while they are inline */
    size_t size;
    size_t room;
    uint8_t first[FRAME_INLINE_BYTES];
} Frame;

/* How a version of a response is encoded. `name` is the response's, for the messages of errors. */
typedef struct {
    const char *name;
    bool is_flexible;
    bool has_topic_ids;
} Encoding;

static inline void frame_init(Frame *frame)
{
    frame->heap = NULL;
    frame->size = 0;
    frame->room = FRAME_INLINE_BYTES;
}

static inline void frame_free(Frame *frame) { PyMem_Free(frame->heap); }

static inline uint8_t *frame_bytes(Frame *frame) { return frame->heap != NULL ? frame->heap : frame->first; }

/* Makes room for `size` more bytes; -1 with MemoryError set. */
static inline int frame_enlarge(Frame *frame, size_t size)
{
    const size_t room = 2 * frame->room + size;
    uint8_t *moved = PyMem_Realloc(frame->heap, room);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (frame->heap == NULL)
        memcpy(moved, frame->first, frame->size);
    frame->heap = moved;
    frame->room = room;
    return 0;
}

/* Appends `size` bytes for the caller to fill; NULL with MemoryError set. */
static inline uint8_t *frame_grow(Frame *frame, size_t size)
{
    if (frame->room - frame->size < size && frame_enlarge(frame, size) < 0)
        return NULL;
    uint8_t *at = frame_bytes(frame) + frame->size;
    frame->size += size;
    return at;
}

/* All that follow return -1 with an exception set, else 0. */

static inline int put_bytes(Frame *frame, const void *bytes, size_t size)
{
    uint8_t *at = frame_grow(frame, size);
    if (at == NULL)
        return -1;
    memcpy(at, bytes, size);
    return 0;
}

static inline int put_varint(Frame *frame, uint64_t value)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (uint8_t)(value | 0x80);
    bytes[size++] = (uint8_t)value;
    return put_bytes(frame, bytes, size);
}

static inline int put_count(Frame *frame, const Encoding *encoding, int64_t count)
{
    uint8_t bytes[4];
    if (encoding->is_flexible)
        return put_varint(frame, (uint64_t)count + 1);
    store_u32(bytes, (uint32_t)count);
    return put_bytes(frame, bytes, sizeof bytes);
}

/* The end of a structure: a flexible version has no tagged fields there. */
static inline int put_tags(Frame *frame, const Encoding *encoding) { return encoding->is_flexible ? put_bytes(frame, "", 1) : 0; }

static inline int put_topic(Frame *frame, const Encoding *encoding, PyObject *topic)
{
    if (encoding->has_topic_ids) {
        if (PyBytes_Check(topic) && PyBytes_GET_SIZE(topic) == 16)
            return put_bytes(frame, PyBytes_AS_STRING(topic), 16);
        PyErr_Format(PyExc_ValueError, "%s: a topic id has 16 bytes", encoding->name);
        return -1;
    }
    Py_ssize_t size = 0;
    uint8_t length[2];
    const char *name = PyUnicode_Check(topic) ? PyUnicode_AsUTF8AndSize(topic, &size) : NULL;
    if (name == NULL && PyErr_Occurred())
        return -1;
    if (name == NULL || size > NAME_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "%s: a topic name is a str of at most %d bytes", encoding->name, NAME_BYTES_MAX);
        return -1;
    }
    store_u16(length, (uint16_t)size);
    if ((encoding->is_flexible ? put_varint(frame, (uint64_t)size + 1) : put_bytes(frame, length, sizeof length)) < 0)
        return -1;
    return put_bytes(frame, name, (size_t)size);
}

/* -1 with ValueError set unless least <= number <= most; `name` is the response's. */
static inline int to_field(const char *name, PyObject *number, int64_t least, int64_t most, int64_t *out)
{
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (*out == -1 && !overflow && PyErr_Occurred())
        return -1;
    if (!overflow && *out >= least && *out <= most)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: %S does not fit its field", name, number);
    return -1;
}

#endif
