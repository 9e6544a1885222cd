/* Finds the values in the pages of a Parquet column, without a copy. Contract: pages.py. */
#include "columns/pages.h"

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

bool page_begin(Pages *pages)
{
    const uint8_t *start = pages->view.buf;
    uint32_t size;
    pages->levels = (Cursor){start, start + pages->view.len};
    pages->run_at = pages->run_end = 0;
    if (!take_u32(&pages->levels, &size) || size > pages->levels.end - pages->levels.at)
        return false;
    pages->values = (Cursor){pages->levels.at + size, pages->levels.end};
    pages->levels.end = pages->values.at;
    return true;
}

static bool begin_run(Pages *pages)
{
    uint32_t run;
    if (!take_run(&pages->levels, &run))
        return false;
    pages->is_packed = run & 1;
    const int64_t bytes = pages->is_packed ? run >> 1 : 1;
    pages->run_at = 0;
    pages->run_end = pages->is_packed ? 8 * bytes : run >> 1;
    if (pages->run_end == 0 || bytes > pages->levels.end - pages->levels.at)
        return false;
    pages->bits = pages->levels.at;
    pages->levels.at += bytes;
    return pages->is_packed || *pages->bits <= 1;
}

PageStatus page_take(Pages *pages, Field *value)
{
    if (pages->page_left == 0)
        return PAGE_END;
    if (pages->run_at == pages->run_end && !begin_run(pages))
        return PAGE_BAD;
    const int64_t at = pages->run_at++;
    pages->page_left--;
    if (pages->is_packed ? pages->bits[at >> 3] >> (at & 7) & 1 : *pages->bits)
        return take_value(&pages->values, value) ? PAGE_VALUE : PAGE_BAD;
    *value = (Field){NULL, -1};
    return PAGE_VALUE;
}

static int open_page(Pages *pages, PyObject *pair)
{
    int64_t value_count;
    if (check_tuple(pair, 2, "a page") < 0 || to_int64(PyTuple_GET_ITEM(pair, 1), &value_count) < 0)
        return -1;
    if (value_count < 0 || value_count > pages->rows_left) {
        PyErr_SetString(PyExc_ValueError, "the pages do not have as many values as the columns have rows");
        return -1;
    }
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(pair, 0), &pages->view, PyBUF_SIMPLE) < 0) {
        pages->view.obj = NULL;
        return -1;
    }
    pages->page_left = value_count;
    pages->rows_left -= value_count;
    pages->number++;
    return 1;
}

int pages_next(Pages *pages)
{
    PyBuffer_Release(&pages->view); /* before the next page is made, so that it can have this memory */
    PyObject *pair = PyIter_Next(pages->iterator);
    if (pair == NULL)
        return PyErr_Occurred() ? -1 : 0;
    const int found = open_page(pages, pair);
    Py_DECREF(pair);
    return found;
}

int pages_open(Pages *pages, PyObject *iterable, int64_t row_count)
{
    *pages = (Pages){.iterator = PyObject_GetIter(iterable), .rows_left = row_count, .number = -1};
    return pages->iterator == NULL ? -1 : 0;
}

void pages_close(Pages *pages)
{
    PyBuffer_Release(&pages->view);
    Py_CLEAR(pages->iterator);
}
