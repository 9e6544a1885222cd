"""Seals a flush: the batches of all partitions become the bytes of one WAL object (layout: `wal/format.py`).

The bytes are copied once, by one join, into a `bytearray` of their own; so the receive buffers are free when this returns, and the
server can later write offsets into its copy (`kernel.rebase`) to serve readers from it. The checksums in the index are those
of the bytes as sealed: they hold for the stored object, not for a rebased copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from bearlake import kernel
from bearlake.errors import TooLarge
from bearlake.wal import v1
from bearlake.wal.format import TRAILER_BYTES, Buffer, Part, SliceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A WAL object's bytes, its index, and where each part went.

    `positions` is parallel to the parts as they were given: the position in the object of the part's first batch; its other
    batches follow back to back.
    """

    buffer: bytearray
    slices: Sequence[SliceEntry]
    positions: Sequence[int]


def seal(parts: Sequence[Part], *, node_id: int, server_epoch: int) -> Sealed:
    """Build one WAL object out of `parts`; at least one, none without batches, each buffer one whole non-empty batch.

    Slices are sorted by (stream id, partition). Several parts of one partition become one slice, in the order given. Parts that are
    given in that order already have ascending positions.

    Raises:
        TooLarge: a slice has 4 GiB or more, or there are more than 2**20 partitions.
    """
    assert parts
    order = sorted(range(len(parts)), key=lambda at: parts[at][:2])
    chunks: list[Buffer] = [b""]
    owners: list[tuple[bytes, int]] = []
    lengths: list[int] = []
    counts: list[int] = []
    before: list[int] = []
    total = 0
    for at in order:
        stream_id, partition, batches = parts[at]
        length = sum(map(len, batches))
        assert length
        chunks += batches
        before.append(total)
        total += length
        if owners and owners[-1] == (stream_id, partition):
            lengths[-1] += length
            counts[-1] += len(batches)
        else:
            owners.append((stream_id, partition))
            lengths.append(length)
            counts.append(len(batches))
    front = _check_sizes(lengths)
    chunks[0] = bytes(front)
    chunks.append(bytes(TRAILER_BYTES))
    buffer = bytearray().join(chunks)
    assert len(buffer) == front + total + TRAILER_BYTES
    positions = [0] * len(parts)
    for at, relative in zip(order, before, strict=True):
        positions[at] = front + relative
    starts = accumulate(lengths[:-1], initial=front)
    slices = [
        SliceEntry(*owner, count, start, length, kernel.crc32c(buffer, start, start + length))
        for owner, count, length, start in zip(owners, counts, lengths, starts, strict=True)
    ]
    v1.fill_in(buffer, slices, node_id, server_epoch)
    return Sealed(buffer=buffer, slices=slices, positions=positions)


def _check_sizes(lengths: Sequence[int]) -> int:
    """The length of the index part for slices of these lengths."""
    if len(lengths) > v1.SLICE_COUNT_MAX:
        raise TooLarge("index of a WAL object", v1.index_bytes(len(lengths)), v1.index_bytes(v1.SLICE_COUNT_MAX))
    longest = max(lengths)
    if longest > v1.LENGTH_MAX:
        raise TooLarge("slice of a WAL object", longest, v1.LENGTH_MAX)
    return v1.index_bytes(len(lengths))
