/* CRC32C (Castagnoli, RFC 3720 appendix B.4).
 *
 * The processor's instruction takes 8 bytes a cycle, but a result only after 3 cycles. So three blocks are read side by side; a table
 * then moves the checksum of a block behind the next block (a CRC is linear: crc_patch.h). */
#ifndef BENCH_CRC32C_H
#define BENCH_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CRC_STRIDES = 2 };

static uint32_t crc_table[256];

typedef struct {
  size_t block;            /* bytes, a multiple of 8 */
  uint32_t after[4][256];  /* byte i of a state, least significant first -> its part of the state `block` zero bytes later */
} crc_stride;

static crc_stride crc_strides[CRC_STRIDES] = {{.block = 2048}, {.block = 128}};

static uint32_t crc_after_zeros(uint32_t state, size_t zeros) {
  while (zeros--) state = crc_table[state & 255] ^ state >> 8;
  return state;
}

/* Call once, before threads start. */
static void crc_init(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    crc_table[i] = value;
  }
  for (int i = 0; i < CRC_STRIDES; i++)
    for (int byte = 0; byte < 4; byte++) {
      uint32_t *part = crc_strides[i].after[byte];
      for (uint32_t bit = 1; bit < 256; bit <<= 1) part[bit] = crc_after_zeros(bit << 8 * byte, crc_strides[i].block);
      for (uint32_t value = 1; value < 256; value++) part[value] = part[value & (value - 1)] ^ part[value & -value];
    }
}

#ifdef __x86_64__
static uint32_t crc_behind(const crc_stride *stride, uint32_t state) {
  uint32_t low = stride->after[0][state & 255] ^ stride->after[1][state >> 8 & 255];
  return low ^ stride->after[2][state >> 16 & 255] ^ stride->after[3][state >> 24];
}

static uint64_t crc_word(const uint8_t *bytes) {
  uint64_t word;
  memcpy(&word, bytes, 8);
  return word;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_in_hardware(const uint8_t *bytes, size_t size) {
  uint64_t crc = ~0u;
  for (int i = 0; i < CRC_STRIDES; i++) {
    size_t block = crc_strides[i].block;
    for (; size >= 3 * block; bytes += 3 * block, size -= 3 * block) {
      uint64_t second = 0, third = 0;
      for (size_t at = 0; at < block; at += 8) {
        crc = __builtin_ia32_crc32di(crc, crc_word(bytes + at));
        second = __builtin_ia32_crc32di(second, crc_word(bytes + block + at));
        third = __builtin_ia32_crc32di(third, crc_word(bytes + 2 * block + at));
      }
      second ^= crc_behind(&crc_strides[i], (uint32_t)crc);
      crc = third ^ crc_behind(&crc_strides[i], (uint32_t)second);
    }
  }
  for (; size >= 8; bytes += 8, size -= 8) crc = __builtin_ia32_crc32di(crc, crc_word(bytes));
  while (size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *bytes++);
  return ~(uint32_t)crc;
}
#endif

static uint32_t crc32c(const uint8_t *bytes, size_t size) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) return crc32c_in_hardware(bytes, size);
#endif
  uint32_t crc = ~0u;
  while (size--) crc = crc_table[(crc ^ *bytes++) & 255] ^ crc >> 8;
  return ~crc;
}

#endif
