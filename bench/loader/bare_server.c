/* A server that does only what no server with Bearlake's promise can leave out: the floor beside which `../floor.py` measures.
 *
 * Like Bearlake, it has one thread that reads sockets and answers, and one thread that stores. A Produce request is read into a buffer that
 * stays, the CRC32C of each batch is checked, and the producer's sequence; whatever waits becomes one object in a folder, then one row in
 * SQLite, then one `send` per connection. Flushes begin when Bearlake's do (servers/bearlake/streams/flush_policy.py): at once if nothing is
 * in flight, but after a flush of 8 batches or more only once as many wait again, or half a millisecond later.
 *
 *   bare_server --folder DIR [--decompress] [--keep-log] [--sendfile] [--inline] [--seconds-max 3600]
 *
 *   --folder       existing empty folder for everything that is stored
 *   --decompress   decompress lz4 and zstd batches, and throw the records away
 *   --keep-log     keep what is produced for Fetch, in memory
 *   --sendfile     answer a Fetch by sendfile from a file, not from mapped memory
 *   --inline       store in the thread that reads sockets
 *   --seconds-max  the server ends itself after this time
 *
 * Prints its port, at 127.0.0.1, on stdout. It knows only what loader.c sends: Produce v7 to v9, Fetch v4 and v12 of one partition,
 * InitProducerId v0. Topics need not exist, and all have the same partitions. Another request, or an oversized one, ends its connection. Exit
 * code 1: a store failed. Build: gcc -O2 -std=gnu11 -pthread -o bare_server bare_server.c */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "bare_answers.h"
#include "bare_object.h"
#include "bare_store.h"
#include "decompress.h"

enum { EVENTS = 256, GATHER_BATCHES_MIN = 8, GATHER_NS = 500000, TICK_MS = 1 };

struct connection {
  connection *next_dirty, *next_ended;
  int fd; /* -1: closed */
  long pending; /* requests in flight */
  bool is_dirty;
  uint32_t interest;
  slab *where;
  size_t low, high, frame_bytes; /* unconsumed bytes of the slab; the last frame's size */
  uint8_t *out;
  size_t out_sent, out_used, out_room;
  fetched fetch;
};

static int epoll, listener;
static flush flushes[2], *open_flush = &flushes[0], *flying;
static uint64_t written_ns;
static size_t gather_count;
static uint8_t *records;
static connection *ended; /* closed, and without batches in flight: freed when no event can name them any more */

/* ---- answers leave ------------------------------------------------------------------------------------------- */

static void watch(connection *c, uint32_t interest) {
  if (c->interest == interest) return;
  struct epoll_event event = {.events = interest, .data.ptr = c};
  if (epoll_ctl(epoll, c->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &event)) leave(1, "epoll: %s", strerror(errno));
  c->interest = interest;
}

static void end_if_unused(connection *c) {
  if (c->fd >= 0 || c->pending) return;
  c->next_ended = ended;
  ended = c;
}

static void free_ended(void) {
  while (ended) {
    connection *c = ended;
    ended = c->next_ended;
    free(c->out);
    free(c);
  }
}

static void close_connection(connection *c) {
  if (c->fd < 0) return;
  close(c->fd);
  c->fd = -1;
  release_slab(c->where);
  end_if_unused(c);
}

/* False when the connection is closed. */
static bool send_out(connection *c) {
  ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN) {
    close_connection(c);
    return false;
  }
  if (n > 0) c->out_sent += (size_t)n;
  bool is_over = c->out_sent == c->out_used;
  if (is_over) c->out_sent = c->out_used = 0;
  watch(c, is_over ? EPOLLIN : EPOLLIN | EPOLLOUT);
  return true;
}

static uint8_t *room_in_out(connection *c, size_t size) {
  if (c->out_used + size > c->out_room) {
    c->out_room = 2 * (c->out_used + size);
    c->out = realloc(c->out, c->out_room);
    if (!c->out) leave(1, "out of memory");
  }
  return c->out + c->out_used;
}

static ssize_t send_fetched_once(connection *c, fetched *f) {
  static uint8_t zeros[8];
  size_t body_end = f->head_bytes + f->body_bytes;
  if (option.uses_sendfile && f->sent >= f->head_bytes && f->sent < body_end) {
    off_t at = (off_t)(f->position + f->sent - f->head_bytes);
    return sendfile(c->fd, f->log->file, &at, body_end - f->sent);
  }
  struct iovec parts[3];
  size_t count = 0, skipped = f->sent, sizes[] = {f->head_bytes, f->body_bytes, f->tail_bytes};
  const uint8_t *bytes[] = {f->head, f->log ? f->log->bytes + f->position : NULL, zeros};
  for (int i = 0; i < 3; i++) {
    size_t skip = skipped < sizes[i] ? skipped : sizes[i];
    skipped -= skip;
    if (option.uses_sendfile && i == 1 && sizes[i] > skip) break; /* the head alone */
    if (sizes[i] > skip) parts[count++] = (struct iovec){(void *)(uintptr_t)(bytes[i] + skip), sizes[i] - skip};
  }
  bool is_head = option.uses_sendfile && f->sent < f->head_bytes && f->body_bytes;
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
  return sendmsg(c->fd, &message, MSG_NOSIGNAL | (is_head ? MSG_MORE : 0));
}

/* False when the connection is closed. */
static bool send_fetched(connection *c) {
  fetched *f = &c->fetch;
  size_t whole = f->head_bytes + f->body_bytes + f->tail_bytes;
  while (f->sent < whole) {
    ssize_t n = send_fetched_once(c, f);
    if (n < 0 && errno == EAGAIN) {
      watch(c, EPOLLOUT); /* the next request waits, as it does in a broker */
      return true;
    }
    if (n <= 0) {
      close_connection(c);
      return false;
    }
    f->sent += (size_t)n;
  }
  f->is_active = false;
  watch(c, EPOLLIN);
  return true;
}

/* ---- requests arrive ----------------------------------------------------------------------------------------- */

static int check(const uint8_t *bytes, uint32_t size) {
  if (crc32c(bytes + BATCH_CHECKED, size - BATCH_CHECKED) != get32(bytes + BATCH_CRC)) return CORRUPT_MESSAGE;
  if (!option.decompresses) return 0;
  int codec = get16(bytes + BATCH_CHECKED) & 7;
  return decompress(codec, bytes + BATCH_HEADER, size - BATCH_HEADER, records, RECORDS_BYTES_MAX) < 0 ? CORRUPT_MESSAGE : 0;
}

static bool take_produce(connection *c, const uint8_t *frame, size_t size, int version) {
  static part parts[PARTS_MAX];
  field topic;
  int count = request_of_frame(frame, size, API_PRODUCE, version, &topic, parts, PARTS_MAX);
  if (count < 0 || topic.size > TOPIC_BYTES_MAX) return false;
  for (int i = 0; i < count; i++)
    if (parts[i].index < 0 || parts[i].index >= PARTITIONS_MAX) return false;
  flush *f = open_flush;
  if (!f->batch_count) f->since_ns = now_ns(CLOCK_MONOTONIC);
  f->requests = grown(f->requests, f->request_count, &f->request_room, sizeof *f->requests);
  request *r = &f->requests[f->request_count++];
  *r = (request){.from = c, .version = version, .batch_count = count, .topic = topic};
  memcpy(r->correlation, frame + 8, 4);
  for (int i = 0; i < count; i++) {
    const uint8_t *bytes = frame + parts[i].position;
    f->batches = grown(f->batches, f->batch_count, &f->batch_room, sizeof *f->batches);
    f->batches[f->batch_count++] = (batch){
        .where = c->where, .bytes = bytes, .size = parts[i].size, .partition = parts[i].index, .error = check(bytes, parts[i].size)};
    f->bytes += parts[i].size;
  }
  c->where->holders += count;
  c->pending++;
  return true;
}

static bool take_fetch(connection *c, const uint8_t *frame, size_t size, int version) {
  static part parts[PARTS_MAX];
  field topic;
  int count = request_of_frame(frame, size, API_FETCH, version, &topic, parts, PARTS_MAX);
  if (count != 1 || topic.size > TOPIC_BYTES_MAX || parts->index < 0 || parts->index >= PARTITIONS_MAX) return false;
  begin_fetch_answer(&c->fetch, frame, version, topic, *parts);
  return true;
}

static void take_producer_id(connection *c, const uint8_t *frame) {
  static int64_t newest_id = 1000;
  c->out_used = (size_t)(add_producer_id(room_in_out(c, 64), frame + 8, ++newest_id) - c->out);
}

/* False if the frame is not one that this server knows. */
static bool take_frame(connection *c, const uint8_t *frame, size_t size) {
  int api = get16(frame + 4), version = get16(frame + 6);
  if (api == API_PRODUCE && version >= 7 && version <= 9) return take_produce(c, frame, size, version);
  if (api == API_FETCH && (version == 4 || version == 12)) return take_fetch(c, frame, size, version);
  if (api == API_INIT_PRODUCER_ID && version == 0) return take_producer_id(c, frame), true;
  return false;
}

/* Takes the frames that have arrived, up to a Fetch whose answer does not leave at once. */
static void take_frames(connection *c) {
  while (!c->fetch.is_active && c->high - c->low >= 4) {
    size_t size = (size_t)get32(c->where->bytes + c->low) + 4;
    if (size < 14 || size > FRAME_BYTES_MAX) return close_connection(c);
    c->frame_bytes = size;
    if (c->high - c->low < size) break;
    const uint8_t *frame = c->where->bytes + c->low;
    c->low += size;
    if (!take_frame(c, frame, size)) return close_connection(c);
    if (c->fetch.is_active && !send_fetched(c)) return;
  }
  if (c->out_used && !c->pending) send_out(c);
}

/* Makes room for the incomplete frame, or for one as large as the last; what has arrived of it moves along. */
static void make_room(connection *c) {
  size_t have = c->high - c->low, whole = c->frame_bytes > have ? c->frame_bytes : have + 1;
  bool is_alone = c->where->holders == 1;
  if (is_alone && !have) c->low = c->high = 0;
  if (c->where->size - c->low >= whole) return;
  if (is_alone && whole <= c->where->size) {
    memmove(c->where->bytes, c->where->bytes + c->low, have);
  } else {
    slab *next = take_slab(whole);
    memcpy(next->bytes, c->where->bytes + c->low, have);
    release_slab(c->where);
    c->where = next;
  }
  c->low = 0;
  c->high = have;
}

/* Reads once. The last frame for which a slab has room is read to its end only, so that nothing has to move. */
static void receive(connection *c) {
  make_room(c);
  size_t end = c->where->size, frame = c->frame_bytes;
  if (frame) end = c->low + (end - c->low) / frame * frame;
  size_t want = end - c->high < READ_BYTES ? end - c->high : READ_BYTES;
  ssize_t n = recv(c->fd, c->where->bytes + c->high, want, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return close_connection(c);
  c->high += (size_t)n;
  take_frames(c);
}

static void accept_connection(void) {
  int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  connection *c = calloc(1, sizeof *c);
  if (!c) leave(1, "out of memory");
  c->fd = fd;
  c->where = take_slab(0);
  watch(c, EPOLLIN);
}

/* ---- flushes ------------------------------------------------------------------------------------------------- */

/* The flush is stored: answer its requests, in order, with one send per connection. */
static void finish(flush *f) {
  connection *dirty = NULL;
  const batch *b = f->batches;
  for (size_t i = 0; i < f->request_count; i++) {
    request *r = &f->requests[i];
    connection *c = r->from;
    c->pending--;
    if (c->fd >= 0) {
      size_t size = ANSWER_BYTES_MAX + PART_ANSWER_BYTES_MAX * (size_t)r->batch_count;
      c->out_used = (size_t)(add_produce_answer(room_in_out(c, size), r, b) - c->out);
    }
    for (int k = 0; k < r->batch_count; k++, b++) {
      if (option.keeps_log && !b->error) keep_in_log(&partitions[b->partition], b, b->partition);
      release_slab(b->where);
    }
    if (c->is_dirty) continue;
    c->is_dirty = true;
    c->next_dirty = dirty;
    dirty = c;
  }
  while (dirty) {
    connection *c = dirty;
    dirty = c->next_dirty;
    c->is_dirty = false;
    if (c->fd >= 0) send_out(c);
    else end_if_unused(c);
  }
  written_ns = now_ns(CLOCK_MONOTONIC);
  gather_count = f->batch_count >= GATHER_BATCHES_MIN ? open_flush->batch_count + f->batch_count : 0;
  f->batch_count = f->request_count = f->bytes = 0;
}

/* Flushes if the policy allows it; returns how long epoll may wait (ms; -1: for ever). */
static int flush_if_due(void) {
  if (flying || !open_flush->batch_count) return -1;
  if (open_flush->batch_count < gather_count && now_ns(CLOCK_MONOTONIC) - written_ns < GATHER_NS) return TICK_MS;
  flush *f = open_flush;
  open_flush = f == &flushes[0] ? &flushes[1] : &flushes[0];
  if (!seal(f)) {
    finish(f);
  } else if (option.is_inline) {
    store(f);
    finish(f);
  } else {
    flying = f;
    store_begin(f);
  }
  return open_flush->batch_count ? 0 : -1;
}

static void stored(void) {
  eventfd_t count;
  if (eventfd_read(done_event, &count)) return;
  flush *f = flying;
  flying = NULL;
  finish(f);
}

static void serve_connection(connection *c, uint32_t events) {
  if (c->fd < 0) return;
  if (!(events & EPOLLOUT)) return receive(c);
  bool is_open = c->fetch.is_active ? send_fetched(c) : send_out(c);
  if (is_open && !c->fetch.is_active) take_frames(c);
}

static void serve(void) {
  struct epoll_event events[EVENTS];
  for (int timeout = -1;; timeout = flush_if_due()) {
    int count = epoll_wait(epoll, events, EVENTS, timeout);
    for (int i = 0; i < count; i++) {
      if (events[i].data.ptr == &listener) {
        accept_connection();
      } else if (events[i].data.ptr == &done_event) {
        stored();
      } else {
        serve_connection(events[i].data.ptr, events[i].events);
      }
    }
    free_ended();
  }
}

static void watch_event(int fd, void *pointer) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = pointer};
  if (fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) leave(1, "epoll: %s", strerror(errno));
}

static void listen_on_loopback(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024) ||
      getsockname(listener, (struct sockaddr *)&address, &size))
    leave(1, "listen: %s", strerror(errno));
  watch_event(listener, &listener);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
}

static void parse(int count, char **words) {
  static const struct option names[] = {{"folder", 1, 0, 'f'},   {"decompress", 0, 0, 'd'}, {"keep-log", 0, 0, 'k'},
                                        {"sendfile", 0, 0, 's'}, {"inline", 0, 0, 'i'},     {"seconds-max", 1, 0, 'm'},
                                        {0, 0, 0, 0}};
  for (int letter; (letter = getopt_long(count, words, "", names, NULL)) != -1;) switch (letter) {
    case 'f': option.folder = optarg; break;
    case 'd': option.decompresses = true; break;
    case 'k': option.keeps_log = true; break;
    case 's': option.uses_sendfile = true; break;
    case 'i': option.is_inline = true; break;
    case 'm': option.seconds_max = atol(optarg); break;
    default: leave(2, "unknown option; see the head of bare_server.c");
  }
  if (optind != count || !option.folder) leave(2, "--folder is needed");
  if (option.seconds_max < 1 || option.seconds_max > 86400) leave(2, "--seconds-max is 1 to 86400");
}

int main(int count, char **words) {
  parse(count, words);
  alarm((unsigned)option.seconds_max);
  crc_init();
  for (int i = 0; i < PARTITIONS_MAX; i++) partitions[i].producer = -1;
  if (option.decompresses && !load_codecs()) leave(1, "liblz4 or libzstd is missing");
  records = option.decompresses ? map(RECORDS_BYTES_MAX) : NULL;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  open_stores();
  watch_event(done_event, &done_event);
  listen_on_loopback();
  serve();
}
