"""Requests that arrived at a server before their producer expired and are executed afterwards are never stored twice.

In each test one server has the request but is delayed; a second server stores the client's retry, and the producer is forgotten.
Then the first server resumes and learns of all this.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.model import ObjectCommit, ObjectCommitted
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from fixtures.deployment import append, batch_of
from fixtures.failing_stores import Failing
from fixtures.grpc_server import MakeGrpc
from fixtures.idle_producers import forget_all
from fixtures.kafka_server import Make, Node, produce_request
from fixtures.pulsar_server import PulsarCluster
from fixtures.rest_server import MakeServers, RestNode
from fixtures.waiting import until

VERSION = 9
JSON = {"Content-Type": "application/json"}
PLAIN, REPEATED = batch_of(b"plain"), batch_of(b"a", producer=1)


async def forget(streams: Streams, other: Streams) -> None:
    """Expire all producers; the server has followed the expiry."""
    await forget_all(other.metadata)
    head = await other.metadata.log.head()
    await until(lambda: streams.seen.position >= head)


async def end(streams: Streams, name: str) -> int:
    key = (await streams.catalog.find(name)).partition(0)
    return (await streams.bounds([key]))[key].end


async def store_and_forget(streams: Streams, other: Streams) -> None:
    """Store the client's retry through the other server."""
    view = await other.catalog.find("t")
    ((verdict, _, _),) = await append(other, view, REPEATED)
    assert verdict == 0
    await forget(streams, other)


class FullMemory:
    """The write path of a server whose memory is used up."""

    def __init__(self, streams: Streams) -> None:
        # Not by records: requests that fill the memory would be written before the one that waits for it.
        self._writer = streams._writer  # noqa: SLF001
        self._writer._closed_bytes += 1 << 40  # noqa: SLF001

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for room."""
        return bool(self._writer.relief)

    def relieve(self) -> None:
        self._writer._closed_bytes -= 1 << 40  # noqa: SLF001
        self._writer.relief.relieve()


# -- Kafka ---------------------------------------------------------------------------------------------------------


async def pair_of(kafka_cluster: Make, **settings: Any) -> tuple[Node, Node, Any, Any]:
    """Two servers that know the topic, and a client of the first one with its connection there."""
    cluster = await kafka_cluster(2, settings=KafkaSettings(**settings))
    node, other = cluster.nodes
    await node.create("t")
    await until(lambda: other.streams.catalog.peek("t") is not None)
    client = await node.client()
    assert (await client.produce("t", PLAIN, version=VERSION)).error_code == 0
    (connection,) = node.server.connections
    return node, other, client, connection


async def is_refused_and_stored_once(client: Any, node: Node, count: int) -> bool:
    answer = (await client.receive()).responses[0].partition_responses[0]
    return answer.error_code != 0 and await end(node.streams, "t") == count


async def test_kafka_a_request_that_waited_for_memory(kafka_cluster: Make) -> None:
    node, other, client, _ = await pair_of(kafka_cluster)
    memory = FullMemory(node.streams)
    client.send(produce_request("t", REPEATED), VERSION)
    await until(lambda: memory.is_awaited)
    await store_and_forget(node.streams, other.streams)
    memory.relieve()

    assert await is_refused_and_stored_once(client, node, 2)


async def test_kafka_a_request_that_waited_unread(kafka_cluster: Make) -> None:
    """Its bytes arrived when the server no longer read the socket."""
    node, other, client, connection = await pair_of(kafka_cluster)
    memory = FullMemory(node.streams)
    client.send(produce_request("t", PLAIN), VERSION)
    await until(lambda: memory.is_awaited)
    client.send(produce_request("t", REPEATED), VERSION)
    # There is no other sign that bytes wait in the kernel.
    await until(lambda: not connection._is_socket_empty())  # noqa: SLF001
    await store_and_forget(node.streams, other.streams)
    memory.relieve()
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0

    assert await is_refused_and_stored_once(client, node, 3)


async def test_kafka_a_request_that_waited_for_its_place(kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection has its maximum of requests in progress."""
    node, other, client, _ = await pair_of(kafka_cluster, requests_in_flight_max=1)
    held: list[Any] = []
    paused_count = metrics.KAFKA_PAUSED.value
    monkeypatch.setattr(node.streams, "added", held.append)
    client.send(produce_request("t", PLAIN), VERSION)
    client.send(produce_request("t", REPEATED), VERSION)
    await until(lambda: bool(held) and metrics.KAFKA_PAUSED.value > paused_count)
    await store_and_forget(node.streams, other.streams)
    monkeypatch.undo()
    node.streams.added(held[0])
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0

    assert len(held) == 1
    assert await is_refused_and_stored_once(client, node, 3)


async def test_kafka_a_request_that_waited_for_a_look_up(kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    node, other, client, connection = await pair_of(kafka_cluster)
    is_found = asyncio.Event()
    find = node.streams.catalog.find

    async def late(name: str) -> Any:
        await is_found.wait()
        return await find(name)

    monkeypatch.setattr(node.streams.catalog, "peek", lambda name: None)
    monkeypatch.setattr(node.streams.catalog, "find", late)
    client.send(produce_request("t", REPEATED), VERSION)
    await until(lambda: connection.produce_tail is not None)
    await store_and_forget(node.streams, other.streams)
    monkeypatch.undo()
    is_found.set()

    assert await is_refused_and_stored_once(client, node, 2)


async def test_kafka_a_producer_that_reconnects_continues(kafka_cluster: Make) -> None:
    """A batch that arrives after the expiry is stored, even over a connection that was idle."""
    node, other, client, connection = await pair_of(kafka_cluster)
    await store_and_forget(node.streams, other.streams)
    connection.check(0.0)

    assert (await client.produce("t", batch_of(b"b", producer=1, epoch=1), version=VERSION)).error_code == 0


# -- Pulsar --------------------------------------------------------------------------------------------------------


async def test_pulsar_a_message_that_waited_for_memory(pulsar_cluster: Callable[..., Awaitable[PulsarCluster]]) -> None:
    """Its producer is closed; what the client sends after it has opened the producer again is stored."""
    cluster = await pulsar_cluster(2)
    node, other = cluster[0], cluster[1]
    first, second = await node.client(), await other.client()
    await first.produce("t", producer_name="p")
    memory = FullMemory(node.streams)
    first.send_message(b"a", 0)
    await until(lambda: memory.is_awaited)
    await second.produce("t", producer_name="p")
    second.send_message(b"a", 0)
    await second.receive("send_receipt")
    await forget(node.streams, other.streams)
    memory.relieve()
    await first.receive("close_producer")
    assert await end(other.streams, "t") == 1
    await first.produce("t", producer_name="p", producer_id=2)
    first.send_message(b"b", 1, producer_id=2)
    receipt = await first.receive("send_receipt")

    assert receipt.message_id.entry_id == 1
    assert await end(other.streams, "t") == 2


# -- gRPC ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [False, True])
async def test_grpc_a_batch_that_waited_for_memory(grpc_cluster: MakeGrpc, is_stream: bool) -> None:
    cluster = await grpc_cluster(2)
    node, other = cluster[0], cluster[1]
    await node.create("t")
    await until(lambda: other.streams.catalog.peek("t") is not None)
    memory = FullMemory(node.streams)
    payload = pb.Payload(record_batches=REPEATED)
    if is_stream:
        call = node.open(methods.PRODUCE_STREAM)
        await call.write(pb.ProduceStreamRequest(stream="t", payload=payload))
        answer = asyncio.ensure_future(call.read())
    else:
        answer = asyncio.ensure_future(node.call(methods.PRODUCE, pb.ProduceRequest(stream="t", payload=payload)))
    await until(lambda: memory.is_awaited)
    await store_and_forget(node.streams, other.streams)
    memory.relieve()

    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await answer
    assert "OUTCOME_UNKNOWN" in str(failed.value.trailing_metadata())
    assert await end(other.streams, "t") == 1


# -- Durable Streams -----------------------------------------------------------------------------------------------


class HeldLog:
    """Commits of one server, held back until the test releases them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.is_held = False
        self.held: list[ObjectCommit] = []
        self.are_let_go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def blocking_commit(self) -> None:
        """Every commit goes through `commit`."""

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        if self.is_held:
            self.held.append(commit)
            await self.are_let_go.wait()
        result: ObjectCommitted = await self._inner.commit(commit)
        return result


async def pair_with_held_log(rest_servers: MakeServers) -> tuple[RestNode, RestNode, HeldLog]:
    """Two servers, and the log of the first one."""
    logs: list[HeldLog] = []

    def stores(metadata: Metadata) -> Any:
        logs.append(HeldLog(metadata.log))
        return Failing(metadata, logs[-1])

    (first,) = await rest_servers(1, stores=stores)
    (second,) = await rest_servers(1)
    await first.member.refresh()
    return first, second, logs[0]


def claim(sequence: int, *, is_ordered: bool = False) -> dict[str, str]:
    headers = JSON | {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(sequence)}
    return headers | {"Stream-Seq": str(sequence)} if is_ordered else headers


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("sequence", [0, 1])
@pytest.mark.parametrize("hangs", ["commit", "room"])
async def test_rest_an_append_whose_producer_was_forgotten_is_unknown(
    rest_servers: MakeServers, hangs: str, sequence: int, is_ordered: bool
) -> None:
    """Its commit hung, or it waited for the write path's memory; a retry was stored meanwhile."""
    first_server, second_server, log = await pair_with_held_log(rest_servers)
    await first_server.put("/v1/stream/t", b"", headers=JSON)
    for n in range(sequence):
        await first_server.post("/v1/stream/t", b"[%d]" % n, headers=claim(n, is_ordered=is_ordered))
    memory = FullMemory(first_server.streams) if hangs == "room" else None
    log.is_held = memory is None
    headers = claim(sequence, is_ordered=is_ordered)
    first = asyncio.create_task(first_server.post("/v1/stream/t", b"[%d]" % sequence, headers=headers))
    await until(lambda: bool(log.held) if memory is None else memory.is_awaited)
    retried = await second_server.post("/v1/stream/t", b"[%d]" % sequence, headers=headers)
    await forget(first_server.streams, second_server.streams)
    log.are_let_go.set()
    if memory is not None:
        memory.relieve()
    answer = await first
    seen = await second_server.get("/v1/stream/t")

    assert retried.status == 200
    assert answer.status == 503, answer
    assert seen.body == list(range(sequence + 1))


async def test_rest_a_producer_that_was_forgotten_starts_again(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    assert (await first.post("/v1/stream/t", b"[0]", headers=claim(0))).status == 200
    await forget(first.streams, second.streams)
    went_on = await first.post("/v1/stream/t", b"[1]", headers=claim(1))
    began = await first.post("/v1/stream/t", b"[1]", headers=claim(0))

    assert (went_on.status, went_on.headers["Producer-Expected-Seq"]) == (409, "0")
    assert began.status == 200
    assert (await second.get("/v1/stream/t")).body == [0, 1]


async def test_rest_a_server_with_a_stuck_follower_names_the_append_with_which_a_forgotten_producer_starts(
    rest_servers: MakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    assert (await first.post("/v1/stream/t", b"[0]", headers=claim(0))).status == 200
    # A follower that is stuck: no store makes a follower that reads and sees nothing.
    monkeypatch.setattr(first.streams._follower, "_advance_head", lambda position: None)  # noqa: SLF001
    await forget(second.streams, second.streams)
    went_on = [await first.post("/v1/stream/t", b"[1]", headers=claim(1)) for _ in range(3)]

    assert [answer.status for answer in went_on] == [503, 409, 409]
    assert went_on[1].headers["Producer-Expected-Seq"] == "0"
    assert (await first.post("/v1/stream/t", b"[1]", headers=claim(0))).status == 200


async def test_rest_an_append_that_waits_for_its_turn_while_it_is_stored_by_another_server_is_a_duplicate(
    rest_servers: MakeServers,
) -> None:
    first, second, log = await pair_with_held_log(rest_servers)
    await first.put("/v1/stream/t", b"", headers=JSON)
    log.is_held = True
    before = asyncio.create_task(first.post("/v1/stream/t", b"[9]", headers=JSON | {"Stream-Seq": "0"}))
    await until(lambda: bool(log.held))
    headers = claim(0) | {"Stream-Seq": "1"}
    waiting = asyncio.create_task(first.post("/v1/stream/t", b"[1]", headers=headers))
    await until(lambda: first.server.open_count == 2)
    for _ in range(20):  # it waits for the first one
        await first.get("/v1/stream/t")
    retried = await second.post("/v1/stream/t", b"[1]", headers=headers)
    log.are_let_go.set()
    answers = [(await one_of).status for one_of in (before, waiting)]

    assert retried.status == 200
    assert answers == [409, 204]
