/* Finds the values in the pages of a Parquet column, without a copy. Contract: pages.py. */
#include "columns/pages.h"

#include <stdlib.h>

#define SIZE_BYTES 4

static inline bool take_u32(Cursor *cursor, uint32_t *out)
{
    if (cursor->end - cursor->at < SIZE_BYTES)
        return false;
    *out = (uint32_t)cursor->at[0] | (uint32_t)cursor->at[1] << 8 | (uint32_t)cursor->at[2] << 16 | (uint32_t)cursor->at[3] << 24;
    cursor->at += SIZE_BYTES;
    return true;
}

/* The header of a run: a varint of at most 32 bits. */
static bool take_run(Cursor *levels, uint32_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (levels->at == levels->end)
            return false;
        const uint64_t byte = *levels->at++;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = (uint32_t)value;
            return value <= UINT32_MAX;
        }
    }
    return false;
}

static inline bool take_value(Cursor *content, Field *value)
{
    uint32_t size;
    if (!take_u32(content, &size) || size > content->end - content->at)
        return false;
    *value = (Field){content->at, size};
    content->at += size;
    return true;
}

static bool read_page(const Page *page, Field *values)
{
    const uint8_t *start = page->view.buf;
    Cursor levels = {start, start + page->view.len};
    uint32_t size, run;
    if (!take_u32(&levels, &size) || size > levels.end - levels.at)
        return false;
    Cursor content = {levels.at + size, levels.end};
    levels.end = content.at;
    Field *const end = values + page->value_count;
    while (values < end) {
        if (!take_run(&levels, &run))
            return false;
        const bool is_packed = run & 1;
        const int64_t bytes = is_packed ? run >> 1 : 1, count = is_packed ? 8 * bytes : run >> 1;
        if (count == 0 || bytes > levels.end - levels.at)
            return false;
        const uint8_t *bits = levels.at;
        levels.at += bytes;
        if (!is_packed && *bits > 1)
            return false;
        for (int64_t at = 0; at < count && values < end; at++, values++) {
            const bool is_present = is_packed ? bits[at >> 3] >> (at & 7) & 1 : *bits;
            if (!is_present)
                *values = (Field){NULL, -1};
            else if (!take_value(&content, values))
                return false;
        }
    }
    return true;
}

Py_ssize_t pages_read(Pages *pages)
{
    Field *values = pages->values;
    for (Py_ssize_t at = 0; at < pages->count; at++) {
        if (!read_page(&pages->pages[at], values))
            return at;
        values += pages->pages[at].value_count;
    }
    return -1;
}

static int open_pages(Pages *pages, PyObject *list, int64_t row_count)
{
    int64_t left = row_count;
    const Py_ssize_t count = PyList_GET_SIZE(list);
    if ((pages->pages = calloc((size_t)count + 1, sizeof *pages->pages)) == NULL
        || (pages->values = malloc(((size_t)row_count + 1) * sizeof *pages->values)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Page *page = &pages->pages[at];
        PyObject *pair = PyList_GET_ITEM(list, at);
        if (check_tuple(pair, 2, "a page") < 0 || to_int64(PyTuple_GET_ITEM(pair, 1), &page->value_count) < 0)
            return -1;
        if (page->value_count < 0 || page->value_count > left)
            break;
        if (PyObject_GetBuffer(PyTuple_GET_ITEM(pair, 0), &page->view, PyBUF_SIMPLE) < 0)
            return -1;
        pages->count++;
        left -= page->value_count;
    }
    if (pages->count == count && left == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "the pages do not have %lld values", (long long)row_count);
    return -1;
}

int pages_open(Pages *pages, PyObject *list, int64_t row_count)
{
    *pages = (Pages){NULL};
    if (check_list(list, "pages") < 0)
        return -1;
    const int outcome = open_pages(pages, list, row_count);
    if (outcome < 0)
        pages_close(pages);
    return outcome;
}

void pages_close(Pages *pages)
{
    for (Py_ssize_t at = 0; at < pages->count; at++)
        PyBuffer_Release(&pages->pages[at].view);
    free(pages->pages);
    free(pages->values);
    *pages = (Pages){NULL};
}
