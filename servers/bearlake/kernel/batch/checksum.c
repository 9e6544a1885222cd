/* CRC32C (Castagnoli, reflected polynomial 0x82F63B78), with the processor's instruction if available.

   x86-64: the crc32 instruction takes 8 bytes per cycle but has a latency of 3 cycles, so three streams run in parallel. Let A, B, C be
   the checksums of three blocks of N bytes: the checksum of the whole is A x^(16N) + B x^(8N) + C modulo P. A carry-less product of two
   reflected 32-bit polynomials, read as a reflected 64-bit polynomial, has one extra factor x, and the crc32 instruction multiplies by
   x^32 while it reduces; so the factors are x^(16N - 33) and x^(8N - 33). Source: Gopal et al., "Fast CRC Computation for iSCSI Polynomial
   Using CRC32 Instruction", Intel 2011. Otherwise: eight tables ("slicing-by-8", Kounavis and Berry, 2005). */
#include "batch/batch.h"

#define POLYNOMIAL 0x82F63B78u

typedef uint32_t (*Update)(uint32_t crc, const uint8_t *bytes, size_t size);
/* The checksum of bytes that `size` other bytes follow, without the part of the others; NULL if the processor has no fast way. */
typedef uint32_t (*Shift)(uint32_t crc, uint64_t size);

static uint32_t tables[8][256];
static Update update;
static Shift shift;

static uint32_t update_tables(uint32_t crc, const uint8_t *bytes, size_t size)
{
    for (; size >= 8; bytes += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24]
            ^ tables[3][bytes[4]] ^ tables[2][bytes[5]] ^ tables[1][bytes[6]] ^ tables[0][bytes[7]];
    }
    for (; size; bytes++, size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes) & 0xFF];
    return crc;
}

static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = value;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xFF];
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

typedef struct {
    size_t block;   /* N: bytes per stream, a multiple of 8 */
    uint32_t first; /* x^(16N - 33) mod P, reflected */
    uint32_t second; /* x^(8N - 33) mod P, reflected */
} Stride;

/* Large enough that joining costs nothing, small enough for a batch of 200 bytes. */
static Stride strides[] = {{4096, 0, 0}, {256, 0, 0}, {64, 0, 0}};

/* x^power mod P, reflected: bit 31 is x^0 */
static uint32_t power_of_x(size_t power)
{
    uint32_t value = 0x80000000u;
    while (power--)
        value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
    return value;
}

static void make_strides(void)
{
    for (size_t at = 0; at < sizeof strides / sizeof *strides; at++) {
        strides[at].first = power_of_x(16 * strides[at].block - 33);
        strides[at].second = power_of_x(8 * strides[at].block - 33);
    }
}

static inline uint64_t load_word(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t product(uint64_t left, uint32_t right)
{
    __m128i result = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)left), _mm_cvtsi64_si128((long long)right), 0);
    return (uint64_t)_mm_cvtsi128_si64(result);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t update_x86(uint32_t start, const uint8_t *bytes, size_t size)
{
    uint64_t crc = start;
    for (size_t at = 0; at < sizeof strides / sizeof *strides; at++) {
        const size_t block = strides[at].block;
        for (; size >= 3 * block; bytes += 3 * block, size -= 3 * block) {
            uint64_t second = 0, third = 0;
            for (const uint8_t *word = bytes; word < bytes + block; word += 8) {
                crc = _mm_crc32_u64(crc, load_word(word));
                second = _mm_crc32_u64(second, load_word(word + block));
                third = _mm_crc32_u64(third, load_word(word + 2 * block));
            }
            crc = third ^ _mm_crc32_u64(0, product(crc, strides[at].first) ^ product(second, strides[at].second));
        }
    }
    for (; size >= 8; bytes += 8, size -= 8)
        crc = _mm_crc32_u64(crc, load_word(bytes));
    uint32_t last = (uint32_t)crc;
    for (; size; bytes++, size--)
        last = _mm_crc32_u8(last, *bytes);
    return last;
}

/* Factors for 2^at bytes: x^(8 * 2^at - 33) mod P, reflected; the square of one is the next. From 8 bytes on, so that no power is negative. */
enum { LEAST_FACTOR = 3, FACTORS = 40 };
static uint32_t factors[FACTORS];

__attribute__((target("sse4.2,pclmul"))) static void make_factors(void)
{
    factors[LEAST_FACTOR] = power_of_x((8 << LEAST_FACTOR) - 33);
    for (int at = LEAST_FACTOR + 1; at < FACTORS; at++)
        factors[at] = (uint32_t)_mm_crc32_u64(0, product(factors[at - 1], factors[at - 1]));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t shift_x86(uint32_t crc, uint64_t size)
{
    for (int at = LEAST_FACTOR; at < FACTORS && size >> at; at++)
        if (size >> at & 1)
            crc = (uint32_t)_mm_crc32_u64(0, product(crc, factors[at]));
    for (size &= (1 << LEAST_FACTOR) - 1; size; size--)
        crc = _mm_crc32_u8(crc, 0);
    return crc;
}

static Update best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return update_tables;
    make_strides();
    make_factors();
    shift = shift_x86;
    return update_x86;
}

#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#ifdef __linux__
#include <sys/auxv.h>
#define HAS_CRC32 (getauxval(AT_HWCAP) >> 7 & 1) /* HWCAP_CRC32 */
#else
#define HAS_CRC32 1
#endif

static uint32_t update_arm(uint32_t crc, const uint8_t *bytes, size_t size)
{
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; size; bytes++, size--)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*bytes));
    return crc;
}

static Update best(void) { return HAS_CRC32 ? update_arm : update_tables; }

#else
static Update best(void) { return update_tables; }
#endif

void checksum_setup(void)
{
    make_tables();
    update = best();
}

uint32_t checksum(const uint8_t *bytes, size_t size) { return ~update(0xFFFFFFFFu, bytes, size); }

uint32_t checksum_continued(uint32_t before, const uint8_t *bytes, size_t size) { return ~update(~before, bytes, size); }

bool checksums_join(void) { return shift != NULL; }

uint32_t checksum_joined(uint32_t before, const uint8_t *bytes, size_t size, size_t known, uint32_t crc)
{
    return shift(checksum_continued(before, bytes, size - known), known) ^ crc;
}

uint32_t checksum_releasing(const uint8_t *bytes, Py_ssize_t size)
{
    uint32_t crc;
    if (size < RELEASE_BYTES)
        return checksum(bytes, (size_t)size);
    Py_BEGIN_ALLOW_THREADS
    crc = checksum(bytes, (size_t)size);
    Py_END_ALLOW_THREADS
    return crc;
}

KERNEL_FUNCTION(kernel_crc32c)
{
    Py_buffer view;
    Py_ssize_t start = 0, end;
    PyObject *result = NULL;
    if (check_arguments("crc32c", count, 1, 3) < 0 || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    end = view.len;
    if (count == 1 || to_range(arguments[1], count > 2 ? arguments[2] : Py_None, view.len, &start, &end) == 0)
        result = PyLong_FromUnsignedLong(checksum_releasing((const uint8_t *)view.buf + start, end - start));
    PyBuffer_Release(&view);
    return result;
}
