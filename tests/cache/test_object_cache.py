"""The object cache: one read per range for all concurrent callers, bounded bytes, offsets in place."""

import asyncio
from collections.abc import Sequence

import pytest

from bearlake import kernel
from bearlake.cache.objects import CacheSettings, ObjectCache
from bearlake.errors import Corrupt, NotFound, Unavailable
from bearlake.metadata.model import ObjectRef, PartitionKey, Slice
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from fixtures.deployment import batch_of
from simulator.loop import virtual_time

BATCH = batch_of(b"value")
SIZE = len(BATCH)
REF = ObjectRef("wal/a", 4 * SIZE)


def piece(number: int, *, base: int = 100, count: int = 1) -> Slice:
    """The slice of batches `number`, `number + 1` … of an object of four, at offset `base`."""
    return Slice(PartitionKey(1), base, count, number * SIZE, count * SIZE, 0)


def offsets(view: memoryview) -> list[int]:
    return [base for _, base, _ in kernel.batches(view, 0, len(view))]


class CountingStore(MemoryObjectStore):
    """Takes one second per read, counts reads, and fails on command."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, ByteRange]] = []
        self.failures: list[Exception] = []

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        self.reads += [(key, found) for found in ranges]
        await asyncio.sleep(1)
        if self.failures:
            raise self.failures.pop()
        return await super().read(key, ranges)


async def stored(*names: str) -> CountingStore:
    store = CountingStore()
    for name in names or ("wal/a",):
        await store.put(name, [BATCH * 4])
    return store


@virtual_time
async def test_readers_of_one_extent_share_one_read() -> None:
    store = await stored()
    cache = ObjectCache(store, CacheSettings())

    views = await asyncio.gather(*(cache.get(REF, piece(number % 4), is_tail=True) for number in range(12)))

    assert len(store.reads) == 1
    assert all(offsets(view) == [100] for view in views)


@virtual_time
async def test_a_reader_that_gives_up_does_not_take_the_others_down() -> None:
    store = await stored()
    cache = ObjectCache(store, CacheSettings())
    first = asyncio.create_task(cache.get(REF, piece(0), is_tail=True))
    second = asyncio.create_task(cache.get(REF, piece(1), is_tail=True))
    await asyncio.sleep(0.5)

    first.cancel()

    assert offsets(await second) == [100]
    assert first.cancelled()
    assert len(store.reads) == 1


@virtual_time
async def test_a_failed_read_fails_its_readers_and_is_not_remembered() -> None:
    store = await stored()
    store.failures.append(Unavailable("down"))
    cache = ObjectCache(store, CacheSettings())

    results = await asyncio.gather(
        cache.get(REF, piece(0), is_tail=True), cache.get(REF, piece(1), is_tail=True), return_exceptions=True
    )
    again = await cache.get(REF, piece(0), is_tail=True)

    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert offsets(again) == [100]


@virtual_time
async def test_a_failed_read_without_waiters_raises_no_error_elsewhere() -> None:
    store = await stored()
    store.failures.append(Unavailable("down"))
    cache = ObjectCache(store, CacheSettings())
    reader = asyncio.create_task(cache.get(REF, piece(0), is_tail=True))
    await asyncio.sleep(0.5)

    reader.cancel()
    await asyncio.sleep(2)

    assert cache.size_bytes == 0


@virtual_time
async def test_an_added_object_is_served_without_a_read_and_with_its_offsets() -> None:
    store = await stored()
    cache = ObjectCache(store, CacheSettings())
    cache.add(REF, bytearray(BATCH * 4), [piece(0, base=7, count=2), piece(2, base=30, count=2)])

    first = await cache.get(REF, piece(0, base=7, count=2), is_tail=True)
    second = cache.peek(REF, piece(2, base=30, count=2))

    assert store.reads == []
    assert (offsets(first), offsets(second or memoryview(b""))) == ([7, 8], [30, 31])


@virtual_time
async def test_a_cold_slice_that_is_a_small_part_is_read_alone() -> None:
    store = await stored()
    cache = ObjectCache(store, CacheSettings(slice_fraction_min=0.5))

    await cache.get(REF, piece(1), is_tail=False)
    await cache.get(REF, piece(1), is_tail=False)
    await cache.get(REF, piece(0, count=3), is_tail=False)

    assert [(found.start, found.end) for _, found in store.reads] == [(SIZE, 2 * SIZE), (0, 4 * SIZE)]


@virtual_time
async def test_the_least_recently_used_extents_go_first() -> None:
    names = [f"wal/{letter}" for letter in "abcd"]
    store = await stored(*names)
    refs = [ObjectRef(name, 4 * SIZE) for name in names]
    cache = ObjectCache(store, CacheSettings(bytes_max=3 * 4 * SIZE))
    for ref in refs[:3]:
        await cache.get(ref, piece(0), is_tail=True)

    await cache.get(refs[0], piece(0), is_tail=True)
    await cache.get(refs[3], piece(0), is_tail=True)

    assert cache.size_bytes == 3 * 4 * SIZE
    assert [cache.peek(ref, piece(0)) is not None for ref in refs] == [True, False, True, True]


@virtual_time
async def test_an_extent_larger_than_the_cache_is_held_alone() -> None:
    store = await stored("wal/a", "wal/b")
    cache = ObjectCache(store, CacheSettings(bytes_max=10))

    await cache.get(REF, piece(0), is_tail=True)
    await cache.get(ObjectRef("wal/b", 4 * SIZE), piece(0), is_tail=True)

    assert cache.size_bytes == 4 * SIZE


@virtual_time
async def test_an_object_that_is_gone_is_not_found() -> None:
    cache = ObjectCache(await stored(), CacheSettings())

    with pytest.raises(NotFound):
        await cache.get(ObjectRef("wal/gone", 4 * SIZE), piece(0), is_tail=True)


@virtual_time
async def test_an_object_shorter_than_committed_is_corrupt_not_out_of_range() -> None:
    cache = ObjectCache(await stored(), CacheSettings())

    with pytest.raises(Corrupt):
        await cache.get(ObjectRef("wal/a", 5 * SIZE), piece(0), is_tail=True)


@virtual_time
async def test_bytes_that_are_not_the_committed_batches_are_corrupt() -> None:
    cache = ObjectCache(await stored(), CacheSettings())

    with pytest.raises(Corrupt):
        await cache.get(REF, piece(0)._replace(length=SIZE - 1), is_tail=True)


@virtual_time
async def test_look_ups_are_counted() -> None:
    told: list[bool] = []
    cache = ObjectCache(await stored(), CacheSettings(), told.append)

    await cache.get(REF, piece(0), is_tail=True)
    await cache.get(REF, piece(0), is_tail=True)

    assert told == [False, True]


@virtual_time
async def test_closing_cancels_reads_and_drops_bytes() -> None:
    cache = ObjectCache(await stored("wal/a", "wal/b"), CacheSettings())
    await cache.get(REF, piece(0), is_tail=True)
    reading = asyncio.create_task(cache.get(ObjectRef("wal/b", 4 * SIZE), piece(0), is_tail=True))
    await asyncio.sleep(0.5)

    await cache.close()

    assert cache.size_bytes == 0
    assert (await asyncio.gather(reading, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_small_parts_that_readers_do_not_give_back_keep_few_evicted_objects() -> None:
    """A client that does not read its response holds views; each may be a small part of an object that is long evicted."""
    count, size = 20, 20 * SIZE
    cache = ObjectCache(await stored(), CacheSettings(bytes_max=2 * size))
    held, most = [], 0
    for number in range(12):
        ref = ObjectRef(f"wal/{number}", size)
        cache.add(ref, bytearray(BATCH * count), [piece(at, base=100 + at) for at in range(count)])
        held += [
            cache.peek(ref, piece(0)),
            (cache.cut(ref, piece(1, base=101), 101, size, is_first=True) or (None,))[0],
        ]
        most = max(most, cache.kept_bytes)
    assert [offsets(view) for view in held if view] == [[100], [101]] * 12
    assert 0 < most <= 4 * size
    memory = {id(view.obj): len(view.obj) for view in held if view}  # type: ignore[arg-type]
    assert sum(memory.values()) <= 4 * size + 2 * 12 * SIZE, "the rest are copies"
    large = cache.peek(ref, piece(2, base=102, count=10))
    assert large is not None
    assert len(large.obj) == size, "a large part is never copied"  # type: ignore[arg-type]

    del large
    held.clear()
    for number in range(12, 15):
        cache.add(ObjectRef(f"wal/{number}", size), bytearray(BATCH * count), [])
    assert cache.kept_bytes == 0
