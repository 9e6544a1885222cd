"""The last message of a topic into which Kafka's transactions were written: neither a marker nor an aborted batch."""

from types import SimpleNamespace
from typing import Any

from bearlake import kernel
from bearlake.metadata.model import PartitionBounds, PartitionKey, Slice
from bearlake.protocols.pulsar import message_ids, positions
from bearlake.records import codec
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.records.codec import Record
from bearlake.records.markers import Markers
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.history import empty_batch

P = PartitionKey(7 << 20)
MARKER = Markers(5, 0, 1, True, 1_000, 1).batch()


class Partition:
    """A partition that is read as readers of committed records do."""

    def __init__(self, *batches: bytes | memoryview) -> None:
        self.end = 0
        self._batches: list[tuple[int, memoryview]] = []
        for batch in batches:
            buffer = bytearray(batch)
            ((_, _, header),) = kernel.batches(buffer, 0, len(buffer))
            count = header.last_offset_delta + 1
            kernel.rebase(buffer, (Slice(P, self.end, count, 0, len(buffer), 0),), NO_LEADER_EPOCH)
            self._batches.append((self.end, memoryview(buffer)))
            self.end += count
        self.read_count = 0

    async def bounds(self, _: object) -> dict[PartitionKey, PartitionBounds]:
        return {P: PartitionBounds(0, self.end, self.end)}

    async def fetch(self, ranges: list[FetchRange], **_: object) -> list[Fetched]:
        self.read_count += 1
        (range_,) = ranges
        view = [view for base, view in self._batches if base <= range_.offset][-1]
        return [Fetched(range_, 0, self.end, self.end, [view], len(view))]


async def last(partition: Partition) -> int:
    """The entry id of the last message."""

    async def opened(_: object, __: object) -> Any:
        return SimpleNamespace(is_batch=False)

    streams: Any = partition
    streams.settings = SimpleNamespace(writer=SimpleNamespace(deadline_ms=1))
    context: Any = SimpleNamespace(streams=streams, opener=SimpleNamespace(opened=opened))
    return (await positions.find_last(context, P)).entry_id


def plain() -> bytes:
    return codec.encode([Record(value=b"v", timestamp=1_000)])


async def test_the_last_message_is_before_markers_and_aborted_batches() -> None:
    assert await last(Partition(plain(), plain(), MARKER, empty_batch(0, 3), MARKER)) == 1


async def test_a_topic_of_markers_has_no_last_message() -> None:
    assert await last(Partition(empty_batch(0, 2), MARKER)) == message_ids.NONE


async def test_the_search_for_the_last_message_is_bounded() -> None:
    partition = Partition(plain(), *[MARKER] * (positions.STEPS_MAX + 1))
    await last(partition)

    assert partition.read_count == positions.STEPS_MAX
