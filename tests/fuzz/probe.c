/* Faults on purpose, compiled as the kernel is: a test sees that the sanitizers notice them. */
#include <stdint.h>

/* Returns the sum of `size` bytes, which may be more than there are. */
int fuzz_sum(const uint8_t *bytes, int size)
{
    int sum = 0;
    for (int at = 0; at < size; at++)
        sum += bytes[at];
    return sum;
}

/* Returns one more than `number`, which may be the largest. */
int fuzz_next(int number) { return number + 1; }
