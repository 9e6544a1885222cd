/* Decodes one record batch to rows. Uses no Python: the caller may release the GIL. */
#include "columns/columns.h"

#define CODEC_MASK 0x07
#define CODEC_MAX 4
#define ATTRIBUTE_LOG_APPEND_TIME 0x08
#define ATTRIBUTE_CONTROL 0x20
#define REPLACED_RATIO 3
#define MICROSECONDS 1000

typedef struct {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    int32_t last_delta, record_count, base_sequence, partition_id;
    int16_t attributes, producer_epoch;
} Batch;

/* The state that a batch changes, saved to restore it if the batch is malformed. */
typedef struct {
    int64_t header_count;
    int64_t sizes[4];
    int64_t null_counts[4];
} Mark;

static inline Text *text_of(ColumnSet *set, int index)
{
    Text *texts[4] = {&set->key, &set->value, &set->header_key, &set->header_value};
    return texts[index];
}

static Mark set_mark(ColumnSet *set)
{
    Mark mark = {.header_count = set->header_count};
    for (int index = 0; index < 4; index++) {
        mark.sizes[index] = text_of(set, index)->size;
        mark.null_counts[index] = text_of(set, index)->null_count;
    }
    return mark;
}

/* Clears the bits after the first `count` in their byte: all bits after the last row are 0. */
static void cut_bits(Column *bitmap, int64_t count)
{
    if (count & 7)
        bitmap->bytes[count >> 3] &= (uint8_t)((1u << (count & 7)) - 1);
}

static void go_back(ColumnSet *set, const Mark *mark)
{
    cut_bits(&set->key.validity, set->row_count);
    cut_bits(&set->value.validity, set->row_count);
    cut_bits(&set->header_value.validity, mark->header_count);
    set->header_count = mark->header_count;
    for (int index = 0; index < 4; index++) {
        text_of(set, index)->size = mark->sizes[index];
        text_of(set, index)->null_count = mark->null_counts[index];
    }
}

static int64_t largest(ColumnSet *set)
{
    int64_t most = set->header_count;
    for (int index = 0; index < 4; index++)
        most = text_of(set, index)->size > most ? text_of(set, index)->size : most;
    return most;
}

static bool reserve_text_rows(Text *text, size_t used, size_t rows)
{
    if (!column_reserve(&text->offsets, used ? 4 * (used + 1) : 0, 4 * (rows + 1))
        || !column_reserve(&text->validity, (used + 7) / 8, (rows + 7) / 8))
        return false;
    if (used == 0)
        memset(text->offsets.bytes, 0, 4);
    return true;
}

/* Reserves room for `count` more rows in all columns except the content columns. */
static bool reserve_rows(ColumnSet *set, size_t count)
{
    const size_t used = (size_t)set->row_count, rows = used + count;
    Column *narrow[4] = {&set->partition_id, &set->attributes, &set->producer_epoch, &set->base_sequence};
    Column *wide[4] = {&set->offset, &set->timestamp, &set->base_offset, &set->producer_id};
    for (int index = 0; index < 4; index++)
        if (!column_reserve(narrow[index], 4 * used, 4 * rows) || !column_reserve(wide[index], 8 * used, 8 * rows))
            return false;
    if (!column_reserve(&set->header_list_offsets, used ? 4 * (used + 1) : 0, 4 * (rows + 1)))
        return false;
    if (used == 0)
        memset(set->header_list_offsets.bytes, 0, 4);
    return reserve_text_rows(&set->key, used, rows) && reserve_text_rows(&set->value, used, rows);
}

static void fill_int32(Column *column, int64_t start, int64_t end, int32_t value)
{
    int32_t *cells = (int32_t *)column->bytes;
    for (int64_t row = start; row < end; row++)
        cells[row] = value;
}

static void fill_int64(Column *column, int64_t start, int64_t end, int64_t value)
{
    int64_t *cells = (int64_t *)column->bytes;
    for (int64_t row = start; row < end; row++)
        cells[row] = value;
}

/* Writes bit `index` and clears the bits after it in its byte, which may be uninitialized. */
static inline void append_bit(Column *bitmap, int64_t index, bool is_set)
{
    uint8_t *at = bitmap->bytes + (index >> 3);
    const unsigned bit = 1u << (index & 7);
    *at = (uint8_t)((*at & (bit - 1)) | (is_set ? bit : 0));
}

static inline void end_text(Text *text, int64_t index) { ((int32_t *)text->offsets.bytes)[index + 1] = (int32_t)text->size; }

/* Appends value `index` of the column; offsets and validity have room. false: no memory. */
static inline bool append_text(Text *text, int64_t index, const Field *field)
{
    append_bit(&text->validity, index, field->bytes != NULL);
    text->null_count += field->bytes == NULL;
    if (field->size > 0) {
        if (!column_reserve(&text->content, (size_t)text->size, (size_t)(text->size + field->size)))
            return false;
        memcpy(text->content.bytes + text->size, field->bytes, (size_t)field->size);
        text->size += field->size;
    }
    end_text(text, index);
    return true;
}

static bool append_header_key(Text *text, int64_t index, const Field *field, bool *is_exact)
{
    if (field->size > 0) {
        if (!column_reserve(&text->content, (size_t)text->size, (size_t)(text->size + REPLACED_RATIO * field->size)))
            return false;
        text->size += (int64_t)replace_text(field->bytes, (size_t)field->size, text->content.bytes + text->size, is_exact);
    }
    end_text(text, index);
    return true;
}

static bool reserve_headers(ColumnSet *set, int64_t count)
{
    const size_t used = (size_t)set->header_count, headers = used + (size_t)count;
    if (!column_reserve(&set->header_key.offsets, used ? 4 * (used + 1) : 0, 4 * (headers + 1)))
        return false;
    if (used == 0)
        memset(set->header_key.offsets.bytes, 0, 4);
    return reserve_text_rows(&set->header_value, used, headers);
}

static DecodeStatus append_headers(ColumnSet *set, Cursor *cursor, bool *is_exact)
{
    int64_t count;
    if (!read_zigzag(cursor, 32, &count) || count < 0 || count > cursor->end - cursor->at)
        return DECODE_UNDECODABLE;
    if (count == 0)
        return DECODE_OK;
    if (!reserve_headers(set, count))
        return DECODE_NO_MEMORY;
    for (; count > 0; count--) {
        Field key, value;
        if (!read_bytes(cursor, &key) || key.bytes == NULL || !read_bytes(cursor, &value))
            return DECODE_UNDECODABLE;
        const int64_t index = set->header_count++;
        if (!append_header_key(&set->header_key, index, &key, is_exact) || !append_text(&set->header_value, index, &value))
            return DECODE_NO_MEMORY;
    }
    return DECODE_OK;
}

/* The first and the last ms of the years 1 to 9999, in ms since 1970: SQL engines and their clients fail on other times (decision 197). */
static const int64_t EARLIEST_MS = -62135596800000, LATEST_MS = 253402300799999;

/* Converts ms to microseconds; clamps to the years 1 to 9999. */
static inline int64_t microseconds(int64_t ms, int64_t delta, bool *is_exact)
{
    int64_t sum;
    if (__builtin_add_overflow(ms, delta, &sum))
        sum = ms < 0 ? INT64_MIN : INT64_MAX;
    const int64_t clamped = sum < EARLIEST_MS ? EARLIEST_MS : sum > LATEST_MS ? LATEST_MS : sum;
    *is_exact &= clamped == sum;
    return clamped * MICROSECONDS;
}

/* Appends the rows of a batch; the caller sets `row_count` and the columns that are constant in a batch. */
static DecodeStatus append_records(ColumnSet *set, const Batch *batch, Cursor section, bool *is_exact)
{
    const int64_t first = set->row_count, end = first + batch->record_count;
    const bool is_stamped = batch->attributes & ATTRIBUTE_LOG_APPEND_TIME;
    const int64_t stamp = is_stamped ? microseconds(batch->max_timestamp, 0, is_exact) : 0;
    int64_t *const offsets = (int64_t *)set->offset.bytes, *const timestamps = (int64_t *)set->timestamp.bytes;
    int32_t *const header_lists = (int32_t *)set->header_list_offsets.bytes;
    int64_t length, time_delta, delta, last = -1;
    uint8_t attributes = 0;
    for (int64_t row = first; row < end; row++) {
        if (!read_zigzag(&section, 32, &length) || length <= 0 || length > section.end - section.at)
            return DECODE_UNDECODABLE;
        Cursor cursor = {section.at + 1, section.at + length};
        attributes |= *section.at;
        section.at += length;
        Field key, value;
        if (!read_zigzag(&cursor, 64, &time_delta) || !read_zigzag(&cursor, 32, &delta) || delta <= last
            || delta > batch->last_delta || !read_bytes(&cursor, &key) || !read_bytes(&cursor, &value))
            return DECODE_UNDECODABLE;
        last = delta;
        offsets[row] = batch->base_offset + delta;
        timestamps[row] = is_stamped ? stamp : microseconds(batch->base_timestamp, time_delta, is_exact);
        if (!append_text(&set->key, row, &key) || !append_text(&set->value, row, &value))
            return DECODE_NO_MEMORY;
        if (cursor.end - cursor.at == 1 && *cursor.at == 0) {
            cursor.at++;
        } else {
            const DecodeStatus status = append_headers(set, &cursor, is_exact);
            if (status != DECODE_OK)
                return status;
        }
        if (cursor.at != cursor.end)
            return DECODE_UNDECODABLE;
        header_lists[row + 1] = (int32_t)set->header_count;
    }
    *is_exact = *is_exact && attributes == 0 && last == batch->last_delta;
    return section.at == section.end ? DECODE_OK : DECODE_UNDECODABLE;
}

static void fill_batch(ColumnSet *set, const Batch *batch)
{
    const int64_t start = set->row_count, end = start + batch->record_count;
    fill_int32(&set->partition_id, start, end, batch->partition_id);
    fill_int64(&set->base_offset, start, end, batch->base_offset);
    fill_int32(&set->attributes, start, end, batch->attributes);
    fill_int64(&set->producer_id, start, end, batch->producer_id);
    fill_int32(&set->producer_epoch, start, end, batch->producer_epoch);
    fill_int32(&set->base_sequence, start, end, batch->base_sequence);
    set->row_count = end;
}

DecodeStatus decode_batch(
    ColumnSet *set, int64_t column_bytes_max, int32_t partition_id, int64_t base_offset, const uint8_t *header, const Cursor *section)
{
    const Batch batch = {
        .partition_id = partition_id,
        .base_offset = base_offset,
        .attributes = load_i16(header + 21),
        .last_delta = load_i32(header + DELTA_AT),
        .base_timestamp = load_i64(header + 27),
        .max_timestamp = load_i64(header + 35),
        .producer_id = load_i64(header + 43),
        .producer_epoch = load_i16(header + 51),
        .base_sequence = load_i32(header + 53),
        .record_count = load_i32(header + 57),
    };
    if (batch.attributes & ATTRIBUTE_CONTROL)
        return DECODE_CONTROL;
    if (section == NULL || (batch.attributes & CODEC_MASK) > CODEC_MAX || batch.last_delta < 0
        || batch.last_delta >= INT64_MAX - base_offset)
        return DECODE_UNDECODABLE;
    const int64_t size = section->end - section->at;
    if (batch.record_count <= 0 || batch.record_count > size / RECORD_BYTES_MIN)
        return DECODE_UNDECODABLE;
    if (set->row_count > 0 && size > (column_bytes_max - largest(set)) / REPLACED_RATIO)
        return DECODE_OVERFLOW;
    if (!reserve_rows(set, (size_t)batch.record_count))
        return DECODE_NO_MEMORY;
    const Mark mark = set_mark(set);
    bool is_exact = true;
    DecodeStatus status = append_records(set, &batch, *section, &is_exact);
    if (status == DECODE_OK && largest(set) > column_bytes_max)
        status = DECODE_UNDECODABLE;
    if (status == DECODE_OK)
        fill_batch(set, &batch);
    else
        go_back(set, &mark);
    return status == DECODE_OK && !is_exact ? DECODE_INEXACT : status;
}
