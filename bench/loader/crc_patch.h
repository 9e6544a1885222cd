/* The update of a CRC32C when four bytes in the middle of a message change.
 *
 * A record batch carries a checksum over everything behind it, the producer's sequence number included. To send one
 * batch again with the next number, the loader does not read the whole batch: a CRC is linear, so
 *     crc(new) = crc(old) ^ raw(old ^ new, followed by n zero bytes)
 * where raw() starts from zero and inverts nothing. "Followed by n zero bytes" is a 32 x 32 bit matrix, made by
 * repeated squaring; four tables of 256 entries then hold the answer for each byte of the difference. */
#ifndef BENCH_CRC_PATCH_H
#define BENCH_CRC_PATCH_H

#include "crc32c.h"

/* Column j of a matrix is what bit j of the state becomes. */
static uint32_t crc_times(const uint32_t matrix[32], uint32_t state) {
  uint32_t sum = 0;
  for (int j = 0; state; j++, state >>= 1)
    if (state & 1) sum ^= matrix[j];
  return sum;
}

typedef struct {
  size_t zeros;           /* bytes of the message behind the four that change */
  uint32_t table[4][256]; /* byte i of the difference, most significant first -> its part of the CRC's difference */
} crc_patch;

static void crc_patch_make(crc_patch *patch, size_t zeros) {
  uint32_t step[32], power[32], square[32];
  for (int j = 0; j < 32; j++) {
    uint32_t bit = 1u << j;
    power[j] = crc_table[bit & 255] ^ bit >> 8; /* one zero byte */
    step[j] = bit;                              /* none: the identity */
  }
  memcpy(square, power, sizeof square);
  for (size_t n = zeros; n; n >>= 1) {
    if (n & 1)
      for (int j = 0; j < 32; j++) step[j] = crc_times(square, step[j]);
    memcpy(power, square, sizeof power);
    for (int j = 0; j < 32; j++) square[j] = crc_times(power, power[j]);
  }
  patch->zeros = zeros;
  for (int byte = 3; byte >= 0; byte--)
    for (int value = 0; value < 256; value++) {
      uint32_t raw = crc_table[value];
      for (int k = byte; k < 3; k++) raw = crc_table[raw & 255] ^ raw >> 8; /* the rest of the four bytes */
      patch->table[byte][value] = crc_times(step, raw);
    }
}

/* How the CRC changes (by exclusive or) when a big-endian 32-bit field changes from `before` to `after`. */
static uint32_t crc_patch_of(const crc_patch *patch, uint32_t before, uint32_t after) {
  uint32_t d = before ^ after;
  uint32_t high = patch->table[0][d >> 24] ^ patch->table[1][d >> 16 & 255];
  return high ^ patch->table[2][d >> 8 & 255] ^ patch->table[3][d & 255];
}

#endif
