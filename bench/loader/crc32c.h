/* CRC32C (Castagnoli, RFC 3720 appendix B.4). */
#ifndef BENCH_CRC32C_H
#define BENCH_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc_table[256];

/* Call once, before threads start. */
static void crc_init(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    crc_table[i] = value;
  }
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_in_hardware(const uint8_t *bytes, size_t size) {
  uint64_t crc = ~0u;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
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
