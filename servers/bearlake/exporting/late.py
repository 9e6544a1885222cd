"""Finds records at the target that are not those which the ledger means: a batch of a killed export has arrived late, and the source has
deleted or cleaned its records before the next export could read them again (decision 302).
"""

from collections.abc import AsyncIterator

from bearlake.exporting.mapping import Runs
from bearlake.importing.batches import Piece
from bearlake.importing.cluster import SourceCluster, SourceTopic
from bearlake.importing.reading import pieces_of
from bearlake.records import codec as record_codec
from bearlake.streams.admission import UNCOMPRESSED_BYTES_MAX

Side = tuple[SourceCluster, SourceTopic]
"""A cluster, and the topic there."""


async def first_difference(
    source: Side, target: Side, index: int, runs: Runs, start: int, end: int, oldest: int = 0
) -> int | None:
    """Return the first offset in `[start, end)` of the target whose record has another key or value than the source's; None: there is none.

    Records that only one side still has are no difference. Timestamps are not compared: the target may set them. `oldest`: the source's
    first offset. Both ranges are held in memory. Raises `Corrupt`, `Denied`, `Unavailable`, as `pieces_of`.
    """
    first, last = runs.source_of(start), runs.source_of(end - 1)
    if first is None or last is None or last < oldest:
        return None
    theirs: dict[int, tuple[bytes | None, bytes | None]] = {}
    async for offset, content in _records(source, index, max(first, oldest), last + 1):
        at = runs.target_of(offset, end)
        if at is not None and runs.source_of(at) == offset:
            theirs[at] = content
    async for offset, content in _records(target, index, start, end):
        if offset in theirs and theirs[offset] != content:
            return offset
    return None


async def _records(
    side: Side, index: int, start: int, end: int
) -> AsyncIterator[tuple[int, tuple[bytes | None, bytes | None]]]:
    async for piece in pieces_of(*side, index, start, end):
        for delta, _, key, value, _ in record_codec.fields(piece.batch, UNCOMPRESSED_BYTES_MAX):
            offset = _base(piece) + delta
            if start <= offset < end:
                yield offset, (key, value)


def _base(piece: Piece) -> int:
    return piece.end - 1 - int.from_bytes(piece.batch[23:27], "big")
