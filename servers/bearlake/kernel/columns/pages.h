/* Values in the pages of a Parquet column. Contract: pages.py. */
#ifndef BEARLAKE_PAGES_H
#define BEARLAKE_PAGES_H

#include "batch/records.h"

typedef struct {
    Py_buffer view;
    int64_t value_count;
} Page;

typedef struct {
    Page *pages;
    Py_ssize_t count;
    Field *values; /* one per row; they point into the pages */
} Pages;

/* Each returns -1 with an exception set. `list` has (page, value count), with `row_count` values in all. */
int pages_open(Pages *pages, PyObject *list, int64_t row_count);
void pages_close(Pages *pages);

/* Finds all values; does not need the GIL. Returns the number of the first malformed page, or -1. */
Py_ssize_t pages_read(Pages *pages);

#endif
