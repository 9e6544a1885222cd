"""Framing of requests and answers on the two pipes between a server and a helper.

    request   size (4 bytes), JSON
    answer    wait status of the child (4), size (4), JSON

Numbers are big-endian. `work` defines the JSON.
"""

import os
import select
import struct
import time

SIZE = struct.Struct(">I")
HEAD = struct.Struct(">iI")
CHUNK_BYTES = 1 << 16


class Pipe:
    """The server's end of a pipe, with a deadline."""

    def __init__(self, descriptor: int, deadline: float) -> None:
        """`deadline`: on the clock of `time.monotonic`, in seconds."""
        self._descriptor = descriptor
        self._deadline = deadline
        os.set_blocking(descriptor, False)

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes. Raises `EOFError`, `TimeoutError`, `OSError`."""
        read = bytearray()
        while len(read) < size:
            self._wait(select.POLLIN)
            piece = os.read(self._descriptor, min(size - len(read), CHUNK_BYTES))
            if not piece:
                raise EOFError
            read += piece
        return bytes(read)

    def write(self, octets: bytes) -> None:
        """Write all bytes. Raises `TimeoutError`, `OSError`."""
        view = memoryview(octets)
        while view:
            self._wait(select.POLLOUT)
            view = view[os.write(self._descriptor, view[:CHUNK_BYTES]) :]

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._descriptor, event)
        if not poll.poll(max(0.0, self._deadline - time.monotonic()) * 1000):
            raise TimeoutError


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read exactly `size` bytes without a deadline, on the helper's side. Raises `EOFError`, `OSError`."""
    read = bytearray()
    while len(read) < size:
        piece = os.read(descriptor, min(size - len(read), CHUNK_BYTES))
        if not piece:
            raise EOFError
        read += piece
    return bytes(read)


def write_all(descriptor: int, octets: bytes) -> None:
    """Write all bytes without a deadline. Raises `OSError`."""
    view = memoryview(octets)
    while view:
        view = view[os.write(descriptor, view) :]
