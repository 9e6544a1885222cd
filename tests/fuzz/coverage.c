/* Edge coverage of the sanitized kernel: gcc's -fsanitize-coverage=trace-pc calls `__sanitizer_cov_trace_pc` at every basic block.

   An edge is a pair of consecutive blocks, hashed into a map of counters. `fuzz_new_edges` compares the counters of the last input, in
   classes of 1, 2, 3, 4-7, 8-15, 16-31, 32-127 and 128-255 passes, with all inputs before it. Compiled without instrumentation.

   Source: M. Zalewski, "Technical whitepaper for afl-fuzz", sections 1 and 2. */
#include <stdint.h>
#include <string.h>

#define MAP_SIZE 65536

static uint8_t passes[MAP_SIZE], seen[MAP_SIZE];
static uintptr_t previous;

void __sanitizer_cov_trace_pc(void)
{
    /* Relative to this library, so that a run with the same seed takes the same inputs wherever the library is loaded. */
    uintptr_t block = (uintptr_t)__builtin_return_address(0) - (uintptr_t)passes;
    block ^= block >> 15;
    uint8_t *counter = &passes[(block ^ previous) % MAP_SIZE];
    *counter += *counter < 255;
    previous = block << 1;
}

void fuzz_reset(void)
{
    memset(passes, 0, sizeof passes);
    previous = 0;
}

static uint8_t class_of(uint8_t count)
{
    if (count < 4)
        return (uint8_t)(count == 3 ? 4 : count);
    return count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* Returns the number of edges whose class of passes is new. */
int fuzz_new_edges(void)
{
    int found = 0;
    for (int word = 0; word < MAP_SIZE; word += 8) {
        uint64_t eight;
        memcpy(&eight, passes + word, 8);
        if (eight == 0)
            continue;
        for (int at = word; at < word + 8; at++) {
            uint8_t class = class_of(passes[at]);
            found += (class & ~seen[at]) != 0;
            seen[at] |= class;
        }
    }
    return found;
}

/* Returns the number of edges that any input has taken. */
int fuzz_edge_count(void)
{
    int count = 0;
    for (int at = 0; at < MAP_SIZE; at++)
        count += seen[at] != 0;
    return count;
}
