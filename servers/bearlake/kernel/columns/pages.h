/* Values in the pages of a Parquet column, one page after the other. Contract: pages.py. */
#ifndef BEARLAKE_PAGES_H
#define BEARLAKE_PAGES_H

#include "batch/records.h"

typedef struct {
    PyObject *iterator;
    Py_buffer view;       /* of the current page; `obj` is NULL for none */
    Cursor levels, values;
    const uint8_t *bits;  /* of the current run of levels */
    int64_t run_at, run_end;
    bool is_packed;
    int64_t page_left;    /* rows of the current page that were not taken */
    int64_t rows_left;    /* rows of the pages after the current one */
    int64_t number;       /* of the current page; -1: none yet */
} Pages;

typedef enum { PAGE_VALUE, PAGE_END, PAGE_BAD } PageStatus;

/* -1 with an exception set. `iterable` is an iterable of (page, value count), which have `row_count` values in all. */
int pages_open(Pages *pages, PyObject *iterable, int64_t row_count);
void pages_close(Pages *pages);

/* Goes on to the next page; needs the GIL, and runs Python code. -1 with an exception set, 0 if there is none, else 1. */
int pages_next(Pages *pages);

/* Whether the current page can have values; does not need the GIL. */
bool page_begin(Pages *pages);

/* The value of the next row; PAGE_END if it is not on this page. Does not need the GIL. */
PageStatus page_take(Pages *pages, Field *value);

#endif
