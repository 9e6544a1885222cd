"""The last message of a topic whose last offsets have none: markers, aborted batches, and what key compaction removed."""

from types import SimpleNamespace
from typing import Any

from bearlake import kernel
from bearlake.metadata.model import PartitionBounds, PartitionKey, Slice
from bearlake.protocols.pulsar import message_ids
from bearlake.protocols.pulsar.last_messages import LastMessages
from bearlake.records import codec
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.records.codec import Record
from bearlake.records.markers import Markers
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.history_pieces import empty_batch
from bearlake.streams.subscriptions.cleaned_batches import Part, split

P = PartitionKey(7 << 20)
MARKER = Markers(5, 0, 1, True, 1_000, 1).batch()


class Partition:
    """A partition that is read as readers of committed records do."""

    def __init__(self, *batches: bytes | memoryview) -> None:
        self.start = self.end = 0
        self.read_count = 0
        self.set_policy("delete")
        self._batches: list[tuple[int, memoryview]] = []
        for batch in batches:
            self.add(batch)

    def add(self, batch: bytes | memoryview) -> None:
        """Append a batch."""
        buffer = bytearray(batch)
        count = count_of(memoryview(buffer))
        kernel.rebase(buffer, (Slice(P, self.end, count, 0, len(buffer), 0),), NO_LEADER_EPOCH)
        self._batches.append((self.end, memoryview(buffer)))
        self.end += count

    def set_policy(self, policy: str) -> None:
        """Give the stream other configs."""
        view = SimpleNamespace(stream=SimpleNamespace(configs={"cleanup.policy": policy}))
        self.catalog = SimpleNamespace(peek_number=lambda _: view)

    def clean(self, at: int) -> None:
        """Remove the records of the batch with this number, as key compaction does."""
        base, view = self._batches[at]
        self._batches[at] = base, empty_batch(base, count_of(view))

    async def bounds(self, _: object) -> dict[PartitionKey, PartitionBounds]:
        return {P: PartitionBounds(self.start, self.end, self.end)}

    async def fetch(self, ranges: list[FetchRange], *, bytes_max: int, **_: object) -> list[Fetched]:
        self.read_count += 1
        (range_,) = ranges
        views: list[memoryview] = []
        size = 0
        for base, view in self._batches:
            if base + count_of(view) > range_.offset and (not views or size + len(view) <= bytes_max):
                views.append(view)
                size += len(view)
        return [Fetched(range_, 0, self.end, self.end, views, size)]


def count_of(view: memoryview) -> int:
    ((_, _, header),) = kernel.batches(view, 0, len(view))
    return header.last_offset_delta + 1


def search(partition: Partition) -> LastMessages:
    async def opened(_: object, __: object) -> Any:
        return SimpleNamespace(is_batch=False)

    streams: Any = partition
    streams.settings = SimpleNamespace(writer=SimpleNamespace(deadline_ms=1))

    async def parts(batch: memoryview, base: int, end: int, start: int) -> list[Part]:
        return split(batch, base, end, start, 1 << 20)

    opener: Any = SimpleNamespace(opened=opened, split=parts)
    return LastMessages(streams, opener)


async def last(partition: Partition) -> int:
    """The entry id of the last message."""
    return (await search(partition).find(P)).entry_id


def plain() -> bytes:
    return codec.encode([Record(value=b"v", timestamp=1_000)])


async def test_the_last_message_is_before_markers_and_aborted_batches() -> None:
    assert await last(Partition(plain(), plain(), MARKER, empty_batch(0, 3), MARKER)) == 1


async def test_the_last_of_several_messages_in_a_step_is_found() -> None:
    assert await last(Partition(*[plain()] * 5, *[MARKER] * 4)) == 4


async def test_a_topic_of_markers_has_no_last_message() -> None:
    assert await last(Partition(empty_batch(0, 2), MARKER)) == message_ids.NONE


async def test_the_search_goes_back_over_any_number_of_aborted_batches_in_few_reads() -> None:
    partition = Partition(plain(), plain(), *[empty_batch(0, 1)] * 5_000, MARKER)

    assert await last(partition) == 1
    assert partition.read_count < 20


async def test_a_repeated_search_reads_only_what_is_new() -> None:
    partition = Partition(plain(), *[MARKER] * 1_000)
    searched = search(partition)
    first = (await searched.find(P)).entry_id, partition.read_count
    again = (await searched.find(P)).entry_id, partition.read_count
    partition.add(MARKER)
    more = (await searched.find(P)).entry_id, partition.read_count
    partition.add(plain())
    newest = (await searched.find(P)).entry_id

    assert again == first
    assert more == (0, first[1] + 1)
    assert newest == 1_002


async def test_a_message_that_was_trimmed_is_not_the_last_one() -> None:
    partition = Partition(plain(), MARKER, MARKER)
    searched = search(partition)
    before = (await searched.find(P)).entry_id
    partition.start = 1

    assert before == 0
    assert (await searched.find(P)).entry_id == message_ids.NONE


async def test_a_message_that_a_cleaning_removed_is_not_the_last_one() -> None:
    partition = Partition(plain(), plain(), plain())
    partition.set_policy("compact")
    searched = search(partition)
    before = (await searched.find(P)).entry_id
    partition.clean(2)
    after = (await searched.find(P)).entry_id
    partition.clean(0)
    partition.clean(1)

    assert (before, after) == (2, 1)
    assert (await searched.find(P)).entry_id == message_ids.NONE


async def test_the_last_message_of_a_batch_that_lost_its_last_records_is_the_last_one_that_is_left() -> None:
    batch = bytearray(codec.encode([Record(value=b"v", timestamp=1_000, offset_delta=delta) for delta in (0, 2, 3)]))
    batch[23:27] = (5).to_bytes(4, "big")
    partition = Partition(plain(), batch, MARKER)

    assert await last(partition) == 3  # the run begins at delta 2


async def test_what_was_found_before_other_configs_is_searched_again() -> None:
    partition = Partition(plain(), plain())
    searched = search(partition)
    before = (await searched.find(P)).entry_id
    partition.set_policy("compact")
    partition.clean(1)
    partition.set_policy("delete")

    assert before == 1
    assert (await searched.find(P)).entry_id == 0
