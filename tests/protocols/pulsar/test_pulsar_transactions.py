"""What Pulsar clients see of Kafka's transactions: neither open nor aborted ones, in deliveries, positions, counts and look-ups.

Pulsar's own transactions are refused (decision 190).
"""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from bearlake.clock import ManualClock
from bearlake.protocols.pulsar import message_ids
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from fixtures.deployment import NOW_MS, Deployment, append, batch_of
from fixtures.history import PlanningWorker
from fixtures.pulsar_http import ask
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.transactional import TransactionalWriter

T = "/admin/v2/persistent/public/default/t"
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


async def plain(node: PulsarNode, *values: bytes) -> None:
    """Append a batch without a transaction."""
    await append(node.streams, await node.streams.catalog.find("t"), batch_of(*values))


async def last_entry(client: PulsarClient) -> int:
    answer = await client.ask("get_last_message_id", pb.CommandGetLastMessageId(consumer_id=1))
    return int(answer.last_message_id.entry_id)


async def received(client: PulsarClient, count: int, consumer_id: int = 1) -> list[int]:
    """The entries of the next messages."""
    client.flow(100, consumer_id)
    return [(await client.receive_message())[0].message_id.entry_id for _ in range(count)]


async def stats(session: aiohttp.ClientSession, node: PulsarNode) -> dict[str, int]:
    """The backlog of each subscription."""
    _, found = await ask(session, node, "GET", f"{T}/stats")
    return {name: subscription["msgBacklog"] for name, subscription in found["subscriptions"].items()}


async def test_only_committed_messages_are_delivered(pulsar: PulsarNode):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    await plain(pulsar, b"0")
    await writer.aborted(b"1", b"2")
    await writer.send(b"4")
    await plain(pulsar, b"5")
    client = await pulsar.client()
    await client.subscribe("t")
    before = await received(client, 1)
    await writer.end()

    assert before == [0]
    assert await received(client, 2) == [4, 5]


@pytest.mark.parametrize("is_durable", [True, False])
async def test_the_latest_position_is_before_what_open_transactions_have_written(pulsar: PulsarNode, is_durable: bool):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    await plain(pulsar, b"0")
    await writer.send(b"1")
    client = await pulsar.client()
    await client.subscribe("t", durable=is_durable, initial_position=pb.CommandSubscribe.Latest)
    await writer.end()

    assert await received(client, 1) == [1]


async def test_a_seek_to_the_latest_message_keeps_what_open_transactions_have_written(pulsar: PulsarNode):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    await plain(pulsar, b"0")
    await writer.send(b"1")
    client = await pulsar.client()
    await client.subscribe("t")
    latest = pb.MessageIdData(ledger_id=(1 << 63) - 1, entry_id=(1 << 63) - 1)
    client.send("seek", pb.CommandSeek(consumer_id=1, request_id=9, message_id=latest))
    assert [(await client.receive_frame())[0] for _ in range(2)] == ["close_consumer", "success"]
    await client.subscribe("t")
    await writer.end()

    assert await received(client, 1) == [1]


@pytest.mark.parametrize("place", ["id", "time"])
async def test_a_seek_into_an_aborted_transaction_continues_behind_it(pulsar: PulsarNode, place: str):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    await plain(pulsar, b"0")
    await writer.send(b"1", b"2", b"3", timestamp_ms=NOW_MS + 50)
    await writer.end(is_commit=False)
    await plain(pulsar, b"5")
    client = await pulsar.client()
    await client.subscribe("t")
    ledger = (await pulsar.streams.catalog.find("t")).stream.number
    target = (
        {"message_id": pb.MessageIdData(ledger_id=ledger, entry_id=2)}
        if place == "id"
        else {"message_publish_time": NOW_MS + 50}
    )
    client.send("seek", pb.CommandSeek(consumer_id=1, request_id=9, **target))
    assert [(await client.receive_frame())[0] for _ in range(2)] == ["close_consumer", "success"]
    await client.subscribe("t")

    assert await received(client, 1) == [5]


async def test_the_last_message_is_one_that_is_delivered(pulsar: PulsarNode):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    client = await pulsar.client()
    await client.subscribe("t", durable=False)
    found = [await last_entry(client)]
    await writer.aborted(b"0")
    found.append(await last_entry(client))
    await plain(pulsar, b"2")
    found.append(await last_entry(client))
    for _ in range(150):  # more batches than one step of the search covers
        await writer.send(b"x")
    found.append(await last_entry(client))
    await writer.end(is_commit=False)
    found.append(await last_entry(client))
    await writer.send(b"154")
    await writer.end()
    found.append(await last_entry(client))

    nothing = message_ids.NONE
    assert found == [nothing, nothing, 2, 2, 2, 154]


async def test_the_backlog_ends_at_the_last_stable_offset(pulsar: PulsarNode, session: aiohttp.ClientSession):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    client = await pulsar.client()
    await client.subscribe("t", "read")
    await client.subscribe("t", "unread", 2)
    await plain(pulsar, b"0", b"1")
    await writer.aborted(b"2")
    await writer.send(b"4")
    await plain(pulsar, b"5")
    (entry,) = await received(client, 1)
    ledger = (await pulsar.streams.catalog.find("t")).stream.number
    ids = [pb.MessageIdData(ledger_id=ledger, entry_id=entry)]
    await client.ask(
        "ack", pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids, request_id=1)
    )

    async def backlogs() -> dict[str, int]:
        return await stats(session, pulsar)

    assert await backlogs() == {"read": 0, "unread": 4}
    await writer.end()
    assert await received(client, 2) == [4, 5]
    assert (await backlogs())["unread"] == 7


async def test_messages_of_open_transactions_are_neither_skipped_nor_expired(
    pulsar: PulsarNode, session: aiohttp.ClientSession
):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    client = await pulsar.client()
    for number, name in enumerate(("skipped", "expired", "cleared"), 1):
        await client.subscribe("t", name, number)
    await plain(pulsar, b"0")
    await writer.send(b"1")
    await plain(pulsar, b"2")
    for path in ("skipped/skip/3", "expired/expireMessages/1", "cleared/skip_all"):
        status, _ = await ask(session, pulsar, "POST", f"{T}/subscription/{path}")
        assert status == 204
    await client.receive("close_consumer")  # of the cleared subscription, which was moved
    await client.subscribe("t", "cleared", 3)
    await writer.end()

    for number in (1, 2, 3):
        assert await received(client, 2, number) == [1, 2]


async def test_a_peek_counts_only_what_is_delivered(pulsar: PulsarNode, session: aiohttp.ClientSession):
    await pulsar.create("t")
    writer = await TransactionalWriter.of(pulsar.streams, "t")
    await (await pulsar.client()).subscribe("t")
    await writer.aborted(b"aborted")
    await plain(pulsar, b"first")
    await writer.send(b"second")
    await writer.end()
    found = []
    for position in (1, 2, 3):
        async with session.get(f"{pulsar.http_url}{T}/subscription/s/position/{position}") as response:
            found.append((response.status, response.headers.get("X-Pulsar-Message-ID", "").partition(":")[2]))
    ledger = (await pulsar.streams.catalog.find("t")).stream.number
    status, _ = await ask(session, pulsar, "GET", f"{T}/ledger/{ledger}/entry/0")

    assert found == [(200, "2"), (200, "3"), (404, "")]
    assert status == 404


async def test_a_reader_ends_behind_aborted_batches_before_and_after_compaction(pulsar_cluster: Make, tmp_path: Path):
    cluster = await pulsar_cluster(1, folder=tmp_path)
    node = cluster[0]
    await node.create("t")
    writer = await TransactionalWriter.of(node.streams, "t")
    await plain(node, b"0")
    for number in range(3):
        await writer.aborted(*[b"x"] * 40)
        await writer.send(b"kept-%d" % number)
        await writer.end()
    for _ in range(30):
        await writer.send(b"x")
    await writer.end(is_commit=False)
    before = await asyncio.to_thread(read_to_end, node.url)
    compactor = PlanningWorker(Deployment(cluster.metadata, cluster.store, ManualClock(NOW_MS)))
    await compactor.compact(await node.streams.catalog.find("t"))
    await compactor.sweep()
    cold = await cluster.add()
    after = await asyncio.to_thread(read_to_end, cold.url)

    assert before[0] == [b"0", b"kept-0", b"kept-1", b"kept-2"]
    assert after == before


def read_to_end(url: str) -> tuple[list[bytes], list[str]]:
    """Read as programs do: while there is a message, read it. Returns the values, and their ids."""
    library = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    client = library.Client(url, operation_timeout_seconds=20)
    try:
        reader = client.create_reader("t", library.MessageId.earliest)
        values, ids = [], []
        while reader.has_message_available():
            message = reader.read_next(10_000)
            values.append(message.data())
            ids.append(str(message.message_id()))
        return values, ids
    finally:
        client.close()


async def test_a_search_for_the_coordinators_of_transactions_is_refused(
    pulsar: PulsarNode, session: aiohttp.ClientSession
):
    name = "pulsar/system/transaction_coordinator_assign"
    asked = pb.CommandPartitionedTopicMetadata(topic=f"persistent://{name}")
    answer = await (await pulsar.client()).ask("partitioned_metadata", asked)
    status, said = await ask(session, pulsar, "GET", f"/admin/v2/persistent/{name}/partitions")

    assert (answer.error, answer.message) == (pb.NotAllowedError, "transactions are not supported")
    assert status >= 400
    assert said["reason"] == "transactions are not supported"


async def test_the_search_waits_for_the_server_to_see_the_last_message(pulsar_cluster: Make):
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t")
    await cluster[1].streams.catalog.find("t")
    client = await cluster[1].client()
    await client.subscribe("t", durable=False)
    await plain(cluster[0], b"0")

    assert await last_entry(client) == 0
