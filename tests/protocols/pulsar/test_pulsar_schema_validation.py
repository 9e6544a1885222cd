"""Validation by schemas for Pulsar's producers: SEND_ERROR for a bad message, in the order of the SENDs."""

import random
from typing import Any

from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from fixtures.avro_cases import number, record, text
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.registered import SilentRegistry, register
from fixtures.waiting import until

ORDER = record("string", "long")


def order(schema_id: int, note: str = "x") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text(note) + number(7)


async def end(node: PulsarNode) -> int:
    view = await node.streams.catalog.find("orders")
    return (await node.streams.bounds(view.partitions()))[view.partition(0)].end


async def answers(client: PulsarClient, count: int) -> list[tuple[str, int, Any]]:
    """The names, sequence ids and bodies of the next answers."""
    found = []
    for _ in range(count):
        name, body, _ = await client.receive_frame()
        found.append((name, body.sequence_id, body))
    return found


async def test_a_bad_message_gets_an_error_and_the_others_their_receipts_in_order(pulsar: PulsarNode) -> None:
    await pulsar.create("orders", schema_validation="value")
    schema_id = await register(pulsar.streams.metadata, ORDER)
    client = await pulsar.client()
    await client.produce("orders")

    values = [order(schema_id), b"none", order(schema_id), order(schema_id)[:-1], order(99), order(schema_id)]
    for sequence_id, value in enumerate(values):
        client.send_message(value, sequence_id)
    found = await answers(client, len(values))

    good, bad = "send_receipt", "send_error"
    assert [name for name, _, _ in found] == [good, bad, good, bad, bad, good]
    assert [sequence_id for _, sequence_id, _ in found] == list(range(6))
    assert found[1][2].error == pb.NotAllowedError
    assert "expected a schema id" in found[1][2].message
    assert "TRUNCATED at f1" in found[3][2].message
    assert [body.message_id.entry_id for name, _, body in found if name == good] == [0, 1, 2]
    assert await end(pulsar) == 3


async def test_a_refused_message_is_no_gap_in_the_sequence_of_its_producer(pulsar: PulsarNode) -> None:
    await pulsar.create("orders", schema_validation="value")
    schema_id = await register(pulsar.streams.metadata, ORDER)
    client = await pulsar.client()
    await client.produce("orders", producer_name="p", user_provided_producer_name=True)

    for sequence_id, value in enumerate([order(schema_id), b"none", order(schema_id), order(schema_id)]):
        client.send_message(value, sequence_id, producer_name="p")
    client.send_message(order(schema_id), 3, producer_name="p")  # again: stored once
    found = await answers(client, 5)

    assert [name for name, _, _ in found] == ["send_receipt", "send_error", *["send_receipt"] * 3]
    assert await end(pulsar) == 3


async def test_messages_in_chunks_are_refused(pulsar: PulsarNode) -> None:
    await pulsar.create("orders", schema_validation="id")
    client = await pulsar.client()
    await client.produce("orders")

    fields = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 10}
    client.send_message(b"chunk", 0, send={"is_chunk": True}, chunk_id=0, **fields)
    refused = await client.receive("send_error")

    assert refused.error == pb.NotAllowedError
    assert "in chunks" in refused.message


async def test_a_producer_is_closed_while_the_registry_is_away_and_sends_again(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(1)
    node = cluster[0]
    await node.create("orders", schema_validation="value")
    schema_id = await register(node.streams.metadata, ORDER)
    known = (await node.streams.checks.validating()).known
    faulty = FaultyMetadata(node.streams.metadata, MetadataFaults(error_rate=1.0), random.Random(1))
    known._store = faulty.schemas  # noqa: SLF001
    client = await node.client()
    await client.produce("orders")

    client.send_message(order(schema_id), 0)
    await client.receive("close_producer")
    faulty.misbehave(MetadataFaults())
    await client.produce("orders", producer_id=2)
    client.send_message(order(schema_id), 0, producer_id=2)
    await client.receive("send_receipt")

    assert await end(node) == 1


async def test_a_message_is_checked_again_by_rules_that_changed_while_it_waited(pulsar: PulsarNode) -> None:
    await pulsar.create("orders", schema_validation="id")
    schema_id = await register(pulsar.streams.metadata, ORDER)
    known = (await pulsar.streams.checks.validating()).known
    known._store = silent = SilentRegistry(known._store)  # type: ignore[assignment]  # noqa: SLF001
    client = await pulsar.client()
    await client.produce("orders")

    client.send_message(order(schema_id)[:-1], 0)
    client.send_message(order(schema_id), 1)
    await silent.asked.wait()
    view = await pulsar.streams.catalog.find("orders")
    streams, given = pulsar.streams.metadata.streams, {"schema.validation": "value"}
    await streams.alter(view.stream.number, set_configs=given, unset_configs=(), version=view.stream.version)
    await until(lambda: (now := pulsar.streams.catalog.peek("orders")) is not None and now.rules != view.rules)
    silent.speak()
    found = await answers(client, 2)

    assert [name for name, _, _ in found] == ["send_error", "send_receipt"]
    assert await end(pulsar) == 1
