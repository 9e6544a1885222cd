"""Quotas over HTTP: 429 with Retry-After before anything is done; streams of events and of records are paced."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bearlake.metadata.quotas import DEFAULT, Entity, Quota, QuotaChange, QuotaKey
from bearlake.protocols.rest.produce import Writing
from bearlake.streams.quotas.buckets import Buckets, QuotaSettings
from bearlake.streams.quotas.limits import Limits
from bearlake.streams.quotas.usage import Usage
from fixtures.quotas import ManualQuotas
from fixtures.rest_server import RestNode
from fixtures.waiting import until

PRODUCE = {"records": [{"value": "eHh4" * 1000}]}


@pytest.fixture
def quotas(rest: RestNode) -> ManualQuotas:
    return ManualQuotas(rest.streams)


async def test_records_over_the_quota_are_refused_and_not_stored(rest: RestNode, quotas: ManualQuotas) -> None:
    await rest.create("t")
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    assert (await rest.post("/topics/t", PRODUCE, kind="binary")).status == 200
    refused = await rest.post("/topics/t", PRODUCE, kind="binary")

    assert refused.status == 429
    assert refused.headers["Retry-After"] == "3"
    assert refused.body["error_code"] == 429
    quotas.now += 3
    answer = await rest.post("/topics/t", PRODUCE, kind="binary")
    assert [written["offset"] for written in answer.body["offsets"]] == [1]


async def test_every_route_that_writes_asks_the_quota(rest: RestNode, quotas: ManualQuotas) -> None:
    await rest.create("t")
    cluster = rest.member.cluster_id
    await rest.put("/v1/stream/s", headers={"Content-Type": "text/plain"})
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1.0)
    await rest.post("/topics/t", PRODUCE, kind="binary")
    record = {"value": {"type": "STRING", "data": "x"}}

    for path, body, headers in (
        ("/topics/t/partitions/0", PRODUCE, {"Content-Type": "application/vnd.kafka.binary.v2+json"}),
        (f"/v3/clusters/{cluster}/topics/t/records", record, {"Content-Type": "application/json"}),
        ("/v1/stream/s", b"text", {"Content-Type": "text/plain"}),
    ):
        answer = await rest.post(path, body, headers=headers)
        assert answer.status == 429, path
        assert int(answer.headers["Retry-After"]) == 30


async def test_bodies_that_arrive_together_keep_to_the_quota(rest: RestNode, quotas: ManualQuotas) -> None:
    """All requests begin while nothing is owed, and only one of them is served."""
    await rest.create("t")
    await rest.put("/v1/stream/s", headers={"Content-Type": "text/plain"})
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    body = json.dumps(PRODUCE).encode()
    may_end = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:10]
        await may_end.wait()
        yield body[10:]

    async def status(path: str, kind: str) -> int:
        async with rest.session.post(rest.url + path, data=pieces(), headers={"Content-Type": kind}) as response:
            return response.status

    places = [("/topics/t", "application/vnd.kafka.binary.v2+json"), ("/v1/stream/s", "text/plain")] * 2
    asked = [asyncio.ensure_future(status(*place)) for place in places]
    await until(lambda: rest.server._guard.open_count == len(asked))  # noqa: SLF001 - nothing else shows that bodies are awaited
    may_end.set()
    statuses = [await answer for answer in asked]

    assert sum(status < 300 for status in statuses) == 1
    assert statuses.count(429) == len(asked) - 1


async def test_writes_that_were_read_together_keep_to_the_quota(
    rest: RestNode, quotas: ManualQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads parse and encode large bodies. All of these begin while nothing is owed."""
    await rest.create("t")
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    worked, begun, may_end = Writing.worked, [], asyncio.Event()

    async def held(writing: Writing, *arguments: Any, **options: Any) -> Any:
        begun.append(None)
        await may_end.wait()
        return await worked(writing, *arguments, **options)

    monkeypatch.setattr(Writing, "worked", held)
    asked = [asyncio.ensure_future(rest.post("/topics/t", PRODUCE, kind="binary")) for _ in range(3)]
    await until(lambda: len(begun) == len(asked))
    may_end.set()

    assert sorted([(await answer).status for answer in asked]) == [200, 429, 429]


async def test_a_stream_of_records_is_read_at_the_rate_of_the_quota(rest: RestNode, quotas: ManualQuotas) -> None:
    await rest.create("t")
    await quotas.limit(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
    record = json.dumps({"value": {"type": "STRING", "data": "x" * 1500}}).encode()

    reported: asyncio.Queue[int] = asyncio.Queue()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield record
            await reported.get()

    url = f"{rest.url}/v3/clusters/{rest.member.cluster_id}/topics/t/records"
    async with rest.session.post(url, data=pieces(), headers={"Content-Type": "application/json"}) as response:
        async for report in response.content:
            reported.put_nowait(json.loads(report)["error_code"])

    # Four records of 1.5 KB at 1 KB/s: the first second is free, and the last record is not waited for.
    assert 3.5 <= sum(quotas.waits) <= 4
    assert len(quotas.waits) == 3


async def test_reads_over_the_quota_are_refused(rest: RestNode, quotas: ManualQuotas) -> None:
    headers = {"Content-Type": "text/plain"}
    await rest.put("/v1/stream/s", b"x" * 3000, headers=headers)
    await quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    assert len((await rest.get("/v1/stream/s?offset=-1")).body) == 3000
    refused = await rest.get("/v1/stream/s?offset=-1")

    assert refused.status == 429
    assert refused.headers["Retry-After"] == "2"
    quotas.now += 2
    assert (await rest.get("/v1/stream/s?offset=-1")).status == 200


@pytest.mark.parametrize("what", ["streams", "consumer instances"])
async def test_reads_that_begin_together_keep_to_the_quota(
    rest: RestNode, quotas: ManualQuotas, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """All begin while nothing is owed. Those that end after the first are refused, and read the same records later."""
    text, binary = {"Content-Type": "text/plain"}, {"Accept": "application/vnd.kafka.binary.v2+json"}
    await rest.create("t")
    await rest.put("/v1/stream/s", b"x" * 3000, headers=text)
    await rest.post("/topics/t", PRODUCE, kind="binary")
    paths = ["/v1/stream/s?offset=-1"] * 3
    if what == "consumer instances":
        paths = []
        for name in "abc":
            made = {"name": name, "format": "binary", "auto.offset.reset": "earliest"}
            await rest.post("/consumers/g", made)
            base = f"/consumers/g/instances/{name}"
            await rest.post(f"{base}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
            paths.append(f"{base}/records?timeout=10000")
    await quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    fetch, begun, may_end = rest.streams.fetch, [], asyncio.Event()

    async def held(*arguments: Any, **options: Any) -> Any:
        begun.append(None)
        await may_end.wait()
        return await fetch(*arguments, **options)

    monkeypatch.setattr(rest.streams, "fetch", held)
    asked = [asyncio.ensure_future(rest.get(path, headers=binary if "consumers" in path else {})) for path in paths]
    await until(lambda: len(begun) == len(paths))
    may_end.set()
    statuses = [(await answer).status for answer in asked]

    assert sorted(statuses) == [200, 429, 429]
    for path, status in zip(paths, statuses, strict=True):
        quotas.now += 30
        if status == 429:
            again = await rest.get(path, headers=binary if "consumers" in path else {})
            assert (again.status, len(again.body)) == (200, 3000 if "stream" in path else 1)


async def test_consumer_instances_read_at_the_rate_of_the_quota(rest: RestNode, quotas: ManualQuotas) -> None:
    await rest.create("t")
    await rest.post("/topics/t", PRODUCE, kind="binary")
    made = await rest.post("/consumers/g", {"name": "c", "format": "binary", "auto.offset.reset": "earliest"})
    base = "/consumers/g/instances/c"
    await rest.post(f"{base}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
    await quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    accept = {"Accept": "application/vnd.kafka.binary.v2+json"}
    first = await rest.get(f"{base}/records?timeout=10000", headers=accept)

    assert made.status == 200
    assert len(first.body) == 1
    assert (await rest.get(f"{base}/records?timeout=0", headers=accept)).status == 429


async def test_events_are_sent_at_the_rate_of_the_quota(rest: RestNode, quotas: ManualQuotas) -> None:
    headers = {"Content-Type": "text/plain"}
    await rest.put("/v1/stream/s", b"x" * 3000, headers=headers)
    await rest.post("/v1/stream/s", b"y", headers={**headers, "Stream-Closed": "true"})
    await quotas.limit(QuotaKey.CONSUMER_BYTE_RATE, 1000.0)
    answer = await rest.get("/v1/stream/s?offset=-1&live=sse")

    assert answer.body.count(b"x" * 3000) == 1
    assert len(quotas.waits) == 1
    assert quotas.waits[0] > 2


async def test_streams_are_created_at_the_rate_of_the_quota(rest: RestNode, quotas: ManualQuotas) -> None:
    await quotas.limit(QuotaKey.CONTROLLER_MUTATION_RATE, 1.0)
    path = f"/v3/clusters/{rest.member.cluster_id}/topics"
    json_type = {"Content-Type": "application/json"}
    first = await rest.post(path, {"topic_name": "a", "partitions_count": 3}, headers=json_type)
    refused = await rest.post(path, {"topic_name": "b", "partitions_count": 1}, headers=json_type)

    assert (first.status, refused.status) == (201, 429)
    assert refused.headers["Retry-After"] == "2"
    assert rest.streams.catalog.peek("b") is None


async def test_time_on_the_event_loop_is_limited(rest: RestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    monkeypatch.setattr("bearlake.streams.quotas.timing.time.perf_counter", lambda: float(next(times)))
    await rest.streams.quotas.change([change(QuotaKey.REQUEST_PERCENTAGE, 1.0, Entity(user=DEFAULT))])
    first = await rest.get("/topics")
    monkeypatch.undo()
    refused = await rest.get("/topics")

    assert (first.status, refused.status) == (200, 429)
    assert int(refused.headers["Retry-After"]) > 1


def change(key: QuotaKey, value: float, entity: Entity) -> QuotaChange:
    return QuotaChange(entity, key, value)


async def test_connections_over_the_quota_of_their_address_are_read_later(rest: RestNode) -> None:
    """The clock of the quota stands still, so that every connection but the first owes the longest wait, of 50 ms."""
    quota = Quota(Entity(address="127.0.0.1"), QuotaKey.CONNECTION_CREATION_RATE, 1.0)
    buckets = Buckets(QuotaSettings(throttle_ms_max=50), lambda: 0.0)
    rest.streams.quotas.usage = Usage(Limits([quota]), buckets, lambda: 1)
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(3):
        assert (await rest.get("/topics", headers={"Connection": "close"})).status == 200

    assert loop.time() - started >= 2 * 0.05
