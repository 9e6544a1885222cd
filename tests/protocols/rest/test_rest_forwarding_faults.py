"""Servers that drain, crash, are overloaded or cannot be verified, while clients reach a consumer instance through other servers."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import aiohttp
import pytest

from bearlake.serving.listener import ListenerSettings
from fixtures.rest_consumer import Balancer, Client, count, name_of, produce, sent_count, status_and_code, values
from fixtures.rest_server import MakeServers
from fixtures.waiting import until


async def test_a_draining_server_creates_instances_on_other_servers_and_ends_its_own_for_all_clients(
    rest_servers: MakeServers,
) -> None:
    first, second, third = await rest_servers(3, drain_idle_ms=10_000)
    await first.create("t")
    await produce(second, "t", b"a")
    outside = Balancer([first])
    keeper = await Client.create(first)  # as long as the instance exists, the server waits for its client
    client = await Client.create(outside, auto_commit_enable=False)
    name = client.base.rpartition("/")[2]
    await client.subscribe("t")
    values(await client.poll())
    draining = asyncio.create_task(first.server.drain(600_000))
    await until(lambda: first.server._guard.is_draining)  # noqa: SLF001 - clients are notified later
    client.rest = Balancer([second, third])
    kept = await client.rest.get(f"{client.base}/assignments")
    committed = await client.rest.post(f"{client.base}/offsets")
    gone = [await client.poll() for _ in range(2)]
    await produce(second, "t", b"b")
    for other in (name_of(first, [first, second, third]), name_of(second, [first, second, third])):
        await Client.create(outside, name=other)
    again = await Client.create(outside, name=name)
    again.rest = Balancer([first, second, third])
    await again.subscribe("t")
    read = values(await again.poll())
    await keeper.delete()
    await draining

    assert (kept.status, kept.headers.get("Connection"), committed.status) == (200, None, 200)
    assert [status_and_code(answer) for answer in gone] == [(404, 40403)] * 2
    assert again.base == client.base
    assert (count(first), count(second) + count(third)) == (0, 3)
    assert read == [b"b"]


async def test_a_drained_server_has_no_instances(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    client = await Client.create(first)
    await first.member.drain()
    await second.member.refresh()
    await first.server.drain(600_000)
    await first.server.close()

    assert status_and_code(await second.get(f"{client.base.replace(first.url, second.url)}/records")) == (404, 40403)


async def test_an_overloaded_server_does_not_count_as_a_server_without_the_instance(
    rest_servers: MakeServers,
) -> None:
    first, second = await rest_servers(2)
    (busy,) = await rest_servers(1, request_count_max=0)
    client = await Client.create(first)
    here = await second.get(f"{client.base.replace(first.url, second.url)}/assignments")
    unknown = await second.get(f"/consumers/g/instances/{name_of(second, [first, second, busy])}/assignments")

    assert here.status == 200
    assert status_and_code(unknown) == (503, 50003)


async def test_the_last_server_creates_no_instance_while_it_drains(rest_servers: MakeServers) -> None:
    nodes = await rest_servers(2, drain_idle_ms=10_000)
    clients = [await Client.create(node) for node in nodes]
    draining = [asyncio.create_task(node.server.drain(600_000)) for node in nodes]
    await until(lambda: all(node.server._guard.is_draining for node in nodes))  # noqa: SLF001
    answers = [await node.post("/consumers/g", {"name": "one"}) for node in nodes]
    for client in clients:
        await client.delete()
    await asyncio.gather(*draining)

    assert [status_and_code(answer) for answer in answers] == [(503, 50003)] * 2


async def test_the_death_of_a_server_is_reported_at_once_and_then_its_instances_are_created_again(
    rest_servers: MakeServers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bearlake.protocols.rest.proxy.peers")
    first, second, third = await rest_servers(3)
    await first.create("t")
    name = name_of(first, [first, second, third])
    client = await Client.create(Balancer([second, third]), name=name)
    await client.subscribe("t")
    await client.poll(0)
    waiting = asyncio.create_task(client.poll(20_000))
    await until(lambda: first.server.open_count)
    behind = asyncio.create_task(client.rest.post(f"{client.base}/offsets"))  # waits for the poll
    await until(lambda: first.server.open_count == 2)
    await first.stop()
    under_way, lost = await waiting, await behind
    still_live = [await client.poll(20_000) for _ in range(2)]
    made = await client.rest.post("/consumers/g", {"name": name})  # by the next one in turn
    found = [await client.assigned() for _ in range(2)]
    await client.delete()
    await first.member.leave()
    for node in (second, third):
        await node.member.refresh()
    gone = [await client.poll() for _ in range(2)]

    assert [status_and_code(answer) for answer in (under_way, lost, *still_live)] == [(503, 50003)] * 4
    assert under_way.headers["Retry-After"] == "1"
    assert (made.status, found) == (200, [[], []])
    assert [status_and_code(answer) for answer in gone] == [(404, 40403)] * 2
    logged = [record for record in caplog.records if "cannot reach another REST server" in record.message]
    assert len(logged) == 2, "each of the two logs this once"


def tls(certificates: dict[str, Path], authority: Path | None = None) -> ListenerSettings:
    return ListenerSettings(
        advertised_host="localhost",
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file="" if authority is None else str(authority),
    )


@pytest.mark.parametrize(("is_known", "is_personal"), [(True, False), (False, False), (True, True)])
async def test_with_tls_only_verifiable_servers_are_asked_and_never_for_clients_with_certificates(
    rest_servers: MakeServers,
    certificates: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    is_known: bool,
    is_personal: bool,
) -> None:
    if is_known:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates["authority"]))
    authority = certificates["authority"] if is_personal else None
    first, second = await rest_servers(2, tls(certificates, authority))
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    context.load_cert_chain(certificates["client"], certificates["client_key"])
    async with contextlib.AsyncExitStack() as closing:
        connector = aiohttp.TCPConnector(ssl=context)
        session = await closing.enter_async_context(aiohttp.ClientSession(connector=connector))
        first.session = second.session = session
        before = sent_count()
        client = await Client.create(first, name=name_of(second, [first, second]))
        counts = count(first), count(second)
        base = client.base.replace(second.url, first.url)
        answers = [await first.get(f"{at}/assignments") for at in (base, base.replace(first.url, second.url))]
        unknown = await second.get(f"/consumers/g/instances/{name_of(first, [first, second])}/assignments")

    is_shared = is_known and not is_personal
    assert client.base.startswith(second.url if is_shared else first.url)
    assert counts == ((0, 1) if is_shared else (1, 0))
    assert [answer.status for answer in answers] == ([200, 200] if is_shared else [200, 404])
    assert status_and_code(unknown) == (404, 40403)
    assert (sent_count() == before) is is_personal
