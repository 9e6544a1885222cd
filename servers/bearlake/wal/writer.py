"""Seals a flush: builds one WAL object from the batches of all partitions (layout: `wal/format.py`).

One join copies the bytes once into a new `bytearray`. The receive buffers are free when `seal` returns, and the server can later write
offsets into the copy (`kernel.rebase`) and serve readers from it. The checksums in the index cover the bytes as sealed: they hold for the
stored object, not for a rebased copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice, repeat
from operator import itemgetter, ne
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import TooLarge
from bearlake.wal import v1
from bearlake.wal.format import TRAILER_BYTES, Part

_OWNER = itemgetter(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A WAL object's bytes, and the position of each part.

    `positions[i]` is the position in the object of the first batch of part i, in the order of the arguments; the part's other batches
    follow back to back.
    """

    buffer: bytearray
    positions: Sequence[int]


def seal(parts: Sequence[Part], *, node_id: int, server_epoch: int) -> Sealed:
    """Build one WAL object from `parts`: at least one part, each with at least one batch, each buffer one whole non-empty batch.

    Slices are sorted by (stream id, partition). Several parts of one partition become one slice, in the given order. If the parts are
    already in that order, their positions ascend.

    Raises:
        TooLarge: a slice has 4 GiB or more, or there are more than 2**20 partitions.
    """
    assert parts
    # Columns and C-level loops: with a thousand small partitions per object, a statement per part dominates the cost.
    given = list(map(_OWNER, parts))
    order = sorted(range(len(parts)), key=given.__getitem__)
    owners = [given[at] for at in order]
    batches = [parts[at].batches for at in order]
    counts = list(map(len, batches))
    lengths = [sum(map(len, part)) for part in batches]
    assert all(lengths)
    columns = _Columns(owners, counts, lengths) if _is_ascending(owners) else _merge(owners, counts, lengths)
    front = _check_sizes(columns.lengths)
    buffer = bytearray().join([bytes(front), *chain.from_iterable(batches), bytes(TRAILER_BYTES)])
    _fill_in(buffer, columns, front, node_id, server_epoch)
    starts = accumulate(lengths, initial=front)
    if order == list(range(len(parts))):
        return Sealed(buffer=buffer, positions=list(starts)[:-1])
    positions = [0] * len(parts)
    for at, start in zip(order, starts, strict=False):  # the last start is the end
        positions[at] = start
    return Sealed(buffer=buffer, positions=positions)


class _Columns(NamedTuple):
    """The slices of an object: owning partition, batch count, length in bytes."""

    owners: list[tuple[bytes, int]]
    counts: list[int]
    lengths: list[int]


def _is_ascending(owners: Sequence[tuple[bytes, int]]) -> bool:
    """Whether the owners, which are sorted, are all different."""
    return all(map(ne, owners, islice(owners, 1, None)))


def _merge(owners: list[tuple[bytes, int]], counts: list[int], lengths: list[int]) -> _Columns:
    """Merge each run of parts of one partition into one slice."""
    merged = _Columns([], [], [])
    for owner, run in groupby(zip(owners, counts, lengths, strict=True), key=itemgetter(0)):
        _, run_counts, run_lengths = zip(*run, strict=True)
        merged.owners.append(owner)
        merged.counts.append(sum(run_counts))
        merged.lengths.append(sum(run_lengths))
    return merged


def _fill_in(buffer: bytearray, columns: _Columns, front: int, node_id: int, server_epoch: int) -> None:
    """Write header, index and trailer around the slices."""
    ends = list(accumulate(columns.lengths, initial=front))
    starts, ends = ends[:-1], ends[1:]
    assert ends[-1] + TRAILER_BYTES == len(buffer)
    checksums = map(kernel.crc32c, repeat(buffer), starts, ends)
    stream_ids, partitions = zip(*columns.owners, strict=True)
    entries = map(v1.ENTRY.pack, stream_ids, partitions, columns.counts, starts, columns.lengths, checksums)
    v1.fill_in(buffer, b"".join(entries), node_id, server_epoch)


def _check_sizes(lengths: Sequence[int]) -> int:
    """Return the length in bytes of the index part. Raises `TooLarge`."""
    if len(lengths) > v1.SLICE_COUNT_MAX:
        raise TooLarge("index of a WAL object", v1.index_bytes(len(lengths)), v1.index_bytes(v1.SLICE_COUNT_MAX))
    longest = max(lengths)
    if longest > v1.LENGTH_MAX:
        raise TooLarge("slice of a WAL object", longest, v1.LENGTH_MAX)
    return v1.index_bytes(len(lengths))
