"""No read of a Pulsar client holds the event loop or fills the server's memory, however large its entries are uncompressed.

Clients get the same messages in the same order, for the same permits, whether a thread decompresses them or not.
"""

import aiohttp
import pytest

from bearlake import kernel
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto.metadata_pb2 import ZSTD
from bearlake.records import blocks
from bearlake.records.batch import Compression
from bearlake.records.blocks import BlockCodec
from bearlake.records.codec import Record, encode
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.deployment import append_of
from fixtures.held import held_at_most
from fixtures.pulsar_server import PulsarClient, PulsarNode
from fixtures.waiting import until

MIB = 1024 * 1024
BOUND_S = 2 * LIMIT_S
BOMB = 40 * MIB
TYPES = pb.CommandSubscribe


def packed(size: int) -> bytes:
    return bytes(blocks.compress(BlockCodec.ZSTD, bytes(size)))


async def store(node: PulsarNode, sizes: list[int], topic: str = "t") -> PulsarClient:
    """Store messages of so many zeros, compressed; return their producer's client."""
    client = await node.client()
    await client.produce(topic)
    for at, size in enumerate(sizes):
        client.send_message(packed(size), at, compression=ZSTD, uncompressed_size=size)
    for _ in sizes:
        await client.receive("send_receipt")
    return client


async def sizes_received(client: PulsarClient, count: int) -> list[int]:
    """The uncompressed sizes of the next messages."""
    found = []
    for _ in range(count):
        _, metadata, payload = await client.receive_message()
        found.append(metadata.uncompressed_size if metadata.compression == ZSTD else len(payload))
    return found


async def gets_nothing_more(client: PulsarClient) -> bool:
    """Whether the server answers a PING without sending a message before."""
    client.send("ping", pb.CommandPing())
    return (await client.receive_frame())[0] == "pong"


@pytest.mark.parametrize("type_", [TYPES.Exclusive, TYPES.Shared, TYPES.Key_Shared])
async def test_messages_that_are_large_uncompressed_do_not_hold_the_loop(
    pulsar: PulsarNode, type_: pb.CommandSubscribe.SubType
) -> None:
    """One read of the log returns 12 KB, which are 240 MiB."""
    sizes = [BOMB, 10, BOMB, BOMB, 20, BOMB, BOMB, BOMB]
    await store(pulsar, [10, MIB], "warm")
    await store(pulsar, sizes)
    client = await pulsar.client()
    await client.subscribe("warm", sub_type=type_)
    client.flow(2)
    assert await sizes_received(client, 2) == [10, MIB]
    await client.subscribe("t", consumer_id=2, sub_type=type_)

    async with held_at_most(BOUND_S):
        client.flow(100, consumer_id=2)
        received = await sizes_received(client, len(sizes))

    assert received == sizes


async def test_the_last_message_id_is_found_without_holding_the_loop(pulsar: PulsarNode) -> None:
    await store(pulsar, [60 * MIB])
    client = await pulsar.client()
    await client.subscribe("t")

    async with held_at_most(LIMIT_S * 0.8):
        found = await client.ask("get_last_message_id", pb.CommandGetLastMessageId(consumer_id=1))

    assert (found.last_message_id.entry_id, found.last_message_id.batch_index) == (0, -1)


async def test_a_large_message_is_peeked_without_holding_the_loop(pulsar: PulsarNode) -> None:
    await store(pulsar, [10, 60 * MIB])
    client = await pulsar.client()
    await client.subscribe("t")
    url = f"{pulsar.http_url}/admin/v2/persistent/public/default/t/subscription/s/position"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/1") as response:
            assert len(await response.read()) == 10

        async with held_at_most(LIMIT_S), session.get(f"{url}/2") as response:
            assert response.status == 200
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)

    assert size == 60 * MIB


@pytest.mark.parametrize("type_", [TYPES.Exclusive, TYPES.Shared, TYPES.Key_Shared])
async def test_permits_are_counted_alike_for_large_messages(
    pulsar: PulsarNode, type_: pb.CommandSubscribe.SubType
) -> None:
    await store(pulsar, [MIB, 10, 2 * MIB, 20, 3 * MIB])
    client = await pulsar.client()
    await client.subscribe("t", sub_type=type_)

    received = []
    for permits in (2, 1, 2):
        client.flow(permits)
        received.append(await sizes_received(client, permits))
        assert await gets_nothing_more(client)

    assert received == [[MIB, 10], [2 * MIB], [20, 3 * MIB]]


async def test_an_entry_that_a_thread_finds_damaged_uses_no_permit(pulsar: PulsarNode) -> None:
    view = await pulsar.streams.catalog.create("t", 1, {"record.validation": "header"})
    batch = bytearray(encode([Record(value=bytes(MIB), timestamp=1)], codec=Compression.ZSTD))
    batch = batch[:-4]  # the end of the compressed records is missing
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = kernel.crc32c(batch, 21).to_bytes(4, "big")
    append = append_of(view, bytes(batch))
    await pulsar.streams.append([append], pulsar.streams.seen.position)
    await store(pulsar, [10, 20])
    client = await pulsar.client()
    await client.subscribe("t")

    client.flow(2)

    assert await sizes_received(client, 2) == [10, 20]
    assert await gets_nothing_more(client)


async def test_a_consumer_that_closes_gets_none_of_the_messages_that_a_thread_still_decompresses(
    pulsar: PulsarNode,
) -> None:
    sizes = [10, *[BOMB] * 6, 20]
    await store(pulsar, sizes)
    client = await pulsar.client()
    await client.subscribe("t")
    client.flow(100)
    assert await sizes_received(client, 1) == [10]
    client.send("close_consumer", pb.CommandCloseConsumer(consumer_id=1, request_id=7))

    names = []
    while "success" not in names:
        names.append((await client.receive_frame())[0])
    assert len(names) < len(sizes), "some messages were still to be decompressed"
    assert await gets_nothing_more(client)
    await client.subscribe("t")
    client.flow(100)

    assert await sizes_received(client, len(sizes)) == sizes


async def test_a_client_that_reads_nothing_does_not_fill_the_servers_memory(pulsar: PulsarNode) -> None:
    """10 KB of messages are 160 MiB, and each is sent uncompressed."""
    sizes = [4 * MIB] * 40
    await store(pulsar, sizes)
    client = await pulsar.client()
    await client.subscribe("t")
    known = set(pulsar.server.connections)
    reader = await pulsar.client()
    await reader.subscribe("t", subscription="slow")
    (connection,) = set(pulsar.server.connections) - known

    reader.flow(100)
    await until(lambda: connection.is_write_paused)

    transport = connection._transport  # noqa: SLF001 - what the server holds for this client
    assert transport is not None
    assert transport.get_write_buffer_size() < 16 * MIB
    assert await sizes_received(reader, len(sizes)) == sizes
