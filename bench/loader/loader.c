/* Kafka load generator: prepared Produce or Fetch requests, pipelined, closed loop, one thread per connection.
 *
 * Every partition's error code in every answer is looked at: "errors" of the report. What is printed, and exit codes:
 * drive.h. Options: options.h. Templates: ../templates.py. Build: gcc -O2 -std=gnu11 -pthread -o loader loader.c */
#define _GNU_SOURCE
#include <poll.h>

#include "crc_patch.h"
#include "drive.h"
#include "responses.h"

typedef struct {
  tally seen;
  int id, fd, api, version, part_count;
  part *parts;
  crc_patch *patch;
  uint8_t *frame, *inbox;
  size_t frame_bytes, inbox_bytes, inbox_used;
  size_t sent;                               /* bytes of the current frame already handed to the kernel */
  long begun, answered;                      /* requests: started sending, answered */
  uint64_t sent_at[DEPTH_MAX], resume_at;    /* nanoseconds; by slot = request number % depth */
  int64_t *cursors;                          /* fetch offsets: depth x part_count */
} connection;

/* ---- preparing a connection -------------------------------------------------------------------------------- */

static void load_template(void *argument, int id) {
  connection *c = argument;
  c->id = id;
  c->frame = read_template(id, &c->frame_bytes);
  c->api = get16(c->frame + 4);
  c->version = get16(c->frame + 6);
  bool produce = c->api == API_PRODUCE && c->version >= 7 && c->version <= 9;
  bool fetch = c->api == API_FETCH && (c->version == 4 || c->version == 12);
  if (!(produce || fetch) || get32(c->frame) + 4 != c->frame_bytes)
    leave(2, "%s/%d.bin: not a Produce v7-v9, Fetch v4 or v12 frame", option.templates, id);
  c->parts = allocate(PARTS_MAX, sizeof *c->parts);
  field topic;
  c->part_count = request_of_frame(c->frame, c->frame_bytes, c->api, c->version, &topic, c->parts, PARTS_MAX);
  if (c->part_count < 0)
    leave(2, "%s/%d.bin: one topic, acks other than 0, whole batches of magic 2 are expected", option.templates, id);
  if (option.idempotent && c->api != API_PRODUCE) leave(2, "--idempotent is for Produce");
  c->cursors = allocate((size_t)c->part_count * (size_t)option.depth, sizeof *c->cursors);
  for (long slot = 0; slot < option.depth; slot++)
    for (int i = 0; i < c->part_count; i++) c->cursors[slot * c->part_count + i] = c->parts[i].start;
}

static void wait_for(connection *c, short events) {
  struct pollfd p = {.fd = c->fd, .events = events};
  if (poll(&p, 1, (int)option.timeout_s * 1000) == 0)
    leave(1, "connection %d: no answer within %ld s", c->id, option.timeout_s);
}

static void exchange(connection *c, const uint8_t *request, size_t request_bytes, uint8_t *response,
                     size_t response_bytes) {
  if (send(c->fd, request, request_bytes, MSG_NOSIGNAL) != (ssize_t)request_bytes)
    leave(1, "send: %s", strerror(errno));
  for (size_t have = 0; have < response_bytes;) {
    wait_for(c, POLLIN);
    ssize_t n = recv(c->fd, response + have, response_bytes - have, 0);
    if (n <= 0 && errno != EAGAIN) leave(1, "connection %d: closed by the server at InitProducerId", c->id);
    if (n > 0) have += (size_t)n;
  }
}

/* Asks for a producer id (InitProducerId v0) and writes it into every batch, with the first sequence number 0. */
static void become_idempotent(connection *c) {
  static const uint8_t request[] = {0, 0, 0, 20, 0, API_INIT_PRODUCER_ID, 0, 0, 0, 0, 0, 0, /* correlation id 0 */
                                    0, 4, 'l', 'o', 'a', 'd', 255, 255, 0, 0, 234, 96};     /* timeout 60000 ms */
  uint8_t response[24];
  int code = 0;
  for (int tries = 0; tries < 50; tries++) {
    exchange(c, request, sizeof request, response, sizeof response);
    code = (int16_t)get16(response + 12);
    if (!code) break;
    usleep(100000);
  }
  if (code) leave(1, "InitProducerId: error %d", code);
  for (int i = 0; i < c->part_count; i++) {
    uint8_t *batch = c->frame + c->parts[i].position;
    size_t size = c->parts[i].size;
    memcpy(batch + BATCH_PRODUCER, response + 14, 8);
    memcpy(batch + BATCH_EPOCH, response + 22, 2);
    put32(batch + BATCH_SEQUENCE, 0);
    put32(batch + BATCH_CRC, crc32c(batch + BATCH_CHECKED, size - BATCH_CHECKED));
    if (size != c->parts[0].size) leave(2, "--idempotent: the batches of a request must have one size");
  }
  c->patch = allocate(1, sizeof *c->patch);
  crc_patch_make(c->patch, c->parts[0].size - BATCH_COUNT);
}

static void open_connection(connection *c) {
  c->fd = open_socket(c->id);
  c->inbox_bytes = RECEIVE_BYTES;
  c->inbox = allocate(1, c->inbox_bytes);
  if (option.idempotent) become_idempotent(c);
}

/* ---- the closed loop --------------------------------------------------------------------------------------- */

static void next_sequence(connection *c, uint8_t *batch) {
  uint32_t before = get32(batch + BATCH_SEQUENCE);
  uint32_t after = (before + get32(batch + BATCH_COUNT)) & 0x7fffffff; /* wraps to 0 */
  put32(batch + BATCH_SEQUENCE, after);
  put32(batch + BATCH_CRC, get32(batch + BATCH_CRC) ^ crc_patch_of(c->patch, before, after));
}

static void begin_request(connection *c) {
  long slot = c->begun % option.depth;
  put32(c->frame + 8, (uint32_t)c->begun);
  for (int i = 0; i < c->part_count; i++) {
    uint8_t *position = c->frame + c->parts[i].position;
    if (c->api == API_FETCH) put64(position, (uint64_t)c->cursors[slot * c->part_count + i]);
    else if (c->patch && c->begun) next_sequence(c, position);
  }
  c->sent_at[slot] = now_ns();
  c->sent = 0;
  c->begun++;
}

/* Sends until the window of requests in flight is full or the socket is; true when the socket is full. */
static bool send_requests(connection *c) {
  for (;;) {
    if (c->sent == c->frame_bytes) {
      bool over = is_phase(STOP) || c->begun >= option.requests_max;
      bool full = c->begun - c->answered >= option.depth;
      if (over || full || (c->resume_at && now_ns() < c->resume_at)) return false;
      begin_request(c);
    }
    ssize_t n = send(c->fd, c->frame + c->sent, c->frame_bytes - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && errno != EINTR) leave(1, "connection %d: send: %s", c->id, strerror(errno));
    if (n > 0) c->sent += (size_t)n;
  }
}

static void take_response(connection *c, const uint8_t *body, size_t size) {
  uint64_t received = now_ns();
  long slot = c->answered % option.depth;
  answer a = {0};
  if (c->answered == c->begun || get32(body) != (uint32_t)c->answered)
    leave(1, "connection %d: answers out of order", c->id);
  int64_t *cursors = c->cursors + slot * c->part_count;
  bool whole = c->api == API_PRODUCE
                   ? read_produce_response(body, size, c->version, &a)
                   : read_fetch_response(body, size, c->version, c->parts, c->part_count, cursors, &a);
  if (!whole) leave(1, "connection %d: malformed answer of %zu bytes", c->id, size);
  if (c->api == API_PRODUCE && a.partitions != c->part_count)
    leave(1, "connection %d: %d partitions sent, %d answered", c->id, c->part_count, a.partitions);
  uint64_t bytes = c->api == API_PRODUCE ? (uint64_t)option.payload : a.batch_bytes;
  c->seen.errors += (uint64_t)a.errors;
  if (!c->seen.first_error) c->seen.first_error = a.first_error;
  c->seen.all_requests++;
  c->seen.all_bytes += bytes;
  if (is_phase(MEASURE)) {
    c->seen.requests++;
    c->seen.bytes += bytes;
    histogram_add(&c->seen.latency, received - c->sent_at[slot]);
  }
  c->answered++;
  if (option.pause_us) c->resume_at = now_ns() + (uint64_t)option.pause_us * 1000;
}

/* Receives once and takes every response that is complete; the rest stays at the front of the inbox. */
static void receive(connection *c) {
  size_t want = c->inbox_bytes - c->inbox_used;
  if (c->inbox_used >= 4) {
    size_t whole = (size_t)get32(c->inbox) + 4; /* never read far past a big response: the rest would be moved */
    if (whole > RECEIVE_BYTES) want = whole - c->inbox_used;
  }
  ssize_t n = recv(c->fd, c->inbox + c->inbox_used, want, 0);
  if (n == 0) leave(1, "connection %d: closed by the server", c->id);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) leave(1, "connection %d: recv: %s", c->id, strerror(errno));
  c->inbox_used += (size_t)n;
  size_t at = 0;
  while (c->inbox_used - at >= 4) {
    size_t whole = (size_t)get32(c->inbox + at) + 4;
    if (whole < 8 || whole > RESPONSE_BYTES_MAX) leave(1, "connection %d: an answer of %zu bytes", c->id, whole);
    if (c->inbox_used - at < whole) break;
    take_response(c, c->inbox + at + 4, whole - 4);
    at += whole;
  }
  memmove(c->inbox, c->inbox + at, c->inbox_used - at);
  c->inbox_used -= at;
  if (c->inbox_used < 4) return;
  size_t whole = (size_t)get32(c->inbox) + 4;
  if (whole <= c->inbox_bytes) return;
  c->inbox = realloc(c->inbox, whole);
  if (!c->inbox) leave(1, "out of memory");
  c->inbox_bytes = whole;
}

/* Waits for the socket, or until the pause is over. */
static void wait_turn(connection *c, bool blocked) {
  struct pollfd p = {.fd = c->fd, .events = (short)(POLLIN | (blocked ? POLLOUT : 0))};
  struct timespec limit = {.tv_sec = option.timeout_s};
  bool idle = c->begun == c->answered;
  if (idle) {
    uint64_t t = now_ns(), wait = c->resume_at > t ? c->resume_at - t : 0;
    limit = (struct timespec){.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
  }
  int n = ppoll(&p, 1, &limit, NULL);
  if (n == 0 && !idle) leave(1, "connection %d: no answer within %ld s", c->id, option.timeout_s);
  if (n > 0 && p.revents & (POLLIN | POLLHUP | POLLERR)) receive(c);
}

static void *run(void *argument) {
  connection *c = argument;
  open_connection(c);
  c->sent = c->frame_bytes;
  await_start();
  if (option.spread)
    c->resume_at = now_ns() + (uint64_t)option.pause_us * 1000 * (uint64_t)c->id / (uint64_t)option.connections;
  for (;;) {
    bool blocked = send_requests(c);
    bool over = is_phase(STOP) || c->begun == option.requests_max;
    if (over && c->begun == c->answered) break;
    wait_turn(c, blocked);
  }
  close(c->fd);
  atomic_fetch_sub(&unfinished, 1);
  return NULL;
}

int main(int count, char **words) {
  parse(count, words);
  crc_init();
  return drive(sizeof(connection), load_template, run);
}
