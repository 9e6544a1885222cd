"""The copy from a Pulsar that a test scripts: restarts at each step, and sources that lie."""

import pytest

from bearlake.errors import BearlakeError, Conflict, Corrupt, Invalid
from bearlake.importing.promotion import promote
from bearlake.importing.pulsar.positions import Place
from bearlake.metadata.subscriptions import unpack_ranges
from bearlake.protocols.pulsar.proto.metadata_pb2 import EncryptionKeys, SingleMessageMetadata
from fixtures.kafka_server import Make
from fixtures.pulsar_entries import metadata, pack
from fixtures.pulsar_import import PulsarImport, places, stored
from fixtures.pulsar_source import PulsarSource, sent


async def test_entries_get_offsets_in_order_and_a_batch_says_which_entry_it_was(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, pack([(SingleMessageMetadata(), b"a")] * 3), num_messages_in_batch=3)
    topic.add(3, 1, b"single")
    topic.add(7, 0, pack([(SingleMessageMetadata(), b"b")] * 2), num_messages_in_batch=2)

    imported = PulsarImport(pulsar_source, target)
    await imported.run()

    assert await places(target, "orders") == [(0, Place(3, 0)), (3, Place(3, 1)), (4, Place(7, 0))]
    assert imported.copy.partitions[0].lag == 0
    assert await imported.differences() == 0


async def test_a_copy_that_is_started_again_at_each_entry_stores_each_once(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for number in range(12):
        topic.add(2 + number // 5, number % 5, b"%d" % number)
        await PulsarImport(pulsar_source, target).run()
        await PulsarImport(pulsar_source, target).run()

    assert [base for base, _ in await places(target, "orders")] == list(range(12))
    view = await target.streams.catalog.resolve("orders")
    assert topic.cursors[f"bearlake-import-{view.id_bytes.hex()}"][0] == "4:1"


async def test_entries_that_are_sent_again_or_go_back_are_not_stored_again(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for ledger, entry in ((5, 0), (5, 1), (5, 0), (4, 9), (5, 1), (5, 2)):
        topic.add(ledger, entry, b"x")

    await PulsarImport(pulsar_source, target).run()

    assert await places(target, "orders") == [(0, Place(5, 0)), (1, Place(5, 1)), (2, Place(5, 2))]


async def test_a_topic_that_was_made_anew_is_refused_and_others_go_on(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    for name in ("orders", "others"):
        pulsar_source.topic(name).add(3, 0, b"old")
    await PulsarImport(pulsar_source, target).run()
    del pulsar_source.topics["persistent://public/default/orders"]
    pulsar_source.topic("orders").add(9, 0, b"new")
    pulsar_source.topic("others").add(3, 1, b"more")

    second = PulsarImport(pulsar_source, target)
    await second.run()

    assert "deleted and made anew" in str(second.copy.ended["orders"])
    assert await places(target, "orders") == [(0, Place(3, 0))]
    assert await places(target, "others") == [(0, Place(3, 0)), (1, Place(3, 1))]


async def test_a_cluster_with_the_same_ledgers_but_without_the_subscription_is_refused(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, b"old")
    await PulsarImport(pulsar_source, target).run()
    topic.cursors.clear()
    topic.add(3, 1, b"other")

    with pytest.raises(Conflict, match="create the subscription at message 3:0"):
        await PulsarImport(pulsar_source, target).run()


async def test_a_batch_that_lies_about_its_count_does_not_stop_the_flow(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(3):
        topic.add(3, entry, b"", sent(metadata(num_messages_in_batch=2**31 - 1, sequence_id=entry), b"x"))

    await PulsarImport(pulsar_source, target).run()

    assert [base for base, _ in await places(target, "orders")] == [0, 1, 2]


async def test_a_source_that_ends_before_what_was_copied_is_refused(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 4, b"a")
    await PulsarImport(pulsar_source, target).run()
    topic.ledgers, topic.last = {3: 2}, Place(3, 1)

    with pytest.raises(Conflict, match="ends before entry 3:4"):
        await PulsarImport(pulsar_source, target).run()


async def test_ledgers_that_are_trimmed_while_they_are_read_are_counted_and_the_rest_is_copied(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, b"a")
    await PulsarImport(pulsar_source, target).run()
    view = await target.streams.catalog.resolve("orders")
    for entry in range(4):
        topic.add(5, entry, b"b")
    topic.entries = topic.entries[-1:]
    topic.cursors[f"bearlake-import-{view.id_bytes.hex()}"] = ("5:2", "[]")  # a limit of the source has moved it

    second = PulsarImport(pulsar_source, target)
    await second.run()

    assert second.copy.gone == {"orders": 3}
    assert await places(target, "orders") == [(0, Place(3, 0)), (1, Place(5, 3))]


async def test_what_no_server_can_read_is_kept_as_it_is(pulsar_source: PulsarSource, kafka_cluster: Make) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    broken = metadata(num_messages_in_batch=3, sequence_id=1)
    packed = metadata(compression=3, uncompressed_size=100, sequence_id=2)
    secret = metadata(encryption_keys=[EncryptionKeys(key="k", value=b"v")], num_messages_in_batch=9, sequence_id=3)
    messages = [sent(broken, b"not a batch"), sent(packed, b"not zstd"), sent(secret, b"cipher")]
    for entry, message in enumerate(messages):
        topic.add(3, entry, b"", message)

    imported = PulsarImport(pulsar_source, target)
    await imported.run()

    kept = await stored(target, "orders")
    assert [base for base, _, _ in kept] == [0, 1, 2]
    assert bytes(kept[0][2]).endswith(b"not a batch")
    assert bytes(kept[1][2]).endswith(b"not zstd")
    assert bytes(kept[2][2]).endswith(b"cipher")
    assert await imported.differences() == 0


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (b"\x0e\x01\0\0\0\0\0\0\0\0", Corrupt),
        (b"", Corrupt),
        (sent(metadata(), b"x" * 2_000_000), Invalid),
    ],
)
async def test_an_entry_that_cannot_be_stored_ends_the_copy_with_its_reason(
    pulsar_source: PulsarSource, kafka_cluster: Make, message: bytes, kind: type[BearlakeError]
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, b"a")
    topic.add(3, 1, b"", message)

    with pytest.raises(kind, match="entry 3:1"):
        await PulsarImport(pulsar_source, target).run()


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x08\0\0\0\x09abcd", b"\0\0\0\x06\0\0\0\x02\xff\xff"]
)
async def test_frames_that_break_the_protocol_are_refused(
    pulsar_source: PulsarSource, kafka_cluster: Make, raw: bytes
) -> None:
    target = (await kafka_cluster())[0]
    pulsar_source.topic("orders").add(3, 0, b"a")
    pulsar_source.raw = raw

    with pytest.raises(Corrupt):
        await PulsarImport(pulsar_source, target).run()


async def test_a_connection_that_breaks_between_two_entries_is_opened_again(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(6):
        topic.add(3, entry, b"%d" % entry)
    seen: list[Place] = []

    async def break_once(_: str, place: Place) -> None:
        seen.append(place)
        if len(seen) == 4:
            raise ConnectionResetError

    pulsar_source.before_entry = break_once
    await PulsarImport(pulsar_source, target).run()

    assert [base for base, _ in await places(target, "orders")] == list(range(6))


async def test_positions_of_subscriptions_have_holes_and_only_move_forward(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    for entry in range(10):
        topic.add(3, entry, pack([(SingleMessageMetadata(), b"a")] * 2), num_messages_in_batch=2)
    topic.cursors = {
        "shared": ("3:1", "[(3:2..3:4],(3:6..3:7]]"),
        "done": ("5:-1", "[]"),
        "new": ("3:-1", "[]"),
        "before": ("1:5", "[]"),
    }
    first = PulsarImport(pulsar_source, target)
    await first.run()
    topic.cursors["shared"] = ("3:0", "[(3:8..3:9]]")
    await PulsarImport(pulsar_source, target).run()

    view = await target.streams.catalog.resolve("orders")
    cursors = {item.name: item for item in await target.streams.metadata.cursors.load(view.partition(0))}
    assert first.positions.copied.names == {f"orders/{name}" for name in ("shared", "done", "new", "before")}
    assert {name: item.mark_delete for name, item in cursors.items()} == {
        "shared": 4,
        "done": 20,
        "new": 0,
        "before": 0,
    }
    assert unpack_ranges(4, cursors["shared"].acknowledged) == [(6, 10), (14, 16), (18, 20)]


async def test_a_promoted_stream_lets_the_source_go(pulsar_source: PulsarSource, kafka_cluster: Make) -> None:
    target = (await kafka_cluster())[0]
    topic = pulsar_source.topic("orders")
    topic.add(3, 0, b"a")
    imported = PulsarImport(pulsar_source, target)
    await imported.run()
    await promote(target.streams.catalog, ["orders"])
    topic.add(3, 1, b"b")

    with pytest.raises(Conflict, match="promoted"):
        await PulsarImport(pulsar_source, target).run()

    assert topic.cursors == {}
    assert await places(target, "orders") == [(0, Place(3, 0))]


async def test_a_partition_whose_last_records_are_gone_says_that_it_does_not_know(
    pulsar_source: PulsarSource, kafka_cluster: Make
) -> None:
    target = (await kafka_cluster())[0]
    pulsar_source.topic("orders").add(3, 0, b"a")
    await PulsarImport(pulsar_source, target).run()
    view = await target.streams.catalog.resolve("orders")
    await target.streams.metadata.log.trim(view.partition(0), 1)

    with pytest.raises(Conflict, match="which message of the source"):
        await PulsarImport(pulsar_source, target).run()
