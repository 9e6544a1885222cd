/* The responses that the loader reads: Produce v7 to v9, Fetch v4 and v12.
 *
 * They are read completely, because a figure is worth nothing when one of a hundred partitions refused its batch. Source: as wire.h. */
#ifndef BENCH_RESPONSES_H
#define BENCH_RESPONSES_H

#include "wire.h"

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
