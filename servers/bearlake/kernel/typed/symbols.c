/* Finds symbols of enums, which schemas of clients may have by the ten thousand. Contract: avro_encode.py, protobuf_encode.py. */
#include "typed/protobuf.h"

#include <stdlib.h>

struct Symbol {
    const char *text;
    int64_t size;
    int32_t place;
};

struct Numbered {
    int32_t number, place;
};

static int compare_texts(const char *text, int64_t size, const struct Symbol *symbol)
{
    if (size != symbol->size)
        return size < symbol->size ? -1 : 1;
    return size == 0 ? 0 : memcmp(text, symbol->text, (size_t)size);
}

/* Equal ones in the order of their places: the first one counts. */
static int compare_symbols(const void *left, const void *right)
{
    const struct Symbol *own = left, *other = right;
    const int order = compare_texts(own->text, own->size, other);
    return order != 0 ? order : own->place - other->place;
}

static int compare_numbered(const void *left, const void *right)
{
    const struct Numbered *own = left, *other = right;
    return own->number != other->number ? (own->number < other->number ? -1 : 1) : own->place - other->place;
}

bool sort_symbols(Node *node)
{
    const int64_t count = PyTuple_GET_SIZE(node->symbols);
    if (count <= SYMBOLS_SCANNED)
        return true;
    if ((node->by_text = PyMem_Calloc((size_t)count, sizeof *node->by_text)) == NULL)
        return false;
    for (int64_t at = 0; at < count; at++) {
        PyObject *symbol = PyTuple_GET_ITEM(node->symbols, at);
        node->by_text[at] = (struct Symbol){PyBytes_AS_STRING(symbol), PyBytes_GET_SIZE(symbol), (int32_t)at};
    }
    qsort(node->by_text, (size_t)count, sizeof *node->by_text, compare_symbols);
    return true;
}

bool sort_numbers(Wire *wire)
{
    if (wire->number_count <= SYMBOLS_SCANNED)
        return true;
    if ((wire->by_number = PyMem_Calloc((size_t)wire->number_count, sizeof *wire->by_number)) == NULL)
        return false;
    for (int32_t at = 0; at < wire->number_count; at++)
        wire->by_number[at] = (struct Numbered){wire->numbers[at], at};
    qsort(wire->by_number, (size_t)wire->number_count, sizeof *wire->by_number, compare_numbered);
    return true;
}

int64_t symbol_place(const Node *node, const uint8_t *text, int64_t size)
{
    const int64_t count = PyTuple_GET_SIZE(node->symbols);
    if (node->by_text == NULL) {
        for (int64_t at = 0; at < count; at++) {
            PyObject *symbol = PyTuple_GET_ITEM(node->symbols, at);
            if (PyBytes_GET_SIZE(symbol) == size && is_equal((const uint8_t *)PyBytes_AS_STRING(symbol), text, size))
                return at;
        }
        return -1;
    }
    int64_t low = 0;
    for (int64_t high = count; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        if (compare_texts((const char *)text, size, &node->by_text[middle]) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && compare_texts((const char *)text, size, &node->by_text[low]) == 0 ? node->by_text[low].place : -1;
}

int32_t number_place(const Wire *wire, int32_t number)
{
    if (wire->by_number == NULL) {
        for (int32_t at = 0; at < wire->number_count; at++)
            if (wire->numbers[at] == number)
                return at;
        return -1;
    }
    int32_t low = 0;
    for (int32_t high = wire->number_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (wire->by_number[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < wire->number_count && wire->by_number[low].number == number ? wire->by_number[low].place : -1;
}
