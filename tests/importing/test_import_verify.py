"""The comparison of imported streams with their source: what is the same, and every kind of difference."""

from typing import Any

import pytest

from bearlake.errors import Conflict
from bearlake.importing.batches import Piece, Pieces
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.copying import Copy
from bearlake.importing.promotion import promote
from bearlake.importing.selection import Selection
from bearlake.importing.settings import CopySettings, SourceSettings
from bearlake.importing.target import Target
from bearlake.importing.verifying import SHOWN_COUNT_MAX, Compared, Comparison, verify
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from fixtures.kafka_server import Make, Node, batch_of
from fixtures.transactional import TransactionalWriter

TIME_MS = 1_700_000_000_000


class Import:
    """An import of one topic, whose source can be made to lie."""

    def __init__(self, source: Node, target: Node) -> None:
        self.source, self.target = source, target
        self.cluster = SourceCluster(
            source.address, SourceSettings(fetch_wait_ms=10, fetch_bytes_max=4096, partition_bytes_max=4096)
        )
        self.selection = Selection(self.cluster, ["orders"])

    async def copied(self) -> None:
        """Copy everything."""
        await self.selection.look()
        target = Target(self.target.streams, self.cluster.cluster_id)
        await Copy(self.cluster, target, self.selection, CopySettings(pause_ms=1)).run(follow=False)

    async def compared(self) -> list[Compared]:
        """Compare."""
        topics = await self.selection.look()
        target = Target(self.target.streams, self.cluster.cluster_id)
        return await verify(self.cluster, self.target.streams, target, topics)


def records(*values: bytes, **more: Any) -> bytes:
    """A batch of records."""
    return bytes(encode([Record(key=b"k", value=value, timestamp=TIME_MS) for value in values], **more))


@pytest.fixture
async def both(kafka_cluster: Make, cluster_of_each_store: Make) -> Import:
    """A source with the topic `orders`, and a target."""
    source, target = (await kafka_cluster())[0], (await cluster_of_each_store())[0]
    await source.create("orders", 2)
    return Import(source, target)


async def test_a_copy_is_the_same_batch_for_batch(both: Import) -> None:
    client = await both.source.client()
    for number in range(50):
        await client.produce("orders", batch_of(b"%d" % number * 300), index=number % 2)
    await both.copied()

    found = await both.compared()

    assert [(item.start, item.end, item.same_batches, item.different, item.missing) for item in found] == [
        (0, 25, 25, 0, 0),
        (0, 25, 25, 0, 0),
    ]


async def test_only_offsets_that_both_have_are_compared(both: Import) -> None:
    client = await both.source.client()
    await client.produce("orders", batch_of(b"a", b"b", b"c"))
    await client.produce("orders", batch_of(b"d"))
    await both.copied()
    await client.produce("orders", batch_of(b"later"))
    view = await both.source.streams.catalog.resolve("orders")
    await both.source.streams.metadata.log.trim(view.partition(0), 1)

    found = await both.compared()

    assert (found[0].start, found[0].end, found[0].same_batches, found[0].different) == (1, 4, 2, 0)
    assert (found[1].start, found[1].end, found[1].same_batches, found[1].different) == (0, 0, 0, 0)


async def test_aborted_records_are_no_difference(both: Import) -> None:
    writer = await TransactionalWriter.of(both.source.streams, "orders")
    await writer.send(b"gone")
    await writer.end(is_commit=False)
    await writer.send(b"kept")
    await writer.end()
    await both.copied()

    found = await both.compared()

    assert (found[0].end, found[0].different, found[0].missing) == (4, 0, 0)
    assert found[0].same_batches == 1  # markers are not compared


async def test_a_promoted_stream_is_not_compared(both: Import) -> None:
    await both.copied()
    await promote(both.target.streams.catalog, ["orders"])

    with pytest.raises(Conflict, match="promoted"):
        await both.compared()


def pieces(*batches: bytes) -> list[Piece]:
    """The pieces of these batches, one after another from offset 0."""
    joined, at = b"", 0
    for batch in batches:
        joined += at.to_bytes(8, "big") + batch[8:]
        at += int.from_bytes(batch[23:27], "big") + 1
    return list(Pieces(0).of(memoryview(joined)))


def compare(theirs: Piece | None, ours: Piece | None, *, is_compacted: bool = False) -> Compared:
    """Compare two batches at the same offset."""
    compared = Compared(topic="orders", partition=0, start=0, end=10)
    Comparison(compared, is_compacted=is_compacted).take(theirs, ours)
    return compared


def test_records_that_were_encoded_again_are_compared_one_by_one() -> None:
    (plain,), (packed,) = pieces(records(b"a" * 100, b"b")), pieces(records(b"a" * 100, b"b", codec=Compression.ZSTD))

    found = compare(packed, plain)

    assert (found.same_batches, found.same_records, found.different) == (0, 2, 0)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (Record(key=b"k", value=b"x", timestamp=TIME_MS), "other value"),
        (Record(key=b"x", value=b"a", timestamp=TIME_MS), "other key"),
        (Record(key=b"k", value=b"a", timestamp=TIME_MS + 1), "other timestamp"),
        (Record(key=b"k", value=b"a", timestamp=TIME_MS, headers=(("h", b"1"),)), "other headers"),
        (Record(key=None, value=None, timestamp=TIME_MS), "other key and value"),
    ],
)
def test_each_field_of_a_record_is_compared(record: Record, word: str) -> None:
    (theirs,), (ours,) = pieces(records(b"a")), pieces(bytes(encode([record])))

    found = compare(theirs, ours)

    assert (found.different, found.shown) == (1, [f"offset 0: {word}"])


def test_a_record_that_one_side_lacks_is_a_difference_unless_the_topic_is_compacted() -> None:
    (theirs,), (ours,) = pieces(records(b"a", b"b")), pieces(records(b"a"))

    plain, compacted = compare(theirs, ours), compare(theirs, ours, is_compacted=True)
    absent = compare(None, ours)

    assert (plain.missing, plain.different, plain.shown) == (1, 1, ["offset 1: only in the source"])
    assert (compacted.missing, compacted.different, compacted.same_records) == (1, 0, 1)
    assert absent.shown == ["offset 0: only in the stream"]


def test_only_the_first_differences_are_named() -> None:
    (theirs,) = pieces(records(*[b"a"] * 20))

    found = compare(theirs, None)

    assert (found.different, len(found.shown)) == (20, SHOWN_COUNT_MAX)
