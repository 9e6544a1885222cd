"""The WAL object: one immutable object that holds record batches of many partitions; one server writes it in one flush.

    ┌────────┬───────────────────────────┬─────────┬─────────┬─────┬─────────┬─────────┐
    │ header │ index: one entry per slice│ slice 0 │ slice 1 │  …  │ slice n │ trailer │
    └────────┴───────────────────────────┴─────────┴─────────┴─────┴─────────┴─────────┘
    0                                    slices back to back, no gaps        size - 40

A reader can identify the version from either end. In all versions, an object begins with `MAGIC` and a uint16 version, and ends with a
trailer of 40 bytes; the last 8 bytes are `MAGIC_END`. All numbers are big-endian; all positions are absolute.
`wal/v1.py` gives the byte layout of version 1 and stays as long as such objects may exist.

A slice holds whole record batches of one partition, back to back in order of arrival, exactly as the producers sent them. Their base
offset is 0: the commit assigns offsets, and the server writes them only into the bytes that it serves. A partition has at most one slice
per object; slices are sorted by stream id and partition. A reader can parse the object without the metadata store, but only the commit
log says which batches are in their partition's log, and at which offsets.
"""

from collections.abc import Sequence
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

MAGIC = b"\x89BEARWAL"
MAGIC_END = b"BEARWAL\n"
TRAILER_BYTES = 40
"""The size of every version's trailer."""
HEAD_BYTES = 64 * 1024
"""Size of a first read from the front; it covers the index of an object with up to 1,600 slices."""


class Part(NamedTuple):
    """Batches of one partition for one WAL object. `stream_id` is the stream's UUID as 16 bytes; each buffer is one whole batch."""

    stream_id: bytes
    partition: int
    batches: Sequence[Buffer]


class SliceEntry(NamedTuple):
    """One slice in the object's index: its partition, its position and length, and the CRC32C of its bytes."""

    stream_id: bytes
    partition: int
    batch_count: int
    position: int
    length: int
    crc: int


class Index(NamedTuple):
    """The header and index of a WAL object: its size, the server that wrote it, and its slices by position."""

    version: int
    size: int
    node_id: int
    server_epoch: int
    slices: Sequence[SliceEntry]
