"""Framing of requests and answers on the pipes between a server, its helpers and their children.

    request   kind (1 byte), processor time (4, milliseconds), size (4), message
    answer    wait status of the child (4), processor time (4, milliseconds), values done (4), size (4), message

    message   size of the head (4), head (JSON, with the sizes of the parts), parts

Numbers are big-endian. `work` and `value_work` define heads and parts. Texts are parts: parsing large JSON would block the event loop.
"""

import json
import os
import select
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

REQUEST = struct.Struct(">BII")
ANSWER = struct.Struct(">iIII")
CHUNK_BYTES = 1 << 16

COMPILE, EVALUATE = 0, 1
"""Kinds of requests: for a child of its own, and for the child that keeps schemas."""

_SIZE = struct.Struct(">I")


class Answer(NamedTuple):
    """What a child answered, or how it ended."""

    status: int
    """Wait status; 0 for a child that answered."""
    processor_ms: int
    done_count: int
    """Values that the child had finished."""
    message: bytes


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


def packed(head: Mapping[str, object], parts: Sequence[bytes] = ()) -> bytes:
    """Encode a message."""
    octets = json.dumps({**head, "sizes": [len(part) for part in parts]}).encode("ascii")
    return b"".join([_SIZE.pack(len(octets)), octets, *parts])


def unpacked(message: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Decode a message into its head (Any: JSON) and its parts."""
    (size,) = _SIZE.unpack_from(message)
    at = _SIZE.size + size
    head = json.loads(message[_SIZE.size : at])
    parts = []
    for part_size in head.pop("sizes"):
        parts.append(message[at : at + part_size])
        at += part_size
    return head, parts


NEEDS_SCHEMA = packed({"needs": "schema"})
"""The answer of a child that does not know the schema of a request."""


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
