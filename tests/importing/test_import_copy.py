"""The copy between two deployments that speak Kafka's protocol: offsets, restarts, promotion."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from bearlake.errors import Conflict, NotFound
from bearlake.importing.batches import Piece
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.copying import Copy
from bearlake.importing.pace import Pace
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.promotion import promote
from bearlake.importing.selection import Selection, usable
from bearlake.importing.settings import CopySettings, SourceSettings
from bearlake.importing.target import Target
from bearlake.metadata.model import PartitionBounds, PartitionKey
from bearlake.streams.catalog import StreamView
from bearlake.streams.configs import IMPORT_SOURCE
from fixtures.kafka_server import Make, Node, batch_of, values_of
from fixtures.transactional import TransactionalWriter
from fixtures.waiting import until

SOURCE = SourceSettings(fetch_wait_ms=10, timeout_ms=20_000)
COPY = CopySettings(pause_ms=1, attempt_count_max=3)


@pytest.fixture
def targets(cluster_of_each_store: Make) -> Make:
    """Makes targets, on each kind of metadata store. Sources are always on stores in memory."""
    return cluster_of_each_store


async def copy_of(source: Node, target: Node, *names: str, copy: CopySettings = COPY) -> Copy:
    """A copy of the topics of these names or patterns from one deployment to another."""
    cluster = SourceCluster(source.address, SOURCE)
    selection = Selection(cluster, names)
    await selection.look()
    return Copy(cluster, Target(target.streams, cluster.cluster_id), selection, copy)


async def test_each_partition_has_the_same_batches_at_the_same_offsets(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders", 3)
    client = await source.client()
    for index in range(3):
        for number in range(4):
            values = [b"%d-%d" % (index, number)] * (1 + index)
            answer = await client.produce(topic, batch_of(*values, producer=(77, 0, number * len(values))), index=index)
            assert answer.error_code in (0, 45)

    copy = await copy_of(source, target, "orders")
    await copy.run(follow=False)

    view = await target.streams.catalog.resolve("orders")
    reader = await target.client()
    for index in range(3):
        there, here = await client.fetch(topic, 0, index=index), await reader.fetch(view.id_bytes, 0, index=index)
        assert bytes(here.records) == bytes(there.records)
        assert here.high_watermark == there.high_watermark > 0
    assert copy.copied.batches == 12
    assert [item.lag for item in copy.partitions] == [0, 0, 0]


async def test_a_copy_goes_on_where_the_target_ends(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    await client.produce(topic, batch_of(b"a", b"b"))
    await (await copy_of(source, target, "orders")).run(follow=False)
    await client.produce(topic, batch_of(b"c"))

    again = await copy_of(source, target, "orders")
    await again.run(follow=False)

    assert again.copied.batches == 1
    assert await values_in(target, "orders") == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_a_copy_that_is_cancelled_at_any_time_stores_each_batch_once(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    for number in range(30):
        await client.produce(topic, batch_of(b"%d" % number))

    for turns in range(0, 400, 20):
        running = asyncio.ensure_future((await copy_of(source, target, "orders")).run(follow=False))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
    await (await copy_of(source, target, "orders")).run(follow=False)

    assert await values_in(target, "orders") == [(number, b"%d" % number) for number in range(30)]


async def test_two_copies_at_once_store_each_batch_once(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    for number in range(30):
        await client.produce(topic, batch_of(b"%d" % number))

    patient = CopySettings(pause_ms=1, attempt_count_max=50)
    copies = [await copy_of(source, target, "orders", copy=patient) for _ in range(2)]
    await asyncio.gather(*(copy.run(follow=False) for copy in copies))

    assert await values_in(target, "orders") == [(number, b"%d" % number) for number in range(30)]


async def test_a_copy_that_follows_gets_later_records(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    copy = await copy_of(source, target, "orders")
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: bool(copy.partitions))
    await client.produce(topic, batch_of(b"a"))
    await until(lambda: copy.copied.batches == 1)
    await client.produce(topic, batch_of(b"b"))
    await until(lambda: copy.copied.batches == 2)
    running.cancel()
    await asyncio.wait({running})

    assert await values_in(target, "orders") == [(0, b"a"), (1, b"b")]


async def test_deleted_records_of_the_source_leave_the_start_at_the_same_offset(
    kafka_cluster: Make, targets: Make
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders", 2)
    client = await source.client()
    for index in range(2):
        await client.produce(topic, batch_of(b"a", b"b", b"c", b"d"), index=index)
        await client.produce(topic, batch_of(b"e"), index=index)
    view = await source.streams.catalog.resolve("orders")
    await source.streams.metadata.log.trim(view.partition(0), 2)
    await source.streams.metadata.log.trim(view.partition(1), 5)

    await (await copy_of(source, target, "orders")).run(follow=False)

    made = await target.streams.catalog.resolve("orders")
    bounds = await target.streams.bounds(made.partitions())
    assert [(bounds[key].start, bounds[key].end) for key in made.partitions()] == [(2, 5), (5, 5)]
    reader = await target.client()
    found = values_of((await reader.fetch(made.id_bytes, 2)).records)
    assert [item for item in found if item[0] >= 2] == [(2, b"c"), (3, b"d"), (4, b"e")]


async def test_aborted_records_are_left_out_and_an_open_transaction_holds_the_copy_up(
    kafka_cluster: Make, targets: Make
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    await source.create("orders")
    writer = await TransactionalWriter.of(source.streams, "orders")
    await writer.aborted(b"gone")
    await writer.send(b"kept")
    await writer.end()
    await writer.send(b"open")

    await (await copy_of(source, target, "orders")).run(follow=False)
    before = await values_in(target, "orders")
    await writer.end()
    await (await copy_of(source, target, "orders")).run(follow=False)

    assert [value for value in before if value[1] in (b"gone", b"kept", b"open")] == [(2, b"kept")]
    view = await target.streams.catalog.resolve("orders")
    (bounds,) = (await target.streams.bounds(view.partitions())).values()
    assert (bounds.end, bounds.last_stable) == (6, 6)
    assert (4, b"open") in await values_in(target, "orders")


async def test_nobody_else_appends_until_the_stream_is_promoted(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client, writer = await source.client(), await target.client()
    await client.produce(topic, batch_of(b"a"))
    copy = await copy_of(source, target, "orders")
    await copy.run(follow=False)
    view = await target.streams.catalog.resolve("orders")

    refused = await writer.produce(view.id_bytes, batch_of(b"x"))
    await promote(target.streams.catalog, ["orders"])
    accepted = await writer.produce(view.id_bytes, batch_of(b"x"))

    assert (refused.error_code, accepted.error_code) == (29, 0)
    assert accepted.base_offset == 1
    with pytest.raises(Conflict, match="promoted"):
        await (await copy_of(source, target, "orders")).run(follow=False)


async def test_an_import_that_runs_while_the_stream_is_promoted_writes_nothing_after_other_records(
    kafka_cluster: Make, targets: Make
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client, writer = await source.client(), await target.client()
    copy = await copy_of(source, target, "orders")
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: bool(copy.partitions))
    view = await target.streams.catalog.resolve("orders")
    await promote(target.streams.catalog, ["orders"])
    await writer.produce(view.id_bytes, batch_of(b"ours"))
    await client.produce(topic, batch_of(b"theirs"))

    with pytest.raises(Conflict, match="promoted"):
        await asyncio.wait_for(running, 20)
    assert await values_in(target, "orders") == [(0, b"ours")]


async def test_a_promoted_stream_keeps_the_records_that_the_source_deletes(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    await client.produce(topic, batch_of(b"a", b"b", b"c"))
    copy = await copy_of(source, target, "orders")
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: copy.copied.batches == 1)
    await promote(target.streams.catalog, ["orders"])
    view = await source.streams.catalog.resolve("orders")
    await source.streams.metadata.log.trim(view.partition(0), 2)
    await client.produce(topic, batch_of(b"d"))

    with pytest.raises(Conflict, match="promoted"):
        await asyncio.wait_for(running, 20)
    assert await values_in(target, "orders") == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


class PromotedAfterAppend(Target):
    """A target whose stream is promoted as soon as it has records."""

    async def append(self, batches: Sequence[tuple[StreamView, int, Piece]]) -> None:
        """Append, then promote."""
        await super().append(batches)
        await promote(self._streams.catalog, ["orders"])


async def test_offsets_of_groups_are_copied_only_for_streams_that_are_still_imported(
    kafka_cluster: Make, targets: Make
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    await (await source.client()).produce(await source.create("orders"), batch_of(b"a"))
    await source.create("bills")
    copied: list[list[str]] = []

    async def copy_groups(partitions: Sequence[PartitionCopy]) -> None:
        copied.append([item.topic.name for item in partitions])

    cluster = SourceCluster(source.address, SOURCE)
    selection = Selection(cluster, [".*"])
    await selection.look()
    copy = Copy(cluster, PromotedAfterAppend(target.streams, cluster.cluster_id), selection, COPY, copy_groups)
    await copy.run(follow=False)

    assert copied == [["bills"]]
    assert list(copy.ended) == ["orders"]


async def test_records_that_come_with_a_promotion_while_an_import_begins_do_not_count_as_copied(
    kafka_cluster: Make, targets: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client, writer = await source.client(), await target.client()
    await client.produce(topic, batch_of(b"a"))
    await (await copy_of(source, target, "orders")).run(follow=False)
    for value in (b"b", b"c"):
        await client.produce(topic, batch_of(value))
    view = await target.streams.catalog.resolve("orders")
    read_bounds = target.streams.bounds

    async def promoted_before(keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, PartitionBounds]:
        monkeypatch.setattr(target.streams, "bounds", read_bounds)
        await promote(target.streams.catalog, ["orders"])
        await writer.produce(view.id_bytes, batch_of(b"ours"))
        return await read_bounds(keys)

    monkeypatch.setattr(target.streams, "bounds", promoted_before)
    with pytest.raises(Conflict, match="promoted"):
        await (await copy_of(source, target, "orders")).run(follow=False)

    assert await values_in(target, "orders") == [(0, b"a"), (1, b"ours")]


async def test_an_import_touches_no_stream_that_it_did_not_create(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    await source.create("orders")
    await source.create("bills")
    await target.create("orders")
    await target.create("bills", import_source="kafka:other/topic")

    with pytest.raises(Conflict, match="is not being imported"):
        await (await copy_of(source, target, "orders")).run(follow=False)
    with pytest.raises(Conflict, match="from kafka:other/topic"):
        await (await copy_of(source, target, "bills")).run(follow=False)


async def test_a_topic_that_was_created_again_is_not_mixed_with_the_former_one(
    kafka_cluster: Make, targets: Make
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    await client.produce(topic, batch_of(b"a"))
    await (await copy_of(source, target, "orders")).run(follow=False)
    view = await source.streams.catalog.resolve("orders")
    await source.streams.catalog.delete(view.stream)
    await source.create("orders")

    with pytest.raises(Conflict, match="is imported from"):
        await (await copy_of(source, target, "orders")).run(follow=False)


async def test_new_partitions_and_configs_of_the_source_are_taken_over(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    await source.create("orders", 1, retention_ms="123456", max_message_bytes="5000")
    cluster = SourceCluster(source.address, SOURCE)
    _, left = usable((await cluster.configs(["orders"]))["orders"] | {"confluent.placement": "x"})
    await (await copy_of(source, target, "orders")).run(follow=False)
    view = await source.streams.catalog.resolve("orders")
    await source.streams.catalog.add_partitions(view.stream, 2)
    await (await copy_of(source, target, "orders")).run(follow=False)

    made = (await target.streams.catalog.resolve("orders")).stream
    assert left == ["confluent.placement"]
    assert made.partition_count == 2
    assert made.configs.keys() == {"retention.ms", "max.message.bytes", IMPORT_SOURCE}


async def test_a_stream_that_is_deleted_ends_its_import(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    copy = await copy_of(source, target, "orders")
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: bool(copy.partitions))
    view = await target.streams.catalog.resolve("orders")
    await target.streams.catalog.delete(view.stream)
    await client.produce(topic, batch_of(b"a"))

    with pytest.raises(NotFound):
        await asyncio.wait_for(running, 20)


async def test_a_topic_that_cannot_be_copied_does_not_stop_the_others(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    client = await source.client()
    for name in ("bills", "orders"):
        await client.produce(await source.create(name), batch_of(b"a"))
    await target.create("bills")

    copy = await copy_of(source, target, ".*")
    await copy.run(follow=False)

    assert await values_in(target, "orders") == [(0, b"a")]
    assert list(copy.ended) == ["bills"]
    assert isinstance(copy.ended["bills"], Conflict)
    assert [item.topic.name for item in copy.partitions] == ["orders"]


async def test_a_promotion_ends_one_topic_and_the_others_are_followed(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    client, writer = await source.client(), await target.client()
    topics = {name: await source.create(name) for name in ("bills", "orders")}
    copy = await copy_of(source, target, ".*")
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: len(copy.partitions) == 2)
    view = await target.streams.catalog.resolve("bills")
    await promote(target.streams.catalog, ["bills"])
    await writer.produce(view.id_bytes, batch_of(b"ours"))
    await client.produce(topics["bills"], batch_of(b"theirs"))
    await until(lambda: "bills" in copy.ended)
    await client.produce(topics["orders"], batch_of(b"a"))
    await until(lambda: copy.copied.batches == 1)
    running.cancel()
    await asyncio.wait({running})

    assert await values_in(target, "bills") == [(0, b"ours")]
    assert await values_in(target, "orders") == [(0, b"a")]


async def test_topics_that_are_created_later_are_followed_too(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    client = await source.client()
    await source.create("orders-1")
    quick = CopySettings(pause_ms=1, refresh_ms=50)
    copy = await copy_of(source, target, "orders.*", copy=quick)
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: len(copy.partitions) == 1)
    await client.produce(await source.create("orders-2", retention_ms="123456"), batch_of(b"a"))
    await until(lambda: copy.copied.batches == 1)
    running.cancel()
    await asyncio.wait({running})

    assert await values_in(target, "orders-2") == [(0, b"a")]
    made = (await target.streams.catalog.resolve("orders-2")).stream
    assert made.configs["retention.ms"] == "123456"


async def test_a_topic_that_the_source_deletes_waits_and_does_not_stop_the_others(
    kafka_cluster: Make, targets: Make
) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    client = await source.client()
    topics = {name: await source.create(name) for name in ("bills", "orders")}
    await client.produce(topics["bills"], batch_of(b"a"))
    copy = await copy_of(source, target, ".*", copy=CopySettings(pause_ms=1, refresh_ms=50))
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: copy.copied.batches == 1)
    await source.streams.catalog.delete((await source.streams.catalog.resolve("bills")).stream)
    await until(lambda: [item.topic.name for item in copy.partitions] == ["orders"])
    await client.produce(topics["orders"], batch_of(b"b"))
    await until(lambda: copy.copied.batches == 2)
    running.cancel()
    await asyncio.wait({running})

    assert await values_in(target, "bills") == [(0, b"a")]
    assert await values_in(target, "orders") == [(0, b"b")]
    assert copy.ended == {}


async def test_records_that_the_source_deletes_meanwhile_are_skipped(kafka_cluster: Make, targets: Make) -> None:
    source, target = (await kafka_cluster())[0], (await targets())[0]
    topic = await source.create("orders")
    client = await source.client()
    await client.produce(topic, batch_of(b"a", b"b"))
    copy = await copy_of(source, target, "orders", copy=CopySettings(pause_ms=1, refresh_ms=50))
    running = asyncio.ensure_future(copy.run(follow=True))
    await until(lambda: copy.copied.batches == 1)
    view = await source.streams.catalog.resolve("orders")
    made = await target.streams.catalog.resolve("orders")
    await source.streams.metadata.log.trim(view.partition(0), 1)
    await until(lambda: copy.partitions[0].start == 1)
    running.cancel()
    await asyncio.wait({running})
    await client.produce(topic, batch_of(b"c", b"d"))
    await client.produce(topic, batch_of(b"e"))
    await source.streams.metadata.log.trim(view.partition(0), 4)
    await (await copy_of(source, target, "orders")).run(follow=False)

    bounds = (await target.streams.bounds(made.partitions()))[made.partition(0)]
    assert (bounds.start, bounds.end) == (4, 5)
    reader = await target.client()
    assert values_of((await reader.fetch(made.id_bytes, 4)).records) == [(4, b"e")]


def test_bytes_per_second_bound_the_speed_of_all_lanes_together() -> None:
    pace = Pace(1_000)

    assert pace.wait_s(500, 100.0) == 0.5
    assert pace.wait_s(500, 100.0) == 1.0  # another lane, at the same time
    assert pace.wait_s(0, 100.5) == 0.5
    assert pace.wait_s(2_000, 200.0) == 2.0  # time that was not used is not saved up
    assert Pace(0).wait_s(10**9, 0.0) == 0.0


async def values_in(node: Node, name: str) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records of partition 0."""
    view = await node.streams.catalog.resolve(name)
    client = await node.client()
    return values_of((await client.fetch(view.id_bytes, 0)).records)
