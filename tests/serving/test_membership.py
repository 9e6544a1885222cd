"""Membership on the memory store, driven one heartbeat at a time: liveness, fencing, and failing stores."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Fenced, Overloaded, Unavailable
from bearlake.metadata import Membership, Metadata
from bearlake.metadata.model import Server, ServerRef
from bearlake.metadata.open import open_metadata
from bearlake.serving.membership import RegisteredServer, ServerSettings, default_name
from simulator.loop import virtual_time

ENDPOINTS = {"kafka": "127.0.0.1:9092", "admin": "127.0.0.1:9644"}
SETTINGS = ServerSettings(name="one", zone="east", heartbeat_ms=1, timeout_ms=6_000)
OTHER = ServerSettings(name="two", timeout_ms=6_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def metadata(clock: ManualClock) -> AsyncIterator[Metadata]:
    store = await open_metadata("memory:///", clock=clock)
    yield store
    await store.close()


class Flaky:
    """A membership store whose next calls fail."""

    def __init__(self, inner: Membership, failures: int, error: Exception | None = None) -> None:
        self._inner = inner
        self._error = error or Unavailable("the store sleeps")
        self.failures = failures
        self.calls = 0

    async def heartbeat(self, server: ServerRef) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self._error
        return await self._inner.heartbeat(server)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def names(servers: Sequence[Server]) -> list[str]:
    return [server.name for server in servers]


async def join(
    store: Membership, settings: ServerSettings, on_fenced: Callable[[], None] = lambda: None
) -> RegisteredServer:
    return await RegisteredServer.join(store, settings, ENDPOINTS, on_fenced)


async def test_a_member_sees_itself_and_then_the_others(metadata: Metadata) -> None:
    first = await join(metadata.servers, SETTINGS)
    assert names(first.live()) == ["one"]
    assert (first.live()[0].zone, first.live()[0].endpoints) == ("east", ENDPOINTS)
    version = first.version

    second = await join(metadata.servers, OTHER)
    await first.beat()

    assert names(first.live()) == names(second.live()) == ["one", "two"]
    assert first.version == version + 1
    assert first.node_id != second.node_id
    assert first.cluster_id == second.cluster_id


async def test_concurrent_questions_share_a_read_that_began_after_them(metadata: Metadata) -> None:
    store = Counting(metadata.servers)
    first = await join(store, SETTINGS)
    before = store.read_count

    asking = [asyncio.create_task(first.refresh()) for _ in range(5)]
    await store.reading.wait()
    second = await join(metadata.servers, OTHER)  # the read in flight began before the question
    asking += [asyncio.create_task(first.refresh()) for _ in range(5)]
    await asyncio.gather(*asking)

    assert names(first.live()) == ["one", second.live()[1].name]
    assert store.read_count == before + 2


async def test_a_failed_read_affects_only_its_own_callers(metadata: Metadata) -> None:
    store = Counting(metadata.servers)
    server = await join(store, SETTINGS)
    await join(metadata.servers, OTHER)
    store.failures = 1

    failed, read = await asyncio.gather(server.refresh(), server.refresh(), return_exceptions=True)

    assert isinstance(failed, Unavailable)
    assert read is None
    assert names(server.live()) == ["one", "two"]


class Counting:
    """A membership store that counts the questions for live servers; the next `failures` of them fail."""

    def __init__(self, inner: Membership) -> None:
        self._inner = inner
        self.reading = asyncio.Event()
        self.read_count = self.failures = 0

    async def live(self) -> list[Server]:
        self.read_count += 1
        self.failures -= 1
        found = await self._inner.live()
        self.reading.set()
        await asyncio.sleep(0)
        if self.failures >= 0:
            raise Unavailable("the store sleeps")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_the_version_stays_when_nothing_changes(metadata: Metadata, clock: ManualClock) -> None:
    server = await join(metadata.servers, SETTINGS)
    version = server.version
    clock.advance(1_000)

    await server.beat()

    assert server.version == version


@virtual_time
async def test_a_silent_server_disappears_from_the_view_of_the_others_when_its_timeout_has_passed() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    server = await join(metadata.servers, SETTINGS)
    await join(metadata.servers, OTHER)
    views = []
    for _ in range(8):
        await server.beat()
        views.append(names(server.live()))
        await asyncio.sleep(1)

    assert views == [["one", "two"]] * 6 + [["one"]] * 2
    assert names(await metadata.servers.live()) == ["one"]
    await metadata.close()


@virtual_time
async def test_two_servers_with_heartbeats_keep_each_other_live_whatever_the_stores_clock_does() -> None:
    clock = ManualClock()
    metadata = await open_metadata("memory:///", clock=clock)
    first, second = await join(metadata.servers, SETTINGS), await join(metadata.servers, OTHER)
    for step_ms in (3_600_000, -7_200_000, 10_000) * 10:
        clock.step(step_ms)
        await first.beat()
        await asyncio.sleep(0.5)
        await second.beat()
        await asyncio.sleep(0.5)

    assert names(first.live()) == names(second.live()) == ["one", "two"]
    assert (first.tenure.lapse_count, second.tenure.lapse_count) == (0, 0)
    await metadata.close()


@virtual_time
async def test_a_server_that_was_declared_lapsed_learns_this_from_its_next_heartbeat() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    first, second = await join(metadata.servers, SETTINGS), await join(metadata.servers, OTHER)
    for _ in range(8):
        await first.beat()
        await asyncio.sleep(1)

    assert await second.beat()

    assert second.tenure.lapse_count == 1
    await first.beat()
    assert names(first.live()) == names(second.live()) == ["one", "two"]
    await metadata.close()


@virtual_time
async def test_after_an_outage_of_the_store_no_server_is_declared_dead() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    flaky = Flaky(metadata.servers, failures=0)
    first = await join(flaky, SETTINGS)  # type: ignore[arg-type]
    second = await join(metadata.servers, OTHER)
    await first.beat()
    flaky.failures = 1_000
    for _ in range(30):
        await asyncio.sleep(1)
        await first.beat()
    flaky.failures = 0

    for _ in range(5):
        assert await first.beat()
        await asyncio.sleep(1)

    assert names(first.live()) == ["one", "two"]
    await second.beat()
    assert second.tenure.lapse_count == 0
    await metadata.close()


async def test_a_lapsed_server_still_sees_itself(metadata: Metadata) -> None:
    server = await join(metadata.servers, SETTINGS)
    assert await metadata.servers.lapse(server.server, 0)

    await server.refresh()

    assert names(server.live()) == ["one"]


async def test_observers_measure_the_age_of_heartbeats(metadata: Metadata, clock: ManualClock) -> None:
    first, second = await join(metadata.servers, SETTINGS), await join(metadata.servers, OTHER)
    clock.step(3_600_000)
    await first.beat()

    assert first.heartbeat_age_ms(first.server) == 0
    assert first.heartbeat_age_ms(second.server) < 60_000


async def test_a_draining_member_is_seen_as_draining_by_itself_and_others(metadata: Metadata) -> None:
    first = await join(metadata.servers, SETTINGS)
    second = await join(metadata.servers, OTHER)

    await first.drain()
    await second.beat()

    assert [server.is_draining for server in first.live()] == [True, False]
    assert [server.is_draining for server in second.live()] == [True, False]


@virtual_time
async def test_a_store_that_does_not_answer_leaves_most_of_the_drain_to_the_requests() -> None:
    metadata = await open_metadata("memory:///")
    member = await join(metadata.servers, ServerSettings(name="one", drain_ms=20_000))

    async def silent(server: ServerRef) -> None:
        await asyncio.Event().wait()

    metadata.servers.drain = silent  # type: ignore[method-assign]
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable, match="5000 ms"):
        async with asyncio.timeout(20):
            await member.drain()

    assert asyncio.get_running_loop().time() - started_s == pytest.approx(5, abs=0.1)
    assert [server.is_draining for server in member.live()] == [True]
    await metadata.close()


async def test_a_member_that_left_is_gone(metadata: Metadata) -> None:
    first = await join(metadata.servers, SETTINGS)
    second = await join(metadata.servers, OTHER)

    await first.leave()
    await second.beat()

    assert names(second.live()) == ["two"]


async def test_the_same_name_keeps_its_node_id_and_fences_the_old_process(metadata: Metadata) -> None:
    old = await join(metadata.servers, SETTINGS)
    new = await join(metadata.servers, SETTINGS)

    assert new.node_id == old.node_id
    with pytest.raises(Fenced):
        await old.beat()
    assert await new.beat()


async def test_a_fenced_member_logs_it_once_and_then_waits_for_the_end(metadata: Metadata) -> None:
    fenced = asyncio.Event()
    old = await join(metadata.servers, SETTINGS, fenced.set)
    await join(metadata.servers, SETTINGS)
    running = asyncio.create_task(old.run())

    await asyncio.wait_for(fenced.wait(), 10)

    assert not running.done()
    running.cancel()


async def test_a_failed_heartbeat_is_tried_again_at_once(metadata: Metadata) -> None:
    store = Flaky(metadata.servers, failures=2)
    server = await join(store, SETTINGS)

    assert await server.beat()
    assert store.calls == 3


async def test_a_store_whose_queue_is_full_ends_no_server(metadata: Metadata) -> None:
    """SQLite refuses calls for which it has no room; `run` ends the process with any error that a heartbeat raises."""
    store = Flaky(metadata.servers, failures=4, error=Overloaded("full"))
    server = await join(store, SETTINGS)

    assert not await server.beat()
    assert await server.beat()


async def test_retries_of_a_heartbeat_are_bounded_and_the_next_interval_starts_again(metadata: Metadata) -> None:
    store = Flaky(metadata.servers, failures=3)
    server = await join(store, SETTINGS)

    assert not await server.beat()
    assert store.calls == 3
    assert await server.beat()


def test_the_default_name_is_host_and_port() -> None:
    assert default_name(ENDPOINTS).endswith(":9092")


def test_a_timeout_of_less_than_three_heartbeats_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timeout_ms.* heartbeat_ms"):
        ServerSettings(heartbeat_ms=1_000, timeout_ms=2_000)
