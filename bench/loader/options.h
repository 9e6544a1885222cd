/* The command line of the load generators, and how they leave when something is wrong.
 *
 *   loader --port P [--port P ...] --templates DIR --connections N --depth N --seconds S [--warmup S] [--pause-us N]
 *          [--requests-max N] [--payload BYTES] [--idempotent] [--spread] [--host 127.0.0.1] [--timeout-s 30]
 *
 *   --port          repeated for several servers: connection N is made to port N modulo their number
 *   --templates     DIR/N.bin is one complete request (size prefix included) for connection N
 *   --depth         requests in flight per connection; Pulsar: SENDs, or messages that a consumer has room for
 *   --warmup        seconds of load before the measured window
 *   --pause-us      pause between an answer and the next request of a connection (low load)
 *   --spread        the first requests are spread evenly over one pause, so that connections do not send at the same moment
 *   --requests-max  requests per connection, warm-up included; the window ends early when all are answered.
 *                   Pulsar: SENDs; or messages, of all consumers together
 *   --payload       bytes that one Produce request, SEND or consumed message counts for (fetch counts the bytes of the whole
 *                   batches received)
 *   --idempotent    one producer id per connection; sequence numbers advance with every request
 *   --timeout-s     longest wait for an answer
 *
 * Only addresses in 127.0.0.0/8 are accepted: this program floods, so it stays on its own machine. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, DEPTH_MAX = 8192, PARTS_MAX = 4096, PORTS_MAX = 64 };

static struct {
  struct sockaddr_in address; /* without the port */
  uint16_t ports[PORTS_MAX];
  int port_count;
  const char *templates;
  long connections, depth, pause_us, requests_max, payload, timeout_s;
  double seconds, warmup;
  bool idempotent, spread;
} option = {.depth = 1, .seconds = 1, .timeout_s = 30, .requests_max = 1L << 40};

static void __attribute__((noreturn, format(printf, 2, 3))) leave(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("loader: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  _exit(code);
}

static void add_port(long port) {
  if (port < 1 || port > 65535) leave(2, "--port is 1 to 65535");
  if (option.port_count == PORTS_MAX) leave(2, "at most %d ports", PORTS_MAX);
  option.ports[option.port_count++] = (uint16_t)port;
}

static void parse(int count, char **words) {
  static const struct option names[] = {
      {"host", 1, 0, 'h'},     {"port", 1, 0, 'p'},   {"templates", 1, 0, 't'}, {"connections", 1, 0, 'c'},
      {"depth", 1, 0, 'd'},    {"seconds", 1, 0, 's'}, {"warmup", 1, 0, 'w'},    {"requests-max", 1, 0, 'r'},
      {"pause-us", 1, 0, 'u'}, {"payload", 1, 0, 'b'}, {"idempotent", 0, 0, 'i'}, {"timeout-s", 1, 0, 'o'},
      {"spread", 0, 0, 'x'},
      {0, 0, 0, 0}};
  const char *host = "127.0.0.1";
  for (int letter; (letter = getopt_long(count, words, "", names, NULL)) != -1;) switch (letter) {
    case 'h': host = optarg; break;
    case 'p': add_port(atol(optarg)); break;
    case 't': option.templates = optarg; break;
    case 'c': option.connections = atol(optarg); break;
    case 'd': option.depth = atol(optarg); break;
    case 's': option.seconds = atof(optarg); break;
    case 'w': option.warmup = atof(optarg); break;
    case 'u': option.pause_us = atol(optarg); break;
    case 'r': option.requests_max = atol(optarg); break;
    case 'b': option.payload = atol(optarg); break;
    case 'i': option.idempotent = true; break;
    case 'x': option.spread = true; break;
    case 'o': option.timeout_s = atol(optarg); break;
    default: leave(2, "unknown option; see the head of loader.c");
  }
  option.address = (struct sockaddr_in){.sin_family = AF_INET};
  if (inet_pton(AF_INET, host, &option.address.sin_addr) != 1 || ntohl(option.address.sin_addr.s_addr) >> 24 != 127)
    leave(2, "%s is not a loopback address (127.0.0.0/8): this program only loads servers on the same machine", host);
  if (optind != count || !option.templates || !option.port_count) leave(2, "--port and --templates are needed");
  if (option.connections < 1 || option.connections > CONNECTIONS_MAX)
    leave(2, "--connections is 1 to %d", CONNECTIONS_MAX);
  if (option.depth < 1 || option.depth > DEPTH_MAX) leave(2, "--depth is 1 to %d", DEPTH_MAX);
  if (option.seconds <= 0 || option.warmup < 0 || option.pause_us < 0 || option.requests_max < 1)
    leave(2, "--seconds and --requests-max must be positive, --warmup and --pause-us not negative");
  if (option.timeout_s < 1 || option.timeout_s > 3600) leave(2, "--timeout-s is 1 to 3600");
}

#endif
