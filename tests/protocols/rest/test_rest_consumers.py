"""Consumer instances of the v2 API: groups of their own and shared groups, positions, commits, and expiry."""

import asyncio
from typing import Any

import pytest

from bearlake.protocols.rest.proxy import assignor
from bearlake.streams.groups import assignment
from fixtures.rest_consumer import Client, produce, values
from fixtures.rest_server import MakeServers, RestNode
from fixtures.waiting import WAIT_S, until

BINARY = "application/vnd.kafka.binary.v2+json"
WAIT_MS = int(500 * WAIT_S)
"""A poll, and each fetch for it, waits for records whenever they come: half of the time in which the client expects its answer."""


async def test_a_consumer_reads_records_from_before_and_after_its_start(rest: RestNode) -> None:
    await rest.create("t")
    await produce(rest, "t", b"a", b"b")
    client = await Client.create(rest)
    await client.subscribe("t")
    first = await client.poll()
    waiting = asyncio.create_task(client.poll())
    await produce(rest, "t", b"c")

    assert client.base.startswith(rest.url)
    assert first.body[0] == {"topic": "t", "key": None, "value": "YQ==", "partition": 0, "offset": 0}
    assert first.headers["Content-Type"] == BINARY
    assert values(first) == [b"a", b"b"]
    assert values(await waiting) == [b"c"]
    assert (await client.poll(0)).body == []


async def test_two_instances_of_a_group_share_partitions_and_take_over_when_one_leaves(rest: RestNode) -> None:
    await rest.create("t", 4)
    first, second = await Client.create(rest), await Client.create(rest)
    await first.subscribe("t")
    await first.poll(0)
    await second.subscribe("t")
    while len(await first.assigned()) != 2 or len(await second.assigned()) != 2:
        await asyncio.gather(first.poll(100), second.poll(100))
    shared = [set(await first.assigned()), set(await second.assigned())]
    await second.delete()
    while len(await first.assigned()) != 4:
        await first.poll(100)

    assert not shared[0] & shared[1]
    assert shared[0] | shared[1] == {("t", index) for index in range(4)}


async def test_the_next_instance_of_the_group_continues_at_the_committed_offsets(rest: RestNode) -> None:
    await rest.create("t")
    await produce(rest, "t", b"a", b"b", b"c")
    first = await Client.create(rest, auto_commit_enable="false")
    await first.subscribe("t")
    await first.poll()
    before = await first.offsets(("t", 0))
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    await rest.post(f"{first.base}/offsets", body)
    await first.delete()
    second = await Client.create(rest, auto_commit_enable=False)
    await second.subscribe("t")

    assert before == [-1]
    assert values(await second.poll()) == [b"b", b"c"]
    assert (await rest.post(f"{second.base}/offsets")).status == 200
    assert await second.offsets(("t", 0)) == [3]


@pytest.mark.parametrize("body", [b"", b" ", b"{}", b"{ }", b"{\r\n}\r\n"])
async def test_a_commit_without_offsets_commits_all_records_that_were_read(rest: RestNode, body: bytes) -> None:
    await rest.create("t")
    await produce(rest, "t", b"a", b"b")
    client = await Client.create(rest, auto_commit_enable=False)
    await client.subscribe("t")
    await client.poll()
    committed = await rest.post(f"{client.base}/offsets", body)

    assert committed.status == 200
    assert await client.offsets(("t", 0)) == [2]


async def test_an_instance_that_commits_by_itself_does_so_at_its_end(rest: RestNode) -> None:
    await rest.create("t")
    await produce(rest, "t", b"a")
    first = await Client.create(rest)
    await first.subscribe("t")
    await first.poll()
    await first.delete()
    second = await Client.create(rest)

    assert await second.offsets(("t", 0)) == [1]


async def test_assigned_partitions_are_read_from_where_the_client_seeks(rest: RestNode) -> None:
    await rest.create("t")
    await produce(rest, "t", b"a", b"b")
    client = await Client.create(rest, format="json")
    part = {"topic": "t", "partition": 0}
    assert (await rest.post(f"{client.base}/assignments", {"partitions": [part]})).status == 204
    seek = await rest.post(f"{client.base}/positions", {"offsets": [{**part, "offset": 1}]})
    answer = await client.poll(kind="json")
    await rest.post(f"{client.base}/positions/beginning", {"partitions": [part]})
    again = await rest.post(f"{client.base}/positions/end", {"partitions": [part]})

    assert (seek.status, again.status) == (204, 204)
    assert (answer.status, answer.body["error_code"]) == (500, 50002)  # b is no JSON
    assert (await client.poll(0, kind="json")).body == []
    both = await rest.post(f"{client.base}/subscription", {"topics": ["t"]})
    assert (both.status, both.body["error_code"]) == (409, 40903)


async def test_a_pattern_includes_later_topics(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, consumer_beat_ms=20)
    await rest.create("a.1")
    client = await Client.create(rest)
    assert (await rest.post(f"{client.base}/subscription", {"topic_pattern": "a[.].*"})).status == 204
    await client.poll(0)
    await rest.create("a.2")
    await produce(rest, "a.2", b"x")

    assert values(await client.poll()) == [b"x"]
    assert (await rest.get(f"{client.base}/subscription")).body == {"topics": ["a.1", "a.2"]}
    assert (await rest.delete(f"{client.base}/subscription")).status == 204
    assert await client.assigned() == []


async def test_instances_that_idle_are_forgotten_with_a_clear_error(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, consumer_beat_ms=20, consumer_idle_ms=0)
    await rest.create("t")
    client = await Client.create(rest)
    while (answer := await rest.get(f"{client.base}/subscription")).status == 200:
        pass

    assert (answer.status, answer.body["error_code"]) == (404, 40403)


async def test_instances_of_two_servers_share_a_group(rest_servers: MakeServers) -> None:
    first_server, second_server = await rest_servers(2, consumer_beat_ms=50)
    await first_server.create("t", 4)
    first, second = await Client.create(first_server), await Client.create(second_server)
    await first.subscribe("t")
    await second.subscribe("t")
    while len(await first.assigned()) != 2 or len(await second.assigned()) != 2:
        await asyncio.gather(first.poll(100), second.poll(100))
    shared = [set(await first.assigned()), set(await second.assigned())]

    assert second.base.startswith(second_server.url)
    assert shared[0] | shared[1] == {("t", index) for index in range(4)}


async def test_a_partition_that_another_instance_has_by_now_cannot_be_committed(rest_servers: MakeServers) -> None:
    first_server, second_server = await rest_servers(2, consumer_beat_ms=50)
    await first_server.create("t", 2)
    await produce(first_server, "t", b"a")
    await produce(first_server, "t", b"b", partition=1)
    first, second = await Client.create(first_server, auto_commit_enable=False), await Client.create(second_server)
    await first.subscribe("t")
    while len(await first.assigned()) != 2:
        await first.poll(100)
    await second.subscribe("t")
    while len(await first.assigned()) != 1 or len(await second.assigned()) != 1:
        await asyncio.gather(first.poll(100), second.poll(100))
    ((_, kept),), ((_, lost),) = await first.assigned(), await second.assigned()
    answers = [
        await first_server.post(f"{first.base}/offsets", {"offsets": [{"topic": "t", "partition": index, "offset": 0}]})
        for index in (kept, lost)
    ]

    assert [answer.status for answer in answers] == [200, 409]


async def test_an_answer_can_be_committed_although_the_group_has_changed_since(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, consumer_beat_ms=20)
    await rest.create("t", 2)
    first, second = await Client.create(rest, auto_commit_enable=False), await Client.create(rest)
    await first.subscribe("t")
    while len(await first.assigned()) != 2:
        await first.poll(100)
    await produce(rest, "t", b"a")
    read = values(await first.poll())
    await second.subscribe("t")
    waiting = asyncio.create_task(second.poll(2_000))
    while rest.streams.coordinator.owned()["g"].state.value != "PreparingRebalance":  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(20):  # heartbeats continue in the meantime
        await first.offsets(("t", 0))
    still = await first.assigned()
    committed = await rest.post(f"{first.base}/offsets")
    again = [*values(await first.poll(100)), *values(await waiting)]

    assert (read, len(still), committed.status, again) == ([b"a"], 2, 200, [])
    assert await first.offsets(("t", 0)) == [1]


async def test_records_that_arrive_during_a_rebalance_wait_for_its_end(
    rest_servers: MakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rest,) = await rest_servers(1, consumer_beat_ms=WAIT_MS, consumer_session_ms=3 * WAIT_MS)
    await rest.create("t")
    client = await Client.create(rest, auto_commit_enable=False)
    await client.subscribe("t")
    while not await client.assigned():
        await client.poll(100)
    (consumer,) = rest.server._proxy.consumers._instances.values()  # noqa: SLF001 - to join when the test says, not its heartbeat
    fetch, is_waiting, is_read = rest.streams.fetch, asyncio.Event(), asyncio.Event()

    async def fetch_all(*arguments: Any, **options: Any) -> Any:
        is_waiting.set()
        found = await fetch(*arguments, **options)
        if any(consumer.views for consumer in found):
            is_read.set()
        return found

    async def join(topics: list[str]) -> list[tuple[str, int]]:
        await is_read.wait()
        return []

    with monkeypatch.context() as during:
        during.setattr(rest.streams, "fetch", fetch_all)
        during.setattr(consumer._member, "join", join)  # noqa: SLF001
        polling = asyncio.create_task(client.poll(WAIT_MS))
        await until(is_waiting.is_set)
        consumer._start_join()  # noqa: SLF001
        await produce(rest, "t", b"a")
        await until(is_read.is_set)
        await consumer.await_join()
    is_held = consumer.is_held
    consumer._start_join()  # noqa: SLF001
    read = values(await polling)

    assert not is_held, "nothing was answered from a partition that another member has by now"
    assert await client.assigned() == [("t", 0)]
    assert (read, values(await client.poll(100))) == ([b"a"], [])


async def test_a_read_in_flight_during_a_rebalance_returns_no_lost_partition(
    rest_servers: MakeServers,
) -> None:
    (rest,) = await rest_servers(1, consumer_beat_ms=100)
    await rest.create("t", 2)
    first, second = [await Client.create(rest, auto_commit_enable=False) for _ in range(2)]
    await first.subscribe("t")
    while len(await first.assigned()) != 2:
        await first.poll(100)
    await second.subscribe("t")
    while len(await first.assigned()) != 1 or len(await second.assigned()) != 1:
        await asyncio.gather(first.poll(500), second.poll(100))
    ((_, lost),) = await second.assigned()
    await produce(rest, "t", b"a", partition=lost)
    read = values(await second.poll())
    answers = [await rest.post(f"{client.base}/offsets") for client in (second, first)]

    assert read == [b"a"]
    assert [answer.status for answer in answers] == [200, 200]
    assert await second.offsets(("t", lost)) == [1]


async def test_a_draining_server_lets_instances_commit_and_sends_their_clients_elsewhere(
    rest_servers: MakeServers,
) -> None:
    first, second = await rest_servers(2, drain_idle_ms=10_000)
    await first.create("t")
    await produce(first, "t", b"a")
    client = await Client.create(first, auto_commit_enable=False)
    await client.subscribe("t")
    read = values(await client.poll())
    waiting = asyncio.create_task(client.poll())
    while not first.server.open_count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    draining = asyncio.create_task(first.server.drain(600_000))
    empty = await waiting
    committed = await client.rest.post(f"{client.base}/offsets")
    gone = await client.poll()
    again = await Client.create(first, auto_commit_enable=False)
    await produce(second, "t", b"b")
    await again.subscribe("t")
    rest = values(await again.poll())
    await draining

    assert (read, values(empty), committed.status) == ([b"a"], [], 200)
    assert (gone.status, gone.body["error_code"]) == (404, 40403)
    assert again.base.startswith(second.url)
    assert rest == [b"b"]


async def test_a_draining_server_keeps_an_instance_until_its_delivered_records_are_committed(
    rest_servers: MakeServers,
) -> None:
    node, _ = await rest_servers(2, drain_idle_ms=1)
    await node.create("t")
    await produce(node, "t", b"a")
    client = await Client.create(node, auto_commit_enable=False)
    await client.subscribe("t")
    read = values(await client.poll())
    draining = asyncio.create_task(node.server.drain(600_000))
    kept = [await client.assigned() for _ in range(50)]  # longer than drain_idle_ms
    committed = await client.rest.post(f"{client.base}/offsets")
    await draining

    assert (read, committed.status) == ([b"a"], 200)
    assert kept == [[("t", 0)]] * 50


async def test_a_draining_server_accepts_the_commit_of_an_answer_that_was_in_flight(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2, drain_idle_ms=1, consumer_beat_ms=10_000, consumer_session_ms=30_000)
    await first.create("t")
    await produce(first, "t", b"a")
    client = await Client.create(first, auto_commit_enable=False)
    await client.subscribe("t")
    assert values(await client.poll()) == [b"a"]
    waiting = asyncio.create_task(client.poll())
    while not first.server.open_count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    draining = asyncio.create_task(first.server.drain(600_000))
    for _ in range(50):  # longer than drain_idle_ms
        await client.assigned()
    await produce(second, "t", b"b")
    read = values(await waiting)
    committed = await client.rest.post(f"{client.base}/offsets")
    await draining

    assert (read, committed.status) == ([b"b"], 200)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"format": "xml"}, 42204),
        ({"auto.offset.reset": "sometimes"}, 42204),
        ({"auto.commit.enable": "maybe"}, 42204),
        ({"fetch.min.bytes": "many"}, 42204),
        ({"name": "a/b"}, 42204),
        ({"group.id": "x"}, 42204),
    ],
)
async def test_wrong_configs_are_refused(rest: RestNode, config: dict[str, object], expected: int) -> None:
    answer = await rest.post("/consumers/g", config)

    assert (answer.status, answer.body["error_code"]) == (422, expected)


async def test_requests_that_do_not_fit_the_instance_are_refused(rest: RestNode) -> None:
    await rest.create("t")
    client = await Client.create(rest, name="one")
    nothing = await client.poll(0)
    wrong_format = await client.poll(0, kind="json")
    twice = await rest.post("/consumers/g", {"name": "one"})
    seek = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    stranger = await rest.post(f"{client.base}/positions", seek)
    unknown = await rest.get("/consumers/g/instances/two/records")
    kind = await rest.post("/consumers/g", b"{}", headers={"Content-Type": "text/plain"})

    assert [
        (answer.status, answer.body["error_code"]) for answer in (nothing, wrong_format, twice, stranger, unknown, kind)
    ] == [
        (409, 409),
        (406, 40601),
        (409, 40902),
        (409, 409),
        (404, 40403),
        (415, 415),
    ]


def test_range_and_round_robin_assign_as_kafkas_clients_do() -> None:
    wanted = {"b": ["t", "u"], "a": ["t"], "c": ["u"]}
    counts = {"t": 3, "u": 2}

    assert assignment.assign(assignment.RANGE, wanted, counts) == {
        "a": {"t": [0, 1]},
        "b": {"t": [2], "u": [0]},
        "c": {"u": [1]},
    }
    assert assignment.assign(assignment.ROUND_ROBIN, wanted, counts) == {
        "a": {"t": [0, 2]},
        "b": {"t": [1], "u": [0]},
        "c": {"u": [1]},
    }
    assert assignor.decode_assignment(assignment.encode_assignment({"s": [0], "t": [1]})) == [("s", 0), ("t", 1)]
    assert assignment.decode_subscription(assignment.encode_subscription(["t", "ü"])) == ["t", "ü"]
