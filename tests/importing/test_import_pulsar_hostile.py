"""Copies of a Pulsar whose contents are hostile: names, counts, compressed bombs and versions, and two imports at once."""

import asyncio
import zlib
from typing import Any

import pytest
from aiohttp import web

from bearlake.errors import BearlakeError
from bearlake.importing.promotion import promote
from bearlake.importing.pulsar import copying, subscriptions
from bearlake.importing.pulsar.connection import Entry
from bearlake.importing.pulsar.conversion import Limits, message_of, piece_of
from bearlake.importing.pulsar.locating import Locator
from bearlake.importing.pulsar.positions import Place
from bearlake.metadata.subscriptions import unpack_ranges
from bearlake.protocols.pulsar import commands
from bearlake.protocols.pulsar.entries import from_batch
from bearlake.protocols.pulsar.framing import read_message
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from fixtures.kafka_server import Make
from fixtures.pulsar_entries import metadata
from fixtures.pulsar_import import PulsarImport, places
from fixtures.pulsar_source import PulsarSource, sent

LIMITS = Limits(1_000_000, 1_000_000)


@pytest.mark.parametrize("name", ["", "\0", "a\ud800", "x" * 2000, "__share", "../..", "\x1b[31m", "a/b", "\u202e"])
async def test_a_subscription_with_a_hostile_name_is_copied_or_named(
    pulsar_source: PulsarSource, kafka_cluster: Make, name: str
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, b"a")
    topic.cursors = {name: ("3:0", "[]"), "good": ("3:0", "[]")}
    imported = PulsarImport(pulsar_source, target)

    await imported.run()

    found = imported.positions.copied
    assert "orders/good" in found.names
    assert (f"orders/{name}" in found.names) != (f"orders/{name}" in found.refused)


@pytest.mark.parametrize("properties", [{"a": "\0"}, {"\ud800": "b"}, {"a": "b" * 1_000_000}])
async def test_a_subscription_with_hostile_properties_is_copied_or_named(
    pulsar_source: PulsarSource, kafka_cluster: Make, properties: dict[str, str]
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, b"a")
    topic.cursors = {"sub": ("3:0", "[]")}
    stats = {"subscriptions": {"sub": {"isDurable": True, "subscriptionProperties": properties}}}
    pulsar_source.lie_http = lambda request: web.json_response(stats) if request.path.endswith("/stats") else None
    imported = PulsarImport(pulsar_source, target)

    await imported.run()

    assert imported.positions.copied.names | imported.positions.copied.refused.keys() == {"orders/sub"}


async def test_batches_that_count_for_more_than_a_flow_can_grant_do_not_end_the_copy(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(5_000):
        topic.add(3, entry, b"", sent(metadata(num_messages_in_batch=2**31 - 1, sequence_id=entry), b"x"))

    await PulsarImport(pulsar_source, target).run()

    assert (await places(target, "orders"))[-1] == (4_999, Place(3, 4_999))


async def test_entries_that_grow_when_they_are_read_leave_turns_to_others(
    pulsar_source: PulsarSource, kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    bomb = zlib.compress(bytes(900_000))
    for entry in range(60):
        head = metadata(compression=2, uncompressed_size=900_000, sequence_id=entry)
        topic.add(3, entry, b"", sent(head, bomb))
    imported = PulsarImport(pulsar_source, target)
    turns, at_once = 0, 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    last = [0, 0]

    def counting(*given: Any) -> Any:
        nonlocal at_once
        last[:] = [turns, last[1] + 1 if last[0] == turns else 1]
        at_once = max(at_once, last[1])
        return piece_of(*given)

    task = asyncio.create_task(count_turns())
    monkeypatch.setattr(copying, "piece_of", counting)
    await imported.run()
    task.cancel()

    assert len(await places(target, "orders")) == 60
    assert at_once <= 4


async def test_two_imports_of_a_topic_at_once_store_each_entry_once(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    cluster = await kafka_cluster(2)
    topic = pulsar_source.topic("orders")
    for entry in range(300):
        topic.add(3, entry, b"%d" % entry)
    imports = [PulsarImport(pulsar_source, cluster[0]), PulsarImport(pulsar_source, cluster[1])]

    async def run(imported: PulsarImport) -> None:
        for _ in range(20):
            try:
                await imported.run()
            except BearlakeError:
                continue
            return

    await asyncio.gather(*map(run, imports))

    assert await places(cluster[0], "orders") == [(entry, Place(3, entry)) for entry in range(300)]


async def test_a_promotion_in_the_middle_ends_the_copy_and_nothing_of_it_follows(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(6):
        topic.add(3, entry, b"a")

    async def promoted(_: str, place: Place) -> None:
        if place.entry == 3:
            await promote(target.streams.catalog, ["orders"])

    pulsar_source.before_entry = promoted
    imported = PulsarImport(pulsar_source, target)
    await imported.run()

    assert "promoted" in str(imported.copy.ended["orders"])
    after = await places(target, "orders")
    assert [place for _, place in after] == [Place(3, entry) for entry in range(len(after))]
    assert topic.cursors == {}


async def test_a_partitioned_topic_that_became_one_without_partitions_ends_with_a_reason(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    for index in range(2):
        pulsar_source.topic(f"orders-partition-{index}")
    count = 2

    def lie(kind: str, body: Any) -> bytes | None:
        if kind != "partitioned_metadata":
            return None
        answer = pb.CommandPartitionedTopicMetadataResponse(request_id=body.request_id, partitions=count)
        return commands.frame("partitioned_metadata_response", answer)

    def partitioned(request: web.Request) -> web.Response | None:
        names = ["persistent://public/default/orders"] if count else []
        return web.json_response(names) if request.path.endswith("/partitioned") else None

    pulsar_source.lie, pulsar_source.lie_http = lie, partitioned
    await PulsarImport(pulsar_source, target).run()
    count = 0
    pulsar_source.topics.clear()
    pulsar_source.topic("orders").add(5, 0, b"other")

    with pytest.raises(BearlakeError, match="partitions"):
        await PulsarImport(pulsar_source, target).run()


def entry_of(message: bytes) -> Entry:
    return Entry(0, Place(3, 0), memoryview(message))


def version_of(message: bytes, versions: dict[bytes, bytes]) -> bytes:
    entry = entry_of(message)
    piece = piece_of(entry, message_of(entry), 0, versions, LIMITS)
    return read_message(memoryview(from_batch(piece.batch, 0).headers_and_payload)).metadata.schema_version


def test_a_version_that_is_not_here_does_not_become_another_schema() -> None:
    first_version, next_version = (number.to_bytes(8, "big") for number in range(2))
    here = {next_version: first_version}  # the registry has refused version 0 of the source

    assert version_of(sent(metadata(schema_version=next_version), b"x"), here) == first_version
    assert version_of(sent(metadata(schema_version=first_version), b"x"), here) not in (first_version, next_version)


async def test_messages_of_two_refused_versions_ask_for_the_schemas_once_for_each(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(40):
        topic.add(3, entry, b"a", schema_version=(entry % 2).to_bytes(8, "big"))
    asked: list[str] = []

    def lie(request: web.Request) -> web.Response | None:
        if not request.path.endswith("/schemas"):
            return None
        asked.append(request.path)
        return web.json_response({"getSchemaResponses": []})

    pulsar_source.lie_http = lie
    await PulsarImport(pulsar_source, target).run()

    assert len(asked) <= 3


async def test_many_single_acknowledgements_are_found(pulsar_source: PulsarSource, kafka_cluster: Make) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(3_000):
        topic.add(3, entry, b"a")
    holes = ",".join(f"(3:{entry - 1}..3:{entry}]" for entry in range(1, 3_000, 2))
    topic.cursors = {"sub": ("3:-1", f"[{holes}]")}

    await PulsarImport(pulsar_source, target).run()

    view = await target.streams.catalog.resolve("orders")
    (cursor,) = await target.streams.metadata.cursors.load(view.partition(0))
    assert unpack_ranges(0, cursor.acknowledged) == [(entry, entry + 1) for entry in range(1, 3_000, 2)]


async def test_a_search_for_many_places_leaves_turns_to_others(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(1_000):
        topic.add(3, entry, b"a")
    await PulsarImport(pulsar_source, target).run()
    view = await target.streams.catalog.resolve("orders")
    bounds = (await target.streams.bounds([view.partition(0)]))[view.partition(0)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_turns())
    places_twice = [Place(3, number // 30) for number in range(30_000)]
    found = await Locator(target.streams, view, 0, bounds).behind(places_twice)
    task.cancel()

    assert found == [place.entry + 1 for place in places_twice]
    assert turns >= 30


async def test_ranges_that_have_no_room_are_named(
    pulsar_source: PulsarSource, kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(10):
        topic.add(3, entry, b"a")
    topic.cursors = {"sub": ("3:0", "[(3:1..3:2],(3:4..3:5],(3:7..3:8]]")}
    monkeypatch.setattr(subscriptions, "RANGES_MAX", 2)
    imported = PulsarImport(pulsar_source, target)

    await imported.run()

    view = await target.streams.catalog.resolve("orders")
    (cursor,) = await target.streams.metadata.cursors.load(view.partition(0))
    assert "3 ranges one by one" in imported.positions.copied.refused["orders/sub"]
    assert unpack_ranges(cursor.mark_delete, cursor.acknowledged) == [(2, 3), (5, 6)]
