/* Pulsar load generator: producers that repeat a prepared SEND, or consumers of one subscription; one thread per connection.
 *
 * A template is the frames that open a connection, one behind the other: CONNECT, then PRODUCER and the SEND to repeat, or
 * SUBSCRIBE. Producers keep --depth SENDs in flight; sequence ids advance, and the checksum follows. Each receipt must name the
 * next SEND and where it is stored. Consumers work as the Java client does: room for --depth messages, a FLOW when half of it is
 * taken, acknowledgements of whole entries collected for 100 ms or 1,000 entries. The run ends when --requests-max messages were
 * received. Anything else that the server says, an error or a CLOSE, fails the run. What is printed, and exit codes: drive.h.
 * Templates: ../pulsar_frames.py. Build: gcc -O2 -std=gnu11 -pthread -o pulsar pulsar.c */
#define _GNU_SOURCE
#include <poll.h>

#include "drive.h"
#include "pulsar_wire.h"

enum { OUT_BYTES = 1 << 16, PLACES_MAX = 8192, ACKS_MAX = 1000, ACK_ID_BYTES_MAX = 64, POLL_MS = 50, TRIES_MAX = 3 };
static const uint64_t ACK_PAUSE_NS = 100 * 1000000u;

static atomic_long taken; /* messages, by all consumers */

typedef struct {
  tally seen;
  int id, fd;
  uint8_t *template;
  size_t hello_bytes, open_bytes, send_bytes; /* of the template's frames; send_bytes: 0 for a consumer */
  uint8_t *out, *inbox;
  size_t out_bytes, out_used, out_sent, inbox_bytes, inbox_used;
  /* a producer's */
  uint8_t *send, *places[PLACES_MAX]; /* the SEND, and the sequence ids in it */
  int place_count, message_count;
  long begun, answered;
  uint64_t sent_at[DEPTH_MAX], resume_at, first_sequence; /* nanoseconds; by slot = SEND % depth */
  /* a consumer's */
  uint8_t acks[ACKS_MAX * (ACK_ID_BYTES_MAX + 2)];
  size_t acks_used;
  long ack_count, due_count; /* entries to acknowledge, messages to ask for */
  uint64_t acked_at;
} connection;

/* ---- the template ------------------------------------------------------------------------------------------ */

static size_t frame_bytes(connection *c, size_t at, size_t size) {
  size_t whole = at + 4 <= size ? (size_t)get32(c->template + at) + 4 : 0;
  if (whole < 8 || at + whole > size) leave(2, "%s/%d.bin: not whole frames", option.templates, c->id);
  return whole;
}

static void add_place(connection *c, span message, unsigned number) {
  span found;
  if (!find_field(message, number, &found)) return;
  if (found.end - found.at != SEQUENCE_BYTES || c->place_count == PLACES_MAX)
    leave(2, "%s/%d.bin: sequence ids of 5 bytes, at most %d, are expected", option.templates, c->id, PLACES_MAX);
  c->places[c->place_count++] = found.at;
}

static void find_places(connection *c) {
  frame f;
  span metadata, payload;
  if (!read_frame(c->send, c->send_bytes, &f) || f.type != SEND || !read_message(f.message, &metadata, &payload))
    leave(2, "%s/%d.bin: the third frame is not a SEND", option.templates, c->id);
  c->first_sequence = find_number(f.command, SEND_SEQUENCE, 0);
  add_place(c, f.command, SEND_SEQUENCE);
  add_place(c, f.command, SEND_HIGHEST);
  add_place(c, metadata, METADATA_SEQUENCE);
  add_place(c, metadata, METADATA_HIGHEST);
  c->message_count = (int)find_number(metadata, METADATA_COUNT, 0);
  for (int i = 0; i < c->message_count; i++) {
    span single = {payload.at + 4, payload.at + 4 + get32(payload.at)};
    add_place(c, single, SINGLE_SEQUENCE);
    payload.at = single.end + find_number(single, SINGLE_PAYLOAD_BYTES, 0);
  }
  if (!c->message_count) c->message_count = 1; /* not a batch */
}

static void load_template(void *argument, int id) {
  connection *c = argument;
  size_t size;
  c->id = id;
  c->template = read_template(id, &size);
  c->hello_bytes = frame_bytes(c, 0, size);
  c->open_bytes = frame_bytes(c, c->hello_bytes, size);
  c->send = c->template + c->hello_bytes + c->open_bytes;
  c->send_bytes = size - c->hello_bytes - c->open_bytes;
  if (!c->send_bytes) return;
  if (frame_bytes(c, c->hello_bytes + c->open_bytes, size) != c->send_bytes)
    leave(2, "%s/%d.bin: three frames are expected at most", option.templates, id);
  find_places(c);
}

/* ---- bytes in and out -------------------------------------------------------------------------------------- */

static uint8_t *make_room(connection *c, size_t size) {
  if (c->out_used + size > c->out_bytes) {
    c->out_bytes = c->out_used + size + OUT_BYTES;
    c->out = realloc(c->out, c->out_bytes);
    if (!c->out) leave(1, "out of memory");
  }
  uint8_t *at = c->out + c->out_used;
  c->out_used += size;
  return at;
}

/* Appends a frame of a command without a message. */
static void say(connection *c, unsigned type, const uint8_t *body, size_t size) {
  uint8_t head[24], *end = put_varint(head, COMMAND_TYPE << 3);
  end = put_varint(end, type);
  end = put_varint(end, type << 3 | 2);
  end = put_varint(end, size);
  size_t head_bytes = (size_t)(end - head);
  uint8_t *at = make_room(c, 8 + head_bytes + size);
  put32(at, (uint32_t)(4 + head_bytes + size));
  put32(at + 4, (uint32_t)(head_bytes + size));
  memcpy(at + 8, head, head_bytes);
  memcpy(at + 8 + head_bytes, body, size);
}

/* Hands to the kernel what it takes; true when the socket is full. */
static bool push(connection *c) {
  while (c->out_sent < c->out_used) {
    ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && errno != EINTR) leave(1, "connection %d: send: %s", c->id, strerror(errno));
    if (n > 0) c->out_sent += (size_t)n;
  }
  c->out_used = c->out_sent = 0;
  return false;
}

/* The next frame, at most one socket read away; false when it is not complete. */
static bool next_frame(connection *c, size_t at, size_t *size) {
  if (c->inbox_used - at < 4) return false;
  *size = (size_t)get32(c->inbox + at) + 4;
  if (*size < 8 || *size > RESPONSE_BYTES_MAX) leave(1, "connection %d: a frame of %zu bytes", c->id, *size);
  return c->inbox_used - at >= *size;
}

static void receive(connection *c, void (*take)(connection *, frame *)) {
  ssize_t n = recv(c->fd, c->inbox + c->inbox_used, c->inbox_bytes - c->inbox_used, 0);
  if (n == 0) leave(1, "connection %d: closed by the server", c->id);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) leave(1, "connection %d: recv: %s", c->id, strerror(errno));
  c->inbox_used += (size_t)n;
  size_t at = 0, size = 0;
  for (; next_frame(c, at, &size); at += size) {
    frame f;
    if (!read_frame(c->inbox + at, size, &f)) leave(1, "connection %d: a malformed frame of %zu bytes", c->id, size);
    if (f.type == PING) say(c, PONG, NULL, 0);
    else take(c, &f);
  }
  memmove(c->inbox, c->inbox + at, c->inbox_used - at);
  c->inbox_used -= at;
  if (c->inbox_used < 4 || size <= c->inbox_bytes) return;
  c->inbox_bytes = size;
  c->inbox = realloc(c->inbox, size);
  if (!c->inbox) leave(1, "out of memory");
}

static void fail(connection *c, frame *f) {
  span text = {0};
  if (f->type == ERROR) find_field(f->command, ERROR_TEXT_OF_ERROR, &text);
  if (f->type == SEND_ERROR) find_field(f->command, ERROR_TEXT_OF_SEND, &text);
  leave(1, "connection %d: the server says command %u %.*s", c->id, f->type, (int)(text.end - text.at), text.at);
}

/* Waits for the socket; false when nothing happened for `ms` milliseconds. */
static bool wait_turn(connection *c, bool is_blocked, int ms, void (*take)(connection *, frame *)) {
  struct pollfd p = {.fd = c->fd, .events = (short)(POLLIN | (is_blocked ? POLLOUT : 0))};
  if (poll(&p, 1, ms) == 0) return false;
  if (p.revents & (POLLIN | POLLHUP | POLLERR)) receive(c, take);
  return true;
}

static void __attribute__((noreturn)) give_up(connection *c) {
  leave(1, "connection %d: no answer within %ld s", c->id, option.timeout_s);
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static void take_opening(connection *c, frame *f) {
  if (f->type == ERROR || f->type == SEND_ERROR) fail(c, f);
  c->answered++;
}

/* Says CONNECT, and then what opens a producer or a consumer; waits for each answer. */
static void open_connection(connection *c) {
  c->fd = open_socket(c->id);
  c->inbox_bytes = RECEIVE_BYTES;
  c->inbox = allocate(1, c->inbox_bytes);
  size_t sizes[] = {c->hello_bytes, c->open_bytes};
  const uint8_t *at = c->template;
  for (int i = 0; i < 2; at += sizes[i++]) {
    memcpy(make_room(c, sizes[i]), at, sizes[i]);
    push(c);
    while (c->answered == i)
      if (!wait_turn(c, false, (int)option.timeout_s * 1000, take_opening)) give_up(c);
  }
  c->answered = 0;
}

/* ---- producing --------------------------------------------------------------------------------------------- */

static void begin_send(connection *c) {
  if (c->begun)
    for (int i = 0; i < c->place_count; i++) {
      span place = {c->places[i], c->places[i] + SEQUENCE_BYTES};
      uint64_t sequence;
      take_varint(&place, &sequence);
      put_varint(c->places[i], sequence + (uint64_t)c->message_count);
    }
  uint8_t *checksum = c->send + 8 + get32(c->send + 4) + 2;
  put32(checksum, crc32c(checksum + 4, (size_t)(c->send + c->send_bytes - checksum - 4)));
  memcpy(make_room(c, c->send_bytes), c->send, c->send_bytes);
  c->sent_at[c->begun++ % option.depth] = now_ns();
}

static void take_receipt(connection *c, frame *f) {
  span id;
  if (f->type != SEND_RECEIPT) fail(c, f);
  uint64_t expected = c->first_sequence + (uint64_t)(c->answered * c->message_count);
  if (c->answered == c->begun || find_number(f->command, RECEIPT_SEQUENCE, 0) != expected)
    leave(1, "connection %d: receipts out of order", c->id);
  if (!find_field(f->command, RECEIPT_ID, &id) || find_number(id, ID_LEDGER, NO_LEDGER) == NO_LEDGER)
    leave(1, "connection %d: a SEND was taken for a duplicate", c->id);
  uint64_t latency = now_ns() - c->sent_at[c->answered++ % option.depth];
  c->seen.all_requests += (uint64_t)c->message_count;
  c->seen.all_bytes += (uint64_t)option.payload;
  if (is_phase(MEASURE)) {
    c->seen.requests += (uint64_t)c->message_count;
    c->seen.bytes += (uint64_t)option.payload;
    histogram_add(&c->seen.latency, latency);
  }
  if (option.pause_us) c->resume_at = now_ns() + (uint64_t)option.pause_us * 1000;
}

static void produce(connection *c) {
  for (int tries = 0;;) {
    bool is_over = is_phase(STOP) || c->begun >= option.requests_max;
    while (!is_over && c->out_used < OUT_BYTES && c->begun - c->answered < option.depth &&
           (!c->resume_at || now_ns() >= c->resume_at)) {
      begin_send(c);
      is_over = c->begun >= option.requests_max;
    }
    bool is_blocked = push(c), is_idle = c->begun == c->answered;
    if (is_over && is_idle) break;
    bool can_send = !is_over && !is_blocked && c->begun - c->answered < option.depth;
    int ms = !can_send ? (int)option.timeout_s * 1000 / TRIES_MAX : is_idle && option.pause_us ? 1 : 0;
    bool has_come = wait_turn(c, is_blocked, ms, take_receipt);
    tries = has_come || can_send ? 0 : tries + 1;
    if (tries == TRIES_MAX) give_up(c);
  }
  atomic_fetch_sub(&unfinished, 1);
}

/* ---- consuming --------------------------------------------------------------------------------------------- */

static void ask_for_more(connection *c, long count) {
  uint8_t body[24], *end = put_varint(put_varint(body, 1 << 3), (uint64_t)c->id);
  end = put_varint(put_varint(end, 2 << 3), (uint64_t)count);
  say(c, FLOW, body, (size_t)(end - body));
}

static void acknowledge(connection *c) {
  c->acked_at = now_ns();
  if (!c->ack_count) return;
  static _Thread_local uint8_t body[sizeof c->acks + 16];
  uint8_t *end = put_varint(put_varint(body, 1 << 3), (uint64_t)c->id);
  end = put_varint(put_varint(end, 2 << 3), 0); /* individually */
  memcpy(end, c->acks, c->acks_used);
  say(c, ACK, body, (size_t)(end - body) + c->acks_used);
  c->ack_count = 0;
  c->acks_used = 0;
}

static void take_message(connection *c, frame *f) {
  span id, metadata, payload;
  if (!atomic_load(&unfinished) || is_phase(STOP)) return; /* over: what a consumer has left comes to the other ones */
  if (f->type != MESSAGE) fail(c, f);
  bool is_whole = find_field(f->command, MESSAGE_ID, &id) && read_message(f->message, &metadata, &payload);
  if (!is_whole || id.end - id.at > ACK_ID_BYTES_MAX) leave(1, "connection %d: a malformed message", c->id);
  if (find_number(f->command, MESSAGE_REDELIVERIES, 0)) leave(1, "connection %d: a message came twice", c->id);
  long count = (long)find_number(metadata, METADATA_COUNT, 1);
  uint8_t *end = put_varint(c->acks + c->acks_used, 3 << 3 | 2);
  end = put_varint(end, (uint64_t)(id.end - id.at));
  memcpy(end, id.at, (size_t)(id.end - id.at));
  c->acks_used = (size_t)(end + (id.end - id.at) - c->acks);
  if (++c->ack_count == ACKS_MAX) acknowledge(c);
  c->due_count += count;
  if (c->due_count >= option.depth / 2) {
    ask_for_more(c, c->due_count);
    c->due_count = 0;
  }
  uint64_t bytes = (uint64_t)(count * option.payload);
  c->seen.all_requests += (uint64_t)count;
  c->seen.all_bytes += bytes;
  if (is_phase(MEASURE)) {
    c->seen.requests += (uint64_t)count;
    c->seen.bytes += bytes;
  }
  if (atomic_fetch_add(&taken, count) + count >= option.requests_max) atomic_store(&unfinished, 0);
}

static void consume(connection *c) {
  ask_for_more(c, option.depth);
  uint64_t received_at = now_ns();
  while (!is_phase(STOP)) {
    bool is_blocked = push(c);
    uint64_t now = now_ns();
    if (wait_turn(c, is_blocked, POLL_MS, take_message)) received_at = now;
    else if (now - received_at > (uint64_t)option.timeout_s * 1000000000u && atomic_load(&unfinished)) give_up(c);
    if (now - c->acked_at > ACK_PAUSE_NS) acknowledge(c);
  }
}

static void *run(void *argument) {
  connection *c = argument;
  open_connection(c);
  await_start();
  if (c->send_bytes) produce(c);
  else consume(c);
  close(c->fd);
  return NULL;
}

int main(int count, char **words) {
  parse(count, words);
  if (option.idempotent) leave(2, "--idempotent is for Kafka");
  crc_init();
  return drive(sizeof(connection), load_template, run);
}
