/* What the load generators share: connections on threads of their own, the measured window, the report.
 *
 * Prints one JSON line on stdout. The lines "start" and "end" on stderr frame the measured window, so that a caller can
 * read the server's CPU time at both moments. Exit code 0: measured; 1: connection lost, malformed answer or no answer in
 * time; 2: refused arguments. */
#ifndef BENCH_DRIVE_H
#define BENCH_DRIVE_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "crc32c.h"
#include "histogram.h"
#include "options.h"

enum { RECEIVE_BYTES = 1 << 18, RESPONSE_BYTES_MAX = 1 << 28, SOCKET_BYTES = 1 << 20 };
enum phase { WARMUP, MEASURE, STOP };

static atomic_int phase;
static atomic_long unfinished;
static pthread_barrier_t ready;

/* What a connection has seen; the first member of its struct. */
typedef struct {
  uint64_t requests, bytes;         /* in the measured window */
  uint64_t all_requests, all_bytes; /* warm-up included */
  uint64_t errors;
  int first_error;
  histogram latency; /* empty: nothing was answered */
} tally;

/* A connection is open and has nothing to do until all are. Twice: between the two the clock is read, so that no request is older. */
static void await_start(void) {
  pthread_barrier_wait(&ready);
  pthread_barrier_wait(&ready);
}

static bool is_phase(int one) { return atomic_load_explicit(&phase, memory_order_relaxed) == one; }

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *allocate(size_t count, size_t size) {
  void *memory = calloc(count, size);
  if (!memory) leave(1, "out of memory");
  return memory;
}

/* The template of connection `id`, and one zero byte behind it. */
static uint8_t *read_template(int id, size_t *bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d.bin", option.templates, id);
  FILE *file = fopen(path, "rb");
  if (!file) leave(2, "%s: %s", path, strerror(errno));
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  uint8_t *template = allocate(1, *bytes + 1);
  bool complete = fread(template, 1, *bytes, file) == *bytes;
  if (!complete || *bytes < 20) leave(2, "%s: cannot be read", path);
  fclose(file);
  return template;
}

/* A connection to the server of connection `id`. */
static int open_socket(int id) {
  int one = 1, bytes = SOCKET_BYTES, fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct sockaddr_in address = option.address;
  address.sin_port = htons(option.ports[id % option.port_count]);
  if (connect(fd, (struct sockaddr *)&address, sizeof address)) leave(1, "connect: %s", strerror(errno));
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

static void sleep_until(uint64_t end) {
  while (now_ns() < end && atomic_load(&unfinished)) usleep(1000);
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void report_latency(const char *name, const histogram *h, double share) {
  if (h->count) printf("\"%s\": %.4f, ", name, histogram_percentile(h, share) / 1e6);
  else printf("\"%s\": null, ", name);
}

static void report(const tally *sum, double window, double whole, double cpu) {
  printf("{\"seconds\": %.9f, \"requests\": %llu, \"bytes\": %llu, ", window, (unsigned long long)sum->requests,
         (unsigned long long)sum->bytes);
  printf("\"requests_per_s\": %.1f, \"mb_per_s\": %.3f, ", (double)sum->requests / window,
         (double)sum->bytes / window / 1e6);
  report_latency("p50_ms", &sum->latency, 0.5);
  report_latency("p99_ms", &sum->latency, 0.99);
  report_latency("p999_ms", &sum->latency, 0.999);
  printf("\"errors\": %llu, \"first_error\": %d, \"client_cpu_s\": %.3f, ", (unsigned long long)sum->errors,
         sum->first_error, cpu);
  printf("\"all_seconds\": %.9f, \"all_requests\": %llu, \"all_bytes\": %llu}\n", whole,
         (unsigned long long)sum->all_requests, (unsigned long long)sum->all_bytes);
}

static void add(tally *sum, const tally *one) {
  histogram_merge(&sum->latency, &one->latency);
  sum->requests += one->requests;
  sum->bytes += one->bytes;
  sum->all_requests += one->all_requests;
  sum->all_bytes += one->all_bytes;
  sum->errors += one->errors;
  if (!sum->first_error) sum->first_error = one->first_error;
}

/* Runs `option.connections` connections of `size` bytes each, a tally first. `prepare` gets each with its number before any
 * thread starts; `run` connects, calls `await_start`, works until the phase is STOP, and then counts `unfinished` down. */
static int drive(size_t size, void (*prepare)(void *, int), void *(*run)(void *)) {
  static tally sum;
  size_t count = (size_t)option.connections;
  char *all = allocate(count, size);
  pthread_t *threads = allocate(count, sizeof *threads);
  pthread_barrier_init(&ready, NULL, (unsigned)count + 1);
  atomic_store(&unfinished, option.connections);
  atomic_store(&phase, option.warmup > 0 ? WARMUP : MEASURE);
  for (size_t i = 0; i < count; i++) prepare(all + i * size, (int)i);
  for (size_t i = 0; i < count; i++)
    if (pthread_create(&threads[i], NULL, run, all + i * size)) leave(1, "cannot start a thread");
  pthread_barrier_wait(&ready);
  uint64_t begin = now_ns(), start = begin;
  double cpu = cpu_seconds();
  pthread_barrier_wait(&ready);
  if (option.warmup > 0) {
    sleep_until(begin + (uint64_t)(option.warmup * 1e9));
    cpu = cpu_seconds();
    start = now_ns();
  }
  atomic_store(&phase, MEASURE);
  fputs("start\n", stderr);
  sleep_until(start + (uint64_t)(option.seconds * 1e9));
  atomic_store(&phase, STOP);
  uint64_t end = now_ns();
  cpu = cpu_seconds() - cpu;
  fputs("end\n", stderr);
  for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  for (size_t i = 0; i < count; i++) add(&sum, (tally *)(all + i * size));
  report(&sum, (double)(end - start) / 1e9, (double)(now_ns() - begin) / 1e9, cpu);
  return 0;
}

#endif
