"""Consumer instances behind a load balancer: any server answers for any instance, wherever the instance is."""

import asyncio
import gzip

import pytest

from bearlake.protocols.rest.proxy import forwarding
from fixtures.rest_consumer import Balancer, Client, count, name_of, produce, sent_count, status_and_code, values
from fixtures.rest_server import MakeServers, RestNode
from fixtures.waiting import WAIT_S, until


async def test_every_request_of_an_instance_may_go_to_another_server(rest_servers: MakeServers) -> None:
    nodes = await rest_servers(3)
    await nodes[0].create("t", 2)
    await produce(nodes[0], "t", b"a", b"b")
    client = await Client.create(Balancer(nodes), auto_commit_enable=False)
    await client.subscribe("t")
    read = values(await client.poll())
    counts = [count(node) for node in nodes]
    assigned = [await client.assigned() for _ in nodes]
    seek = {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
    sought = await client.rest.post(f"{client.base}/positions", seek)
    again = values(await client.poll())
    committed = await client.rest.post(f"{client.base}/offsets")
    offsets = [await client.offsets(("t", 0)) for _ in nodes]
    deleted = await client.delete()
    gone = [await client.poll() for _ in nodes]

    assert client.base.startswith("http://rest.example/consumers/g/instances/rest-consumer-")
    assert (read, sought.status, again, committed.status, deleted.status) == ([b"a", b"b"], 204, [b"b"], 200, 204)
    assert sorted(counts) == [0, 0, 1]
    assert assigned == [[("t", 0), ("t", 1)]] * 3
    assert offsets == [[2]] * 3
    assert [status_and_code(answer) for answer in gone] == [(404, 40403)] * 3


async def test_the_server_of_an_instance_serves_it_without_forwarding(rest_servers: MakeServers) -> None:
    nodes = await rest_servers(3)
    await nodes[0].create("t")
    before = sent_count()
    clients = [await Client.create(node, "g") for node in nodes]
    for client in clients:
        await client.subscribe("t")
        await client.assigned()

    assert [client.base.startswith(node.url) for client, node in zip(clients, nodes, strict=True)] == [True] * 3
    assert [count(node) for node in nodes] == [1, 1, 1]
    assert sent_count() == before


async def test_a_single_server_asks_no_other_server(rest: RestNode) -> None:
    before = sent_count()
    await Client.create(rest, name="one")
    unknown = await rest.get("/consumers/g/instances/two/records")
    twice = await rest.post("/consumers/g", {"name": "one"})

    assert (status_and_code(unknown), status_and_code(twice)) == ((404, 40403), (409, 40902))
    assert sent_count() == before


async def test_clients_that_use_servers_own_addresses_get_the_address_of_the_instances_server(
    rest_servers: MakeServers,
) -> None:
    nodes = await rest_servers(3)
    for owner in nodes:
        name = name_of(owner, nodes)
        client = await Client.create(nodes[0], name=name)

        assert client.base == f"{owner.url}/consumers/g/instances/{name}"
        assert count(owner) == 1


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize(
    ("headers", "base"),
    [
        ({"Host": "rest.example:9000"}, "http://rest.example:9000"),
        ({"Host": "[::1]:80"}, "http://[::1]:80"),
        ({"Host": "rest.example", "X-Forwarded-Proto": "https"}, "https://rest.example"),
        (
            {"X-Forwarded-Proto": "HTTPS, http", "X-Forwarded-Host": "a.example:8443, b.example"},
            "https://a.example:8443",
        ),
        ({"Host": "rest.example", "X-Forwarded-Proto": "gopher"}, "http://rest.example"),
        ({"Host": "rest.example", "X-Forwarded-Host": "a.example/consumers?"}, "http://rest.example"),
        ({"Host": "rest.example", "X-Forwarded-Host": "user@a.example"}, "http://rest.example"),
        ({"Host": "rest.example", "X-Forwarded-Host": ""}, "http://rest.example"),
    ],
)
async def test_base_uri_has_the_address_that_the_client_uses(
    rest_servers: MakeServers, headers: dict[str, str], base: str, is_elsewhere: bool
) -> None:
    first, second = await rest_servers(2)
    name = name_of(second if is_elsewhere else first, [first, second])
    made = await first.post("/consumers/a%20b", {"name": name}, headers=headers)

    assert made.body == {"instance_id": name, "base_uri": f"{base}/consumers/a%20b/instances/{name}"}


async def test_a_client_without_a_host_header_gets_the_listeners_address(rest: RestNode) -> None:
    host, _, port = rest.url.removeprefix("http://").rpartition(":")
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /consumers/g HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()

    assert f'"base_uri": "{rest.url}/consumers/g/instances/'.encode() in answer


async def test_a_name_is_taken_whichever_servers_are_asked(rest_servers: MakeServers) -> None:
    nodes = await rest_servers(3)
    made = [await nodes[0].post("/consumers/g", {"name": "one"}), await nodes[0].post("/consumers/h", {"name": "one"})]
    answers = [await node.post(f"/consumers/{group}", {"id": "one"}) for node in nodes for group in ("g", "h")]
    both = await asyncio.gather(*(node.post("/consumers/g", {"name": "two"}) for node in nodes))

    assert [answer.status for answer in made] == [200, 200]
    assert [status_and_code(answer) for answer in answers] == [(409, 40902)] * 6
    assert sorted(answer.status for answer in both) == [200, 409, 409]


async def test_groups_have_instances_of_their_own_under_one_name(rest_servers: MakeServers) -> None:
    nodes = await rest_servers(3)
    for topic in ("t", "u"):
        await nodes[0].create(topic)
        await produce(nodes[0], topic, topic.encode())
    balancer = Balancer(nodes)
    first, second = await Client.create(balancer, "g", name="one"), await Client.create(balancer, "h", name="one")
    await first.subscribe("t")
    await second.subscribe("u")
    read = values(await first.poll()), values(await second.poll())
    await first.delete()

    assert read == ([b"t"], [b"u"])
    assert status_and_code(await first.poll()) == (404, 40403)
    assert await second.assigned() == [("u", 0)]


async def test_instances_are_found_and_keep_their_names_when_a_new_server_would_be_chosen_for_them(
    rest_servers: MakeServers,
) -> None:
    (first_server,) = await rest_servers(1, consumer_places_max=1)
    (second_server,) = await rest_servers(1, consumer_places_max=1)
    first, second = (name_of(second_server, [first_server, second_server], start=start) for start in (0, 1_000))
    await first_server.member.refresh()
    for name in (first, second):
        made = await first_server.ask("POST", "/consumers/g", {"name": name}, headers={"Bearlake-Forwarded": "0"})
        assert made.status == 200
    taken = [await node.post("/consumers/g", {"name": first}) for node in (first_server, second_server)]
    costs = []
    for name in (first, first, second, first):
        before = sent_count()
        answer = await second_server.get(f"/consumers/g/instances/{name}/assignments")
        assert (answer.status, answer.body) == (200, {"partitions": []})
        costs.append(sent_count() - before)

    assert [status_and_code(answer) for answer in taken] == [(409, 40902)] * 2
    assert costs == [2, 1, 2, 2]  # one question each, except where the place of the last instance is known


async def test_a_misplaced_instance_is_found_for_every_method(rest_servers: MakeServers) -> None:
    nodes = first, second, third = await rest_servers(3)
    answers = []
    for method, at in (("HEAD", ""), ("GET", "/assignments"), ("DELETE", "/subscription"), ("DELETE", "")):
        name = name_of(second, nodes, start=1_000 * len(answers))
        await first.post("/consumers/g", {"name": name}, headers={"Bearlake-Forwarded": "0"})
        answers.append(await third.ask(method, f"/consumers/g/instances/{name}{at}"))

    assert [answer.status for answer in answers] == [204, 200, 204, 204]
    assert count(first) == 3


async def test_connections_to_other_servers_end_with_the_server(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await second.get("/consumers/g/instances/none/records")
    assert first.server.connection_count == 1
    await second.server.close()

    await until(lambda: first.server.connection_count == 0)


async def test_an_unknown_name_costs_one_request_and_one_question_to_each_other_server(
    rest_servers: MakeServers,
) -> None:
    nodes = await rest_servers(4)
    owner = nodes[1]
    path = f"/consumers/g/instances/{name_of(owner, nodes)}"
    before = sent_count()
    poll = await nodes[0].get(f"{path}/records")
    cost = sent_count() - before
    head = await nodes[0].ask("HEAD", path)
    before = sent_count()
    marked = await nodes[0].get(f"{path}/records", headers={"Bearlake-Forwarded": "0"})

    assert (status_and_code(poll), head.status, status_and_code(marked)) == ((404, 40403), 404, (404, 40403))
    assert cost == 3
    assert sent_count() == before  # a forwarded request is not forwarded again


async def test_other_errors_and_bodies_are_forwarded_unchanged(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2, request_bytes_max=1_000)
    client = await Client.create(first)
    there = f"{second.url}/consumers/g/instances/{client.base.rpartition('/')[2]}"
    nothing = await second.get(f"{there}/records")
    part = {"partitions": [{"topic": "none", "partition": 0}]}
    stranger = await second.post(f"{there}/assignments", part)
    large = await second.post(f"{there}/assignments", b" " * 1_001)
    kind = await second.post(f"{there}/assignments", b"{}", headers={"Content-Type": "text/plain"})
    packed = await second.post(
        f"{there}/assignments", gzip.compress(b'{"partitions": []}'), headers={"Content-Encoding": "gzip"}
    )
    found = await second.ask("HEAD", there)

    query = await second.get(f"{there}/records?timeout=soon")
    accept = await second.get(f"{there}/records", headers={"Accept": "application/vnd.kafka.json.v2+json"})

    assert [status_and_code(answer) for answer in (nothing, stranger, kind)] == [(409, 409), (404, 40401), (415, 415)]
    assert [status_and_code(answer) for answer in (query, accept)] == [(422, 422), (406, 40601)]
    assert nothing.headers["Content-Type"] == (await first.get(f"{client.base}/records")).headers["Content-Type"]
    assert (packed.status, large.status, found.status) == (204, 413, 204)


async def test_a_long_poll_through_another_server_ends_when_records_arrive(rest_servers: MakeServers) -> None:
    first, *_ = await rest_servers(1)
    second, *_ = await rest_servers(
        1, request_timeout_ms=1
    )  # this limit does not apply to requests that follow a stream
    await first.create("t")
    client = await Client.create(first)
    await client.subscribe("t")
    await client.poll(0)
    path = f"/consumers/g/instances/{client.base.rpartition('/')[2]}/records?timeout=20000"
    waiting = asyncio.create_task(second.get(path, headers={"Accept": "*/*"}))
    await until(lambda: first.server.open_count and second.server.open_count)
    await produce(first, "t", b"a")
    read = values(await waiting)
    await client.delete()

    assert read == [b"a"]


async def subscribed(rest: RestNode) -> Client:
    """A client whose instance is in `rest` and has the partition of a new topic `t`."""
    await rest.create("t")
    client = await Client.create(rest)
    await client.subscribe("t")
    await client.poll(0)
    return client


async def test_a_long_wait_is_split_into_several_requests_and_loses_no_record(
    rest_servers: MakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_SLICE_MS", 10)
    first, second = await rest_servers(2)
    client = await subscribed(first)
    client.base = client.base.replace(first.url, second.url)
    before = sent_count()
    waiting = asyncio.create_task(client.poll(20_000))
    await until(lambda: sent_count() > before + 3)
    await produce(first, "t", b"a")
    read = values(await waiting)
    over = await client.poll(50)
    await client.delete()

    assert (read, values(over)) == ([b"a"], [])


async def test_a_draining_server_ends_the_long_polls_that_it_has_forwarded(
    rest_servers: MakeServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_SLICE_MS", 10)
    first, second = await rest_servers(2)
    client = await subscribed(first)
    before = sent_count()
    waiting = asyncio.create_task(second.get(client.base.replace(first.url, second.url) + "/records?timeout=60000"))
    await until(lambda: sent_count() > before)
    await second.server.drain(600_000)
    answer = await waiting
    await produce(first, "t", b"a")
    read = values(await client.poll())
    await client.delete()

    assert (answer.status, answer.body, answer.headers["Connection"]) == (200, [], "close")
    assert read == [b"a"]
