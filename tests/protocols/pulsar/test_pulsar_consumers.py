"""Consumers through raw frames: the commands. `tests/streams` tests the behaviour of subscriptions."""

import asyncio
from typing import Any

import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.settings import PulsarSettings
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.waiting import WAIT_S, until

NOTHING = 2**64 - 1
LATEST = 2**63 - 1
BATCH = b"".join(b"\0\0\0\x02\x18\x01" + bytes((letter,)) for letter in b"abcdefghij")  # ten messages of one byte


async def filled(node: PulsarNode, topic: str = "t", count: int = 3) -> PulsarClient:
    """A client that has sent `count` messages, `m0` and so on."""
    client = await node.client()
    await client.produce(topic)
    for number in range(count):
        client.send_message(f"m{number}".encode(), number)
        await client.receive("send_receipt")
    return client


async def batched(node: PulsarNode, topic: str = "t") -> PulsarClient:
    """A client that has sent one batch of ten messages."""
    client = await node.client()
    await client.produce(topic)
    client.send_message(BATCH, 0, num_messages_in_batch=10, send={"num_messages": 10, "highest_sequence_id": 9})
    await client.receive("send_receipt")
    return client


def ledger(node: PulsarNode, topic: str = "t") -> int:
    view = node.streams.catalog.peek(topic)
    assert view is not None
    return view.stream.number


def ack(*ids: pb.MessageIdData, kind: int = 0, request_id: int | None = None) -> pb.CommandAck:
    return pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids, request_id=request_id)  # type: ignore[arg-type]


async def test_messages_are_delivered_as_permits_allow(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")

    client.flow(2)
    first, second = await client.receive_message(), await client.receive_message()
    client.send("ping", pb.CommandPing())
    await client.receive("pong")
    client.flow(1)
    third = await client.receive_message()

    assert [payload for _, _, payload in (first, second, third)] == [b"m0", b"m1", b"m2"]
    assert [body.message_id.entry_id for body, _, _ in (first, second, third)] == [0, 1, 2]
    body = first[0]
    assert (body.consumer_id, body.message_id.ledger_id, body.message_id.partition) == (1, ledger(pulsar), -1)
    assert not body.HasField("redelivery_count")
    assert not body.ack_set


async def test_a_partition_is_named_in_message_ids(pulsar: PulsarNode) -> None:
    await pulsar.create("t", 3)
    client = await filled(pulsar, "t-partition-2", 1)
    await client.subscribe("t-partition-2")
    client.flow(1)

    assert (await client.receive_message())[0].message_id.partition == 2


async def test_acknowledged_messages_are_not_redelivered(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")
    client.flow(10)
    ids = [(await client.receive_message())[0].message_id for _ in range(3)]

    client.send("ack", ack(ids[0], ids[1], request_id=5))
    answer = await client.receive("ack_response")
    client.send("close_consumer", pb.CommandCloseConsumer(consumer_id=1, request_id=6))
    await client.receive("success")
    await client.subscribe("t")
    client.flow(10)
    _, _, payload = await client.receive_message()

    assert (answer.request_id, answer.consumer_id, answer.HasField("error")) == (5, 1, False)
    assert payload == b"m2"


async def test_cumulative_acknowledgements(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")
    client.flow(10)
    ids = [(await client.receive_message())[0].message_id for _ in range(3)]

    nothing = pb.MessageIdData(ledger_id=ids[0].ledger_id, entry_id=NOTHING)  # offsets before the first entry
    client.send("ack", ack(nothing, kind=pb.CommandAck.Cumulative))
    client.send("ack", ack(ids[1], kind=pb.CommandAck.Cumulative, request_id=5))
    await client.receive("ack_response")
    client.send("redeliver_unacknowledged_messages", pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1))
    client.flow(10)
    body, _, payload = await client.receive_message()

    assert (payload, body.redelivery_count) == (b"m2", 0)


async def test_a_cumulative_acknowledgement_of_a_shared_subscription_is_refused(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t", sub_type=pb.CommandSubscribe.Shared)
    message_id = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=0)

    client.send("ack", ack(message_id, kind=pb.CommandAck.Cumulative, request_id=5))

    assert (await client.receive("ack_response")).error == pb.NotAllowedError


async def test_messages_inside_a_batch_are_acknowledged_one_by_one(pulsar: PulsarNode) -> None:
    client = await batched(pulsar)
    await client.subscribe("t", sub_type=pb.CommandSubscribe.Shared)
    client.flow(100)
    body, metadata, payload = await client.receive_message()

    message_id = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=0, ack_set=[1016], batch_size=10)
    client.send("ack", ack(message_id, request_id=5))
    await client.receive("ack_response")
    again = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=0)
    request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[again])
    client.send("redeliver_unacknowledged_messages", request)
    second, _, whole = await client.receive_message()

    assert (metadata.num_messages_in_batch, payload == whole) == (10, True)
    assert (list(body.ack_set), body.redelivery_count) == ([], 0)
    assert (list(second.ack_set), second.redelivery_count) == ([1016], 1)


async def test_acknowledgements_of_unknown_consumers_are_ignored_and_not_confirmed(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    message_id = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=0)

    client.send("ack", ack(message_id))
    client.flow(5)
    client.send("redeliver_unacknowledged_messages", pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1))
    client.send("ack", ack(message_id, request_id=5))
    answer = await client.receive("ack_response")
    await client.subscribe("t")
    client.send("ack", ack(pb.MessageIdData(ledger_id=999, entry_id=0), request_id=6))
    await client.receive("ack_response")
    client.flow(1)

    assert (answer.request_id, answer.error) == (5, pb.ConsumerNotFound)
    assert (await client.receive_message())[2] == b"m0"


async def test_seek_closes_the_consumer_before_it_is_answered(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")
    client.flow(10)
    for _ in range(3):
        await client.receive_message()
    message_id = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=1)

    client.send("seek", pb.CommandSeek(consumer_id=1, request_id=5, message_id=message_id))
    closed, answer = await client.receive("close_consumer"), await client.receive("success")
    await client.subscribe("t")
    client.flow(10)
    _, _, payload = await client.receive_message()

    assert (closed.consumer_id, closed.request_id, closed.assigned_broker_service_url) == (1, NOTHING, "")
    assert (answer.request_id, payload) == (5, b"m1")


@pytest.mark.parametrize(
    ("where", "acknowledged"),
    [
        ({"message_id": pb.MessageIdData(ledger_id=NOTHING, entry_id=NOTHING)}, NOTHING),
        ({"message_id": pb.MessageIdData(ledger_id=LATEST, entry_id=LATEST)}, 2),
        ({"message_publish_time": 1_700_000_000_000}, NOTHING),
        ({"message_publish_time": 1_800_000_000_000}, 2),
    ],
    ids=["earliest", "latest", "time", "later time"],
)
async def test_seek_by_time_and_to_either_end(pulsar: PulsarNode, where: dict[str, Any], acknowledged: int) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")

    client.send("seek", pb.CommandSeek(consumer_id=1, request_id=5, **where))
    await client.receive("close_consumer")
    await client.receive("success")
    await client.subscribe("t")
    found = await client.ask("get_last_message_id", pb.CommandGetLastMessageId(consumer_id=1))

    assert found.consumer_mark_delete_position.entry_id == acknowledged


async def test_seek_needs_a_position(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")

    nowhere = await client.ask("seek", pb.CommandSeek(consumer_id=1))
    nobody = await client.ask("seek", pb.CommandSeek(consumer_id=2))

    assert (nowhere.error, nobody.error) == (pb.NotAllowedError, pb.ConsumerNotFound)


async def test_the_last_message_id_is_returned(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.subscribe("t")

    def ask() -> pb.CommandGetLastMessageId:
        return pb.CommandGetLastMessageId(consumer_id=1)

    empty = await client.ask("get_last_message_id", ask())
    await filled(pulsar)
    plain = await client.ask("get_last_message_id", ask())
    await batched(pulsar)
    batch = await client.ask("get_last_message_id", ask())
    message_id = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=3)
    client.send("ack", ack(message_id, kind=pb.CommandAck.Cumulative, request_id=50))
    await client.receive("ack_response")
    done = await client.ask("get_last_message_id", ask())

    assert empty.last_message_id.entry_id == NOTHING
    assert (plain.last_message_id.entry_id, plain.last_message_id.batch_index) == (2, -1)
    assert (batch.last_message_id.entry_id, batch.last_message_id.batch_index) == (3, 9)
    assert batch.consumer_mark_delete_position.entry_id == NOTHING
    assert done.consumer_mark_delete_position.entry_id == done.last_message_id.entry_id


async def test_invalid_subscriptions_are_refused_with_pulsars_errors(pulsar: PulsarNode) -> None:
    first, second = await pulsar.client(), await pulsar.client()
    await first.subscribe("t")
    key_shared = pb.KeySharedMeta(key_shared_mode=pb.STICKY, hash_ranges=[pb.IntRange(start=0, end=9)])
    sticky = {"sub_type": pb.CommandSubscribe.Key_Shared, "key_shared_meta": key_shared}
    await first.subscribe("t", "sticky", consumer_id=2, **sticky)

    busy = await second.subscribe("t")
    overlap = await second.subscribe("t", "sticky", **sticky)
    no_ranges = await second.subscribe(
        "t", "k", sub_type=pb.CommandSubscribe.Key_Shared, key_shared_meta=pb.KeySharedMeta(key_shared_mode=pb.STICKY)
    )
    missing = await second.subscribe("none", force_topic_creation=False)
    again = await first.subscribe("t")

    assert [command.error for command in (busy, overlap, no_ranges)] == [
        pb.ConsumerBusy,
        pb.ConsumerAssignError,
        pb.ConsumerAssignError,
    ]
    assert missing.error == pb.TopicNotFound
    assert isinstance(again, pb.CommandSuccess)


async def test_failover_notifies_the_active_consumer(pulsar: PulsarNode) -> None:
    first, second = await pulsar.client(), await pulsar.client()
    failover = {"sub_type": pb.CommandSubscribe.Failover}

    await first.subscribe("t", consumer_name="a", **failover)
    first.flow(10)
    active = await first.receive("active_consumer_change")
    await second.subscribe("t", consumer_name="b", **failover)
    second.flow(10)
    standby = await second.receive("active_consumer_change")
    first.send("close_consumer", pb.CommandCloseConsumer(consumer_id=1, request_id=5))
    promoted = await second.receive("active_consumer_change")

    assert (active.is_active, standby.is_active, promoted.is_active) == (True, False, True)


async def test_a_reader_starts_at_the_entry_it_names(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    start = pb.MessageIdData(ledger_id=ledger(pulsar), entry_id=1, batch_index=0)

    await client.subscribe("t", "reader-1", durable=False, start_message_id=start)
    client.flow(10)
    payloads = [(await client.receive_message())[2] for _ in range(2)]

    assert payloads == [b"m1", b"m2"]


@pytest.mark.parametrize(("seconds", "count"), [(3600, 2), (10, 0)])
async def test_a_reader_goes_back_in_time(pulsar: PulsarNode, seconds: int, count: int) -> None:
    client = await pulsar.client()
    await client.produce("t")
    now_ms = pulsar.streams.clock.now_ms()
    for number, age_s in enumerate((7200, 1800, 60)):
        client.send_message(b"m%d" % number, number, publish_time=now_ms - age_s * 1000)
        await client.receive("send_receipt")

    await client.subscribe("t", "reader", durable=False, start_message_rollback_duration_sec=seconds)
    found = await client.ask("get_last_message_id", pb.CommandGetLastMessageId(consumer_id=1))

    assert 2 - (found.consumer_mark_delete_position.entry_id if count else 2) == count


async def test_consumer_stats_are_returned(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t", consumer_name="c", sub_type=pb.CommandSubscribe.Shared)
    client.flow(2)
    for _ in range(2):
        await client.receive_message()
    await client.subscribe("t", "reader", consumer_id=2, durable=False)

    durable = await client.ask("consumer_stats", pb.CommandConsumerStats(consumer_id=1))
    reader = await client.ask("consumer_stats", pb.CommandConsumerStats(consumer_id=2))
    nobody = await client.ask("consumer_stats", pb.CommandConsumerStats(consumer_id=3))

    assert (durable.consumer_name, durable.type, durable.available_permits, durable.unacked_messages) == (
        "c",
        "Shared",
        0,
        2,
    )
    assert (durable.msg_backlog, reader.msg_backlog) == (3, 3)
    assert nobody.error_code == pb.ConsumerNotFound


async def test_unsubscribe_deletes_the_subscription(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")
    client.flow(1)
    message_id = (await client.receive_message())[0].message_id
    client.send("ack", ack(message_id))

    gone = await client.ask("unsubscribe", pb.CommandUnsubscribe(consumer_id=1))
    late = await client.ask("unsubscribe", pb.CommandUnsubscribe(consumer_id=1))
    await client.subscribe("t")
    client.flow(1)

    assert isinstance(gone, pb.CommandSuccess)
    assert late.error == pb.ConsumerNotFound
    assert (await client.receive_message())[2] == b"m0"


async def test_entries_of_a_lost_connection_are_delivered_to_the_others(pulsar: PulsarNode) -> None:
    first, second = await filled(pulsar), await pulsar.client()
    shared = {"sub_type": pb.CommandSubscribe.Shared}
    await first.subscribe("t", **shared)
    first.flow(10)
    for _ in range(3):
        await first.receive_message()
    await second.subscribe("t", **shared)
    second.flow(10)

    first.writer.transport.abort()
    got = [await second.receive_message() for _ in range(3)]

    assert sorted(payload for _, _, payload in got) == [b"m0", b"m1", b"m2"]
    assert {body.redelivery_count for body, _, _ in got} == {1}


async def test_messages_carry_their_consumers_epoch(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t", consumer_epoch=0)
    client.flow(100)
    before = [(await client.receive_message())[0] for _ in range(3)]

    request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=1)
    client.send("redeliver_unacknowledged_messages", request)
    after = [(await client.receive_message())[0] for _ in range(3)]

    assert [command.consumer_epoch for command in before] == [0, 0, 0]
    assert [command.consumer_epoch for command in after] == [1, 1, 1]


async def test_a_consumer_that_is_closed_while_it_is_attached_leaves_no_state(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    subscribe = pb.CommandSubscribe(topic="t", subscription="s", consumer_id=1, request_id=1)
    client.send("subscribe", subscribe)
    client.send("close_consumer", pb.CommandCloseConsumer(consumer_id=1, request_id=2))
    closed = await client.receive("success")
    other = await pulsar.client()

    assert closed.request_id in (1, 2)
    async with asyncio.timeout(WAIT_S):
        while isinstance(await other.subscribe("t"), pb.CommandError):
            pass


async def test_a_drain_sends_consumers_to_the_other_server(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2, settings=PulsarSettings(drain_move_ms=60_000))
    client = await filled(cluster[0])
    await client.subscribe("t")
    await client.subscribe("t", "reader", consumer_id=2, durable=False)
    client.flow(1)
    message_id = (await client.receive_message())[0].message_id
    client.send("ack", ack(message_id))

    await cluster[0].member.drain()
    drain = asyncio.create_task(cluster[0].server.drain(60_000))
    closed = [await client.receive() for _ in range(3)]
    there = await cluster[1].client()
    attached = await there.subscribe("t")
    there.flow(1)
    _, _, payload = await there.receive_message()
    client.writer.close()
    await drain

    assert {command.assigned_broker_service_url for command in closed} == {cluster[1].url}
    assert isinstance(attached, pb.CommandSuccess)
    assert payload == b"m1"


async def test_a_subscription_is_dispatched_by_one_server(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    first, second = await cluster[0].client(), await cluster[1].client()
    shared = {"sub_type": pb.CommandSubscribe.Shared}
    await first.subscribe("t", **shared)

    elsewhere = await second.subscribe("t", **shared)
    reader = await second.subscribe("t", "reader", consumer_id=2, durable=False)

    assert elsewhere.error == pb.ServiceNotReady
    assert isinstance(reader, pb.CommandSuccess)


async def test_consumers_of_a_deleted_topic_are_closed(pulsar: PulsarNode) -> None:
    client = await filled(pulsar)
    await client.subscribe("t")
    client.flow(10)
    for _ in range(3):
        await client.receive_message()

    await pulsar.streams.catalog.delete((await pulsar.streams.catalog.resolve("t")).stream)

    assert (await client.receive("close_consumer")).consumer_id == 1
    await until(lambda: not any(connection.consumers for connection in pulsar.server.connections))
