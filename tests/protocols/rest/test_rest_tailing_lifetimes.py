"""Stream-TTL and Stream-Expires-At: when a stream expires and what renews it, by the store's clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Conflict
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.objects.open import open_store
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes, parse_time
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import INTERNAL
from bearlake.streams.service import Streams
from fixtures.rest_server import RestNode

TEXT = {"Content-Type": "text/plain"}


class Server:
    """A server's streams and their lifetimes."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.lives = Lifetimes(streams, 1, 120_000)

    async def make(self, name: str, **configs: str) -> StreamView:
        return await self.streams.catalog.create(
            name, 1, {key.replace("_", "."): value for key, value in configs.items()}
        )

    async def status(self, name: str) -> int:
        """The current answer to a request."""
        try:
            await self.lives.check(await self.streams.catalog.find(name))
        except Problem as problem:
            return problem.status
        return 200

    async def use(self, name: str) -> str:
        """Read or write; returns the time of the last use in the config."""
        await self.lives.use(await self.streams.catalog.find(name))
        return (await self.streams.metadata.streams.get(name)).configs.get("http.used.at", "")


class Scene:
    """Servers on one store whose clock the test advances; each server's own clock is wrong by a different number of hours."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.own_clocks: list[ManualClock] = []
        self.servers: list[Server] = []

    def advance(self, delta_ms: int) -> None:
        for clock in (self.clock, *self.own_clocks):
            clock.advance(delta_ms)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with AsyncExitStack() as closing:
        metadata = await open_sqlite(None, SqliteSettings(), clock=scene.clock)
        closing.push_async_callback(metadata.close)
        store = open_store("memory:///")
        for number in range(2):
            settings = ServerSettings(name=f"server-{number}", heartbeat_ms=50, timeout_ms=5_000_000)
            member = await RegisteredServer.join(metadata.servers, settings, {})
            own = ManualClock()
            own.advance((number + 1) * 3_600_000)
            scene.own_clocks.append(own)
            streams = Streams(metadata, store, member.server, clock=own)
            closing.push_async_callback(streams.close)
            await streams.start()
            scene.servers.append(Server(streams))
        yield scene


async def test_an_idle_stream_ends_after_its_time_to_live(scene: Scene) -> None:
    server, _ = scene.servers
    await server.make("t", http_ttl_seconds="10")
    scene.advance(10_000)
    alive = await server.status("t")
    scene.advance(1_000)

    assert alive == 200
    assert await server.status("t") == 404
    assert "t" not in server.streams.catalog.names()


async def test_use_renews_the_time_to_live_and_moves_the_config_after_a_tenth_of_it(scene: Scene) -> None:
    server, _ = scene.servers
    start_ms = (await server.make("t", http_ttl_seconds="10")).stream.created_ms
    early = await server.use("t")
    scene.advance(999)
    still = await server.use("t")
    scene.advance(1)
    moved = await server.use("t")
    scene.advance(10_999)
    alive = await server.status("t")
    scene.advance(1)

    assert (early, still, moved) == ("", "", str(start_ms + 1_000))
    assert alive == 200
    assert await server.status("t") == 404


async def test_a_stream_that_one_server_renewed_is_not_ended_by_another(scene: Scene) -> None:
    first, second = scene.servers
    await first.make("t", http_ttl_seconds="10")
    await second.streams.catalog.find("t")  # and no longer follows the log
    scene.advance(9_000)
    await first.use("t")
    scene.advance(9_000)

    assert await second.status("t") == 200
    assert await first.status("t") == 200


async def test_a_stream_ends_at_its_time_whichever_client_uses_it(scene: Scene) -> None:
    first, second = scene.servers
    await first.make("t", http_expires_at="1970-01-01T00:00:00Z")
    await first.make("u", http_expires_at="2100-01-01T00:00:00+01:00")

    assert await second.use("u") == ""
    assert await second.status("t") == 404
    assert await second.status("u") == 200


async def test_the_end_of_one_incarnation_is_not_that_of_the_next(scene: Scene) -> None:
    first, second = scene.servers
    await first.make("t", http_ttl_seconds="10")
    old = await second.streams.catalog.find("t")
    scene.advance(11_000)
    assert await first.status("t") == 404
    new = await first.make("t", http_ttl_seconds="10")
    with pytest.raises(Problem):
        await second.lives.check(old)

    assert (await first.streams.metadata.streams.get("t")).id == new.stream.id


async def test_a_stream_with_forks_is_kept_for_them_when_it_ends(scene: Scene) -> None:
    first, second = scene.servers
    source = await first.make("source", http_ttl_seconds="1", http_forked="true")
    await second.make("fork", http_fork=f"{source.stream.number}/0@0+0=0", http_ttl_seconds="100")
    scene.advance(2_000)
    kept = await first.status("source")
    scene.advance(200_000)

    assert kept == 410
    assert await second.status("fork") == 404
    await first.lives.remove(INTERNAL, "source")
    assert "source" not in {stream.name for stream in await first.streams.metadata.streams.list()}


async def test_the_sweep_deletes_expired_streams_and_sources_without_forks(scene: Scene) -> None:
    server, _ = scene.servers
    source = await server.make("source", http_forked="true", http_deleted="true")
    await server.make("fork", http_fork=f"{source.stream.number}/0@0+0=0", http_ttl_seconds="1")
    await server.make("ttl", http_ttl_seconds="5")
    await server.make("half", http_incomplete="true")
    await server.make("plain")
    sweep = asyncio.create_task(server.lives.run())
    try:
        scene.advance(2_000)
        while list(server.streams.catalog.names()) != ["half", "plain", "ttl"]:  # noqa: ASYNC110 - until the sweep did it
            await asyncio.sleep(0)
        scene.advance(200_000)
        while list(server.streams.catalog.names()) != ["plain"]:  # noqa: ASYNC110 - until the sweep did it
            await asyncio.sleep(0)
    finally:
        sweep.cancel()
        await asyncio.gather(sweep, return_exceptions=True)


@pytest.mark.parametrize("error", [Conflict("many changes"), KeyError("a bug")], ids=["Conflict", "bug"])
async def test_a_failed_deletion_of_one_expired_stream_does_not_stop_the_sweep(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server, _ = scene.servers
    for name in ("a", "b"):
        await server.make(name, http_ttl_seconds="1")
    remove = server.lives.remove

    async def fail_for_the_first(who: object, name: str, **options: bool) -> None:
        if name == "a":
            raise error
        await remove(INTERNAL, name, **options)

    monkeypatch.setattr(server.lives, "remove", fail_for_the_first)
    sweep = asyncio.create_task(server.lives.run())
    try:
        scene.advance(2_000)
        while list(server.streams.catalog.names()) != ["a"]:
            assert not sweep.done()
            await asyncio.sleep(0)
    finally:
        sweep.cancel()
        await asyncio.gather(sweep, return_exceptions=True)


async def test_a_time_to_live_of_zero_ends_at_once(rest: RestNode) -> None:
    made = await rest.put("/v1/stream/t", b"", headers={**TEXT, "Stream-TTL": "0"})

    assert made.status == 201
    assert (await rest.get("/v1/stream/t")).status == 404
    assert (await rest.put("/v1/stream/t", b"a", headers=TEXT)).status == 201
    assert (await rest.get("/v1/stream/t")).body == b"a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2030-01-31T12:00:00Z", 1_896_091_200_000),
        ("2030-01-31t12:00:00.5z", 1_896_091_200_500),
        ("2030-01-31T13:00:00.123456789+01:00", 1_896_091_200_123),
        ("2030-01-31", None),
        ("2030-01-31T12:00:00", None),
        ("2030-02-30T12:00:00Z", None),
        ("2030-01-31T12:00:60Z", None),
        ("2030-W05-4T12:00:00Z", None),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_times_have_the_format_of_rfc_3339(text: str, expected: int | None) -> None:
    assert parse_time(text) == expected
