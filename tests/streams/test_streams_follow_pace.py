"""How often a server reads the log: several entries at once while nobody waits for them, and at once for whoever does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.index.segments import SegmentIndex
from bearlake.index.tail import TailIndex
from bearlake.metadata import CommitLog, Metadata
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.streams.catalog import Catalog
from bearlake.streams.fetched import FetchRange
from bearlake.streams.follower import Follower, FollowerSettings
from bearlake.streams.tail_reads import Poll
from fixtures.deployment import create as create_stream
from fixtures.deployment import deployment, fetch
from fixtures.waiting import until
from simulator.loop import virtual_time

FOREVER_MS = 600_000


class CountedLog:
    """The commit log, and how often it was read."""

    def __init__(self, inner: CommitLog) -> None:
        self._inner = inner
        self.read_count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def follow(self, after: int, *, limit: int) -> Any:
        self.read_count += 1
        return await self._inner.follow(after, limit=limit)


@asynccontextmanager
async def following(
    *, has_readers: bool, page_entry_count: int = 500, names: Sequence[str] = ("first",)
) -> AsyncIterator[tuple[Metadata, CountedLog, Catalog]]:
    """A follower that has just read the entries of these streams, and would read the next ones after `FOREVER_MS`."""
    metadata: Metadata = await open_sqlite(None, SqliteSettings(), clock=ManualClock())
    log: Any = CountedLog(metadata.log)
    catalog = Catalog(metadata.streams, 10, head=metadata.log.head)
    tail = TailIndex(10, lambda _: None)
    settings = FollowerSettings(wait_ms=FOREVER_MS, pause_ms=FOREVER_MS, page_entry_count=page_entry_count)
    follower = Follower(
        log, tail, SegmentIndex(10), catalog, (), settings, lambda _: None, has_readers=lambda: has_readers
    )
    await follower.start()
    for name in names:
        await create(metadata, name)
    run = asyncio.create_task(follower.run())
    try:
        await until(lambda: set(names) <= set(catalog.names()))
        yield metadata, log, catalog
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await metadata.close()


async def create(metadata: Metadata, name: str) -> None:
    await metadata.streams.create(StreamSpec(name=name, partition_count=1))


async def test_entries_that_nobody_waits_for_are_read_together_once_somebody_does() -> None:
    async with following(has_readers=False) as (metadata, log, catalog):
        before = log.read_count
        for name in ("second", "third", "fourth"):
            await create(metadata, name)
        await asyncio.sleep(0)
        assert catalog.names() == ("first",)

        await catalog.catch_up()

        assert catalog.names() == ("first", "fourth", "second", "third")
        assert log.read_count == before + 1


async def test_a_server_whose_clients_read_does_not_pause() -> None:
    async with following(has_readers=True) as (metadata, _, catalog):
        for name in ("second", "third"):
            await create(metadata, name)
            await until(lambda name=name: name in catalog.names())


async def test_who_waits_does_not_wait_for_the_pause_that_comes_next() -> None:
    async with following(has_readers=False) as (metadata, _, catalog):
        for at in range(5):
            await create(metadata, f"s{at}")
            await catalog.catch_up()
            assert f"s{at}" in catalog.names()


async def test_who_waits_for_more_than_a_page_does_not_wait_for_a_pause_after_each() -> None:
    async with following(has_readers=False, page_entry_count=2) as (metadata, _, catalog):
        for at in range(7):
            await create(metadata, f"s{at}")

        await catalog.catch_up()

        assert len(catalog.names()) == 8


async def test_a_server_that_has_not_read_all_reads_the_next_page_at_once() -> None:
    names = tuple(f"s{at}" for at in range(7))
    async with following(has_readers=False, page_entry_count=2, names=names) as (_, _, catalog):
        assert catalog.names() == names


@pytest.mark.parametrize("is_in_one_step", [True, False])
def test_a_long_poll_counts_as_a_reader_for_as_long_as_it_waits(is_in_one_step: bool) -> None:
    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            streams = await stores.serve()
            view = await create_stream(streams)
            done = asyncio.get_running_loop().create_future()
            if is_in_one_step:
                Poll(
                    streams.at_tail, [FetchRange(view.partition(0), 0, 100)], bytes_min=1, bytes_max=100,
                    wait_ms=30_000, done=done.set_result, failed=done.set_exception,
                )  # fmt: skip
            else:
                done = asyncio.ensure_future(fetch(streams, view, wait_ms=30_000, bytes_min=1))
            await asyncio.sleep(25)
            is_known = streams._cache.has_readers()  # noqa: SLF001 - what the follower asks
            await done
            await asyncio.sleep(15)

            assert (is_known, streams._cache.has_readers()) == (True, False)  # noqa: SLF001

    body()
