"""Answers of a Pulsar source that lie: the import ends with a reason, connects nowhere else, and shows its token to nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typing_extensions import override

from bearlake.errors import Corrupt, Denied, Unavailable
from bearlake.importing.pulsar.cluster import PulsarCluster
from bearlake.importing.pulsar.connection import Connection
from bearlake.importing.pulsar.login import PulsarLogin
from bearlake.importing.pulsar_settings import PulsarSourceSettings
from bearlake.importing.reach import Reach, Redirects, peer_of
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.names import TopicName
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from fixtures.pulsar_source import PulsarSource

SETTINGS = PulsarSourceSettings(wait_ms=5, timeout_ms=30_000)
ORDERS = TopicName("public/default", "orders")
PATTERNS = ["persistent://public/default/.*"]

LONG_LABEL = "a" * 70


def cluster_of(source: PulsarSource, **settings: Any) -> PulsarCluster:
    return PulsarCluster(source.url, source.admin, PulsarSourceSettings(wait_ms=5, timeout_ms=30_000, **settings))


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Serve every connection so; yields `host:port`."""
    writers: list[asyncio.StreamWriter] = []

    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(OSError):
            await serve(reader, writer)

    server = await asyncio.start_server(noted, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


def looking_up(url: str) -> Callable[[str, Any], bytes | None]:
    """A source that sends everybody who looks for a topic to `url`."""

    def lie(kind: str, body: Any) -> bytes | None:
        if kind != "lookup":
            return None
        answer = pb.CommandLookupTopicResponse(
            request_id=body.request_id, broker_service_url=url, response=pb.CommandLookupTopicResponse.Redirect
        )
        return commands.frame("lookup_response", answer)

    return lie


@pytest.mark.parametrize(
    "url",
    [
        "",
        "pulsar://",
        "pulsar://[::1",
        "pulsar://broker:99999",
        "pulsar://broker:port",
        "http://broker:80",
        f"pulsar://{LONG_LABEL}:6650",
        "pulsar://a..b:6650",
        "pulsar://a\0b:6650",
        "pulsar://a b:6650",
        "pulsar://\N{SNOWMAN}\N{COMBINING ACUTE ACCENT}:6650",
    ],
)
async def test_an_address_that_is_none_is_refused(pulsar_source: PulsarSource, url: str) -> None:
    pulsar_source.topic("orders").add(3, 0, b"a")
    pulsar_source.lie = looking_up(url)

    with pytest.raises((Corrupt, Unavailable)):
        await cluster_of(pulsar_source).topics(PATTERNS)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", f"http://{LONG_LABEL}/", "http://a..b/", "http://h:port/", "http://h/\N{SNOWMAN}", "ftp://h/", ""],
)
async def test_a_redirect_to_what_is_no_address_is_refused(pulsar_source: PulsarSource, url: str) -> None:
    pulsar_source.lie_http = lambda _: web.Response(status=307, headers={"Location": url})

    with pytest.raises((Corrupt, Unavailable)):
        await cluster_of(pulsar_source).ledgers(ORDERS)


async def test_a_redirect_does_not_carry_the_token_over_plain_text_to_another_machine(
    pulsar_source: PulsarSource, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret")
    pulsar_source.lie_http = lambda _: web.Response(status=307, headers={"Location": "http://192.0.2.1:8080/x"})

    with pytest.raises(Denied, match=r"readable on the way to 192\.0\.2\.1"):
        await cluster_of(pulsar_source, token_file=str(tmp_path / "token")).ledgers(ORDERS)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "1" * 5000,
        "null",
        "[]",
        "7",
        json.dumps({"ledgers": [{"ledgerId": 3, "entries": 1e300}], "lastConfirmedEntry": "3:0", "cursors": {}}),
        '{"ledgers": [{"ledgerId": 3, "entries": 1e999}], "lastConfirmedEntry": "3:0", "cursors": {}}',
        json.dumps(
            {"ledgers": [{"ledgerId": 3, "entries": 1}], "lastConfirmedEntry": "9" * 4000 + ":0", "cursors": {}}
        ),
        json.dumps({"ledgers": [{"ledgerId": 3, "entries": -5}], "lastConfirmedEntry": "3:0", "cursors": {}}),
        json.dumps({"ledgers": {}, "lastConfirmedEntry": ["3:0"], "cursors": {}}),
        json.dumps({"ledgers": [], "lastConfirmedEntry": "3:0", "cursors": {"a": {"markDeletePosition": 7}}}),
    ],
)
async def test_statistics_that_are_none_are_corrupt(pulsar_source: PulsarSource, text: str) -> None:
    pulsar_source.topic("orders").add(3, 0, b"a")
    pulsar_source.lie_http = lambda request: (
        web.Response(text=text, content_type="application/json") if request.path.endswith("internalStats") else None
    )

    with pytest.raises(Corrupt):
        await cluster_of(pulsar_source).ledgers(ORDERS)


@pytest.mark.parametrize(
    "answer", [{"a": 1}, None, 7, "text", ["a/b"], [["x"]], ["persistent://public/default/\ud800"]]
)
@pytest.mark.parametrize("path", ["clusters", "partitioned"])
async def test_lists_that_are_none_end_the_look_with_a_reason_or_are_ignored(
    pulsar_source: PulsarSource, path: str, answer: object
) -> None:
    pulsar_source.topic("orders").add(3, 0, b"a")
    pulsar_source.lie_http = lambda request: web.json_response(answer) if request.path.endswith(path) else None

    with suppress(Corrupt):
        found = await cluster_of(pulsar_source).topics(PATTERNS)
        assert [topic.name for topic in found] == ["orders"]


async def test_topics_of_another_namespace_are_not_taken(pulsar_source: PulsarSource) -> None:
    pulsar_source.topic("orders").add(3, 0, b"a")
    pulsar_source.topics["persistent://other/tenant/orders"] = pulsar_source.topic("orders")

    found = await cluster_of(pulsar_source).topics(PATTERNS)

    assert [topic.name for topic in found] == ["orders"]


async def test_a_source_that_only_asks_and_never_reads_is_not_answered_without_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 60_000)
    settings = PulsarSourceSettings(timeout_ms=30_000, token_file=str(tmp_path / "token"))
    unread: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(commands.frame("connected", pb.CommandConnected(server_version="fake")))
        for _ in range(2_000):
            writer.write(commands.frame("auth_challenge", pb.CommandAuthChallenge()))
        await writer.drain()

    login = PulsarLogin(settings, is_tls=False)
    async with (
        serving(serve) as address,
        await Connection.open(address, settings, login, print) as connection,
    ):
        for _ in range(200):
            unread.append(connection.unread_bytes)
            await asyncio.sleep(0)

    assert max(unread) < 1 << 20


@pytest.mark.parametrize("size", [0, 1000])
async def test_entries_that_nobody_asked_for_do_not_pile_up(size: int) -> None:
    settings = PulsarSourceSettings(timeout_ms=30_000, wait_ms=5, fetch_bytes_max=100_000)
    message = pb.CommandMessage(consumer_id=0)
    message.message_id.ledger_id = message.message_id.entry_id = 1
    body = pb.BaseCommand(type=commands.NUMBERS["message"], message=message)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(commands.frame("connected", pb.CommandConnected(server_version="fake")))
        frame = framing.message_frame(body, bytes(size))
        for _ in range(300_000):
            writer.write(frame)
        await writer.drain()

    login = PulsarLogin(settings, is_tls=False)
    async with (
        serving(serve) as address,
        await Connection.open(address, settings, login, print) as connection,
    ):
        with pytest.raises(Unavailable, match="more than"):
            await connection.last(0)
        assert connection.waiting_count < 150_000  # two reads of the socket


def user_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user's addresses count as those of another machine."""
    named = Reach.named_by_user
    monkeypatch.setattr(Reach, "named_by_user", lambda reach, _, address="": named(reach, "192.0.2.1", address))


def named_by_source(peer: str, *, user: str) -> None:
    """A user's address leads to `user`, and the source names one that leads to `peer`."""
    redirects = Redirects(Reach("the source"))
    redirects.check_next(user)
    redirects.check_next(peer)


@pytest.mark.parametrize(
    "peer", ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "127.0.0.1", "::1", "::ffff:127.0.0.1"]
)
def test_a_source_cannot_mean_this_machine_or_a_link_local_address(peer: str) -> None:
    with pytest.raises(Denied, match="a source cannot mean it"):
        named_by_source(peer, user="192.0.2.1")


CLOUDS = [
    "100.100.100.200",
    "::ffff:100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:42::42",
    "fd00:c1::a9fe:a9fe",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "64:ff9b::169.254.169.254",
    "64:ff9b::100.100.100.200",
    "64:ff9b:1::169.254.169.254",
    "64:ff9b:1:2:3::168.63.129.16",
]
"""Metadata services of clouds at addresses that are not link-local, or that are behind NAT64."""


@pytest.mark.parametrize("peer", CLOUDS)
@pytest.mark.parametrize("user", ["192.0.2.1", "127.0.0.1"])
def test_a_source_cannot_mean_the_metadata_service_of_a_cloud(peer: str, user: str) -> None:
    with pytest.raises(Denied, match="a source cannot mean it"):
        named_by_source(peer, user=user)


@pytest.mark.parametrize(
    "peer",
    ["100.100.100.201", "100.64.0.1", "fd00:ec3::254", "fd12::254", "64:ff9b::192.0.2.7", "64:ff9b:1::192.0.2.7"],
)
def test_a_source_may_have_brokers_in_private_networks(peer: str) -> None:
    named_by_source(peer, user="192.0.2.1")


@pytest.mark.parametrize("peer", ["127.0.0.2", "::1", "192.0.2.7", "10.0.0.1"])
def test_a_source_on_this_machine_may_have_brokers_here(peer: str) -> None:
    named_by_source(peer, user="127.0.0.1")


@pytest.mark.parametrize("peer", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", *CLOUDS])
def test_a_name_of_the_user_that_led_elsewhere_cannot_lead_here_later(peer: str) -> None:
    reach = Reach("the source")
    Redirects(reach).check_next("192.0.2.1")

    with pytest.raises(Denied, match="led to another machine"):
        Redirects(reach).check_next(peer)
    with pytest.raises(Denied, match="a source cannot mean it"):
        reach.check("127.0.0.1")


def test_another_address_of_the_user_may_be_on_this_machine() -> None:
    reach = Reach("the source")
    reach.named_by_user("192.0.2.1", "far:9092")
    reach.named_by_user("127.0.0.1", "near:9092")
    reach.named_by_user("192.0.2.2", "far:9092")

    reach.check("127.0.0.1")


async def test_a_source_that_closes_a_connection_at_once_is_unavailable() -> None:
    """The kernel has no address of the other end then."""

    class Closed(asyncio.Transport):
        @override
        def is_closing(self) -> bool:
            return True

    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    writer = asyncio.StreamWriter(Closed(), protocol, None, asyncio.get_running_loop())

    with pytest.raises(Unavailable, match="as soon as it was open"):
        peer_of(writer)


async def test_a_broker_at_an_address_that_a_source_cannot_mean_gets_nothing(
    pulsar_source: PulsarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulsar_source.topic("orders").add(3, 0, b"a")
    got = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(1) == b""
        got.set()
        writer.close()

    user_elsewhere(monkeypatch)
    async with serving(serve) as address:
        pulsar_source.lie = looking_up(f"pulsar://{address}")
        with pytest.raises(Denied, match="a source cannot mean it"):
            await cluster_of(pulsar_source).topics(PATTERNS)

        async with asyncio.timeout(30):
            await got.wait()


async def test_a_redirect_to_an_address_that_a_source_cannot_mean_gets_no_request(
    pulsar_source: PulsarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulsar_source.topic("orders").add(3, 0, b"a")
    asked: list[str] = []

    def lie(request: web.Request) -> web.Response | None:
        asked.append(request.path)
        if request.path.startswith("/admin/v2/topics/"):
            return None
        return web.Response(status=307, headers={"Location": f"{pulsar_source.admin}/admin/v2/topics/orders"})

    pulsar_source.lie_http = lie
    user_elsewhere(monkeypatch)

    with pytest.raises(Denied, match="a source cannot mean it"):
        await cluster_of(pulsar_source).let_go(ORDERS, "sub")

    assert asked == ["/admin/v2/persistent/public/default/orders/subscription/sub"]
