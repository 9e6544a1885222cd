/* The state of the bare server (bare_server.c): receive buffers, batches, and the flush that takes them to the stores.
 *
 * Only the event loop's thread uses these, except for a flush between `store_begin` and its end (bare_store.h). */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

enum {
  PARTITIONS_MAX = 1 << 16,
  PARTS_MAX = 4096,
  FRAME_BYTES_MAX = 4 << 20,
  READ_BYTES = 1 << 20,           /* largest read of a socket */
  SLABS_BYTES_MAX = 512 << 20,
  LOG_BYTES_MAX = 64 << 20        /* of a partition that is fetched */
};

static struct {
  const char *folder;
  bool decompresses, keeps_log, uses_sendfile, is_inline;
  long seconds_max;
} option = {.seconds_max = 3600};

static void __attribute__((noreturn, format(printf, 2, 3))) leave(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("bare server: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  _exit(code);
}

static uint64_t now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *map(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) leave(1, "out of memory");
  return memory;
}

/* Room for one element more; `*room` elements fit now. */
static void *grown(void *array, size_t count, size_t *room, size_t size) {
  if (count < *room) return array;
  *room = *room ? 2 * *room : 64;
  array = realloc(array, *room * size);
  if (!array) leave(1, "out of memory");
  return array;
}

/* ---- receive buffers: batches stay where they arrived until their flush is over ------------------------------- */

typedef struct slab {
  struct slab *next;
  uint8_t *bytes;
  size_t size;
  int holders, kind;
} slab;

static const size_t slab_bytes[] = {64 << 10, 1 << 20, 4 << 20};
static slab *free_slabs[3];
static size_t all_slab_bytes;

/* A slab for several frames of `frame_bytes`, with one holder. */
static slab *take_slab(size_t frame_bytes) {
  int kind = 0;
  while (kind < 2 && slab_bytes[kind] < 4 * frame_bytes) kind++;
  slab *s = free_slabs[kind];
  if (s) {
    free_slabs[kind] = s->next;
  } else {
    all_slab_bytes += slab_bytes[kind];
    if (all_slab_bytes > SLABS_BYTES_MAX) leave(1, "the requests in flight need too much memory");
    s = calloc(1, sizeof *s);
    if (!s) leave(1, "out of memory");
    *s = (slab){.bytes = map(slab_bytes[kind]), .size = slab_bytes[kind], .kind = kind};
  }
  s->holders = 1;
  return s;
}

static void release_slab(slab *s) {
  if (--s->holders) return;
  s->next = free_slabs[s->kind];
  free_slabs[s->kind] = s;
}

/* ---- batches ------------------------------------------------------------------------------------------------- */

enum { CORRUPT_MESSAGE = 2, OUT_OF_ORDER_SEQUENCE = 45 };

typedef struct {
  slab *where;
  const uint8_t *bytes;
  uint32_t size;
  int32_t partition, error;
  int64_t base_offset;
  long next; /* the next batch of this partition in the flush; -1: none */
} batch;

typedef struct connection connection;

typedef struct {
  connection *from;
  uint8_t correlation[4];
  int version, batch_count;
  field topic;
} request;

/* The batches that become one object. */
typedef struct {
  batch *batches;
  request *requests;
  int32_t *partitions; /* with accepted batches, sorted: the order of the object's slices */
  struct iovec *parts;
  uint8_t *front, *rows, *copy;
  size_t batch_count, batch_room, request_count, request_room, partition_count, partition_room, part_count, part_room;
  size_t front_room, rows_room, copy_room;
  size_t bytes; /* of the batches */
  size_t object_bytes, slices_bytes, sequences_bytes, outcomes_bytes; /* the last three: of blobs, in `rows` */
  uint64_t since_ns;
} flush;

typedef struct {
  int64_t end, producer;
  uint32_t sequence; /* the producer's next */
  long first, last;  /* batches in the flush that is being sealed */
  size_t batch_count, bytes;
  struct partition_log *log;
} partition;

static partition partitions[PARTITIONS_MAX];

static uint8_t *reserve(uint8_t *memory, size_t size, size_t *room) {
  if (size <= *room) return memory;
  if (memory) munmap(memory, *room);
  *room = 2 * size;
  return map(*room);
}

#endif
