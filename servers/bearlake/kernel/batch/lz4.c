/* LZ4 frames, decoded in one pass. liblz4's frame decoder allocates a context and copies each block twice; cramjam adds a third copy.

   Strict: what this decoder accepts, every decoder accepts. Other sections than one frame with independent blocks and without a
   dictionary are left to the caller: see lz4.py.

   A block is a row of sequences. Each is a token (4 bits: number of literals, 4 bits: match length - 4; 15: more bytes follow), the literals,
   and the distance of the match (uint16, little-endian). The last sequence has only literals: at least 5, unless it is the only sequence;
   the last match begins at least 12 bytes before the end of the block.
   Source: lz4_Block_format.md, lz4_Frame_format.md (1.6.2); the checksum of the frame's header is XXH32. */
#include "batch/compressed.h"

#define MATCH_MIN 4
#define LAST_LITERALS 5
#define MATCH_LIMIT 12
#define IS_RAW 0x80000000u

static inline uint32_t load_little(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The bytes that continue a length of 15. */
static inline bool add_length(const uint8_t **at, const uint8_t *end, size_t *length)
{
    uint8_t byte;
    do {
        if (*at == end)
            return false;
        byte = *(*at)++;
        *length += byte;
    } while (byte == 255);
    return true;
}

/* Writes and reads up to 32 bytes more. */
static inline void copy_wide(uint8_t *out, const uint8_t *from, size_t length)
{
    uint8_t *const stop = out + length;
    do {
        memcpy(out, from, 16);
        memcpy(out + 16, from + 16, 16);
        out += 32;
        from += 32;
    } while (out < stop);
}

/* Copies bytes that were written `distance` bytes before; source and target may overlap. Writes up to 32 bytes more. */
static inline void copy_match(uint8_t *out, size_t distance, size_t length)
{
    uint8_t *const stop = out + length;
    const uint8_t *from = out - distance;
    if (distance >= 32) {
        copy_wide(out, from, length);
        return;
    }
    for (; distance < 8 && out < stop; distance *= 2) { /* the pattern repeats, so twice the distance is as good */
        const size_t step = distance < (size_t)(stop - out) ? distance : (size_t)(stop - out);
        for (size_t at = 0; at < step; at++)
            out[at] = from[at];
        out += step;
    }
    while (out < stop) {
        memcpy(out, from, 8);
        out += 8;
        from += 8;
    }
}

/* Most sequences are short: up to 14 literals and 18 bytes of a match that is at least 8 bytes away. They need no loop, as long as there is room to
   read and write more than they have. */
#define SHORT_INPUT 32
#define SHORT_OUTPUT (14 + 18)

/* Decodes short sequences while it can; both cursors stay at the start of a sequence. */
static void decode_short(const uint8_t **at, const uint8_t *end, const uint8_t *history, uint8_t **out, const uint8_t *limit,
                         const uint8_t **last_match)
{
    const uint8_t *from = *at;
    uint8_t *to = *out;
    while (end - from >= SHORT_INPUT && limit - to >= SHORT_OUTPUT) {
        const size_t literals = from[0] >> 4, match = from[0] & 15;
        if (literals == 15 || match == 15)
            break;
        memcpy(to, from + 1, 16);
        const uint8_t *const next = from + 1 + literals;
        const size_t distance = (size_t)next[0] | (size_t)next[1] << 8;
        if (distance < 8 || distance > (size_t)(to - history) + literals)
            break; /* what was written is written again */
        to += literals;
        *last_match = to;
        const uint8_t *const source = to - distance;
        memcpy(to, source, 8);
        memcpy(to + 8, source + 8, 8);
        memcpy(to + 16, source + 16, 2);
        to += match + MATCH_MIN;
        from = next + 2;
    }
    *at = from;
    *out = to;
}

/* Decodes the block [at, end) to `out`, up to `limit`; matches reach back to its first byte. Returns the end of the output, or NULL. */
static uint8_t *decode_block(const uint8_t *at, const uint8_t *end, uint8_t *out, const uint8_t *limit)
{
    const uint8_t *const history = out, *last_match = NULL;
    for (;;) {
        decode_short(&at, end, history, &out, limit, &last_match);
        if (at == end)
            return NULL;
        const unsigned token = *at++;
        size_t length = token >> 4;
        if (length == 15 && !add_length(&at, end, &length))
            return NULL;
        if (length > (size_t)(end - at) || length > (size_t)(limit - out))
            return NULL;
        if ((size_t)(end - at) >= length + 32)
            copy_wide(out, at, length);
        else
            memcpy(out, at, length);
        at += length;
        out += length;
        if (at == end)
            return last_match == NULL || (length >= LAST_LITERALS && out - last_match >= MATCH_LIMIT) ? out : NULL;
        if (end - at < 2 + 1 + LAST_LITERALS)
            return NULL;
        const size_t distance = (size_t)at[0] | (size_t)at[1] << 8;
        at += 2;
        length = token & 15;
        if (length == 15 && !add_length(&at, end, &length))
            return NULL;
        length += MATCH_MIN;
        if (distance == 0 || distance > (size_t)(out - history) || length > (size_t)(limit - out))
            return NULL;
        last_match = out;
        copy_match(out, distance, length);
        out += length;
    }
}

#define PRIME_1 2654435761u
#define PRIME_2 2246822519u
#define PRIME_3 3266489917u
#define PRIME_4 668265263u
#define PRIME_5 374761393u

static inline uint32_t rotated(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

static inline uint32_t mixed(uint32_t lane, const uint8_t *bytes) { return rotated(lane + load_little(bytes) * PRIME_2, 13) * PRIME_1; }

/* XXH32 with seed 0. Source: xxhash_spec.md */
static uint32_t xxh32(const uint8_t *bytes, size_t size)
{
    const uint8_t *const end = bytes + size;
    uint32_t hash = PRIME_5;
    if (size >= 16) {
        uint32_t lanes[4] = {PRIME_1 + PRIME_2, PRIME_2, 0, 0u - PRIME_1};
        for (; end - bytes >= 16; bytes += 16)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = mixed(lanes[lane], bytes + 4 * lane);
        hash = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
    }
    hash += (uint32_t)size;
    for (; end - bytes >= 4; bytes += 4)
        hash = rotated(hash + load_little(bytes) * PRIME_3, 17) * PRIME_4;
    for (; bytes < end; bytes++)
        hash = rotated(hash + *bytes * PRIME_5, 11) * PRIME_1;
    hash = (hash ^ hash >> 15) * PRIME_2;
    hash = (hash ^ hash >> 13) * PRIME_3;
    return hash ^ hash >> 16;
}

typedef struct {
    const uint8_t *blocks;
    uint64_t content_size;
    uint32_t block_max;
    bool has_size, has_block_checksums, has_checksum;
} Frame;

/* Reads the header of a frame; false if it is not one that this decoder knows. */
static bool read_header(const uint8_t *section, size_t size, Frame *frame)
{
    enum { MAGIC_END = 4, FLAGS, SIZES, SIZE_BYTES = 8 };
    if (size < SIZES + 2 || load_little(section) != 0x184D2204u)
        return false;
    const unsigned flags = section[MAGIC_END], sizes = section[FLAGS];
    /* version 1; bits 5: independent blocks, 4: block checksums, 3: content size, 2: content checksum, 1: reserved, 0: dictionary */
    if ((flags & ~0x1Cu) != 0x60 || (sizes & 0x8F) != 0 || sizes < 0x40)
        return false;
    frame->has_block_checksums = flags & 0x10;
    frame->has_size = flags & 0x08;
    frame->has_checksum = flags & 0x04;
    frame->block_max = 1u << (8 + 2 * (sizes >> 4)); /* 64 KiB, 256 KiB, 1 MiB, 4 MiB */
    const size_t end = SIZES + (frame->has_size ? SIZE_BYTES : 0);
    if (size <= end || section[end] != (xxh32(section + MAGIC_END, end - MAGIC_END) >> 8 & 0xFF))
        return false;
    if (frame->has_size)
        frame->content_size = (uint64_t)load_little(section + SIZES) | (uint64_t)load_little(section + SIZES + 4) << 32;
    frame->blocks = section + end + 1;
    return true;
}

/* Whether the checksum of these bytes is at `*at`; advances past it. */
static bool passes(const uint8_t **at, const uint8_t *end, const uint8_t *bytes, size_t size)
{
    if (end - *at < 4)
        return false;
    *at += 4;
    return load_little(*at - 4) == xxh32(bytes, size);
}

int64_t lz4_decode(const uint8_t *section, size_t size, uint8_t *out, size_t room)
{
    Frame frame = {0};
    if (!read_header(section, size, &frame))
        return -1;
    const uint8_t *at = frame.blocks, *const end = section + size;
    uint8_t *const start = out, *const limit = out + room;
    for (;;) {
        if (end - at < 4)
            return -1;
        const uint32_t word = load_little(at), length = word & ~IS_RAW;
        at += 4;
        if (word == 0)
            break;
        if (length == 0 || length > frame.block_max || length > (size_t)(end - at))
            return -1;
        const uint8_t *const block = at;
        const size_t left = (size_t)(limit - out) < frame.block_max ? (size_t)(limit - out) : frame.block_max;
        at += length;
        if (frame.has_block_checksums && !passes(&at, end, block, length))
            return -1;
        if (word & IS_RAW) {
            if (length > left)
                return -1;
            memcpy(out, block, length);
            out += length;
        } else if ((out = decode_block(block, block + length, out, out + left)) == NULL) {
            return -1;
        }
    }
    if (frame.has_checksum && !passes(&at, end, start, (size_t)(out - start)))
        return -1;
    return at == end && (!frame.has_size || frame.content_size == (uint64_t)(out - start)) ? out - start : -1;
}
