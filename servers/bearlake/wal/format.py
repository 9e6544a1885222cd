"""The WAL object: one immutable object with the record batches of many partitions, written by one server in one flush.

    ┌────────┬───────────────────────────┬─────────┬─────────┬─────┬─────────┬─────────┐
    │ header │ index: one entry per slice│ slice 0 │ slice 1 │  …  │ slice n │ trailer │
    └────────┴───────────────────────────┴─────────┴─────────┴─────┴─────────┴─────────┘
    0                                    slices back to back, no gaps        size - 40

What all versions share, so that a reader can tell them apart from either end: an object begins with `MAGIC` and a uint16
version, and ends with a trailer of 40 bytes whose last 8 are `MAGIC_END`. All numbers are big-endian, all positions are absolute.
Version 1 is laid out byte by byte in `wal/v1.py`, which stays as long as its objects may exist.

A slice holds the whole record batches of one partition, back to back in order of arrival, exactly as the producers sent them (base
offset 0: offsets are assigned at commit, and written only into what is served). A partition has at most one slice per object, and
slices are sorted by stream id and partition. The object explains itself without the metadata store, but only the commit log
says which of its batches are in their partition's log, and at which offsets.
"""

from collections.abc import Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

MAGIC = b"\x89BEARWAL"
MAGIC_END = b"BEARWAL\n"
TRAILER_BYTES = 40
"""The size of every version's trailer."""
HEAD_BYTES = 64 * 1024
"""A first read of this many bytes from the front has the index of objects with up to 1,600 slices."""


class Part(NamedTuple):
    """Batches of one partition for one WAL object. `stream_id` is the stream's UUID as 16 bytes; each buffer is one whole batch."""

    stream_id: bytes
    partition: int
    batches: Sequence[Buffer]


class SliceEntry(NamedTuple):
    """One slice as the object's index has it: whose it is, its place, and the CRC32C of its bytes."""

    stream_id: bytes
    partition: int
    batch_count: int
    position: int
    length: int
    crc: int


class Index(NamedTuple):
    """What the front of a WAL object says: its size, the server that wrote it, and its slices by position."""

    version: int
    size: int
    node_id: int
    server_epoch: int
    slices: Sequence[SliceEntry]
