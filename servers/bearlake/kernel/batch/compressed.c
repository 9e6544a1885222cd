/* Checks the records of compressed batches in memory that is used again: fresh memory costs more than LZ4. Contract: compressed.py. */
#include "batch/compressed.h"
#include "batch/records.h"

enum { CODEC_NONE, CODEC_LZ4 = 3, CODEC_ZSTD = 4, CODEC_MASK = 7 };

/* Sections of at least this many bytes release the GIL while they are decoded: 50 us of LZ4. */
#define RELEASE_SECTION_BYTES (128 * 1024)
#define IDLE_MAX 4 /* scratches that are kept, 1 MiB each: more are needed only while more threads check at once */

struct Scratch {
    Scratch *next;
    uint8_t bytes[SECTION_BYTES_MAX + PADDING_BYTES];
};

static Scratch *take_scratch(KernelState *state)
{
    Scratch *scratch = state->scratches;
    if (scratch != NULL) {
        state->scratches = scratch->next;
        state->scratch_count--;
        return scratch;
    }
    return PyMem_RawMalloc(sizeof *scratch);
}

static void give_back(KernelState *state, Scratch *scratch)
{
    if (state->scratch_count >= IDLE_MAX) {
        PyMem_RawFree(scratch);
        return;
    }
    scratch->next = state->scratches;
    state->scratches = scratch;
    state->scratch_count++;
}

void scratches_free(KernelState *state)
{
    while (state->scratches != NULL) {
        Scratch *scratch = state->scratches;
        state->scratches = scratch->next;
        PyMem_RawFree(scratch);
    }
    state->scratch_count = 0;
}

/* The content of a zstd section by `zstd.decompress`, which runs Python code; NULL, without an exception, if it is not known. */
static PyObject *open_zstd(KernelState *state, const uint8_t *section, int64_t size, int64_t room)
{
    PyObject *from = PyMemoryView_FromMemory((char *)section, (Py_ssize_t)size, PyBUF_READ);
    PyObject *most = PyLong_FromLongLong(room);
    PyObject *content = from && most ? PyObject_CallFunctionObjArgs(state->decompress_zstd, from, most, NULL) : NULL;
    Py_XDECREF(most);
    Py_XDECREF(from);
    if (content == NULL)
        PyErr_Clear();
    return content;
}

static int64_t check_zstd(KernelState *state, const uint8_t *section, int64_t size, int64_t room, int64_t record_count)
{
    Py_buffer view;
    int64_t found = -1;
    PyObject *content = open_zstd(state, section, size, room);
    if (content == NULL || content == Py_None || PyObject_GetBuffer(content, &view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        Py_XDECREF(content);
        return -1;
    }
    const uint8_t *records = view.buf;
    if (view.len <= room && first_bad_record((Cursor){records, records + view.len}, record_count) < 0)
        found = view.len;
    PyBuffer_Release(&view);
    Py_DECREF(content);
    return found;
}

static int64_t decode_lz4(const uint8_t *section, int64_t size, uint8_t *out, int64_t room)
{
    int64_t written;
    if (size < RELEASE_SECTION_BYTES)
        return lz4_decode(section, (size_t)size, out, (size_t)room);
    Py_BEGIN_ALLOW_THREADS
    written = lz4_decode(section, (size_t)size, out, (size_t)room);
    Py_END_ALLOW_THREADS
    return written;
}

bool is_checkable(int attributes)
{
    const int codec = attributes & CODEC_MASK;
    return codec == CODEC_NONE || codec == CODEC_LZ4 || codec == CODEC_ZSTD;
}

int64_t check_section(KernelState *state, const Header *header, const uint8_t *batch, int64_t size, int64_t size_max)
{
    const int codec = header->attributes & CODEC_MASK;
    const uint8_t *section = batch + HEADER_BYTES;
    const int64_t section_bytes = size - HEADER_BYTES;
    if (size_max < 0 || section_bytes < 0 || header->record_count < 0 || !is_checkable(codec))
        return -1;
    if (codec == CODEC_NONE)
        return section_bytes <= size_max && first_bad_record((Cursor){section, batch + size}, header->record_count) < 0 ? section_bytes
                                                                                                                       : -1;
    const int64_t room = size_max < SECTION_BYTES_MAX ? size_max : SECTION_BYTES_MAX;
    if (codec == CODEC_ZSTD)
        return check_zstd(state, section, section_bytes, room, header->record_count);
    Scratch *scratch = take_scratch(state);
    if (scratch == NULL)
        return -1;
    int64_t found = decode_lz4(section, section_bytes, scratch->bytes, room);
    if (found >= 0 && first_bad_record((Cursor){scratch->bytes, scratch->bytes + found}, header->record_count) >= 0)
        found = -1;
    give_back(state, scratch);
    return found;
}

KERNEL_FUNCTION(kernel_check_batch)
{
    Py_buffer view;
    int64_t size_max, found = -1;
    if (check_arguments("check_batch", count, 2, 2) < 0 || to_int64(arguments[1], &size_max) < 0
        || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *batch = view.buf;
    if (view.len >= HEADER_BYTES && (int64_t)load_i32(batch + 8) + LENGTH_END == view.len) {
        const Header header = {.attributes = load_i16(batch + CRC_START), .record_count = load_i32(batch + HEADER_BYTES - 4)};
        found = check_section(state_of(module), &header, batch, view.len, size_max);
    }
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(found);
}
