"""Calls of REST and gRPC that write together stay within the budget of the write path, while a store does not answer."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import pytest

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.streams.service import Streams
from fixtures.failing_stores import HeldStore, settings
from fixtures.grpc_server import MakeGrpc
from fixtures.rest_server import MakeServers, RestNode
from fixtures.waiting import until

MIB = 1024 * 1024
BUDGET_BYTES = 8 * MIB
COUNT = 40
WRITING = settings(bytes_max=BUDGET_BYTES, puts_in_flight_max=1)
BINARY = {"Content-Type": "application/octet-stream"}


async def check_the_budget(
    streams: Streams, store: HeldStore, calls: Sequence[Awaitable[Any]], refused: Sequence[object] | None = None
) -> list[Any]:
    """Let calls run that write 1 MiB each; return their answers. `refused`: the calls that the server refuses while the store is held."""
    writer = streams._writer  # noqa: SLF001
    most = 0
    is_over = False

    async def watch() -> None:
        nonlocal most
        while not is_over:
            most = max(most, writer.pending_bytes)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    answers = asyncio.gather(*calls)
    waiting = lambda: len(writer.reservations) + len(writer.relief)  # noqa: E731
    await until(lambda: refused or (refused is None and waiting() > COUNT // 2) or most > 2 * BUDGET_BYTES)
    store.go.set()
    found = await answers
    is_over = True
    await watching

    assert most <= BUDGET_BYTES + MIB + 64 * 1024
    assert writer.reservations.size_bytes == 0
    return found


async def post(rest: RestNode, body: bytes | AsyncIterator[bytes], **headers: str) -> int:
    url, headers = f"{rest.url}/v1/stream/s", BINARY | headers
    async with rest.session.post(url, data=body, headers=headers) as answer:
        await answer.read()
        return answer.status


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64 * 1024):
        yield body[start : start + 64 * 1024]


BODIES: dict[str, Callable[[], tuple[bytes | AsyncIterator[bytes], dict[str, str]]]] = {
    "of known size": lambda: (bytes(MIB), {}),
    "in pieces": lambda: (pieces(bytes(MIB)), {}),
    "compressed": lambda: (gzip.compress(bytes(MIB)), {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("what", BODIES)
async def test_rest_bodies_that_are_read_together_stay_within_the_budget(rest_servers: MakeServers, what: str) -> None:
    store = HeldStore()
    (rest,) = await rest_servers(1, objects=store, writing=WRITING, request_bytes_max=2 * MIB)
    await rest.create("s", max_message_bytes=str(2 * MIB), http_content_type="application/octet-stream")

    calls = []
    for _ in range(COUNT):
        body, headers = BODIES[what]()
        calls.append(post(rest, body, **headers))
    answers = await check_the_budget(rest.streams, store, calls)

    assert answers == [204] * COUNT


async def test_grpc_messages_that_wait_together_stay_within_the_budget_or_are_refused(grpc_cluster: MakeGrpc) -> None:
    store = HeldStore()
    node = (await grpc_cluster(1, store=store, streams=WRITING))[0]
    await node.create("s", max_message_bytes=str(2 * MIB))
    payload = pb.Payload(records=pb.Records(records=[pb.Record(value=bytes(MIB))]))

    refused: list[grpc.StatusCode] = []

    async def call() -> int | None:
        try:
            return int((await node.call(methods.PRODUCE, pb.ProduceRequest(stream="s", payload=payload))).base_offset)
        except grpc.aio.AioRpcError as error:
            refused.append(error.code())
            return None

    answers = await check_the_budget(node.streams, store, [call() for _ in range(COUNT)], refused)

    assert set(refused) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert sorted(offset for offset in answers if offset is not None) == list(range(COUNT - len(refused)))


async def test_grpc_streams_that_write_together_stay_within_the_budget_or_are_refused(grpc_cluster: MakeGrpc) -> None:
    store = HeldStore()
    node = (await grpc_cluster(1, store=store, streams=WRITING))[0]
    await node.create("s", max_message_bytes=str(2 * MIB))
    payload = pb.Payload(records=pb.Records(records=[pb.Record(value=bytes(MIB))]))

    refused: list[grpc.StatusCode] = []

    async def call() -> int | None:
        stream = node.open(methods.PRODUCE_STREAM)
        try:
            await stream.write(pb.ProduceStreamRequest(stream="s", payload=payload))
            await stream.done_writing()
            return int((await stream.read()).base_offsets[0])
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            refused.append(await stream.code())
            return None

    answers = await check_the_budget(node.streams, store, [call() for _ in range(COUNT)], refused)

    assert set(refused) <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert sorted(offset for offset in answers if offset is not None) == list(range(COUNT - len(refused)))


async def test_a_client_whose_bodies_stall_leaves_room_for_the_bodies_of_others(rest_servers: MakeServers) -> None:
    """All come from one address, and need no login, but for the other one."""
    (rest,) = await rest_servers(1, writing=settings(bytes_max=64 * MIB), request_bytes_max=16 * MIB)
    await rest.create("s", max_message_bytes=str(16 * MIB), http_content_type="application/octet-stream")
    reservations = rest.streams._writer.reservations  # noqa: SLF001
    ended = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        for _ in range(15):
            yield bytes(MIB)
        await ended.wait()

    stalled = [asyncio.create_task(post(rest, stalling())) for _ in range(10)]
    await until(lambda: len(reservations) == 9)
    assert reservations.size_bytes < 25 * MIB

    other = await reservations.enter("User:other", 1)
    await other.hold(7 * MIB)

    assert other.size_bytes == 7 * MIB
    other.give_back()
    ended.set()
    for task in stalled:
        task.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)


async def test_a_client_that_leaves_while_its_append_runs_gives_its_bytes_back_with_the_append(
    rest_servers: MakeServers,
) -> None:
    store = HeldStore()
    (rest,) = await rest_servers(1, objects=store, writing=WRITING)
    await rest.create("s", max_message_bytes=str(2 * MIB), http_content_type="application/octet-stream")
    writer = rest.streams._writer  # noqa: SLF001
    call = asyncio.create_task(post(rest, bytes(MIB)))
    await until(lambda: writer.pending_bytes > MIB)

    call.cancel()
    await until(lambda: not rest.server.open_count)
    assert writer.reservations.size_bytes == MIB
    store.go.set()

    await until(lambda: not writer.reservations.size_bytes)


async def test_a_streamed_record_that_does_not_arrive_whole_in_time_ends_its_request(rest_servers: MakeServers) -> None:
    """It would hold its bytes, for which others wait, for as long as its client likes."""
    (rest,) = await rest_servers(1, request_timeout_ms=200)
    await rest.create("s")
    held = asyncio.Event()

    async def records() -> AsyncIterator[bytes]:
        yield b'{"value": {"type": "JSON", "data": 1}}'
        yield b'{"value": {"type": "JSON", "data": '
        await held.wait()

    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    url = f"{rest.url}/v3/clusters/{cluster}/topics/s/records"
    async with rest.session.post(url, data=records(), headers={"Content-Type": "application/json"}) as answer:
        text = await answer.text()
    held.set()

    assert '"offset": 0' in text
    assert "408" in text
    assert "a record took more than 0.2 s" in text
    assert rest.streams._writer.reservations.size_bytes == 0  # noqa: SLF001
