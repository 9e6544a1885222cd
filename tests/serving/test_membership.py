"""Membership on the memory store, driven one heartbeat at a time: who is live, what fencing does, what failing stores do."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Fenced, Unavailable
from bearlake.metadata import Membership, Metadata
from bearlake.metadata.model import Server, ServerRef
from bearlake.metadata.open import open_metadata
from bearlake.serving.membership import Member, ServerSettings, default_name
from bearlake.testing.loop import virtual_time

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

    def __init__(self, inner: Membership, failures: int) -> None:
        self._inner = inner
        self.failures = failures
        self.calls = 0

    async def heartbeat(self, server: ServerRef) -> None:
        self.calls += 1
        if self.calls <= self.failures:
            raise Unavailable("the store sleeps")
        await self._inner.heartbeat(server)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def names(servers: Sequence[Server]) -> list[str]:
    return [server.name for server in servers]


async def join(store: Membership, settings: ServerSettings, on_fenced: Callable[[], None] = lambda: None) -> Member:
    return await Member.join(store, settings, ENDPOINTS, on_fenced)


async def test_a_member_sees_itself_and_then_the_others(metadata: Metadata) -> None:
    one = await join(metadata.servers, SETTINGS)
    assert names(one.live()) == ["one"]
    assert (one.live()[0].zone, one.live()[0].endpoints) == ("east", ENDPOINTS)
    version = one.version

    two = await join(metadata.servers, OTHER)
    await one.beat()

    assert names(one.live()) == names(two.live()) == ["one", "two"]
    assert one.version == version + 1
    assert one.node_id != two.node_id
    assert one.cluster_id == two.cluster_id


async def test_many_who_ask_at_once_share_a_read_that_began_after_they_asked(metadata: Metadata) -> None:
    store = Counting(metadata.servers)
    one = await join(store, SETTINGS)
    before = store.read_count

    asking = [asyncio.create_task(one.refresh()) for _ in range(5)]
    await store.reading.wait()
    two = await join(metadata.servers, OTHER)  # the read under way began before that
    asking += [asyncio.create_task(one.refresh()) for _ in range(5)]
    await asyncio.gather(*asking)

    assert names(one.live()) == ["one", two.live()[1].name]
    assert store.read_count == before + 2


async def test_a_read_that_fails_is_nobody_elses(metadata: Metadata) -> None:
    store = Counting(metadata.servers)
    one = await join(store, SETTINGS)
    await join(metadata.servers, OTHER)
    store.failures = 1

    failed, read = await asyncio.gather(one.refresh(), one.refresh(), return_exceptions=True)

    assert isinstance(failed, Unavailable)
    assert read is None
    assert names(one.live()) == ["one", "two"]


class Counting:
    """A membership store that counts who asks who is live; the next `failures` of these fail."""

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
    one = await join(metadata.servers, SETTINGS)
    version = one.version
    clock.advance(1_000)

    await one.beat()

    assert one.version == version


async def test_a_silent_server_disappears_from_the_view_of_the_others(metadata: Metadata, clock: ManualClock) -> None:
    one = await join(metadata.servers, SETTINGS)
    await join(metadata.servers, OTHER)
    clock.advance(5_000)
    await one.beat()
    clock.advance(5_000)

    await one.beat()

    assert names(one.live()) == ["one"]


async def test_a_server_that_was_silent_too_long_still_sees_itself(metadata: Metadata, clock: ManualClock) -> None:
    one = await join(metadata.servers, SETTINGS)
    clock.advance(60_000)

    await one.refresh()

    assert names(one.live()) == ["one"]


async def test_a_draining_member_is_seen_as_draining_by_itself_and_others(metadata: Metadata) -> None:
    one = await join(metadata.servers, SETTINGS)
    two = await join(metadata.servers, OTHER)

    await one.drain()
    await two.beat()

    assert [server.is_draining for server in one.live()] == [True, False]
    assert [server.is_draining for server in two.live()] == [True, False]


async def test_a_member_that_left_is_gone(metadata: Metadata) -> None:
    one = await join(metadata.servers, SETTINGS)
    two = await join(metadata.servers, OTHER)

    await one.leave()
    await two.beat()

    assert names(two.live()) == ["two"]


async def test_the_same_name_keeps_its_node_id_and_fences_the_old_process(metadata: Metadata) -> None:
    old = await join(metadata.servers, SETTINGS)
    new = await join(metadata.servers, SETTINGS)

    assert new.node_id == old.node_id
    with pytest.raises(Fenced):
        await old.beat()
    assert await new.beat()


async def test_a_fenced_member_says_so_once_and_then_waits_for_the_end(metadata: Metadata) -> None:
    fenced = asyncio.Event()
    old = await join(metadata.servers, SETTINGS, fenced.set)
    await join(metadata.servers, SETTINGS)
    running = asyncio.create_task(old.run())

    await asyncio.wait_for(fenced.wait(), 10)

    assert not running.done()
    running.cancel()


async def test_a_failed_heartbeat_is_tried_again_at_once(metadata: Metadata) -> None:
    store = Flaky(metadata.servers, failures=2)
    one = await join(store, SETTINGS)

    assert await one.beat()
    assert store.calls == 3


async def test_retries_of_a_heartbeat_are_bounded_and_it_goes_on_at_the_next_interval(metadata: Metadata) -> None:
    store = Flaky(metadata.servers, failures=3)
    one = await join(store, SETTINGS)

    assert not await one.beat()
    assert store.calls == 3
    assert await one.beat()


def test_the_default_name_is_host_and_port() -> None:
    assert default_name(ENDPOINTS).endswith(":9092")


def test_a_timeout_of_less_than_three_heartbeats_is_refused() -> None:
    with pytest.raises(ValueError, match="three times"):
        ServerSettings(heartbeat_ms=1_000, timeout_ms=2_000)


@virtual_time
async def test_a_server_is_sure_of_itself_until_its_timeout_after_the_last_heartbeat_that_it_sent() -> None:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    flaky = Flaky(metadata.servers, failures=0)
    member = await Member.join(flaky, SETTINGS, ENDPOINTS)  # type: ignore[arg-type]
    await asyncio.sleep(5.9)
    assert member.is_sure()
    await asyncio.sleep(0.2)
    assert not member.is_sure()

    assert await member.beat()
    assert member.is_sure()
    flaky.failures = 1_000
    await asyncio.sleep(5.9)
    assert not await member.beat()

    assert member.is_sure()
    await asyncio.sleep(0.2)
    assert not member.is_sure()
    await metadata.close()
