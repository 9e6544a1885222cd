"""Reads a range of one partition of a cluster, as a consumer of committed records does, batch by batch."""

from collections.abc import AsyncIterator

from bearlake.errors import Corrupt
from bearlake.importing.batches import Aborted, Piece, Pieces
from bearlake.importing.cluster import SourceCluster, SourceTopic, check
from bearlake.importing.fetching import FETCH_NEWEST, Place, only_partition, request_of
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.records.batch import is_control


async def pieces_of(
    cluster: SourceCluster, topic: SourceTopic, index: int, start: int, end: int
) -> AsyncIterator[Piece]:
    """Yield the batches that have records from the offsets `[start, end)`; the first and the last one may reach beyond.

    Raises `Corrupt`, `Denied`, `Invalid`, `Unavailable`, as `SourceCluster.connect`, `Connection.ask` and `Pieces.of`.
    """
    settings, at = cluster.settings, start
    what = f"topic {topic.name!r}, partition {index}"
    if at >= end:
        return
    async with await cluster.connect(topic.leaders[index]) as connection:
        version = connection.version(ApiKey.FETCH, FETCH_NEWEST)
        while at < end:
            request = request_of([Place(topic, index, at)], version, settings)
            answer = await connection.ask(request, newest=FETCH_NEWEST, wait_ms=settings.fetch_wait_ms)
            check(answer.error_code, "to be read", settings.PEER)
            found = only_partition(answer.responses, index, what)
            check(found.error_code, what, settings.PEER)
            if not found.records:
                return  # the rest was removed by key compaction
            aborted = [Aborted(item.producer_id, item.first_offset) for item in found.aborted_transactions or ()]
            pieces = Pieces(at, aborted, may_overlap=at == start, gap_offsets_max=settings.gap_offsets_max)
            for piece in pieces.of(memoryview(found.records)):
                if has_records(piece) and piece.start < end:
                    yield piece
            at = advanced(at, pieces.end, what)


def has_records(piece: Piece) -> bool:
    """Whether consumers see records of the batch: it is neither empty nor a marker of a transaction."""
    return not piece.is_empty and not is_control(int.from_bytes(piece.batch[21:23], "big"))


def advanced(before: int, after: int, what: str) -> int:
    """Return the offset after a response. Raises `Corrupt` if the response brought nothing."""
    if after <= before:
        raise Corrupt(f"{what}: no batch at offset {before}")
    return after
