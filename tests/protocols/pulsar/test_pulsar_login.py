"""Logins of Pulsar connections: what is served before and after CONNECT, what a refused client sees, renewal and the end of a login.

Source: Pulsar binary protocol specification, "Connection establishment"; PIP-30 (AUTH_CHALLENGE).
"""

import asyncio
import ssl
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.session import FRAME_BYTES_MAX, REFRESH, Session
from bearlake.serving.authentication.settings import FailureSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.logins import Logins, add_user
from fixtures.pulsar_http import ask
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.waiting import WAIT_S, until

BASIC = {"auth_method_name": "basic", "auth_data": b"alice:secret"}
RENEWS = pb.FeatureFlags(supports_auth_refresh=True)


class Seen(Authorizer):
    """An authorizer that records the callers."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        self.names.add(str(who))
        return True


async def start(pulsar_cluster: Make, logins: Logins, count: int = 1, **changes: Any) -> PulsarNode:
    cluster = await pulsar_cluster(count, authentication=logins.settings(**changes))
    await add_user(cluster.metadata)
    await cluster[0].create("t")
    return cluster[0]


def token(logins: Logins, **claims: Any) -> dict[str, Any]:
    return {"auth_method_name": "token", "auth_data": logins.token(**claims).encode()}


async def refusal(node: PulsarNode, **connect: Any) -> Any:
    """The error of a CONNECT, after which the connection is closed."""
    client = await node.client(**connect)
    assert isinstance(client.connected, pb.CommandError), connect
    assert await client.is_closed()
    return client.connected


async def test_a_password_or_a_token_lets_a_client_in_as_its_user(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins)
    for login, name in ((BASIC, "User:alice"), (token(logins, sub="bob"), "User:bob")):
        seen = node.streams.authorizer = Seen()
        client = await node.client(**login)
        assert isinstance(client.connected, pb.CommandConnected)
        assert isinstance(await client.produce("t"), pb.CommandProducerSuccess)
        assert seen.names == {name}


async def test_wrong_logins_are_refused_and_disconnected(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins)
    refused = [
        {},
        {"auth_method_name": "none"},
        {"auth_method_name": "tls"},
        {"auth_method_name": "basic", "auth_data": b"alice:wrong"},
        {"auth_method_name": "basic", "auth_data": b"ghost:secret"},
        {"auth_method_name": "basic", "auth_data": b"alice"},
        {"auth_method_name": "basic", "auth_data": b"\xff:\xff"},
        token(logins, exp=int(time.time()) - 60),
        token(logins, aud="somebody else"),
        {"original_principal": "alice"},
        {**token(logins, sub="proxy"), "original_principal": "alice"},
        {**token(logins, sub="proxy"), "original_auth_method": "basic", "original_auth_data": "alice:wrong"},
    ]
    for connect in refused:
        error = await refusal(node, **connect)
        assert error.error == pb.AuthenticationError, connect
        assert "secret" not in error.message


async def test_nothing_is_served_before_the_login(pulsar_cluster: Make, logins: Logins) -> None:
    """Commands behind a CONNECT wait for its result; a refused client gets no answer to them."""
    node = await start(pulsar_cluster, logins)
    seen = node.streams.authorizer = Seen()
    client = await node.silent_client()
    wrong = {"auth_method_name": "basic", "auth_data": b"alice:wrong"}
    client.send("connect", pb.CommandConnect(client_version="test", protocol_version=20, **wrong))
    client.send("producer", pb.CommandProducer(topic="t", producer_id=1, request_id=1))
    assert (await client.receive("error")).error == pb.AuthenticationError
    with pytest.raises(asyncio.IncompleteReadError):
        await client.receive()
    assert seen.names == set()


async def test_commands_behind_the_login_are_answered_in_turn(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins)
    client = await node.silent_client()
    client.send("connect", pb.CommandConnect(client_version="test", protocol_version=20, **BASIC))
    client.send("producer", pb.CommandProducer(topic="t", producer_id=1, request_id=1))
    await client.receive("connected")
    await client.receive("producer_success")


async def test_a_large_command_before_the_login_is_not_read(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins)
    client = await node.silent_client()
    client.send_bytes(struct.pack(">I", FRAME_BYTES_MAX + 1))
    assert await client.is_closed()


@pytest.mark.parametrize("user", [b"alice", b"ghost"])
async def test_guessing_ends_with_an_error_after_which_clients_retry(
    pulsar_cluster: Make, logins: Logins, user: bytes
) -> None:
    node = await start(pulsar_cluster, logins, failures=FailureSettings(per_address_max=3, window_ms=3_600_000))
    for number in range(3):
        guess = {"auth_method_name": "basic", "auth_data": b"%b:guess %d" % (user, number)}
        assert (await refusal(node, **guess)).error == pb.AuthenticationError
    assert (await refusal(node, **BASIC)).error == pb.TooManyRequests


def session_of(node: PulsarNode) -> Session:
    """The session of the only connection."""
    (connection,) = node.server.connections
    assert connection.session is not None
    return connection.session


async def test_a_challenged_client_goes_on_with_its_new_login(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins, session_ms_max=3_600_000)
    client = await node.client(**BASIC, feature_flags=RENEWS)
    session = session_of(node)
    for _ in range(3):
        timers = list(session._timers)  # noqa: SLF001
        session._challenge()  # noqa: SLF001 - in time, a login could end before a busy machine has read the next one
        challenge = await client.receive("auth_challenge")
        assert (challenge.challenge.auth_method_name, challenge.challenge.auth_data) == ("basic", REFRESH)
        renewed = pb.AuthData(auth_method_name="basic", auth_data=b"alice:secret")
        client.send("auth_response", pb.CommandAuthResponse(response=renewed))
        await until(lambda: session._timers != timers)  # noqa: B023, SLF001
        assert all(timer.cancelled() for timer in timers)
    assert isinstance(await client.produce("t"), pb.CommandProducerSuccess)


async def test_a_challenged_client_cannot_become_somebody_else(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins, session_ms_max=3_600_000)
    client = await node.client(**BASIC, feature_flags=RENEWS)
    session_of(node)._challenge()  # noqa: SLF001 - as above
    await client.receive("auth_challenge")
    other = pb.AuthData(auth_method_name="token", auth_data=logins.token(sub="bob").encode())
    client.send("auth_response", pb.CommandAuthResponse(response=other))
    assert (await client.receive("error")).error == pb.AuthenticationError
    assert await client.is_closed()


@pytest.mark.parametrize("flags", [RENEWS, pb.FeatureFlags()], ids=["silent", "cannot renew"])
async def test_a_connection_ends_with_its_login(pulsar_cluster: Make, logins: Logins, flags: pb.FeatureFlags) -> None:
    node = await start(pulsar_cluster, logins, session_ms_max=200)
    client = await node.client(**BASIC, feature_flags=flags)
    if flags == RENEWS:
        await client.receive("auth_challenge")
    assert await client.is_closed()


async def test_an_answer_without_a_challenge_changes_nothing(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins)
    client = await node.client(**BASIC)
    wrong = pb.AuthData(auth_method_name="basic", auth_data=b"alice:wrong")
    client.send("auth_response", pb.CommandAuthResponse(response=wrong))
    seen = node.streams.authorizer = Seen()
    assert isinstance(await client.produce("t"), pb.CommandProducerSuccess)
    assert seen.names == {"User:alice"}


async def test_a_proxy_acts_only_for_clients_whose_login_it_passes_on(pulsar_cluster: Make, logins: Logins) -> None:
    node = await start(pulsar_cluster, logins)
    seen = node.streams.authorizer = Seen()
    original = {"original_principal": "alice", "original_auth_method": "basic", "original_auth_data": "alice:secret"}
    client = await node.client(**token(logins, sub="proxy"), **original)
    assert isinstance(client.connected, pb.CommandConnected)
    found = await client.ask("lookup", pb.CommandLookupTopic(topic="t", original_principal="alice"))
    foreign = await client.ask("lookup", pb.CommandLookupTopic(topic="t", original_principal="bob"))
    count = await client.ask(
        "partitioned_metadata", pb.CommandPartitionedTopicMetadata(topic="t", original_principal="bob")
    )
    assert found.response == pb.CommandLookupTopicResponse.Connect
    assert foreign.error == count.error == pb.AuthorizationError
    assert seen.names == {"User:alice"}


@pytest.mark.parametrize("session_ms", [3_600_000, 100])
async def test_a_certificate_names_the_client_until_its_session_ends(
    pulsar_cluster: Make, logins: Logins, certificates: dict[str, Path], session_ms: int
) -> None:
    listener = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    settings = logins.settings(session_ms_max=session_ms)
    cluster = await pulsar_cluster(1, authentication=settings, listener=listener)
    node = cluster[0]
    await node.create("t")
    seen = node.streams.authorizer = Seen()
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    context.load_cert_chain(certificates["client"], certificates["client_key"])
    port = node.listeners[0].socket.getsockname()[1]
    reader, writer = await asyncio.wait_for(asyncio.open_connection("localhost", port, ssl=context), WAIT_S)
    client = PulsarClient(reader, writer)
    node.clients.append(client)
    connect = pb.CommandConnect(
        client_version="test", protocol_version=20, auth_method_name="tls", feature_flags=RENEWS
    )
    assert isinstance(await client.ask("connect", connect), pb.CommandConnected)
    if session_ms == 100:
        assert await client.is_closed()  # without a challenge: nothing would be verified
        return
    assert isinstance(await client.produce("t"), pb.CommandProducerSuccess)
    assert seen.names == {"User:CN=alice"}


async def test_the_http_api_asks_other_servers_in_the_name_of_its_client(
    pulsar_cluster: Make, logins: Logins, session: Any
) -> None:
    cluster = await pulsar_cluster(2, authentication=logins.settings())
    await cluster[0].create("t", 2, pulsar_partitioned="true")
    clients = [await node.client(**token(logins)) for node in (cluster[0], cluster[1])]
    for number, client in enumerate(clients):
        topic = f"persistent://public/default/t-partition-{number}"
        assert isinstance(await client.subscribe(topic), pb.CommandSuccess)
    seen = cluster[1].streams.authorizer = Seen()
    path = "/admin/v2/persistent/public/default/t/partitioned-stats"
    for node in (cluster[0], cluster[1]):
        status, stats = await ask(session, node, "GET", path, headers=logins.bearer(sub="bob"))
        assert status == 200, stats
        assert [len(stats["partitions"][name]["subscriptions"]) for name in sorted(stats["partitions"])] == [1, 1]
        assert (await ask(session, node, "GET", path))[0] == 401
    assert "User:bob" in seen.names
    assert "User:ANONYMOUS" not in seen.names
