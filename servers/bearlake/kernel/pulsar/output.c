/* A bytes object that grows while it is written, and is truncated at the end. */
#include "pulsar/output.h"

bool open_output(Output *output, int64_t capacity, int64_t start)
{
    output->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)capacity);
    if (output->bytes == NULL)
        return false;
    uint8_t *bytes = (uint8_t *)PyBytes_AS_STRING(output->bytes);
    output->writer = (Writer){bytes + start, bytes + capacity, 0};
    return true;
}

bool grow_output(Output *output, int64_t room)
{
    const int64_t used = output_size(output);
    const int64_t capacity = used + used / 2 + room;
    if (_PyBytes_Resize(&output->bytes, (Py_ssize_t)capacity) < 0)
        return false;
    uint8_t *bytes = (uint8_t *)PyBytes_AS_STRING(output->bytes);
    output->writer.at = bytes + used;
    output->writer.end = bytes + capacity;
    return true;
}

PyObject *close_output(Output *output)
{
    const int64_t used = output_size(output);
    if (used != PyBytes_GET_SIZE(output->bytes))
        (void)_PyBytes_Resize(&output->bytes, (Py_ssize_t)used); /* NULL if it fails */
    return output->bytes;
}
