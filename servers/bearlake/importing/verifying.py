"""Compares streams with the topics from which they were imported: the records that both have.

    found = await verify(cluster, streams, target, topics)      # one `Compared` for each partition

Both sides are read side by side, over the offsets that both have, as a consumer of committed records reads them. Batches whose bytes have
the same checksum (CRC32C) and length are the same. Other batches, such as those that compaction encoded again, are decoded, and compared
record by record: offset, timestamp, key, value, headers. If a topic is compacted by key, records that only one side still has are
counted, and are no difference. Markers of transactions are no records, and are not compared.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

from bearlake.errors import Unavailable
from bearlake.importing.batches import Piece, Pieces
from bearlake.importing.cluster import Connections, SourceCluster, SourceTopic
from bearlake.importing.reading import advanced, has_records, pieces_of
from bearlake.importing.target import Target
from bearlake.kernel import RecordFields
from bearlake.records import codec as record_codec
from bearlake.streams import configs as stream_configs
from bearlake.streams.admission import UNCOMPRESSED_BYTES_MAX
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import Streams

SHOWN_COUNT_MAX = 5
"""Differences of a partition that are named; the others are counted."""
_LENGTH_AND_CRC = Struct(">8xi5xI")


@dataclass(slots=True, kw_only=True)
class Compared:
    """The comparison of one partition, over the offsets `[start, end)`."""

    topic: str
    partition: int
    start: int
    end: int
    same_batches: int = 0
    """Batches that have the same bytes."""
    same_records: int = 0
    """Records of other batches, compared one by one."""
    missing: int = 0
    """Records that only one side has: differences, unless the topic is compacted by key."""
    different: int = 0
    """Differences."""
    shown: list[str] = field(default_factory=list)
    """The first differences, in words."""

    def note(self, what: str) -> None:
        """Count a difference."""
        self.different += 1
        if len(self.shown) < SHOWN_COUNT_MAX:
            self.shown.append(what)


async def verify(
    cluster: SourceCluster, streams: Streams, target: Target, topics: Sequence[SourceTopic]
) -> list[Compared]:
    """Compare all partitions of these topics with their streams.

    Raises:
        NotFound: a stream does not exist.
        Conflict: a stream is not the import of its topic, or was promoted.
        Corrupt: batches of one side cannot be read.
        Unavailable: a side does not answer, or deletes records at this moment.
    """
    found = []
    for topic in topics:
        view = await target.find(topic)
        here = await target.bounds(topic, view)
        async with Connections(cluster) as connections:
            there = await cluster.bounds(topic, connections)
        for index, bounds in enumerate(there):
            start = max(bounds.start, here[index].start)
            end = max(start, min(bounds.stable, here[index].end))
            compared = Compared(topic=topic.name, partition=index, start=start, end=end)
            found.append(compared)
            await _compare(compared, cluster, streams, topic, view)
    return found


async def _compare(
    compared: Compared, cluster: SourceCluster, streams: Streams, topic: SourceTopic, view: StreamView
) -> None:
    policy = stream_configs.value(view.stream.configs, "cleanup.policy")
    sides = Comparison(compared, is_compacted="compact" in policy.split(","))
    there = pieces_of(cluster, topic, compared.partition, compared.start, compared.end)
    here = pieces_of_target(streams, view, compared)
    theirs, ours = await anext(there, None), await anext(here, None)
    while theirs is not None or ours is not None:
        if theirs is not None and ours is not None and theirs.start == ours.start:
            sides.take(theirs, ours)
            theirs, ours = await anext(there, None), await anext(here, None)
        elif ours is None or (theirs is not None and theirs.start < ours.start):
            sides.take(theirs, None)
            theirs = await anext(there, None)
        else:
            sides.take(None, ours)
            ours = await anext(here, None)


class Comparison:
    """Compares batches that begin at the same offset."""

    def __init__(self, compared: Compared, *, is_compacted: bool) -> None:
        self.compared = compared
        self._is_compacted = is_compacted

    def take(self, theirs: Piece | None, ours: Piece | None) -> None:
        """Compare a batch of the source with one of the target; None: that side has none at this offset."""
        if theirs is not None and ours is not None and _mark(theirs) == _mark(ours):
            self.compared.same_batches += 1
        else:
            self.match(self._records(theirs), self._records(ours), "source", "stream")

    def match(self, there: Mapping[int, RecordFields], here: Mapping[int, RecordFields], *sides: str) -> None:
        """Compare records by offset; `sides` names both sides."""
        for offset in sorted(there.keys() | here.keys()):
            if offset not in there or offset not in here:
                self.compared.missing += 1
                if not self._is_compacted:
                    self.compared.note(f"offset {offset}: only in the {sides[offset not in there]}")
            elif there[offset][1:] != here[offset][1:]:
                self.compared.note(f"offset {offset}: {_difference(there[offset], here[offset])}")
            else:
                self.compared.same_records += 1

    def _records(self, piece: Piece | None) -> dict[int, RecordFields]:
        if piece is None:
            return {}
        base = piece.end - 1 - _last_delta(piece)
        found = {base + fields[0]: fields for fields in record_codec.fields(piece.batch, UNCOMPRESSED_BYTES_MAX)}
        return {offset: fields for offset, fields in found.items() if offset >= self.compared.start}


def _difference(there: RecordFields, here: RecordFields) -> str:
    names = ("timestamp", "key", "value", "headers")
    return "other " + " and ".join(name for name, a, b in zip(names, there[1:], here[1:], strict=True) if a != b)


def _mark(piece: Piece) -> tuple[int, int, int]:
    return (piece.end, *_LENGTH_AND_CRC.unpack_from(piece.batch))


def _last_delta(piece: Piece) -> int:
    return int.from_bytes(piece.batch[23:27], "big")


async def pieces_of_target(streams: Streams, view: StreamView, compared: Compared) -> AsyncIterator[Piece]:
    """Yield the batches of the stream that have records, from the range of the comparison."""
    at, bytes_max = compared.start, streams.settings.reader.load_bytes_max
    what = f"stream {view.name!r}, partition {compared.partition}"
    while at < compared.end:
        ranges = [FetchRange(view.partition(compared.partition), at, bytes_max)]
        (found,) = await streams.fetch(ranges, bytes_min=1, bytes_max=bytes_max, wait_ms=0)
        if found.error is not None:
            raise Unavailable(f"{what}: {found.error}") from found.error
        pieces = Pieces(at, may_overlap=at == compared.start)
        for records in found.views:
            for piece in pieces.of(records):
                if has_records(piece) and piece.start < compared.end:
                    yield piece
        at = advanced(at, pieces.end, what)
