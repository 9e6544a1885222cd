/* The requests of the Kafka protocol that the loader sends and the bare server reads: Produce v7 to v9, Fetch v4 and v12.
 *
 * The loader reads its templates once, to learn where the fields lie that change from request to request (sequence numbers and checksums,
 * fetch offsets). Responses: responses.h.
 * Source: the Kafka protocol guide; "flexible" versions (KIP-482) are Produce v9 and Fetch v12. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { API_PRODUCE = 0, API_FETCH = 1, API_INIT_PRODUCER_ID = 22 };

/* Offsets inside a record batch, magic 2. */
enum {
  BATCH_LENGTH = 8,
  BATCH_MAGIC = 16,
  BATCH_CRC = 17,
  BATCH_CHECKED = 21, /* first byte that the CRC covers */
  BATCH_LAST_DELTA = 23,
  BATCH_PRODUCER = 43,
  BATCH_EPOCH = 51,
  BATCH_SEQUENCE = 53,
  BATCH_COUNT = 57,
  BATCH_HEADER = 61
};

static uint16_t get16(const uint8_t *b) { uint16_t v; memcpy(&v, b, 2); return be16toh(v); }
static uint32_t get32(const uint8_t *b) { uint32_t v; memcpy(&v, b, 4); return be32toh(v); }
static uint64_t get64(const uint8_t *b) { uint64_t v; memcpy(&v, b, 8); return be64toh(v); }
static void put32(uint8_t *b, uint32_t v) { v = htobe32(v); memcpy(b, &v, 4); }
static void put64(uint8_t *b, uint64_t v) { v = htobe64(v); memcpy(b, &v, 8); }

/* Reads a message; `bad` is set, and stays set, as soon as a field reaches past the end. */
typedef struct { const uint8_t *at, *end; bool flexible, bad; } reader;

static const uint8_t *take(reader *r, uint64_t size) {
  static const uint8_t nothing[8];
  if (r->bad || size > (uint64_t)(r->end - r->at)) {
    r->bad = true;
    return nothing;
  }
  const uint8_t *field = r->at;
  r->at += size;
  return field;
}
static int16_t take16(reader *r) { return (int16_t)get16(take(r, 2)); }
static int32_t take32(reader *r) { return (int32_t)get32(take(r, 4)); }
static int64_t take64(reader *r) { return (int64_t)get64(take(r, 8)); }
static uint32_t take_varint(reader *r) {
  uint32_t value = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    uint8_t byte = *take(r, 1);
    value |= (uint32_t)(byte & 127) << shift;
    if (!(byte & 128)) return value;
  }
  r->bad = true;
  return 0;
}
static void skip_tagged_fields(reader *r) {
  if (!r->flexible) return;
  for (uint32_t n = take_varint(r); n && !r->bad; n--) {
    take_varint(r);
    take(r, take_varint(r));
  }
}
/* Number of elements of an array, bytes of a byte string; -1 for null. */
static int64_t take_count(reader *r) { return r->flexible ? (int64_t)take_varint(r) - 1 : take32(r); }
static void skip_string(reader *r) {
  int64_t size = r->flexible ? (int64_t)take_varint(r) - 1 : take16(r);
  if (size > 0) take(r, (uint64_t)size);
}

/* One partition of a request: what changes from one request to the next. */
typedef struct {
  int32_t index;
  size_t position;   /* produce: of the batch; fetch: of the fetch offset, in bytes from the frame's start */
  uint32_t size;     /* produce: bytes of the batch */
  int64_t start;     /* fetch: first offset to read, where a cursor returns to at the end of the log */
} part;

/* A field of a frame, as it was sent. */
typedef struct { const uint8_t *at; size_t size; } field;

/* Reads a request frame (size prefix included); returns its number of partitions, or -1 if it is not understood. `topic`: the name with its
 * length. */
static int request_of_frame(const uint8_t *frame, size_t size, int api, int version, field *topic, part *parts,
                            int parts_max) {
  reader r = {.at = frame + 12, .end = frame + size};
  skip_string(&r); /* client id: never compact */
  r.flexible = api == API_PRODUCE ? version >= 9 : version >= 12;
  skip_tagged_fields(&r);
  if (api == API_PRODUCE) {
    skip_string(&r);
    if (take16(&r) == 0) return -1; /* acks=0 has no responses to wait for */
    take32(&r);
  } else {
    take(&r, version >= 7 ? 25 : 17);
  }
  if (take_count(&r) != 1) return -1;
  topic->at = r.at;
  skip_string(&r);
  topic->size = (size_t)(r.at - topic->at);
  int64_t count = take_count(&r);
  if (count < 1 || count > parts_max) return -1;
  for (int i = 0; i < count && !r.bad; i++) {
    parts[i].index = take32(&r);
    if (api == API_PRODUCE) {
      int64_t bytes = take_count(&r);
      parts[i].position = (size_t)(r.at - frame);
      parts[i].size = (uint32_t)bytes;
      const uint8_t *batch = take(&r, bytes < 0 ? UINT64_MAX : (uint64_t)bytes);
      if (r.bad || bytes < BATCH_HEADER || batch[BATCH_MAGIC] != 2) return -1;
      if (get32(batch + BATCH_LENGTH) + 12 != bytes) return -1;
    } else {
      if (version >= 9) take32(&r);
      parts[i].position = (size_t)(r.at - frame);
      parts[i].start = take64(&r);
      take(&r, version >= 12 ? 16 : version >= 5 ? 12 : 4);
    }
    skip_tagged_fields(&r);
  }
  return r.bad ? -1 : (int)count;
}

#endif
