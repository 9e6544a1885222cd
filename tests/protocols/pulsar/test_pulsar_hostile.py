"""Bytes that break the protocol close their connection, with everything that it held, and no other."""

import struct
from typing import Any

import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import ZSTD
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.records import blocks
from bearlake.telemetry import metrics
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode, message_bytes
from fixtures.waiting import until


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 2**32 - 1),
        struct.pack(">I", 0),
        struct.pack(">II", 8, 2**31) + b"\0" * 4,
        struct.pack(">II", 6, 2) + b"\xff\xff",
        struct.pack(">II", 6, 2) + b"\x08\x02",  # CONNECT without its content, the second one
        struct.pack(">II", 6, 2) + b"\x08\x17",  # LOOKUP without its content
    ],
)
async def test_a_broken_frame_closes_its_connection_only(pulsar: PulsarNode, data: bytes) -> None:
    broken, other = await pulsar.client(), await pulsar.client()

    broken.send_bytes(data)

    assert await broken.is_closed()
    other.send("ping", pb.CommandPing())
    await other.receive("pong")


@pytest.mark.parametrize("name", ["ping", "lookup", "send"])
async def test_no_command_is_accepted_before_connect(pulsar: PulsarNode, name: str) -> None:
    client = await pulsar.silent_client()
    bodies = {"ping": pb.CommandPing(), "lookup": pb.CommandLookupTopic(topic="t"), "send": pb.CommandSend()}

    client.send(name, bodies[name])

    assert await client.is_closed()


async def test_a_frame_in_pieces_is_a_frame(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    for byte in bytes.fromhex("00000009000000050812920100"):  # PING
        client.send_bytes(bytes((byte,)))
        await client.writer.drain()

    await client.receive("pong")


async def test_a_message_above_the_limit_is_refused_and_one_below_is_not(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(message_bytes_max=1000)))[0]
    client = await node.client()
    await client.produce("t")

    client.send_message(b"x" * 1000, 0)
    client.send_message(b"x" * 1001, 1)
    await client.receive("send_receipt")
    refused = await client.receive("send_error")
    client.send_message(b"x" * 100_000, 2)

    assert refused.error == pb.NotAllowedError
    assert await client.is_closed()  # such a frame is not even read


async def test_a_chunk_that_is_taken_fits_into_a_frame_on_its_way_out(pulsar_cluster: Make) -> None:
    """A chunk must not be compressed, so a chunk with too much metadata is refused before it is stored."""
    node = (await pulsar_cluster(1, settings=PulsarSettings(message_bytes_max=1000)))[0]
    await node.create("t", max_message_bytes="20000")
    client = await node.client()
    await client.produce("t")
    chunk = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2000}

    for sequence_id, size in enumerate((9_000, 9_300)):
        properties = [{"key": "k", "value": "x" * size}]
        client.send_message(b"x" * 1000, sequence_id, send={"is_chunk": True}, properties=properties, **chunk)
    await client.receive("send_receipt")
    refused = await client.receive("send_error")
    await client.subscribe("t")
    client.flow(1)
    _, metadata, payload = await client.receive_message()

    assert (refused.sequence_id, refused.error) == (1, pb.NotAllowedError)
    assert (metadata.properties[0].value, payload) == ("x" * 9_000, b"x" * 1000)


async def test_a_message_that_unpacks_to_too_much_is_refused(pulsar_cluster: Make) -> None:
    settings = PulsarSettings(message_bytes_max=1000, uncompressed_bytes_max=2000)
    node = (await pulsar_cluster(1, settings=settings))[0]
    await node.create("t", max_message_bytes="20000")
    client = await node.client()
    await client.produce("t")

    for sequence_id, size in enumerate((1900, 2001)):
        packed = bytes(blocks.compress(blocks.BlockCodec.ZSTD, bytes(size)))
        client.send_message(packed, sequence_id, compression=ZSTD, uncompressed_size=size)
    await client.receive("send_receipt")
    refused = await client.receive("send_error")

    assert (refused.sequence_id, refused.error) == (1, pb.NotAllowedError)


async def test_a_damaged_message_is_refused_in_its_turn(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")
    damaged = bytearray(message_bytes(b"value", 1))
    damaged[-1] ^= 1

    client.send_message(b"before", 0)
    client.send("send", pb.CommandSend(producer_id=1, sequence_id=1), bytes(damaged))
    client.send("send", pb.CommandSend(producer_id=1, sequence_id=2), b"\0\0\0\5")
    client.send_message(b"behind", 3)
    before, wrong, broken, behind = [await client.receive() for _ in range(4)]

    assert [answer.sequence_id for answer in (before, wrong, broken, behind)] == [0, 1, 2, 3]
    assert (wrong.error, broken.error) == (pb.ChecksumError, pb.NotAllowedError)
    assert isinstance(behind, pb.CommandSendReceipt)


@pytest.mark.parametrize("kind", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
async def test_numbers_beyond_all_bounds_do_no_harm(pulsar: PulsarNode, kind: int) -> None:
    client = await pulsar.client()
    await client.produce("t")
    client.send_message(b"value", 0)
    await client.receive("send_receipt")
    view = await pulsar.streams.catalog.find("t")

    for number, entry in enumerate((1, 10**6, 2**31, 2**53, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1)):
        await client.subscribe("t", consumer_id=number, sub_type=kind)
        client.flow(2**32 - 1, number)
        assert (await client.receive_message())[2] == b"value"
        ids = [
            pb.MessageIdData(ledger_id=view.stream.number, entry_id=entry, batch_index=2**31 - 1),
            pb.MessageIdData(ledger_id=view.stream.number, entry_id=entry, ack_set=[-1] * 1000),
            pb.MessageIdData(ledger_id=2**64 - 1, entry_id=entry),
        ]
        redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=number, message_ids=ids)
        client.send("redeliver_unacknowledged_messages", redeliver)
        client.send("ping", pb.CommandPing())
        while (await client.receive_frame())[0] != "pong":
            pass
        client.send("ack", pb.CommandAck(consumer_id=number, message_id=ids, request_id=9))
        assert await answer_to(client, "ack_response")
        client.send("seek", pb.CommandSeek(consumer_id=number, request_id=5, message_id=ids[1]))
        assert await answer_to(client, "success")
        await client.subscribe("t", consumer_id=number, sub_type=kind)
        client.send("seek", pb.CommandSeek(consumer_id=number, request_id=5, message_publish_time=2**64 - 1 - number))
        assert await answer_to(client, "success")
        await client.subscribe("t", consumer_id=number, sub_type=kind)
        client.send("seek", pb.CommandSeek(consumer_id=number, request_id=5, message_publish_time=0))
        assert await answer_to(client, "success")

    opened = await client.subscribe("t", "late", start_message_rollback_duration_sec=2**64 - 1, consumer_id=99)
    assert isinstance(opened, pb.CommandSuccess)


async def answer_to(client: PulsarClient, name: str) -> Any:
    """The next command of that name; messages and notices before it are dropped."""
    while (found := await client.receive_frame())[0] != name:
        assert found[0] in ("message", "close_consumer"), found
    return found


@pytest.mark.parametrize("sequence_id", [2**63 - 1, 2**63, 2**64 - 1])
async def test_sequence_ids_that_no_store_can_hold_are_refused(pulsar: PulsarNode, sequence_id: int) -> None:
    client = await pulsar.client()
    await client.produce("t")

    client.send_message(b"value", sequence_id)
    answer = await client.receive()

    is_storable = sequence_id < 2**63
    assert isinstance(answer, pb.CommandSendReceipt if is_storable else pb.CommandSendError)


async def test_connections_are_bounded(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(connections_max=1)))[0]
    first = await node.client()

    second = await node.silent_client()

    assert await second.is_closed()
    first.send("ping", pb.CommandPing())
    await first.receive("pong")


async def test_producers_consumers_and_watchers_of_a_connection_are_bounded(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(attachments_max=1, watchers_max=0)))[0]
    client = await node.client()
    await client.produce("t")

    producer = await client.produce("t", producer_id=2)
    consumer = await client.subscribe("t")
    watcher = await client.ask("watch_topic_list", pb.CommandWatchTopicList(namespace="public/default"))

    assert [answer.error for answer in (producer, consumer, watcher)] == [pb.TooManyRequests] * 3


async def test_a_client_that_sends_without_end_is_not_read_without_end(pulsar_cluster: Make) -> None:
    node = (await pulsar_cluster(1, settings=PulsarSettings(sends_in_flight_max=3)))[0]
    client = await node.client()
    await client.produce("t")

    for sequence_id in range(100):
        client.send_message(b"x" * 1000, sequence_id)
    answers = [await client.receive("send_receipt") for _ in range(100)]

    assert [answer.sequence_id for answer in answers] == list(range(100))
    assert [answer.message_id.entry_id for answer in answers] == list(range(100))


async def test_many_clients_that_read_nothing_cannot_hold_more_than_the_limit(pulsar_cluster: Make) -> None:
    settings = PulsarSettings(unsent_bytes_max=256 * 1024, unread_bytes_max=4 * 1024 * 1024, stall_ms=600_000)
    node = (await pulsar_cluster(1, settings=settings))[0]
    producer = await node.client()
    await producer.produce("t")
    for at in range(30):
        consumer = await node.client()
        await consumer.subscribe("t", subscription=f"s-{at}")
        consumer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        consumer.flow(10_000)
    refused = metrics.PULSAR_CONNECTIONS_REFUSED.labels("slow_reader")
    refused_before = refused.value

    for sequence_id in range(80):
        producer.send_message(b"x" * 200_000, sequence_id)
        await producer.receive("send_receipt")
        assert node.server.connections.slow_readers.unread_bytes <= settings.unread_bytes_max

    assert refused.value > refused_before
    assert len(node.server.connections) < 31


async def test_a_client_that_does_not_read_gets_no_more_and_is_disconnected(pulsar_cluster: Make) -> None:
    settings = PulsarSettings(unsent_bytes_max=64 * 1024, stall_ms=1)
    node = (await pulsar_cluster(1, settings=settings))[0]
    producer, consumer = await node.client(), await node.client()
    await producer.produce("t")
    await consumer.subscribe("t")
    consumer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    refused = metrics.PULSAR_CONNECTIONS_REFUSED.labels("slow_reader")
    refused_before, sent_before = refused.value, metrics.PULSAR_SENT_BYTES.value
    consumer.flow(10_000)

    for sequence_id in range(300):
        producer.send_message(b"x" * 100_000, sequence_id)
        await producer.receive("send_receipt")
    await until(lambda: node.server.connections.check() or refused.value > refused_before)  # type: ignore[func-returns-value]

    assert metrics.PULSAR_SENT_BYTES.value - sent_before < 15_000_000  # of 30 MB: what sockets hold, and a little more
    consumer.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert await consumer.is_closed()
