/* Record batches: layout, header, checksum, and text. */
#ifndef BEARLAKE_BATCH_H
#define BEARLAKE_BATCH_H

#include "native.h"

#define HEADER_BYTES 61
#define LENGTH_END 12
#define MAGIC_AT 16
#define CRC_AT 17
#define CRC_START 21
#define DELTA_AT 23
#define RECORD_BYTES_MIN 7
#define RECORDS_MAX 1000000

/* Work on at least this many bytes releases the GIL (8 us of CRC32C). For less work, releasing the GIL costs more than it gains: no other
   thread wakes up that fast, and a thread that does may keep the GIL for 5 ms. */
#define RELEASE_BYTES (256 * 1024)
/* The same for walks over batches, which touch one cache line of each. */
#define RELEASE_WALK_BYTES (1024 * 1024)

/* batch.BatchStatus */
typedef enum {
    STATUS_OK = 0,
    STATUS_EMPTY = -1,
    STATUS_TRUNCATED = -2,
    STATUS_OLD_MAGIC = -3,
    STATUS_UNKNOWN_MAGIC = -4,
    STATUS_MANY_BATCHES = -5,
    STATUS_BAD_CRC = -6,
    STATUS_UNKNOWN_COMPRESSION = -7,
    STATUS_CONTROL = -8,
    STATUS_BAD_COUNT = -9,
    STATUS_BAD_OFFSETS = -10,
    STATUS_BAD_PRODUCER = -11,
    STATUS_BAD_TIMESTAMP = -12,
    STATUS_ZSTD_TOO_EARLY = -13,
} Status;

/* batch.BatchHeader */
typedef struct {
    int64_t length;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    int16_t attributes;
    int16_t producer_epoch;
} Header;

/* Indices in batch.SliceLike */
enum { SLICE_PARTITION, SLICE_BASE, SLICE_COUNT, SLICE_POSITION, SLICE_LENGTH, SLICE_TIME, SLICE_FIELDS };

/* checksum.c */
void checksum_setup(void);
uint32_t checksum(const uint8_t *bytes, size_t size);
uint32_t checksum_continued(uint32_t before, const uint8_t *bytes, size_t size); /* of the bytes with checksum `before` and those behind them */
bool checksums_join(void); /* whether the processor has a fast way to join checksums */
/* If so: the checksum of bytes with checksum `before` and of `size` bytes behind them, of which the last `known` have the checksum `crc`. */
uint32_t checksum_joined(uint32_t before, const uint8_t *bytes, size_t size, size_t known, uint32_t crc);
uint32_t checksum_releasing(const uint8_t *bytes, Py_ssize_t size); /* the caller holds the GIL on entry and on return */

/* batches.c */
Status inspect_bytes(const uint8_t *bytes, Py_ssize_t size, Header *header); /* the caller holds the GIL; may release it in between */
/* The same; sets `is_good`, if it is not NULL and the batch is not compressed: whether its records are good, as first_bad_record finds. */
Status inspect_records(const uint8_t *bytes, Py_ssize_t size, Header *header, bool *is_good);

/* text.c */
bool is_text(const uint8_t *bytes, size_t size); /* whether it is UTF-8 */
/* Copies UTF-8, replacing invalid bytes by U+FFFD. `out` has room for three times the size. */
size_t replace_text(const uint8_t *bytes, size_t size, uint8_t *out, bool *is_exact);

KERNEL_FUNCTION(kernel_crc32c);
KERNEL_FUNCTION(kernel_find_run);
KERNEL_FUNCTION(kernel_inspect);
KERNEL_FUNCTION(kernel_batches);
KERNEL_FUNCTION(kernel_rebase);
KERNEL_FUNCTION(kernel_seek);
KERNEL_FUNCTION(kernel_check_records);
KERNEL_FUNCTION(kernel_decode_part);
KERNEL_FUNCTION(kernel_decode_records);
KERNEL_FUNCTION(kernel_find_timestamp);

#endif
