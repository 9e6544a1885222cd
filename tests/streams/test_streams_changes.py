"""Changes of streams by requests: a name is resolved once, and concurrent changes are neither lost nor overwritten."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import AlreadyExists, Conflict, Invalid, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import Stream, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.streams.catalog import Catalog
from fixtures import by_name


class Hanging:
    """A catalog's store whose creations wait on their way."""

    def __init__(self, store: Metadata) -> None:
        self._store = store
        self.begun, self.arrives = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.streams, name)

    async def create(self, spec: StreamSpec) -> Stream:
        self.begun.set()
        await self.arrives.wait()
        return await self._store.streams.create(spec)


@pytest.fixture
async def store() -> AsyncIterator[Metadata]:
    opened = await open_metadata("memory:///", clock=ManualClock())
    yield opened
    await opened.close()


class Overtaken:
    """A catalog's store in which something else happens just before the next creation."""

    def __init__(self, store: Metadata) -> None:
        self._store = store
        self.is_due = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.streams, name)

    async def create(self, spec: StreamSpec) -> Stream:
        if self.is_due:
            self.is_due = False
            await by_name.create(self._store, spec)
            await by_name.delete(self._store, spec.name)
        return await self._store.streams.create(spec)


async def test_a_change_that_lost_a_race_is_decided_again_on_the_result_of_the_other(store: Metadata) -> None:
    catalog = Catalog(store.streams, 10)
    stale = (await catalog.create("orders", 1, {"cleanup.policy": "delete"})).stream
    await by_name.alter(store, "orders", set_configs={"retention.ms": "5"}, unset_configs=["cleanup.policy"])
    seen: list[Mapping[str, str]] = []

    def decide(present: Mapping[str, str]) -> tuple[Mapping[str, str], list[str]]:
        seen.append(present)
        return {"retention.bytes": str(len(present))}, []

    changed = await catalog.change(stale, decide)

    assert seen == [{"cleanup.policy": "delete"}, {"retention.ms": "5"}]
    assert changed.stream.configs == {"retention.ms": "5", "retention.bytes": "1"}


async def test_a_change_that_names_a_version_is_not_decided_again(store: Metadata) -> None:
    catalog = Catalog(store.streams, 10)
    stale = (await catalog.create("orders", 1, {})).stream
    await by_name.alter(store, "orders", set_configs={"retention.ms": "5"}, unset_configs=())

    with pytest.raises(Conflict):
        await catalog.alter(stale, {"retention.ms": "6"}, [])
    with pytest.raises(Conflict):
        await catalog.delete(stale, is_unchanged=True)
    assert (await store.streams.get("orders")).configs == {"retention.ms": "5"}


async def test_the_name_of_a_streams_table_does_not_change(store: Metadata) -> None:
    catalog = Catalog(store.streams, 10)
    stream = (await catalog.create("orders", 1, {"table.name": "sales"})).stream

    with pytest.raises(Invalid, match=r"table\.name"):
        await catalog.change(stream, lambda _: ({}, ["table.name"]))
    assert (await store.streams.get("orders")).configs == {"table.name": "sales"}


async def test_a_change_of_a_stream_that_was_made_again_leaves_the_new_one_alone(store: Metadata) -> None:
    catalog = Catalog(store.streams, 10)
    stale = (await catalog.create("orders", 1, {})).stream
    await by_name.delete(store, "orders")
    anew = await by_name.create(store, StreamSpec(name="orders", partition_count=1))

    for late in (
        catalog.delete(stale),
        catalog.terminate(stale),
        catalog.add_partitions(stale, 4),
        catalog.change(stale, lambda _: ({"retention.ms": "5"}, [])),
    ):
        with pytest.raises(NotFound):
            await late
    assert await store.streams.get("orders") == anew


async def test_a_name_is_resolved_in_the_store_not_in_this_server_s_view(store: Metadata) -> None:
    catalog = Catalog(store.streams, 10)
    await catalog.create("orders", 1, {})
    await by_name.delete(store, "orders")
    anew = await by_name.create(store, StreamSpec(name="orders", partition_count=1))

    assert (await catalog.delete((await catalog.resolve("orders")).stream)).number == anew.number


async def test_a_creation_does_not_restore_a_stream_that_was_created_and_deleted_in_the_meantime(
    store: Metadata,
) -> None:
    """Its client may have given up before the deletion, which was acknowledged: the topic must stay deleted."""
    catalog = Catalog(Overtaken(store), 10)  # type: ignore[arg-type]
    with pytest.raises(AlreadyExists):  # it did exist during this call
        await catalog.create("orders", 1, {})

    assert await store.streams.list() == []
    assert (await catalog.create("orders", 1, {})).stream.number == 2


async def test_a_creation_that_hangs_while_others_create_and_delete_has_no_effect(store: Metadata) -> None:
    """How a client resolves a creation without an answer: create the topic again, then delete it."""
    late, other = Hanging(store), Catalog(store.streams, 10)
    given_up = asyncio.create_task(Catalog(late, 10).create("orders", 1, {}))  # type: ignore[arg-type]
    await late.begun.wait()
    await other.create("orders", 1, {})
    await other.delete((await other.resolve("orders")).stream)
    late.arrives.set()
    await asyncio.wait([given_up])

    assert await store.streams.list() == []
    assert isinstance(given_up.exception(), AlreadyExists)
