/* Finds keys that a map has twice. Contract: avro_values.py, protobuf_values.py. */
#include "typed/decoder.h"

#define PAIRS_MAX 16 /* keys of a map that are compared pair by pair */

/* Compares two keys that are not null: 0 if they are equal, in any order else. */
static inline int compare_keys(const Node *keys, int64_t left, int64_t right)
{
    if (keys->layout == LAYOUT_WIDTH)
        return memcmp(keys->content.bytes + left * keys->width, keys->content.bytes + right * keys->width, (size_t)keys->width);
    if (keys->layout == LAYOUT_BITMAP)
        return bit_at(keys->content.bytes, left) - bit_at(keys->content.bytes, right);
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

Step find_repeated(Decoder *decoder, const Node *keys, int64_t start, bool *is_repeated)
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
