"""Following the log and the catalog's view: no entry of the log is lost, whatever faults the store has."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import AlreadyExists, Invalid, NotFound, OutOfRange, Unavailable
from bearlake.streams.catalog import check_name
from bearlake.streams.follower import FollowerSettings
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams, StreamsSettings
from bearlake.streams.upkeep import UpkeepSettings
from fixtures import by_name
from fixtures.deployment import Deployment, append, batch_of, create, deployment, fetch, values_of
from simulator.loop import virtual_time

QUICK = StreamsSettings(upkeep=UpkeepSettings(pause_ms=100, entry_count_min=2))


class Gate:
    """A gate before one method of a store's noun: holds answers back while closed, fails calls while broken."""

    def __init__(self, inner: Any, **methods: str) -> None:
        self._inner = inner
        self.is_broken = False
        self.opened = asyncio.Event()
        self.opened.set()
        self.waiting_count = 0
        self._guarded = methods

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        how = self._guarded.get(name)
        if how is None:
            return found

        async def guarded(*arguments: Any, **named: Any) -> Any:
            if self.is_broken:
                raise Unavailable("broken")
            result = await found(*arguments, **named)
            self.waiting_count += 1
            await self.opened.wait()
            self.waiting_count -= 1
            return result

        return guarded


class Gated:
    """A metadata store with gates before some of its nouns."""

    def __init__(self, inner: Any, **nouns: Any) -> None:
        self._inner = inner
        for name, noun in nouns.items():
            setattr(self, name, noun)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def gated(stores: Deployment, noun: str, *methods: str) -> tuple[Any, Gate]:
    gate = Gate(getattr(stores.metadata, noun), **dict.fromkeys(methods, "gated"))
    return Gated(stores.metadata, **{noun: gate}), gate


def known(streams: Streams) -> dict[str, dict[str, str]]:
    return {name: dict(view.stream.configs) for name in streams.catalog.names() if (view := streams.catalog.peek(name))}


@virtual_time
async def test_streams_created_changed_and_deleted_elsewhere_are_known_soon() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        await create(first, "kept", 2)
        await create(first, "gone")
        await first.alter(ANONYMOUS, (await first.catalog.resolve("kept")).stream, {"retention.ms": "5"}, [])
        await first.add_partitions(ANONYMOUS, (await first.catalog.resolve("kept")).stream, 4)
        await first.delete(ANONYMOUS, (await first.catalog.resolve("gone")).stream)

        await asyncio.sleep(0.1)

        assert known(second) == {"kept": {"retention.ms": "5"}}
        view = second.catalog.peek("kept")
        assert view is not None
        assert view.partition_count == 4
        assert second.catalog.peek_id(view.id_bytes) is view is second.catalog.peek_number(view.stream.number)


@virtual_time
async def test_an_unknown_stream_is_read_from_the_store_once() -> None:
    async with deployment() as stores:
        second = await stores.serve()
        first = await stores.serve()
        view = await create(first)
        assert second.catalog.peek("orders") is None

        found = await second.catalog.find("orders")

        assert found.stream == view.stream
        with pytest.raises(NotFound):
            await second.catalog.find("nothing")


@virtual_time
async def test_a_changed_stream_is_read_again_once_the_store_answers_again() -> None:
    async with deployment() as stores:
        first = await stores.serve()
        metadata, gate = gated(stores, "streams", "by_numbers")
        second = await stores.serve(metadata=metadata)
        await create(first)
        gate.is_broken = True
        await first.alter(ANONYMOUS, (await first.catalog.resolve("orders")).stream, {"retention.ms": "5"}, [])
        await asyncio.sleep(1)
        before = known(second)
        gate.is_broken = False

        await asyncio.sleep(2)

        assert before == {}
        assert known(second) == {"orders": {"retention.ms": "5"}}


@virtual_time
async def test_a_late_answer_does_not_revive_a_deleted_stream() -> None:
    async with deployment() as stores:
        first = await stores.serve()
        metadata, gate = gated(stores, "streams", "get")
        second = await stores.serve(metadata=metadata)
        await by_name.delete(stores.metadata, (await create(first, "old")).name)
        view = await create(first)
        second.catalog._drop(view.stream)  # as if it were not known yet  # noqa: SLF001
        gate.opened.clear()
        finding = asyncio.create_task(second.catalog.find("orders"))
        await asyncio.sleep(0.1)

        await first.delete(ANONYMOUS, (await first.catalog.resolve("orders")).stream)
        await asyncio.sleep(1)
        gate.opened.set()
        await finding

        assert known(second) == {}


@virtual_time
async def test_a_server_that_fell_behind_the_truncated_log_starts_over() -> None:
    async with deployment() as stores:
        first = await stores.serve(QUICK)
        view = await create(first)
        gone = await create(first, "gone")
        await append(first, view, batch_of(b"first"))
        metadata, gate = gated(stores, "log", "follow")
        second = await stores.serve(metadata=metadata)
        gate.is_broken = True
        for number in range(20):
            await append(first, view, batch_of(b"%d" % number))
        await first.delete(ANONYMOUS, (await first.catalog.resolve(gone.name)).stream)
        await create(first, "new")
        await asyncio.sleep(5)
        with pytest.raises(OutOfRange):
            await stores.metadata.log.follow(2, limit=1)
        gate.is_broken = False

        await asyncio.sleep(3)

        assert sorted(known(second)) == ["new", "orders"]
        assert len(values_of(await fetch(second, view))) == 21
        await append(first, view, batch_of(b"last"))
        assert values_of(await fetch(second, view, 21, bytes_min=1, wait_ms=1_000)) == [(21, b"last")]


@virtual_time
async def test_starting_over_is_retried_until_the_store_answers() -> None:
    async with deployment() as stores:
        first = await stores.serve(QUICK)
        view = await create(first)
        metadata, gate = gated(stores, "streams", "list")
        log, log_gate = gated(stores, "log", "follow")
        second = await stores.serve(metadata=Gated(metadata, log=log.log))
        log_gate.is_broken = gate.is_broken = True
        for number in range(20):
            await append(first, view, batch_of(b"%d" % number))
        await create(first, "new")
        await asyncio.sleep(5)
        log_gate.is_broken = False
        await asyncio.sleep(3)
        names_meanwhile = second.catalog.names()
        gate.is_broken = False

        await asyncio.sleep(3)

        assert list(names_meanwhile) == ["orders"]
        assert list(second.catalog.names()) == ["new", "orders"]
        assert len(values_of(await fetch(second, view))) == 20


@virtual_time
async def test_bounds_that_arrive_after_a_start_over_do_not_hide_commits_in_between() -> None:
    async with deployment() as stores:
        first = await stores.serve()
        view = await create(first)
        metadata, gate = gated(stores, "log", "bounds")
        second = await stores.serve(metadata=metadata)
        gate.opened.clear()
        fetching = asyncio.create_task(fetch(second, view, bytes_min=1, wait_ms=5_000))
        await asyncio.sleep(0.1)
        assert gate.waiting_count == 1

        await append(first, view, batch_of(b"a"))
        await asyncio.sleep(1)
        await second._follower.start()  # noqa: SLF001 - a start over at the moment that the test says
        gate.opened.set()

        assert values_of(await fetching) == [(0, b"a")]


@virtual_time
async def test_a_small_tail_index_serves_old_offsets_from_the_store() -> None:
    async with deployment() as stores:
        streams = await stores.serve(StreamsSettings(tail_slice_count_max=3))
        view = await create(streams)
        for number in range(10):
            await append(streams, view, batch_of(b"%d" % number))

        assert [value for _, value in values_of(await fetch(streams, view))] == [b"%d" % number for number in range(10)]
        assert streams._tail.slice_count == 3  # noqa: SLF001 - memory that nothing else shows


@virtual_time
async def test_a_servers_own_commits_and_those_of_others_are_all_seen_in_order() -> None:
    async with deployment() as stores:
        page = StreamsSettings(follower=FollowerSettings(page_entry_count=1))
        servers = [await stores.serve(page) for _ in range(3)]
        view = await create(servers[0])

        await asyncio.gather(*(append(servers[number % 3], view, batch_of(b"%d" % number)) for number in range(60)))
        await asyncio.sleep(2)

        seen = [values_of(await fetch(streams, view)) for streams in servers]
        assert len(seen[0]) == 60
        assert seen[0] == seen[1] == seen[2]


@virtual_time
async def test_the_log_is_kept_short() -> None:
    async with deployment() as stores:
        streams = await stores.serve(QUICK)
        view = await create(streams)
        for number in range(20):
            await append(streams, view, batch_of(b"%d" % number))

        await asyncio.sleep(1)

        head = await stores.metadata.log.head()
        assert len((await stores.metadata.log.follow(head - 2, limit=100)).entries) == 2
        with pytest.raises(OutOfRange):
            await stores.metadata.log.follow(head - 3, limit=100)


# -- the catalog -----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_stream_is_created_once() -> None:
    async with deployment() as stores:
        first, second = await stores.serve(), await stores.serve()
        await create(first)

        with pytest.raises(AlreadyExists):
            await create(second)


@virtual_time
async def test_names_counts_and_configs_are_checked() -> None:
    async with deployment() as stores:
        streams = await stores.serve(StreamsSettings(stream_count_max=1))
        for name, count, configs in [
            ("no/slash", 1, {}),
            ("..", 1, {}),
            ("a" * 250, 1, {}),
            ("a", 0, {}),
            ("a", 2**20 + 1, {}),
            ("a", 1, {"no.such.config": "1"}),
            ("a", 1, {"retention.ms": "soon"}),
        ]:
            with pytest.raises(Invalid):
                await streams.create(ANONYMOUS, name, count, configs)
        await create(streams)

        with pytest.raises(Invalid, match=r"\b1\b"):
            await create(streams, "another")
        with pytest.raises(Invalid):
            await streams.alter(
                ANONYMOUS, (await streams.catalog.resolve("orders")).stream, {"cleanup.policy": "burn"}, []
            )
        check_name("a" * 249)


@virtual_time
async def test_a_view_changes_its_version_with_every_change() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        versions = [streams.catalog.version]
        await create(streams)
        versions.append(streams.catalog.version)
        await streams.alter(ANONYMOUS, (await streams.catalog.resolve("orders")).stream, {"retention.ms": "5"}, [])
        versions.append(streams.catalog.version)
        await streams.delete(ANONYMOUS, (await streams.catalog.resolve("orders")).stream)
        versions.append(streams.catalog.version)

        assert versions == sorted(set(versions))
        assert len(streams.catalog) == 0
