"""Large batches are stored from where they arrived while nobody reads: what is stored, when their memory is free, and what readers get."""

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bearlake import kernel
from bearlake.cache.objects import CacheSettings
from bearlake.clock import ManualClock
from bearlake.errors import Unavailable
from bearlake.metadata.open import open_metadata
from bearlake.objects import BlockingPut, Buffer, ByteRange
from bearlake.objects.local import LocalObjectStore
from bearlake.objects.open import open_store
from bearlake.objects.retrying import RetryingObjectStore, RetrySettings
from bearlake.records.codec import Record, encode
from bearlake.streams.append import Append
from bearlake.streams.catalog import StreamView
from bearlake.streams.service import Streams, StreamsSettings
from bearlake.streams.writer_settings import WriterSettings
from bearlake.wal import v1
from fixtures.deployment import NOW_MS, Deployment, create, fetch, values_of, verdicts_of

VALUE = b"v" * 60_000
COUNT = 8


class Arrived:
    """A receive buffer: once its last batch is released, the next bytes overwrite it."""

    def __init__(self, batch: bytes) -> None:
        self.memory = bytearray(batch)
        self.holders = 0

    def acquire(self, count: int = 1) -> None:
        self.holders += count

    def release(self, count: int = 1) -> None:
        self.holders -= count
        if not self.holders:
            self.memory[:] = b"\xee" * len(self.memory)


def arrived(count: int = COUNT) -> list[Arrived]:
    return [Arrived(encode([Record(value=VALUE + bytes([at]), timestamp=1)])) for at in range(count)]


async def append_all(streams: Streams, view: StreamView, memories: list[Arrived]) -> list[str]:
    appends = [
        Append(view.partition(0), view.stream.id.bytes, memoryview(found.memory), found, 1, 1, -1, -1, -1, 0)
        for found in memories
    ]
    return verdicts_of(await streams.append(appends, streams.seen.position))


def caching(unread_ms: int) -> StreamsSettings:
    return StreamsSettings(writer=WriterSettings(gather_ms=0.0), cache=CacheSettings(unread_ms=unread_ms))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Deployment]:
    """A server's stores on its own disk."""
    clock = ManualClock(NOW_MS)
    metadata = await open_metadata(f"sqlite://{tmp_path}/metadata.db", clock=clock)
    store = open_store(f"file://{tmp_path}/objects")
    made = Deployment(metadata, store, clock)
    yield made
    await made.close()
    await store.close()


async def stored(stores: Deployment) -> bytes:
    """The bytes of all WAL objects."""
    found = [info async for info in stores.store.list("wal/")]
    return b"".join([bytes((await stores.store.read(info.key, [ByteRange(0, info.size)]))[0]) for info in found])


async def test_a_stored_object_has_the_batches_as_they_arrived_and_their_memory_is_free_at_the_answer(
    stores: Deployment,
) -> None:
    streams = await stores.serve(caching(unread_ms=1_000))
    view = await create(streams)
    memories = arrived()
    batches = [bytes(found.memory) for found in memories]

    assert await append_all(streams, view, memories) == ["ACCEPTED"] * COUNT

    assert [found.holders for found in memories] == [0] * COUNT
    content = await stored(stores)
    assert content.count(b"".join(batches)) == 1
    assert (streams._cache.size_bytes, wal_format_of(content)) == (0, COUNT)  # noqa: SLF001
    assert values_of(await fetch(streams, view)) == [(at, VALUE + bytes([at])) for at in range(COUNT)]


async def test_a_reader_makes_the_next_objects_stay_in_memory(stores: Deployment) -> None:
    streams = await stores.serve(caching(unread_ms=600_000))
    view = await create(streams)
    await append_all(streams, view, arrived())
    await fetch(streams, view)
    cached_bytes = streams._cache.size_bytes  # noqa: SLF001

    await append_all(streams, view, arrived())

    assert streams._cache.size_bytes >= cached_bytes + COUNT * len(VALUE)  # noqa: SLF001


@pytest.mark.parametrize("count", [1, 3])
async def test_small_objects_stay_in_memory_without_a_reader(stores: Deployment, count: int) -> None:
    streams = await stores.serve(caching(unread_ms=0))
    view = await create(streams)

    await append_all(streams, view, arrived(count))

    assert streams._cache.size_bytes >= count * len(VALUE)  # noqa: SLF001


async def test_memory_stays_held_while_a_failed_put_is_tried_again(stores: Deployment, tmp_path: Path) -> None:
    class FirstFails(LocalObjectStore):
        held: list[int]

        def blocking_put(self) -> BlockingPut:
            found = super().blocking_put()
            assert found is not None

            def attempt(key: str, parts: Sequence[Buffer]) -> None:
                raise Unavailable("busy")

            return replace(found, attempt=attempt)

        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            self.held = [found.holders for found in memories]
            await super().put(key, parts)

    memories = arrived()
    inner = FirstFails(tmp_path / "others")
    store = RetryingObjectStore(inner, RetrySettings(pause_first_ms=0), random.Random(1))
    streams = await stores.serve(caching(unread_ms=0), store=store)
    view = await create(streams)

    assert await append_all(streams, view, memories) == ["ACCEPTED"] * COUNT
    await streams.drain()

    assert (inner.held, [found.holders for found in memories]) == ([1] * COUNT, [0] * COUNT)
    assert values_of(await fetch(streams, view)) == [(at, VALUE + bytes([at])) for at in range(COUNT)]
    await streams.close()
    await store.close()


def wal_format_of(content: bytes) -> int:
    """The number of batches of an object whose index and checksums hold."""
    index = v1.parse_index(content)
    for entry in index.slices:
        assert entry.crc == kernel.crc32c(content, entry.position, entry.position + entry.length)
    return sum(entry.batch_count for entry in index.slices)
