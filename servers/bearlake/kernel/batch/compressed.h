/* Decompression of records sections, for checks that need the bytes only briefly. Contract: compressed.py. */
#ifndef BEARLAKE_COMPRESSED_H
#define BEARLAKE_COMPRESSED_H

#include "batch/batch.h"

#define SECTION_BYTES_MAX (1024 * 1024) /* compressed.py */
/* Decoders may write this many bytes behind the room that they get. */
#define PADDING_BYTES 64

/* lz4.c: decodes a section that is one LZ4 frame. Returns the number of bytes that it wrote, or -1: the section is damaged, has a feature that the
   decoder does not know, or needs more than `room` bytes. */
int64_t lz4_decode(const uint8_t *section, size_t size, uint8_t *out, size_t room);

/* compressed.c: as `check_batch`, for a batch that passed `inspect_bytes`. The caller holds the GIL; may release it in between. */
int64_t check_section(KernelState *state, const Header *header, const uint8_t *batch, int64_t size, int64_t size_max);
bool is_checkable(int attributes); /* whether `check_section` knows the codec */
void scratches_free(KernelState *state);

KERNEL_FUNCTION(kernel_check_batch);

#endif
