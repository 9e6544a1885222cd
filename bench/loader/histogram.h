/* Latencies in a fixed number of buckets: 128 per power of two, so a percentile is exact to 0.8 %.
 * Values are nanoseconds; everything from 2^40 ns (18 minutes) on falls into the last bucket. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

enum {
  HISTOGRAM_FINE_BITS = 7,
  HISTOGRAM_FINE = 1 << HISTOGRAM_FINE_BITS,
  HISTOGRAM_BUCKETS = HISTOGRAM_FINE * (41 - HISTOGRAM_FINE_BITS)
};

typedef struct {
  uint64_t count, maximum;
  uint64_t bucket[HISTOGRAM_BUCKETS];
} histogram;

static unsigned histogram_index(uint64_t ns) {
  if (ns < HISTOGRAM_FINE) return (unsigned)ns;
  unsigned power = 63u - (unsigned)__builtin_clzll(ns) - HISTOGRAM_FINE_BITS;
  unsigned index = power * HISTOGRAM_FINE + (unsigned)(ns >> power);
  return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

static void histogram_add(histogram *h, uint64_t ns) {
  h->count++;
  if (ns > h->maximum) h->maximum = ns;
  h->bucket[histogram_index(ns)]++;
}

static void histogram_merge(histogram *into, const histogram *from) {
  into->count += from->count;
  if (from->maximum > into->maximum) into->maximum = from->maximum;
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) into->bucket[i] += from->bucket[i];
}

/* Middle of the bucket in which the value of this rank lies, in nanoseconds; 0 when empty. `share` in (0, 1]. */
static double histogram_percentile(const histogram *h, double share) {
  uint64_t rank = (uint64_t)(share * (double)h->count), seen = 0;
  if (rank >= h->count) rank = h->count ? h->count - 1 : 0;
  for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
    seen += h->bucket[i];
    if (seen <= rank) continue;
    if (i < 2 * HISTOGRAM_FINE) return i;
    unsigned power = i / HISTOGRAM_FINE - 1;
    uint64_t low = (uint64_t)(i - power * HISTOGRAM_FINE) << power;
    return (double)low + (double)(1ull << power) / 2;
  }
  return 0;
}

#endif
