/* Turns the batches of a flush into an object and the rows of its commit, in the shapes that Bearlake gives them.
 *
 *   object   header 40, per slice 40, CRC32C 4, the slices, trailer 40 (servers/bearlake/wal/v1.py; without the checksum of each slice)
 *   rows     slices of 6, batches of 7, outcomes of 3 signed 64-bit integers, each blob behind a byte 1 (metadata/packing.py)
 *
 * Small batches are copied into one buffer, since a part costs more in the system call than the copy; large ones stay where they are. */
#ifndef BENCH_BARE_OBJECT_H
#define BENCH_BARE_OBJECT_H

#include "bare.h"
#include "crc32c.h"

enum {
  VERSION = 1,
  HEADER_BYTES = 40,
  ENTRY_BYTES = 40,
  TRAILER_BYTES = 40,
  SLICE_FIELDS = 6,
  SEQUENCE_FIELDS = 7,
  OUTCOME_FIELDS = 3,
  KEPT_BATCH_BYTES_MIN = 4096, /* a mean: smaller batches are copied */
  KEPT_BYTES_MIN = 256 << 10,
  BATCH_MAX_TIMESTAMP = 35
};

/* Gives the batch its offsets if its producer's sequence is the expected one. */
static bool accept_batch(batch *b, partition *p) {
  int64_t producer = (int64_t)get64(b->bytes + BATCH_PRODUCER);
  uint32_t count = get32(b->bytes + BATCH_COUNT), sequence = get32(b->bytes + BATCH_SEQUENCE);
  if (producer >= 0) {
    if (producer == p->producer && sequence != p->sequence) {
      b->error = OUT_OF_ORDER_SEQUENCE;
      return false;
    }
    p->producer = producer;
    p->sequence = (sequence + count) & 0x7fffffff;
  }
  b->base_offset = p->end;
  p->end += count;
  return true;
}

static int by_index(const void *left, const void *right) {
  int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
  return (a > b) - (a < b);
}

/* Groups the accepted batches by partition, in order of the partitions; returns their number. */
static size_t assign_offsets(flush *f) {
  size_t accepted = 0;
  f->partition_count = 0;
  for (size_t i = 0; i < f->batch_count; i++) {
    batch *b = &f->batches[i];
    partition *p = &partitions[b->partition];
    b->next = -1;
    if (b->error || !accept_batch(b, p)) continue;
    if (p->batch_count++ == 0) {
      f->partitions = grown(f->partitions, f->partition_count, &f->partition_room, sizeof *f->partitions);
      f->partitions[f->partition_count++] = b->partition;
      p->first = (long)i;
    } else {
      f->batches[p->last].next = (long)i;
    }
    p->last = (long)i;
    p->bytes += b->size;
    accepted++;
  }
  if (accepted) qsort(f->partitions, f->partition_count, sizeof *f->partitions, by_index);
  return accepted;
}

static void add_part(flush *f, const uint8_t *bytes, size_t size) {
  struct iovec *last = f->part_count ? &f->parts[f->part_count - 1] : NULL;
  if (last && (const uint8_t *)last->iov_base + last->iov_len == bytes) {
    last->iov_len += size;
    return;
  }
  f->parts = grown(f->parts, f->part_count, &f->part_room, sizeof *f->parts);
  f->parts[f->part_count++] = (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
}

static uint8_t *put_fields(uint8_t *at, const int64_t *fields, int count) {
  memcpy(at, fields, 8 * (size_t)count);
  return at + 8 * count;
}

static void write_entry(uint8_t *at, int32_t index, const partition *p, size_t position) {
  memset(at, 0, 16); /* the stream's id */
  put32(at + 16, (uint32_t)index);
  put32(at + 20, (uint32_t)p->batch_count);
  put64(at + 24, position);
  put32(at + 32, (uint32_t)p->bytes);
  put32(at + 36, 0);
}

static void write_around(flush *f, size_t head_bytes, uint8_t *trailer) {
  uint8_t *head = f->front;
  memset(head, 0, HEADER_BYTES);
  memcpy(head, "\211BEARWAL", 8);
  put32(head + 8, VERSION << 16);
  put32(head + 12, (uint32_t)f->partition_count);
  put64(head + 16, f->object_bytes);
  uint32_t crc = crc32c(head, head_bytes - 4);
  put32(head + head_bytes - 4, crc);
  memset(trailer, 0, TRAILER_BYTES);
  put32(trailer + 8, (uint32_t)head_bytes);
  put32(trailer + 12, crc);
  put64(trailer + 16, f->object_bytes);
  put32(trailer + 24, VERSION << 16);
  put32(trailer + 28, crc32c(trailer, 28));
  memcpy(trailer + 32, "BEARWAL\n", 8);
}

/* The rows of the commit, in the order of the object. */
static void write_rows(flush *f, size_t accepted, size_t position) {
  f->slices_bytes = 1 + 8 * SLICE_FIELDS * f->partition_count;
  f->sequences_bytes = 1 + 8 * SEQUENCE_FIELDS * accepted;
  f->outcomes_bytes = 1 + 8 * OUTCOME_FIELDS * accepted;
  f->rows = reserve(f->rows, f->slices_bytes + f->sequences_bytes + f->outcomes_bytes, &f->rows_room);
  uint8_t *slices = f->rows, *sequences = slices + f->slices_bytes, *outcomes = sequences + f->sequences_bytes;
  *slices++ = *sequences++ = *outcomes++ = 1;
  for (size_t i = 0; i < f->partition_count; i++) {
    int64_t index = f->partitions[i], newest = 0, base = -1, records = 0;
    partition *p = &partitions[index];
    for (long at = p->first; at >= 0; at = f->batches[at].next) {
      const batch *b = &f->batches[at];
      int64_t count = get32(b->bytes + BATCH_COUNT), time = (int64_t)get64(b->bytes + BATCH_MAX_TIMESTAMP);
      int64_t producer = (int64_t)get64(b->bytes + BATCH_PRODUCER), epoch = (int16_t)get16(b->bytes + BATCH_EPOCH);
      int64_t sequence = (int32_t)get32(b->bytes + BATCH_SEQUENCE);
      sequences = put_fields(sequences, (int64_t[]){index, producer, epoch, sequence, count, b->base_offset, 0}, SEQUENCE_FIELDS);
      outcomes = put_fields(outcomes, (int64_t[]){0, b->base_offset, 0}, OUTCOME_FIELDS);
      if (base < 0) base = b->base_offset;
      if (time > newest) newest = time;
      records += count;
    }
    int64_t fields[] = {index, base, records, (int64_t)position, (int64_t)p->bytes, newest};
    slices = put_fields(slices, fields, SLICE_FIELDS);
    position += p->bytes;
  }
}

/* Seals the flush; false if no batch was accepted, so that nothing is to be stored. */
static bool seal(flush *f) {
  size_t accepted = assign_offsets(f), payload = 0;
  if (!accepted) return false;
  size_t head_bytes = HEADER_BYTES + ENTRY_BYTES * f->partition_count + 4, position = head_bytes;
  f->front = reserve(f->front, head_bytes + TRAILER_BYTES, &f->front_room);
  uint8_t *trailer = f->front + head_bytes;
  for (size_t i = 0; i < f->partition_count; i++) {
    const partition *p = &partitions[f->partitions[i]];
    write_entry(f->front + HEADER_BYTES + ENTRY_BYTES * i, f->partitions[i], p, position + payload);
    payload += p->bytes;
  }
  f->object_bytes = head_bytes + payload + TRAILER_BYTES;
  write_around(f, head_bytes, trailer);
  write_rows(f, accepted, head_bytes);
  bool is_copied = payload < KEPT_BYTES_MIN || payload < accepted * KEPT_BATCH_BYTES_MIN;
  if (is_copied) f->copy = reserve(f->copy, payload, &f->copy_room);
  uint8_t *to = f->copy;
  f->part_count = 0;
  add_part(f, f->front, head_bytes);
  for (size_t i = 0; i < f->partition_count; i++) {
    partition *p = &partitions[f->partitions[i]];
    for (long at = p->first; at >= 0; at = f->batches[at].next) {
      const batch *b = &f->batches[at];
      if (is_copied) {
        memcpy(to, b->bytes, b->size);
        add_part(f, to, b->size);
        to += b->size;
      } else {
        add_part(f, b->bytes, b->size);
      }
    }
    p->batch_count = p->bytes = 0;
  }
  add_part(f, trailer, TRAILER_BYTES);
  return true;
}

#endif
