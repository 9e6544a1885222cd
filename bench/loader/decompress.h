/* Decompresses the records of a batch, lz4 or zstd, by the system's libraries, which are opened at run time: no headers needed.
 *
 * LZ4 comes in frames of independent blocks (as Kafka's clients write them); checksums inside the frame are not checked. */
#ifndef BENCH_DECOMPRESS_H
#define BENCH_DECOMPRESS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CODEC_LZ4 = 3, CODEC_ZSTD = 4, RECORDS_BYTES_MAX = 8 << 20 };

static struct {
  int (*lz4_block)(const char *, char *, int, int);
  size_t (*zstd)(void *, void *, size_t, const void *, size_t);
  unsigned (*zstd_is_error)(size_t);
  void *zstd_context; /* used again: a new one costs a quarter more */
} codecs;

/* False if a library is missing. */
static bool load_codecs(void) {
  void *lz4 = dlopen("liblz4.so.1", RTLD_NOW), *zstd = dlopen("libzstd.so.1", RTLD_NOW);
  if (!lz4 || !zstd) return false;
  void *(*create)(void);
  *(void **)&codecs.lz4_block = dlsym(lz4, "LZ4_decompress_safe");
  *(void **)&codecs.zstd = dlsym(zstd, "ZSTD_decompressDCtx");
  *(void **)&codecs.zstd_is_error = dlsym(zstd, "ZSTD_isError");
  *(void **)&create = dlsym(zstd, "ZSTD_createDCtx");
  if (!codecs.lz4_block || !codecs.zstd || !codecs.zstd_is_error || !create) return false;
  return (codecs.zstd_context = create()) != NULL;
}

static uint32_t little32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Bytes written to `out`; -1 if the frame is damaged, or of another kind. */
static int64_t decompress_lz4(const uint8_t *at, size_t size, uint8_t *out, size_t room) {
  enum { MAGIC = 0x184D2204, FLAGS_AT = 4, DESCRIPTOR_AT = 6, INDEPENDENT = 0x60, SUMS = 0x10, SIZED = 0x08, DICTIONARY = 0x01 };
  if (size < 7 || little32(at) != MAGIC || (at[FLAGS_AT] & INDEPENDENT) != INDEPENDENT || at[FLAGS_AT] & DICTIONARY) return -1;
  const uint8_t *end = at + size, flags = at[FLAGS_AT];
  size_t written = 0;
  at += DESCRIPTOR_AT + (flags & SIZED ? 8 : 0) + 1;
  for (;;) {
    if (end - at < 4) return -1;
    uint32_t head = little32(at), bytes = head & 0x7fffffff;
    at += 4;
    if (!head) return (int64_t)written;
    if (bytes > (size_t)(end - at)) return -1;
    if (head != bytes) { /* stored */
      if (bytes > room - written) return -1;
      memcpy(out + written, at, bytes);
      written += bytes;
    } else {
      int got = codecs.lz4_block((const char *)at, (char *)out + written, (int)bytes, (int)(room - written));
      if (got < 0) return -1;
      written += (size_t)got;
    }
    at += bytes;
    if (flags & SUMS) at += 4;
  }
}

/* Bytes of the decompressed records; -1 if they are damaged; `size` if they are not compressed. */
static int64_t decompress(int codec, const uint8_t *records, size_t size, uint8_t *out, size_t room) {
  if (codec == 0) return (int64_t)size;
  if (codec == CODEC_LZ4) return decompress_lz4(records, size, out, room);
  if (codec != CODEC_ZSTD) return -1;
  size_t got = codecs.zstd(codecs.zstd_context, out, room, records, size);
  return codecs.zstd_is_error(got) ? -1 : (int64_t)got;
}

#endif
