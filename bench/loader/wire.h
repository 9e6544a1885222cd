/* The parts of the Kafka protocol that a loader must understand: Produce v7 to v9 and Fetch v4 and v12.
 *
 * Requests come ready-made in template files. They are read once, to learn where the fields lie that change from
 * request to request (sequence numbers and checksums, fetch offsets); responses are read completely, because a
 * figure is worth nothing when one of a hundred partitions refused its batch.
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

/* Reads a request frame (size prefix included); returns its number of partitions, or -1 if it is not understood. */
static int request_of_frame(const uint8_t *frame, size_t size, int api, int version, part *parts, int parts_max) {
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
  skip_string(&r);
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

/* What a response said, added up over its partitions. */
typedef struct { int partitions, errors, first_error; uint64_t batch_bytes; } answer;

static void note_error(answer *a, int code) {
  a->partitions++;
  if (!code) return;
  a->errors++;
  if (!a->first_error) a->first_error = code;
}

/* `body` starts at the correlation id. False when the response is malformed. */
static bool read_produce_response(const uint8_t *body, size_t size, int version, answer *a) {
  reader r = {.at = body + 4, .end = body + size, .flexible = version >= 9};
  skip_tagged_fields(&r);
  for (int64_t topics = take_count(&r); topics > 0 && !r.bad; topics--) {
    skip_string(&r);
    for (int64_t parts = take_count(&r); parts > 0 && !r.bad; parts--) {
      take32(&r);
      note_error(a, take16(&r));
      take(&r, 24);
      if (version >= 8) {
        for (int64_t errors = take_count(&r); errors > 0 && !r.bad; errors--) {
          take32(&r);
          skip_string(&r);
          skip_tagged_fields(&r);
        }
        skip_string(&r);
      }
      skip_tagged_fields(&r);
    }
    skip_tagged_fields(&r);
  }
  take32(&r);
  skip_tagged_fields(&r);
  return !r.bad && r.at == r.end;
}

/* Walks whole batches (a last one may be cut off) and returns the offset behind them; adds their size to `a`. */
static int64_t walk_batches(const uint8_t *at, uint64_t left, int64_t offset, answer *a) {
  while (left >= BATCH_HEADER) {
    uint64_t size = (uint64_t)get32(at + BATCH_LENGTH) + 12;
    if (size < BATCH_HEADER || size > left) break;
    offset = (int64_t)get64(at) + get32(at + BATCH_LAST_DELTA) + 1;
    a->batch_bytes += size;
    at += size;
    left -= size;
  }
  return offset;
}

/* Moves each partition's cursor behind what was received, back to its start when the end of the log is reached. */
static bool read_fetch_response(const uint8_t *body, size_t size, int version, const part *parts, int count,
                                int64_t *cursors, answer *a) {
  reader r = {.at = body + 4, .end = body + size, .flexible = version >= 12};
  skip_tagged_fields(&r);
  take32(&r);
  if (version >= 7) {
    int code = take16(&r);
    if (code) note_error(a, code);
    take32(&r);
  }
  int at = 0;
  for (int64_t topics = take_count(&r); topics > 0 && !r.bad; topics--) {
    skip_string(&r);
    for (int64_t n = take_count(&r); n > 0 && !r.bad; n--) {
      int32_t index = take32(&r);
      note_error(a, take16(&r));
      int64_t end = take64(&r);
      take(&r, version >= 5 ? 16 : 8);
      for (int64_t aborted = take_count(&r); aborted > 0 && !r.bad; aborted--) {
        take(&r, 16);
        skip_tagged_fields(&r);
      }
      if (version >= 11) take32(&r);
      int64_t bytes = take_count(&r);
      const uint8_t *batches = bytes > 0 ? take(&r, (uint64_t)bytes) : r.at;
      skip_tagged_fields(&r);
      for (int tries = 0; tries < count && parts[at].index != index; tries++) at = (at + 1) % count;
      if (r.bad || parts[at].index != index) return false;
      cursors[at] = walk_batches(batches, bytes > 0 ? (uint64_t)bytes : 0, cursors[at], a);
      if (cursors[at] >= end) cursors[at] = parts[at].start;
    }
    skip_tagged_fields(&r);
  }
  skip_tagged_fields(&r);
  return !r.bad && r.at == r.end;
}

#endif
