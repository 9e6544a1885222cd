/* What the bare server sends: answers to Produce v7 to v9, InitProducerId v0, and Fetch v4 and v12 of one partition.
 *
 * A fetched batch comes from its partition's log: a file in memory that holds whole batches with their offsets. Source: as wire.h. */
#ifndef BENCH_BARE_ANSWERS_H
#define BENCH_BARE_ANSWERS_H

#include <fcntl.h>

#include "bare.h"

enum { TOPIC_BYTES_MAX = 256, ANSWER_BYTES_MAX = 512, PART_ANSWER_BYTES_MAX = 40 };

typedef struct partition_log {
  uint8_t *bytes;
  int file;
  size_t size, batch_count, batch_room;
  struct { int64_t end; size_t position; } *batches; /* the offset behind a batch, and where the batch begins */
} partition_log;

static uint8_t *add16(uint8_t *at, int value) {
  uint16_t v = htobe16((uint16_t)value);
  memcpy(at, &v, 2);
  return at + 2;
}
static uint8_t *add32(uint8_t *at, int64_t value) { put32(at, (uint32_t)value); return at + 4; }
static uint8_t *add64(uint8_t *at, int64_t value) { put64(at, (uint64_t)value); return at + 8; }
static uint8_t *add_bytes(uint8_t *at, const void *bytes, size_t size) { memcpy(at, bytes, size); return at + size; }
static uint8_t *add_varint(uint8_t *at, uint32_t value) {
  for (; value > 127; value >>= 7) *at++ = (uint8_t)(value | 128);
  *at++ = (uint8_t)value;
  return at;
}
static uint8_t *add_count(uint8_t *at, uint32_t count, bool flexible) {
  return flexible ? add_varint(at, count + 1) : add32(at, count);
}
static uint8_t *add_tags(uint8_t *at, bool flexible) {
  if (flexible) *at++ = 0;
  return at;
}

/* The answer to a Produce request whose batches begin at `b`; returns its end. At most ANSWER_BYTES_MAX + PART_ANSWER_BYTES_MAX per batch. */
static uint8_t *add_produce_answer(uint8_t *start, const request *r, const batch *b) {
  bool flexible = r->version >= 9;
  uint8_t *at = add_bytes(start + 4, r->correlation, 4);
  at = add_count(add_tags(at, flexible), 1, flexible);
  at = add_count(add_bytes(at, r->topic.at, r->topic.size), (uint32_t)r->batch_count, flexible);
  for (const batch *end = b + r->batch_count; b < end; b++) {
    at = add16(add32(at, b->partition), b->error);
    at = add64(add64(add64(at, b->error ? -1 : b->base_offset), -1), 0);
    if (r->version >= 8) {
      at = add_count(at, 0, flexible); /* no errors of records, no text */
      at = flexible ? add_varint(at, 0) : add16(at, -1);
    }
    at = add_tags(at, flexible);
  }
  at = add_tags(add32(add_tags(at, flexible), 0), flexible);
  put32(start, (uint32_t)(at - start - 4));
  return at;
}

static uint8_t *add_producer_id(uint8_t *start, const uint8_t *correlation, int64_t id) {
  uint8_t *at = add_bytes(add32(start, 20), correlation, 4);
  return add16(add64(add16(add32(at, 0), 0), id), 0);
}

/* ---- fetch --------------------------------------------------------------------------------------------------- */

/* An answer that is under way: its head, a part of a log, and a few bytes behind. */
typedef struct {
  uint8_t head[ANSWER_BYTES_MAX];
  size_t head_bytes, body_bytes, tail_bytes, position, sent;
  const partition_log *log;
  bool is_active;
} fetched;

static void keep_in_log(partition *p, const batch *b, int index) {
  partition_log *log = p->log;
  if (!log) {
    char path[4096];
    log = p->log = calloc(1, sizeof *log);
    if (!log) leave(1, "out of memory");
    snprintf(path, sizeof path, "%s/log-%d", option.folder, index);
    log->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (log->file < 0 || ftruncate(log->file, LOG_BYTES_MAX)) leave(1, "%s: %s", path, strerror(errno));
    log->bytes = mmap(NULL, LOG_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, log->file, 0);
    if (log->bytes == MAP_FAILED) leave(1, "%s: %s", path, strerror(errno));
  }
  if (b->size > LOG_BYTES_MAX - log->size) leave(1, "partition %d: more than %d bytes to fetch", index, LOG_BYTES_MAX);
  memcpy(log->bytes + log->size, b->bytes, b->size);
  put64(log->bytes + log->size, (uint64_t)b->base_offset);
  log->batches = grown(log->batches, log->batch_count, &log->batch_room, sizeof *log->batches);
  log->batches[log->batch_count].end = b->base_offset + get32(b->bytes + BATCH_COUNT);
  log->batches[log->batch_count++].position = log->size;
  log->size += b->size;
}

static size_t position_behind(const partition_log *log, size_t batch_number) {
  return batch_number + 1 < log->batch_count ? log->batches[batch_number + 1].position : log->size;
}

/* Whole batches from the one with `offset` on: at most `bytes_max` bytes, but at least one batch. */
static void select_batches(fetched *f, const partition_log *log, int64_t offset, size_t bytes_max) {
  f->log = log;
  f->body_bytes = 0;
  if (!log) return;
  size_t low = 0, high = log->batch_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (log->batches[middle].end <= offset) low = middle + 1;
    else high = middle;
  }
  if (low == log->batch_count) return;
  f->position = log->batches[low].position;
  size_t end = position_behind(log, low);
  while (++low < log->batch_count && position_behind(log, low) - f->position <= bytes_max) end = position_behind(log, low);
  f->body_bytes = end - f->position;
}

/* Begins the answer to a Fetch frame of one partition. */
static void begin_fetch_answer(fetched *f, const uint8_t *frame, int version, field topic, part asked) {
  bool flexible = version >= 12;
  const partition *p = &partitions[asked.index];
  select_batches(f, p->log, asked.start, get32(frame + asked.position + (flexible ? 20 : 8)));
  uint8_t *at = add_bytes(f->head + 4, frame + 8, 4);
  at = add32(add_tags(at, flexible), 0);
  if (flexible) at = add32(add16(at, 0), 0);
  at = add_bytes(add_count(at, 1, flexible), topic.at, topic.size);
  at = add16(add32(add_count(at, 1, flexible), asked.index), 0);
  at = add64(add64(at, p->end), p->end);
  if (flexible) at = add64(at, 0);
  at = add_count(at, 0, flexible); /* no aborted transactions */
  if (flexible) at = add32(at, -1);
  at = add_count(at, (uint32_t)f->body_bytes, flexible);
  f->head_bytes = (size_t)(at - f->head);
  f->tail_bytes = flexible ? 3 : 0; /* tags of the partition, the topic and the response */
  put32(f->head, (uint32_t)(f->head_bytes + f->body_bytes + f->tail_bytes - 4));
  f->sent = 0;
  f->is_active = true;
}

#endif
