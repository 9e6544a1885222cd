/* The partitions of a write buffer: found by a hash table when a batch arrives. Contract: buffer.py. */
#include "log/write_buffer.h"

#define TABLE_MIN 16

int write_buffer_grow(Array *array, size_t item_bytes, size_t count)
{
    if (count <= array->room)
        return 0;
    size_t room = 2 * array->room > count ? 2 * array->room : count;
    room = room < 8 ? 8 : room;
    void *items = room < NONE ? PyMem_Realloc(array->items, room * item_bytes) : NULL;
    if (items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    array->items = items;
    array->room = room;
    return 0;
}

static inline uint32_t place_of(const WriteBuffer *buffer, int64_t partition)
{
    return (uint32_t)(((uint64_t)partition * 0x9E3779B97F4A7C15u) >> 32) & (buffer->table_size - 1);
}

static void enter(WriteBuffer *buffer, uint32_t slice)
{
    uint32_t place = place_of(buffer, slice_at(buffer, slice)->partition);
    while (buffer->table[place] != NONE)
        place = (place + 1) & (buffer->table_size - 1);
    buffer->table[place] = slice;
}

static int grow_table(WriteBuffer *buffer)
{
    const uint32_t size = buffer->table_size ? 2 * buffer->table_size : TABLE_MIN;
    uint32_t *table = PyMem_Realloc(buffer->table, size * sizeof *table);
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(table, 0xFF, size * sizeof *table);
    buffer->table = table;
    buffer->table_size = size;
    for (uint32_t at = 0; at < buffer->slice_count; at++)
        enter(buffer, at);
    return 0;
}

/* The slice of a batch's partition, or NONE. */
static uint32_t find(const WriteBuffer *buffer, const Batch *batch)
{
    if (buffer->table_size == 0)
        return NONE;
    for (uint32_t place = place_of(buffer, batch->row[COMMIT_PARTITION]);; place = (place + 1) & (buffer->table_size - 1)) {
        const uint32_t at = buffer->table[place];
        if (at == NONE)
            return NONE;
        const Slice *slice = slice_at(buffer, at);
        if (slice->partition == batch->row[COMMIT_PARTITION] && memcmp(slice->stream_id, batch->stream_id, STREAM_ID_BYTES) == 0)
            return at;
    }
}

/* The slice for a batch, made if it is the partition's first; NONE with an exception set. */
uint32_t write_buffer_slice(WriteBuffer *buffer, const Batch *batch)
{
    const uint32_t found = find(buffer, batch);
    if (found != NONE)
        return found;
    if (2 * (buffer->slice_count + 1) > buffer->table_size && grow_table(buffer) < 0)
        return NONE;
    if (write_buffer_grow(&buffer->slices, sizeof(Slice), (size_t)buffer->slice_count + 1) < 0)
        return NONE;
    Slice *slice = slice_at(buffer, buffer->slice_count);
    *slice = (Slice){.partition = batch->row[COMMIT_PARTITION], .first = NONE, .last = NONE};
    memcpy(slice->stream_id, batch->stream_id, STREAM_ID_BYTES);
    enter(buffer, buffer->slice_count);
    return buffer->slice_count++;
}
