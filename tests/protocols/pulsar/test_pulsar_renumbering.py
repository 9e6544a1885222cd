"""Clients that restart their numbering while older messages wait to be resent: every acknowledged message is stored."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.objects.memory import MemoryObjectStore
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.producers import Producer
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.records import codec
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import StreamsSettings
from bearlake.streams.subscriptions.reading import entries_of
from bearlake.streams.writer_settings import WriterSettings
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.waiting import until

CPP = "Pulsar-CPP-v3.7.2"
WAITING_COUNT_MAX = 1 << 32
"""Messages that a client may have numbered from 0 and sent without a receipt."""


class Puts(MemoryObjectStore):
    """An object store whose puts fail until the test stops it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_refused = True
        self.count = 0

    async def put(self, *arguments: Any, **options: Any) -> None:
        self.count += 1
        if self.is_refused:
            raise Unavailable("the store is down")
        await super().put(*arguments, **options)


async def cpp_client(node: PulsarNode) -> PulsarClient:
    client = await node.silent_client()
    await client.ask("connect", pb.CommandConnect(client_version=CPP, protocol_version=20))
    return client


async def sent(client: PulsarClient, value: bytes, sequence_id: int) -> None:
    client.send_message(value, sequence_id)
    await client.receive("send_receipt")


async def end_offset(node: PulsarNode) -> int:
    view = await node.streams.catalog.find("t")
    return (await node.streams.bounds([view.partition(0)]))[view.partition(0)].end


def reopening(opened: Any, *, is_named: bool, epoch: int) -> dict[str, Any]:
    """Options of PRODUCER as the C++ client sends them after it received `opened`."""
    options = {"producer_name": opened.producer_name, "user_provided_producer_name": is_named, "epoch": epoch}
    return options | ({"topic_epoch": opened.topic_epoch} if opened.HasField("topic_epoch") else {})


MODES = [pb.Shared, pb.Exclusive]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("stored_count", [0, 1, 3])
async def test_new_messages_of_a_reopened_producer_cannot_collide_with_waiting_ones(
    pulsar_cluster: Make, is_named: bool, stored_count: int, mode: int
) -> None:
    cluster = await pulsar_cluster(2)
    first = await cpp_client(cluster[0])
    own = {"producer_name": "p"} if is_named else {"user_provided_producer_name": False}
    opened = await first.produce("t", producer_access_mode=mode, **own)
    for number in range(stored_count):  # the client below acts as if it had lost the receipts
        await sent(first, b"m%d" % number, number)
    first.send("close_producer", pb.CommandCloseProducer(producer_id=1, request_id=77))
    await first.receive("success")
    first.writer.transport.abort()

    second = await cpp_client(cluster[0 if mode == pb.Exclusive else 1])
    again = await second.produce("t", producer_access_mode=mode, **reopening(opened, is_named=is_named, epoch=1))
    for number in range(5):
        await sent(second, b"m%d" % number, number)
    for number in range(5, 10):
        await sent(second, b"m%d" % number, again.last_sequence_id + 1 + number - 5)

    assert await end_offset(cluster[1]) == 10
    assert opened.last_sequence_id == -1
    assert again.last_sequence_id + 1 >= WAITING_COUNT_MAX


async def test_a_first_response_has_the_true_sequence_however_often_the_client_asked_before(pulsar: PulsarNode) -> None:
    client = await cpp_client(pulsar)

    fresh = await client.produce("t", producer_name="p", epoch=4)
    await sent(client, b"value", 6)
    client.send("close_producer", pb.CommandCloseProducer(producer_id=1, request_id=77))
    await client.receive("success")
    resumed = await client.produce("t", producer_name="p", epoch=2)

    assert (fresh.last_sequence_id, resumed.last_sequence_id) == (-1, 6)


async def test_other_clients_and_streams_without_deduplication_get_the_true_sequence(pulsar: PulsarNode) -> None:
    await pulsar.create("plain", pulsar_deduplication="false")
    java, cpp = await pulsar.client(), await cpp_client(pulsar)
    options = {"producer_name": "p", "user_provided_producer_name": False, "epoch": 1, "topic_epoch": 0}

    assert (await java.produce("t", **options)).last_sequence_id == -1
    assert (await cpp.produce("plain", **options)).last_sequence_id == -1


async def test_a_number_near_the_largest_one_stays_unchanged(pulsar: PulsarNode) -> None:
    client = await cpp_client(pulsar)
    opened = await client.produce("t", producer_name="p")
    await sent(client, b"value", 2**63 - 2)

    other = await cpp_client(pulsar)
    again = await other.produce("t", **reopening(opened, is_named=True, epoch=1))

    assert again.last_sequence_id == 2**63 - 2


# -- the Python client -------------------------------------------------------------------------------------------


class Sender:
    """A real producer and the results that its application got."""

    def __init__(self, client: Any, **options: Any) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[Any] = []
        self._count = 0
        self._producer = client.create_producer("t", **options)

    def send(self, count: int) -> None:
        """Send `count` messages with unique values, without waiting for receipts."""
        for _ in range(count):
            value = b"m%d" % self._count
            self._count += 1
            self._producer.send_async(value, lambda result, _, value=value: self._record(result, value))

    def flush(self) -> None:
        """Wait for the receipts of all messages."""
        self._producer.flush()

    def _record(self, result: Any, value: bytes) -> None:
        if result.name == "Ok":
            self.acknowledged.append(value)
        else:
            self.failed.append(result)


async def values(node: PulsarNode) -> list[bytes]:
    """All values in the log, in order."""
    view = await node.streams.catalog.find("t")
    found: list[bytes] = []
    end = await end_offset(node)
    (fetched,) = await node.streams.fetch(
        [FetchRange(view.partition(0), 0, 1 << 20)], bytes_min=1, bytes_max=1 << 20, wait_ms=0
    )
    for entry in entries_of(fetched):
        assert entry.batch is not None
        found += [record.value or b"" for record in codec.decode(entry.batch, 1 << 20)]
    assert len(found) == end
    return found


class Openings:
    """Counts the producers that a server opens; refuses to open producers while `is_refused`."""

    def __init__(self, node: PulsarNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.is_refused = False
        self._register = node.server.context.register
        monkeypatch.setattr(node.server.context, "register", self.register)

    def register(self, producer: Any) -> None:
        """`PulsarContext.register`."""
        if self.is_refused:
            raise Refused("ServiceNotReady", "not yet")
        self._register(producer)
        self.count += 1


async def reopened(openings: Openings, count: int, puts: Puts) -> None:
    """Wait until the producer has been opened `count` times and its client has sent something again."""
    await until(lambda: openings.count >= count)
    before = puts.count
    await until(lambda: puts.count > before)


@pytest.mark.integration
@pytest.mark.parametrize(
    "options", [{}, {"producer_name": "p"}, {"batching_enabled": True}], ids=["plain", "named", "batches"]
)
async def test_every_message_acknowledged_to_the_python_client_is_stored_once(
    pulsar_cluster: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Any]
) -> None:
    library = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    streams = StreamsSettings(writer=WriterSettings(deadline_ms=50))
    puts = Puts()
    node = (await pulsar_cluster(1, streams=streams, store=puts))[0]
    openings = Openings(node, monkeypatch)
    client = library.Client(node.url, logger=library.FileLogger(library.LoggerLevel.Warn, str(tmp_path / "log")))
    try:
        sender = await asyncio.to_thread(Sender, client, **options)
        for count in (2, 3):
            await asyncio.to_thread(sender.send, 5)
            await reopened(openings, count, puts)
        await asyncio.to_thread(sender.send, 5)
        puts.is_refused = False
        await asyncio.to_thread(sender.flush)
    finally:
        await asyncio.to_thread(client.close)

    assert sender.failed == []
    assert sorted(sender.acknowledged) == sorted(b"m%d" % number for number in range(15))
    assert await values(node) == [b"m%d" % number for number in range(15)]


@pytest.mark.integration
async def test_the_python_client_continues_when_some_pending_messages_are_stored(
    pulsar_cluster: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    streams = StreamsSettings(writer=WriterSettings(deadline_ms=50))
    puts = Puts()
    node = (await pulsar_cluster(1, streams=streams, store=puts))[0]
    openings = Openings(node, monkeypatch)
    answer = Producer.answer

    def lose(producer: Producer) -> None:
        openings.is_refused = True
        producer.connection.close("the test cuts it", "lost")  # receipts are lost with it

    client = library.Client(node.url, logger=library.FileLogger(library.LoggerLevel.Warn, str(tmp_path / "log")))
    try:
        sender = await asyncio.to_thread(Sender, client)
        monkeypatch.setattr(Producer, "answer", lose)
        puts.is_refused = False
        await asyncio.to_thread(sender.send, 3)
        await until(lambda: openings.is_refused)
        stored_count = await end_offset(node)
        monkeypatch.setattr(Producer, "answer", answer)
        await asyncio.to_thread(sender.send, 5)
        puts.is_refused, openings.is_refused = True, False
        await reopened(openings, 2, puts)
        await asyncio.to_thread(sender.send, 5)
        puts.is_refused = False
        await asyncio.to_thread(sender.flush)
    finally:
        await asyncio.to_thread(client.close)

    assert stored_count >= 1
    assert sender.failed == []
    assert await values(node) == [b"m%d" % number for number in range(13)]
