"""The last message of a topic into which Kafka's transactions were written: neither a marker nor an aborted batch."""

from types import SimpleNamespace
from typing import Any

import pytest

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
        at = max(at for at, (base, _) in enumerate(self._batches) if base <= range_.offset)
        views, size = [self._batches[at][1]], 0
        for _, view in self._batches[at + 1 :]:
            size += len(views[-1])
            if size + len(view) > range_.bytes_max:
                break
            views.append(view)
        return [Fetched(range_, 0, self.end, self.end, views, sum(map(len, views)))]


async def last(partition: Partition) -> int:
    """The entry id of the last message."""

    async def opened(_: object, __: object) -> Any:
        return SimpleNamespace(is_batch=False)

    streams: Any = partition
    streams.settings = SimpleNamespace(writer=SimpleNamespace(deadline_ms=1))
    context: Any = SimpleNamespace(streams=streams, opener=SimpleNamespace(opened=opened))
    return (await positions.find_last(context, P)).entry_id


def plain(message_bytes: int = 1) -> bytes:
    return codec.encode([Record(value=bytes(message_bytes), timestamp=1_000)])


async def test_the_last_message_is_before_markers_and_aborted_batches() -> None:
    assert await last(Partition(plain(), plain(), MARKER, empty_batch(0, 3), MARKER)) == 1


async def test_a_topic_of_markers_has_no_last_message() -> None:
    assert await last(Partition(empty_batch(0, 2), MARKER)) == message_ids.NONE


@pytest.mark.parametrize("message_bytes", [1, 10_000])
async def test_the_last_message_is_found_before_very_many_markers(message_bytes: int) -> None:
    """Else a reader that asks whether there are more messages waits for one that never comes."""
    partition = Partition(plain(), *[plain(message_bytes)] * 50, *[MARKER] * 10_000)

    assert await last(partition) == 50
    assert partition.read_count < 30


async def test_the_search_for_the_last_message_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "READS_MAX", 10)
    monkeypatch.setattr(positions, "READ_OFFSETS_MAX", 1)
    partition = Partition(plain(), *[MARKER] * 30)
    found = await last(partition)

    assert found == 21
    assert partition.read_count == 10
