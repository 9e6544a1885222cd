/* Creates a durable file in one call. In Python, each system call releases the GIL and must win it back from a busy event loop, which made
   a put with 30 us of work take 500 us. Contract: put.py. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_TMPFILE */
#endif
#include "files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARTS_MAX 1024 /* IOV_MAX */
#define FILE_MODE 0640

static int write_all(int descriptor, struct iovec *parts, int count)
{
    while (count > 0) {
        ssize_t written = writev(descriptor, parts, count);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        while (count > 0 && (size_t)written >= parts->iov_len) {
            written -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + written;
            parts->iov_len -= (size_t)written;
        }
    }
    return 0;
}

#if defined(O_TMPFILE) && defined(__linux__)
static int write_and_link(const char *folder, const char *target, struct iovec *parts, int count, bool sync)
{
    char name[64];
    int descriptor = open(folder, O_WRONLY | O_CLOEXEC | O_TMPFILE, FILE_MODE);
    if (descriptor < 0)
        return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    int result = write_all(descriptor, parts, count);
    if (result == 0 && sync)
        result = fdatasync(descriptor);
    if (result == 0)
        result = linkat(AT_FDCWD, name, AT_FDCWD, target, AT_SYMLINK_FOLLOW);
    int saved = errno;
    close(descriptor);
    errno = saved;
    return result;
}

static int sync_folder(const char *folder)
{
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    int result = fsync(descriptor);
    int saved = errno;
    close(descriptor);
    errno = saved;
    return result;
}

static int put(const char *folder, const char *target, struct iovec *parts, int count, bool sync)
{
    if (write_and_link(folder, target, parts, count, sync) < 0)
        return -1;
    return sync ? sync_folder(folder) : 0;
}
#else
static int put(const char *folder, const char *target, struct iovec *parts, int count, bool sync)
{
    errno = EOPNOTSUPP;
    return -1;
}
#endif

static int get_parts(PyObject *sequence, Py_buffer *views, struct iovec *parts)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(sequence, at), &views[at], PyBUF_SIMPLE) < 0) {
            while (at-- > 0)
                PyBuffer_Release(&views[at]);
            return -1;
        }
        parts[at].iov_base = views[at].buf;
        parts[at].iov_len = (size_t)views[at].len;
    }
    return (int)count;
}

KERNEL_FUNCTION(kernel_put_file)
{
    PyObject *folder = NULL, *target = NULL, *sequence = NULL, *result = NULL;
    Py_buffer *views = NULL;
    struct iovec *parts = NULL;
    if (check_arguments("put_file", count, 4, 4) < 0)
        return NULL;
    int sync = PyObject_IsTrue(arguments[3]);
    if (sync < 0 || !PyUnicode_FSConverter(arguments[0], &folder) || !PyUnicode_FSConverter(arguments[1], &target))
        goto done;
    sequence = PySequence_Fast(arguments[2], "put_file() takes a sequence of buffers");
    if (sequence == NULL)
        goto done;
    if (PySequence_Fast_GET_SIZE(sequence) > PARTS_MAX) {
        PyErr_Format(PyExc_ValueError, "put_file() takes at most %d buffers", PARTS_MAX);
        goto done;
    }
    const size_t room = (size_t)PySequence_Fast_GET_SIZE(sequence) + 1;
    views = PyMem_Malloc(room * sizeof *views);
    parts = PyMem_Malloc(room * sizeof *parts);
    if (views == NULL || parts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int part_count = get_parts(sequence, views, parts);
    if (part_count < 0)
        goto done;
    int failed, saved;
    Py_BEGIN_ALLOW_THREADS
    failed = put(PyBytes_AS_STRING(folder), PyBytes_AS_STRING(target), parts, part_count, sync);
    saved = errno;
    Py_END_ALLOW_THREADS
    for (int at = 0; at < part_count; at++)
        PyBuffer_Release(&views[at]);
    if (failed) {
        errno = saved;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, arguments[1]);
    } else {
        result = Py_NewRef(Py_None);
    }
done:
    PyMem_Free(views);
    PyMem_Free(parts);
    Py_XDECREF(folder);
    Py_XDECREF(target);
    Py_XDECREF(sequence);
    return result;
}
