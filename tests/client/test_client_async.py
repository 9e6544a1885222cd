"""AsyncClient against servers in the same event loop: round trips, retries, exactly once, servers that stop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import grpc
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from bearlake.client import AsyncClient, CallFailed, ClientSettings, Record, Refused
from bearlake.client.connections import Pauses
from bearlake.client.errors import failure_of_status
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.idle_producers import forget_all
from fixtures.waiting import WAIT_S

QUICK = ClientSettings(linger_ms=1, retry_pause_ms=5, retry_pause_max_ms=50)


@pytest.fixture
async def client(grpc_node: GrpcNode) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(grpc_node.address, settings=QUICK) as made:
        yield made


async def collect(client: AsyncClient, name: str, **options: object) -> list[Record]:
    return [record async for record in client.read(name, follow=False, **options)]  # type: ignore[arg-type]


async def test_streams_are_managed(client: AsyncClient) -> None:
    made = await client.create_stream("one", partition_count=2, configs={"retention.ms": "5000"})

    assert (made.partition_count, made.configs, list(made.bounds)) == (2, {"retention.ms": "5000"}, [(0, 0), (0, 0)])
    assert await client.list_streams() == ["one"]
    await client.delete_stream("one")
    assert await client.list_streams("o") == []


async def test_errors_name_the_fault(client: AsyncClient) -> None:
    with pytest.raises(CallFailed) as caught:
        await client.create_stream("no spaces allowed")

    assert (caught.value.code, caught.value.reason, caught.value.is_retriable) == ("INVALID_ARGUMENT", "INVALID", False)


async def test_records_are_read_as_they_were_sent(client: AsyncClient) -> None:
    await client.create_stream("one")
    headers = (("a", None), ("b", b""), ("\udcff", b"\x00"))

    async with client.producer() as producer:
        await producer.send("one", None, timestamp_ms=7)
        await producer.send("one", b"", key=b"", headers=headers, timestamp_ms=0)
        offset = await producer.send_and_wait("one", b"\xff" * 300_000, key=b"k")
    found = await collect(client, "one")

    assert offset == 2
    assert [(item.offset, item.key, item.headers) for item in found] == [
        (0, None, ()),
        (1, b"", headers),
        (2, b"k", ()),
    ]
    assert [item.value for item in found] == [None, b"", b"\xff" * 300_000]
    assert [item.timestamp_ms for item in found[:2]] == [7, 0]


async def test_reading_begins_at_the_given_position(client: AsyncClient) -> None:
    await client.create_stream("one", partition_count=2)
    async with client.producer() as producer:
        for at in range(10):
            await producer.send("one", b"%d" % at, partition=at % 2, timestamp_ms=1_000_000 + at)

    behind = datetime.fromtimestamp(1_000.006, UTC)
    assert len(await collect(client, "one")) == 10
    assert [item.offset for item in await collect(client, "one", start=3, partitions=[1])] == [3, 4]
    assert sorted(item.value or b"" for item in await collect(client, "one", start=behind)) == [b"6", b"7", b"8", b"9"]
    assert [item.value for item in await collect(client, "one", start={0: "latest", 1: 4})] == [b"9"]


async def test_a_following_reader_waits_for_new_records(client: AsyncClient) -> None:
    await client.create_stream("one")
    reader = client.read("one")

    async with client.producer() as producer:
        for at in range(3):
            await producer.send_and_wait("one", b"%d" % at)
            assert (await anext(reader)).value == b"%d" % at
    await reader.aclose()


async def test_records_with_one_key_stay_in_order_in_one_partition(client: AsyncClient) -> None:
    await client.create_stream("one", partition_count=4)

    async with client.producer() as producer:
        for at in range(400):
            await producer.send("one", b"%d" % at, key=b"%d" % (at % 10))
    found = await collect(client, "one")

    assert {len({item.partition for item in found if item.key == b"%d" % key}) for key in range(10)} == {1}
    for key in range(10):
        values = [int(item.value or b"") for item in found if item.key == b"%d" % key]
        assert values == list(range(key, 400, 10))


async def test_a_refused_record_fails_alone(client: AsyncClient) -> None:
    await client.create_stream("one")

    async with client.producer() as producer:
        first = await producer.send("one", b"a")
        await producer.flush()
        huge = await producer.send("one", bytes(3_000_000))
        last = await producer.send("one", b"b")
        with pytest.raises(CallFailed) as caught:
            await huge

    assert caught.value.reason == "TOO_LARGE"
    assert (await first, await last) == (0, 1)
    assert [item.value for item in await collect(client, "one")] == [b"a", b"b"]


async def test_a_full_buffer_makes_send_wait(grpc_node: GrpcNode) -> None:
    settings = ClientSettings(linger_ms=1, buffer_bytes=1_000)
    async with AsyncClient(grpc_node.address, settings=settings) as client:
        await client.create_stream("one")
        async with client.producer() as producer:
            for _ in range(50):
                await producer.send("one", bytes(400))

        assert len(await collect(client, "one")) == 50


async def test_an_unreachable_server_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has the whole time, so that its connection is refused however busy the machine is; pauses pass at once."""
    loop = asyncio.get_running_loop()
    passed_s, time = 0.0, loop.time

    async def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + passed_s)
    monkeypatch.setattr("bearlake.client.connections.asyncio.sleep", sleep)
    settings = ClientSettings(call_timeout_s=WAIT_S, retry_pause_ms=5_000, retry_pause_max_ms=20_000)
    async with AsyncClient("127.0.0.1:1", settings=settings) as client:
        with pytest.raises(CallFailed) as caught:
            await client.list_streams()

    assert caught.value.code == "UNAVAILABLE"
    assert 0 < passed_s <= WAIT_S


@pytest.mark.parametrize("how", ["drain", "kill"])
async def test_a_server_that_stops_costs_no_record_and_no_failed_call(grpc_cluster: MakeGrpc, how: str) -> None:
    pair = await grpc_cluster(2)
    async with AsyncClient(pair[0].address, pair[1].address, settings=QUICK) as client:
        await client.create_stream("one", partition_count=2)
        reader = client.read("one")
        async with client.producer() as producer:
            futures = []
            for at in range(600):
                futures.append(await producer.send("one", b"%d" % at, partition=at % 2))
                if at == 200:
                    await futures[100]
                    stop = pair[0].server.drain(3_000) if how == "drain" else pair[0].server.close()
                    stopping = asyncio.create_task(stop)
                if at % 50 == 0:
                    await asyncio.sleep(0.005)
            offsets = await asyncio.gather(*futures)
        followed = [await anext(reader) for _ in range(600)]
        await reader.aclose()
        await stopping

        assert sorted(Counter(offsets).values()) == [2] * 300
        assert [int(item.value or b"") for item in followed if item.partition == 0] == list(range(0, 600, 2))
        assert [int(item.value or b"") for item in followed if item.partition == 1] == list(range(1, 600, 2))
        assert len(await collect(client, "one")) == 600


async def test_unary_calls_do_not_fail_while_their_server_drains(grpc_cluster: MakeGrpc) -> None:
    pair = await grpc_cluster(2)
    async with AsyncClient(pair[0].address, pair[1].address, settings=QUICK) as client:
        await client.create_stream("one")
        draining = asyncio.create_task(pair[0].server.drain(2_000))

        for _ in range(100):
            await client.describe_stream("one")

        await draining


async def test_an_append_is_one_batch_at_the_offset_that_was_expected(client: AsyncClient) -> None:
    await client.create_stream("one")

    first = await client.append("one", [b"a", None], key=b"k", headers=[("h", b"1")])
    second = await client.append("one", [b"c"], expected_offset=2)
    with pytest.raises(Refused) as caught:
        await client.append("one", [b"lost"], expected_offset=2)
    third = await client.append("one", [b"d"], expected_offset=int(caught.value.metadata["end"]))
    found = await collect(client, "one")

    assert (first, second, third) == (0, 2, 3)
    assert caught.value.reason == "UNEXPECTED_OFFSET"
    assert [(item.key, item.value) for item in found] == [(b"k", b"a"), (b"k", None), (None, b"c"), (None, b"d")]
    assert found[1].headers == (("h", b"1"),)


async def test_one_of_many_writers_wins_each_offset(client: AsyncClient, grpc_node: GrpcNode) -> None:
    await client.create_stream("one")

    async def count_up(writer: AsyncClient, times: int) -> None:
        while times:
            values = [int(item.value or b"") for item in await collect(writer, "one")]
            try:
                await writer.append("one", [b"%d" % len(values)], expected_offset=len(values))
            except Refused:
                continue
            times -= 1

    async with AsyncClient(grpc_node.address, settings=QUICK) as other:
        await asyncio.gather(count_up(client, 10), count_up(other, 10))

    assert [int(item.value or b"") for item in await collect(client, "one")] == list(range(20))


@pytest.mark.parametrize("how", ["drain", "kill"])
async def test_appends_are_stored_once_while_their_server_stops(grpc_cluster: MakeGrpc, how: str) -> None:
    pair = await grpc_cluster(2)
    async with AsyncClient(pair[0].address, pair[1].address, settings=QUICK) as client:
        await client.create_stream("one")
        stopping: asyncio.Task[None] | None = None
        for at in range(60):
            if at == 20:
                stop = pair[0].server.drain(3_000) if how == "drain" else pair[0].server.close()
                stopping = asyncio.create_task(stop)
            assert await client.append("one", [b"%d" % at], expected_offset=at) == at
        assert stopping is not None
        await stopping

        assert [int(item.value or b"") for item in await collect(client, "one")] == list(range(60))


async def test_a_producer_whose_state_expired_continues_in_a_new_epoch(
    client: AsyncClient, grpc_node: GrpcNode
) -> None:
    """I9: its next batch is refused, and nothing that other partitions have stored is stored again."""
    await client.create_stream("one", partition_count=2)
    metadata = grpc_node.streams.metadata
    async with client.producer() as producer:
        for value in (b"a", b"b"):
            await (await producer.send("one", value, partition=0))
        await forget_all(metadata)
        await (await producer.send("one", b"other", partition=1))
        futures = [await producer.send("one", b"%d" % at, partition=0) for at in range(5)]
        assert [await future for future in futures] == [2, 3, 4, 5, 6]

    found = [item.value for item in await collect(client, "one", partitions=[0])]
    assert found == [b"a", b"b", b"0", b"1", b"2", b"3", b"4"]
    assert [item.value for item in await collect(client, "one", partitions=[1])] == [b"other"]


async def test_an_append_after_its_producer_was_forgotten_is_stored(client: AsyncClient, grpc_node: GrpcNode) -> None:
    await client.create_stream("one")
    assert await client.append("one", [b"a"]) == 0
    await forget_all(grpc_node.streams.metadata)

    assert await client.append("one", [b"b"]) == 1


async def test_columns_are_written_and_read(client: AsyncClient) -> None:
    await client.create_stream("one", partition_count=2)
    rows = pa.record_batch({"key": pa.array(["a", None]), "value": pa.array([b"1", b"2"])})

    for partition in range(2):
        await client.append_arrow("one", rows.schema.serialize(), rows.serialize(), partition=partition)
    pieces = [piece async for piece in client.read_arrow("one", follow=False)]

    assert sorted(piece.partition for piece in pieces) == [0, 1]
    for piece in pieces:
        found = pa.ipc.open_stream(piece.content).read_all()
        assert found.column_names == ["offset", "timestamp", "key", "value", "headers"]
        assert found["offset"].to_pylist() == [0, 1]
        assert found["key"].to_pylist() == [b"a", None]
        assert piece.next_offset == 2


async def test_time_without_records_does_not_count_as_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    hours, time = 0, loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + 3600 * hours)
    pauses = Pauses(QUICK, timeout_s=10.0)
    failure = CallFailed("UNAVAILABLE", "gone", is_retriable=True)

    hours = 1  # a quiet stream, then its server goes
    await pauses.wait(failure)
    pauses.reset()
    hours = 2
    await pauses.wait(failure)
    hours = 3  # attempts that have failed for an hour
    with pytest.raises(CallFailed, match="gone"):
        await pauses.wait(failure)


@pytest.mark.parametrize(("asked_s", "waited_s"), [(0.0, 0.0), (7.0, 7.0), (3600.0, 30.0)])
async def test_a_retry_waits_as_long_as_the_server_asks(
    monkeypatch: pytest.MonkeyPatch, asked_s: float, waited_s: float
) -> None:
    waited = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("bearlake.client.connections.asyncio.sleep", sleep)
    settings = ClientSettings(call_timeout_s=30.0, retry_pause_ms=50.0)
    status = Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="drains")
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=int(asked_s))))

    await Pauses(settings, timeout_s=120.0).wait(failure_of_status(status))

    assert waited_s <= waited[0] <= waited_s + 0.05


async def test_a_server_that_asks_for_more_time_than_is_left_ends_the_retries() -> None:
    failure = CallFailed("UNAVAILABLE", "gone", is_retriable=True, retry_delay_s=20.0)

    with pytest.raises(CallFailed, match="gone"):
        await Pauses(ClientSettings(), timeout_s=10.0).wait(failure)
