/* The call that decodes values: arguments, rows, and the proof. Contract: avro_decode.py. */
#include "typed/decoder.h"

#define VERIFIED_ROWS 64 /* rows that are decoded, then encoded: few enough to stay in the cache */

/* The values of one call. */
typedef struct {
    Decoder decoder;
    Tree *tree;
    DecodeRow decode;
    EncodeRow encode;
    Py_buffer validity, offsets, content; /* `obj` is NULL for no validity */
    int64_t start, row_count, skip;
    bool is_verified;
    Column statuses;
} Decoding;

/* Reads the value at `decoder->at`, and appends its row or removes all that it has added. */
static Step decode_value(Decoding *decoding, Node *root)
{
    Decoder *decoder = &decoding->decoder;
    const int64_t row = root->length, used = decoder->used;
    Step step = decoder->credit < 0 ? stop(decoder, root, OUTCOME_TRUNCATED) : use(decoder, 0);
    if (step == STEP_OK)
        step = decoding->decode(decoder, root);
    if (step == STEP_OK && decoder->at != decoder->end)
        found(decoder, root, OUTCOME_FORM);
    if (step == STEP_FULL && decoding->row_count == 1)
        step = stop(decoder, root, OUTCOME_SIZE);
    if (step != STEP_STOP)
        return step;
    decoder->used = used;
    cut_slots(root, row);
    add_null(root);
    return STEP_OK;
}

/* Lets the nodes read the columns that they have. */
static void read_own(Tree *tree)
{
    for (int32_t at = 0; at < tree->node_count; at++) {
        Node *node = &tree->nodes[at];
        node->read_validity = node->null_count > 0 ? node->validity.bytes : NULL;
        node->read_offsets = node->offsets.bytes;
        node->read_content = node->content.bytes;
        node->read_size = node->content_size;
        node->start = 0;
        node->count = node->length;
    }
}

/* Encodes the exact rows of [start, end) and compares them with their values. */
static Step verify_rows(Decoding *decoding, int64_t start, int64_t end)
{
    const uint8_t *content = decoding->content.buf;
    int32_t *statuses = (int32_t *)decoding->statuses.bytes;
    read_own(decoding->tree);
    for (int64_t row = start; row < end; row++) {
        if (statuses[row] != OUTCOME_EXACT)
            continue;
        const uint8_t *value = content + offset_at(decoding->offsets.buf, decoding->start + row) + decoding->skip;
        const uint8_t *value_end = content + offset_at(decoding->offsets.buf, decoding->start + row + 1);
        int64_t size = 0;
        const Step step = encode_row(decoding->encode, &decoding->tree->nodes[0], row, &decoding->decoder.scratch, &size);
        if (step == STEP_NO_MEMORY)
            return step;
        if (step != STEP_OK || size != value_end - value || (size > 0 && memcmp(decoding->decoder.scratch.bytes, value, (size_t)size) != 0))
            statuses[row] = OUTCOME_FORM;
    }
    return STEP_OK;
}

static Step decode_rows(Decoding *decoding)
{
    Decoder *decoder = &decoding->decoder;
    Node *root = &decoding->tree->nodes[0];
    const uint8_t *content = decoding->content.buf, *validity = decoding->validity.obj != NULL ? decoding->validity.buf : NULL;
    if (!column_reserve(&decoding->statuses, 0, 4 * (size_t)decoding->row_count) || !reserve_slots(root, decoding->row_count))
        return STEP_NO_MEMORY;
    int32_t *statuses = (int32_t *)decoding->statuses.bytes;
    decoder->slack = decoding->content.len < COPY_SLACK ? content : content + decoding->content.len - COPY_SLACK;
    for (int64_t row = 0, block = 0; row < decoding->row_count; row++) {
        const int64_t place = decoding->start + row;
        decoder->status = OUTCOME_EXACT;
        if (validity != NULL && !bit_at(validity, place)) {
            decoder->status = OUTCOME_NULL;
            add_null(root);
        } else {
            decoder->at = content + offset_at(decoding->offsets.buf, place) + decoding->skip;
            decoder->end = content + offset_at(decoding->offsets.buf, place + 1);
            decoder->credit = decoder->end - decoder->at;
            const Step step = decode_value(decoding, root);
            if (step != STEP_OK)
                return step;
        }
        statuses[row] = decoder->status;
        if (decoding->is_verified && (row - block == VERIFIED_ROWS || row + 1 == decoding->row_count)) {
            const Step step = verify_rows(decoding, block, row + 1);
            if (step != STEP_OK)
                return step;
            block = row + 1;
        }
    }
    return STEP_OK;
}

/* Checks that the buffers have all values. */
static int check_values(const Decoding *decoding, int64_t end)
{
    const Py_buffer *offsets = &decoding->offsets, *validity = &decoding->validity;
    if (decoding->row_count > 0 && offsets->len / 4 - 1 < end) {
        PyErr_Format(PyExc_ValueError, "offsets have %zd bytes, %lld are needed", offsets->len, 4 * ((long long)end + 1));
        return -1;
    }
    if (validity->obj != NULL && validity->len < (end + 7) / 8) {
        PyErr_Format(PyExc_ValueError, "the validity has %zd bytes, %lld are needed", validity->len, ((long long)end + 7) / 8);
        return -1;
    }
    for (int64_t at = decoding->start; at < end; at++) {
        const int64_t low = offset_at(offsets->buf, at), high = offset_at(offsets->buf, at + 1);
        if (low < 0 || high < low || high > decoding->content.len) {
            PyErr_Format(PyExc_ValueError, "value %lld is not inside the content", (long long)at);
            return -1;
        }
    }
    return 0;
}

static PyObject *decode_all(KernelState *state, Decoding *decoding)
{
    Decoder *decoder = &decoding->decoder;
    const int64_t slot_bytes = decoding->tree->nodes[0].slot_bytes;
    if (__builtin_mul_overflow(decoding->row_count, slot_bytes, &decoder->used))
        decoder->used = INT64_MAX;
    Step step = use(decoder, 0);
    if (step == STEP_OK || decoding->row_count == 1) {
        if (decoding->content.len < RELEASE_COLUMN_BYTES) {
            step = decode_rows(decoding);
        } else {
            Py_BEGIN_ALLOW_THREADS
            step = decode_rows(decoding);
            Py_END_ALLOW_THREADS
        }
    }
    if (step == STEP_NO_MEMORY)
        return PyErr_NoMemory();
    if (step == STEP_FULL)
        return raise_too_large(state, "a set of typed columns", decoder->used, decoder->bytes_max);
    PyObject *statuses = column_take(state, &decoding->statuses, 4 * (size_t)decoding->row_count);
    PyObject *slots = statuses != NULL ? take_slots(state, decoding->tree) : NULL;
    PyObject *result = slots != NULL ? PyTuple_Pack(2, statuses, slots) : NULL;
    Py_XDECREF(statuses);
    Py_XDECREF(slots);
    return result;
}

/* Reads the arguments after the buffers. */
static int read_limits(Decoding *decoding, PyObject *const *arguments, int64_t *end)
{
    int64_t numbers[5];
    for (int at = 0; at < 5; at++)
        if (to_int64(arguments[3 + at], &numbers[at]) < 0)
            return -1;
    if (numbers[0] < 0 || numbers[1] < numbers[0])
        PyErr_Format(PyExc_ValueError, "[%S, %S) are no rows", arguments[3], arguments[4]);
    else if (numbers[4] < 0 || numbers[4] > TYPED_BYTES_MAX)
        PyErr_Format(PyExc_ValueError, "%S bytes are no limit of columns", arguments[7]);
    else if (numbers[2] < 0)
        PyErr_Format(PyExc_ValueError, "%S bytes cannot be skipped", arguments[5]);
    else {
        decoding->start = numbers[0];
        decoding->row_count = numbers[1] - numbers[0];
        decoding->skip = numbers[2] > TYPED_BYTES_MAX ? TYPED_BYTES_MAX : numbers[2];
        decoding->is_verified = numbers[3] != 0;
        decoding->decoder.bytes_max = numbers[4];
        *end = numbers[1];
        return 0;
    }
    return -1;
}

static int open_buffer(Py_buffer *buffer, PyObject *object)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) == 0)
        return 0;
    buffer->obj = NULL;
    return -1;
}

PyObject *decode_values(PyObject *module, PyObject *const *arguments, Tree *tree, DecodeRow decode, EncodeRow encode)
{
    Decoding decoding = {.tree = tree, .decode = decode, .encode = encode};
    PyObject *result = NULL;
    int64_t end;
    if (read_limits(&decoding, arguments, &end) == 0 && (arguments[0] == Py_None || open_buffer(&decoding.validity, arguments[0]) == 0)
        && open_buffer(&decoding.offsets, arguments[1]) == 0 && open_buffer(&decoding.content, arguments[2]) == 0
        && check_values(&decoding, end) == 0)
        result = decode_all(state_of(module), &decoding);
    Py_buffer *buffers[3] = {&decoding.validity, &decoding.offsets, &decoding.content};
    for (int at = 0; at < 3; at++)
        if (buffers[at]->obj != NULL)
            PyBuffer_Release(buffers[at]);
    column_free(&decoding.statuses);
    column_free(&decoding.decoder.order);
    column_free(&decoding.decoder.scratch);
    return result;
}
