"""Logins of the unmodified Python client (pulsar-client, the C++ client underneath): let in, refused, renewed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bearlake.serving.authentication.settings import FailureSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.telemetry import metrics
from fixtures.logins import Logins, add_user
from fixtures.pulsar_server import Make, PulsarNode
from fixtures.waiting import WAIT_S, until

pulsar_client = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")

pytestmark = pytest.mark.integration

WAIT_MS = int(1000 * WAIT_S)
Connect = Callable[..., Any]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """`connect(url, authentication, …)`: a client, which is closed at the end."""
    clients = []

    def make(url: str, authentication: Any, **options: Any) -> Any:
        logger = pulsar_client.FileLogger(pulsar_client.LoggerLevel.Warn, str(tmp_path / "client.log"))
        seconds = options.pop("seconds", WAIT_MS // 1000)
        client = pulsar_client.Client(url, authentication, operation_timeout_seconds=seconds, logger=logger, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        with contextlib.suppress(pulsar_client.AlreadyClosed):
            await asyncio.to_thread(client.close)


async def start(pulsar_cluster: Make, logins: Logins, **changes: Any) -> PulsarNode:
    listener = changes.pop("listener", None)
    cluster = await pulsar_cluster(1, authentication=logins.settings(**changes), listener=listener)
    await add_user(cluster.metadata)
    await cluster[0].create("t")
    return cluster[0]


def round_trip(client: Any) -> bytes:
    """Produce a message and read it."""
    consumer = client.subscribe("t", "s", initial_position=pulsar_client.InitialPosition.Earliest)
    client.create_producer("t").send(b"honey")
    message = consumer.receive(WAIT_MS)
    consumer.acknowledge(message)
    consumer.close()
    content: bytes = message.data()
    return content


async def test_a_token_and_a_password_let_the_client_in(pulsar_cluster: Make, logins: Logins, connect: Connect) -> None:
    node = await start(pulsar_cluster, logins)
    by_token = connect(node.url, pulsar_client.AuthenticationToken(logins.token()))
    by_password = connect(node.url, pulsar_client.AuthenticationBasic("alice", "secret"))
    by_http = connect(node.http_url, pulsar_client.AuthenticationToken(logins.token()))
    for client in (by_token, by_password, by_http):
        assert await asyncio.to_thread(round_trip, client) == b"honey"


async def test_a_wrong_login_is_refused(pulsar_cluster: Make, logins: Logins, connect: Connect) -> None:
    """The C++ client has its own name for each refusal: it tries again until its timeout, or reports a failed connection."""
    refusals = (pulsar_client.AuthenticationError, pulsar_client.Timeout, pulsar_client.ConnectError)
    node = await start(pulsar_cluster, logins, failures=FailureSettings(per_address_max=1_000))
    expired = pulsar_client.AuthenticationToken(logins.token(exp=int(time.time()) - 60))
    wrong = pulsar_client.AuthenticationBasic("alice", "wrong")
    for authentication in (expired, wrong):
        client = connect(node.url, authentication, seconds=2)
        before = metrics.PULSAR_ERRORS.labels("AuthenticationError").value
        with pytest.raises(refusals):
            await asyncio.to_thread(client.create_producer, "t")
        assert metrics.PULSAR_ERRORS.labels("AuthenticationError").value > before
        by_http = connect(node.http_url, authentication, seconds=2)
        with pytest.raises(refusals):
            await asyncio.to_thread(by_http.create_producer, "t")


async def test_a_client_that_renews_its_token_keeps_its_connection(
    pulsar_cluster: Make, logins: Logins, connect: Connect
) -> None:
    node = await start(pulsar_cluster, logins, session_ms_max=1_000)
    asked: list[str] = []

    def supply() -> str:
        asked.append(logins.token())
        return asked[-1]

    client = connect(node.url, pulsar_client.AuthenticationToken(supply))
    producer = await asyncio.to_thread(client.create_producer, "t")
    (connection,) = node.server.connections
    known = len(asked)
    await until(lambda: len(asked) >= known + 4)
    await asyncio.to_thread(producer.send, b"honey")
    assert list(node.server.connections) == [connection]


async def test_a_client_that_does_not_renew_connects_again_with_a_new_token(
    pulsar_cluster: Make, logins: Logins, connect: Connect
) -> None:
    """A token's end closes the connection; the client's next connection brings the next token."""
    node = await start(pulsar_cluster, logins)
    asked: list[str] = []
    brief = logins.token(exp=int(time.time()) + 3)

    def supply() -> str:
        is_over = len(asked) >= 3 and len(node.server.connections) == 0
        asked.append(logins.token() if is_over else brief)
        return asked[-1]

    client = connect(node.url, pulsar_client.AuthenticationToken(supply))
    producer = await asyncio.to_thread(client.create_producer, "t")
    (connection,) = node.server.connections
    await until(lambda: [other for other in node.server.connections if other is not connection])
    await asyncio.to_thread(producer.send, b"honey")


async def test_a_certificate_lets_the_client_in(
    pulsar_cluster: Make, logins: Logins, connect: Connect, certificates: dict[str, Path]
) -> None:
    listener = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    node = await start(pulsar_cluster, logins, listener=listener)
    url = node.url.replace("pulsar://", "pulsar+ssl://")
    trust = {"tls_trust_certs_file_path": str(certificates["authority"])}
    own = pulsar_client.AuthenticationTLS(str(certificates["client"]), str(certificates["client_key"]))
    assert await asyncio.to_thread(round_trip, connect(url, own, **trust)) == b"honey"
    stranger = connect(url, None, seconds=3, **trust)
    with pytest.raises(pulsar_client.PulsarException):
        await asyncio.to_thread(stranger.create_producer, "t")
