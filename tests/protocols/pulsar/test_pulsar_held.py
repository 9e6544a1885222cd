"""No hostile command holds the event loop: each takes less than a bound of processor time per turn (twice the watchdog's)."""

import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import ZSTD
from bearlake.records import blocks
from bearlake.records.blocks import BlockCodec
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.pulsar_server import PulsarClient, PulsarNode

MIB = 1024 * 1024
BOUND_S = 2 * LIMIT_S


def packed(size: int) -> bytes:
    return bytes(blocks.compress(BlockCodec.ZSTD, bytes(size)))


async def test_a_small_message_that_decompresses_to_a_large_one_does_not_hold_the_loop(pulsar: PulsarNode) -> None:
    """3 KB of zstd are 40 MiB, which are decompressed and compressed again."""
    client = await pulsar.client()
    await client.produce("t")
    sizes = [10, 40 * MIB, 20]
    client.send_message(packed(10), 0, compression=ZSTD, uncompressed_size=10)
    await client.receive("send_receipt")
    messages = [packed(size) for size in sizes]

    async with held_at_most(BOUND_S):
        for at, (message, size) in enumerate(zip(messages, sizes, strict=True), 1):
            client.send_message(message, at, compression=ZSTD, uncompressed_size=size)
        receipts = [await client.receive("send_receipt") for _ in sizes]

    assert [receipt.sequence_id for receipt in receipts] == [1, 2, 3]
    assert [receipt.message_id.entry_id for receipt in receipts] == [1, 2, 3]


async def test_a_large_message_that_is_damaged_is_refused_in_its_turn(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")

    client.send_message(b"damaged", 0, compression=ZSTD, uncompressed_size=10 * MIB)
    client.send_message(packed(10), 1, compression=ZSTD, uncompressed_size=10)

    assert (await client.receive("send_error")).sequence_id == 0
    assert (await client.receive("send_receipt")).sequence_id == 1


async def test_a_batch_of_more_messages_than_any_batch_may_have_is_refused(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")

    client.send_message(b"x", 0, num_messages_in_batch=2**31 - 1)

    assert (await client.receive("send_error")).sequence_id == 0


async def acknowledge(client: PulsarClient, ids: list[pb.MessageIdData], kind: int) -> None:
    client.send("ack", pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids, request_id=9))  # type: ignore[arg-type]
    await client.writer.drain()


async def consumer(pulsar: PulsarNode) -> tuple[PulsarClient, int]:
    """A client with a shared consumer, and the ledger of its topic."""
    client = await pulsar.client()
    await client.produce("t")
    client.send_message(b"x", 0)
    ledger = (await client.receive("send_receipt")).message_id.ledger_id
    await client.subscribe("t", sub_type=pb.CommandSubscribe.Shared)
    return client, ledger


@pytest.mark.parametrize("kind", [pb.CommandAck.Individual, pb.CommandAck.Cumulative])
async def test_a_huge_list_of_acknowledgements_closes_its_connection(pulsar: PulsarNode, kind: int) -> None:
    """The largest frame has 500,000 message ids."""
    client, ledger = await consumer(pulsar)
    other = await pulsar.client()
    ids = [pb.MessageIdData(ledger_id=ledger, entry_id=at) for at in range(500_000)]

    async with held_at_most(10):
        await acknowledge(client, ids, kind)

        assert await client.is_closed()
    other.send("ping", pb.CommandPing())
    await other.receive("pong")


async def test_a_huge_set_of_acknowledged_messages_closes_its_connection(pulsar: PulsarNode) -> None:
    client, ledger = await consumer(pulsar)

    await acknowledge(client, [pb.MessageIdData(ledger_id=ledger, entry_id=0, ack_set=[0] * 500_000)], 0)

    assert await client.is_closed()


async def test_as_many_acknowledgements_as_allowed_do_not_hold_the_loop(pulsar: PulsarNode) -> None:
    client, ledger = await consumer(pulsar)
    ids = [pb.MessageIdData(ledger_id=ledger, entry_id=2 * at) for at in range(10_000)]
    await acknowledge(client, ids[:1], 0)
    await client.receive("ack_response")

    async with held_at_most(BOUND_S):
        await acknowledge(client, ids, 0)
        await client.receive("ack_response")
