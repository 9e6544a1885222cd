"""The behaviour of every object store: one suite for all stores, directly and with faults and retries."""

import asyncio
import contextlib
import random

import pytest

from bearlake.errors import AlreadyExists, Invalid, NotFound, OutOfRange
from bearlake.objects import Buffer, ByteRange, ObjectStore

CONTENT = random.Random(1).randbytes(300_000)


async def keys_of(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    return [found.key async for found in store.list(prefix, after)]


async def content_of(store: ObjectStore, key: str) -> bytes:
    size = await store.size(key)
    [view] = await store.read(key, [ByteRange(0, size)])
    return bytes(view)


async def put_again(store: ObjectStore, key: str, is_faulty: bool) -> None:
    """With faults an `AlreadyExists` may follow an `Unavailable`, and then means success."""
    try:
        await store.put(key, [b"other"])
    except AlreadyExists:
        return
    assert is_faulty


@pytest.mark.parametrize(
    "parts",
    [
        [b"one part"],
        [b"many ", bytearray(b"parts of "), memoryview(b"each kind")],
        [],
        [b""],
        [b"", b"between empty ones", b""],
        [CONTENT[:100_000], CONTENT[100_000:]],
        [CONTENT[at : at + 100] for at in range(0, 250_000, 100)],
    ],
    ids=["one", "three", "none", "empty", "empties", "large", "2500"],
)
async def test_a_stored_object_is_read_back(store: ObjectStore, parts: list[Buffer]) -> None:
    await store.put("folder/object", parts)

    assert await content_of(store, "folder/object") == b"".join(parts)


async def test_a_taken_key_keeps_its_first_content(store: ObjectStore, is_faulty: bool) -> None:
    await store.put("wal/one", [b"first"])
    await put_again(store, "wal/one", is_faulty)

    assert await content_of(store, "wal/one") == b"first"


async def test_of_concurrent_puts_of_one_key_exactly_one_wins(store: ObjectStore, is_faulty: bool) -> None:
    contents = [bytes([65 + at]) * 20_000 for at in range(12)]
    results = await asyncio.gather(*(store.put("wal/one", [content]) for content in contents), return_exceptions=True)
    stored = await content_of(store, "wal/one")

    winners = [content for content, result in zip(contents, results, strict=True) if result is None]
    assert stored in winners
    assert is_faulty or len(winners) == 1
    assert all(result is None or isinstance(result, AlreadyExists) for result in results)


async def test_concurrent_puts_of_different_keys_all_succeed(store: ObjectStore) -> None:
    async with asyncio.TaskGroup() as group:
        for at in range(40):
            group.create_task(store.put(f"wal/{at % 3}/{at}", [bytes([at]) * at]))

    for at in range(40):
        assert await content_of(store, f"wal/{at % 3}/{at}") == bytes([at]) * at


async def test_buffers_may_change_after_put_returned(store: ObjectStore) -> None:
    small, large = bytearray(b"s" * 1000), bytearray(b"l" * 3_000_000)
    await store.put("small", [memoryview(small)])
    await store.put("large", [memoryview(large)])
    small[:] = b"x" * len(small)
    large[:] = b"x" * len(large)

    assert await content_of(store, "small") == b"s" * 1000
    assert await content_of(store, "large") == b"l" * 3_000_000


async def test_buffers_belong_to_the_caller_again_after_put_returned(store: ObjectStore) -> None:
    buffer = bytearray(b"grows" * 20_000)
    await store.put("object", [buffer])

    buffer.extend(b"more")  # raises BufferError if the store still held it


async def test_read_bytes_are_writable_and_belong_to_the_reader(store: ObjectStore) -> None:
    await store.put("object", [CONTENT])
    [view] = await store.read("object", [ByteRange(10, 20)])
    view[:] = b"0123456789"

    assert bytes(view) == b"0123456789"
    assert await content_of(store, "object") == CONTENT


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 10)],
        [(299_990, 300_000)],
        [(0, 10), (10, 20), (25, 30)],
        [(200_000, 200_100), (0, 5), (100_000, 150_000)],
        [(0, 100), (50, 150), (60, 70)],
        [(5, 5)],
        [(300_000, 300_000)],
        [(0, 10), (10, 10), (290_000, 290_000), (299_999, 300_000)],
        [(0, 300_000), (0, 300_000)],
        [],
    ],
)
async def test_ranges_are_returned_in_the_requested_order(store: ObjectStore, ranges: list[tuple[int, int]]) -> None:
    await store.put("object", [CONTENT])
    views = await store.read("object", [ByteRange(start, end) for start, end in ranges])

    assert [bytes(view) for view in views] == [CONTENT[start:end] for start, end in ranges]


@pytest.mark.parametrize("wanted", [(0, 11), (10, 11), (11, 11), (500, 600), (5, 1000)])
async def test_a_range_beyond_the_end_is_out_of_range_and_names_the_size(
    store: ObjectStore, wanted: tuple[int, int]
) -> None:
    await store.put("object", [b"0123456789"])
    with pytest.raises(OutOfRange) as caught:
        await store.read("object", [ByteRange(0, 1), ByteRange(*wanted)])

    assert (caught.value.start, caught.value.end) == (0, 10)


async def test_a_range_of_an_empty_object_is_out_of_range_unless_it_is_empty(store: ObjectStore) -> None:
    await store.put("object", [])
    with pytest.raises(OutOfRange):
        await store.read("object", [ByteRange(0, 1)])

    assert [bytes(view) for view in await store.read("object", [ByteRange(0, 0)])] == [b""]


@pytest.mark.parametrize("wanted", [(-1, 5), (5, 4)])
async def test_a_range_that_ends_before_it_starts_is_invalid(store: ObjectStore, wanted: tuple[int, int]) -> None:
    await store.put("object", [b"0123456789"])

    with pytest.raises(Invalid):
        await store.read("object", [ByteRange(*wanted)])


async def test_an_absent_object_is_not_found(store: ObjectStore) -> None:
    await store.put("folder/object", [b"here"])

    for key in ("absent", "folder", "folder/absent"):
        with pytest.raises(NotFound):
            await store.size(key)
        with pytest.raises(NotFound):
            await store.read(key, [ByteRange(0, 1)])
        with pytest.raises(NotFound):
            await store.read(key, [ByteRange(0, 0)])


async def test_deleting_is_idempotent_and_does_not_affect_other_keys(store: ObjectStore) -> None:
    for key in ("wal/a", "wal/b", "wal/c"):
        await store.put(key, [b"content"])
    await store.delete(["wal/a", "wal/c", "wal/absent", "absent/absent"])
    await store.delete(["wal/a", "wal/c", "wal/absent", "absent/absent"])
    await store.delete([])

    assert await keys_of(store, "") == ["wal/b"]
    with pytest.raises(NotFound):
        await store.size("wal/a")


async def test_a_folder_that_was_emptied_can_be_filled_again(store: ObjectStore) -> None:
    await store.put("a/b/c", [b"one"])
    await store.delete(["a/b/c"])
    await store.put("a/b/d", [b"two"])

    assert await keys_of(store, "") == ["a/b/d"]


async def test_a_listing_has_key_size_and_time(store: ObjectStore) -> None:
    await store.put("wal/one", [b"12345"])
    [found] = [found async for found in store.list("wal/")]

    assert (found.key, found.size) == ("wal/one", 5)
    assert found.modified_ms > 1_600_000_000_000


async def test_a_listing_is_in_bytewise_key_order(store: ObjectStore) -> None:
    keys = ["a-b", "a.b", "a/b", "a/b.c", "a0", "A", "b", "a/c/d", "a/c-d", "a/c.e", "a_", "Z/z"]
    for key in keys:
        await store.put(key, [b"content"])

    assert await keys_of(store, "") == sorted(keys)


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("", ""),
        ("wal", ""),
        ("wal/", ""),
        ("wal/2", ""),
        ("wal/2026/", ""),
        ("wal/2026/0", ""),
        ("wal/2026/01", ""),
        ("w", ""),
        ("x", ""),
        ("wal/2026/01/a", ""),
        ("wal/2026/01/absent", ""),
        ("", "wal"),
        ("", "wal/2026/01/a"),
        ("", "zzz"),
        ("wal/", "wal/2026/01/"),
        ("wal/", "wal/2026/01/a"),
        ("wal/", "wal/2026/01/aa"),
        ("wal/", "wal/2026/02"),
        ("wal/2026/02/", "wal/2026/02/a"),
        ("wal/2026/02/", "table"),
        ("wal/2026/02/", "x"),
    ],
)
async def test_a_listing_is_bounded_by_prefix_and_after(store: ObjectStore, prefix: str, after: str) -> None:
    keys = [f"wal/2026/{month:02d}/{name}" for month in (1, 2, 10) for name in ("a", "aa", "b")]
    keys += ["table/x", "wal-old/1", "wal2"]
    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(store.put(key, [b"content"]))

    assert await keys_of(store, prefix, after) == sorted(key for key in keys if key.startswith(prefix) and key > after)


async def test_a_listing_continues_beyond_a_thousand_objects(store: ObjectStore, is_faulty: bool) -> None:
    count = 150 if is_faulty else 2300
    keys = [f"wal/{at:06d}" for at in range(count)]
    places = asyncio.Semaphore(32)

    async def put(key: str) -> None:
        async with places:
            await store.put(key, [b"."])

    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(put(key))

    assert await keys_of(store, "wal/") == keys
    assert await keys_of(store, "wal/", keys[99]) == keys[100:]
    await store.delete(keys)
    assert await keys_of(store, "") == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        "..",
        "../a",
        "a/../b",
        "a/./b",
        ".hidden",
        "a/.tmp-1",
        "a b",
        "a\0b",
        "ä",
        "a\\b",
        "a\n",
        "x" * 256,
        "/".join(["x" * 90] * 10),
    ],
)
async def test_an_illegal_key_is_invalid_everywhere(bare_store: ObjectStore, key: str) -> None:
    with pytest.raises(Invalid):
        await bare_store.put(key, [b"content"])
    with pytest.raises(Invalid):
        await bare_store.read(key, [ByteRange(0, 1)])
    with pytest.raises(Invalid):
        await bare_store.size(key)
    with pytest.raises(Invalid):
        await bare_store.delete([key])


@pytest.mark.parametrize("prefix", ["/", "a//", "../", ".t", "ä"])
async def test_an_illegal_prefix_is_invalid_everywhere(bare_store: ObjectStore, prefix: str) -> None:
    with pytest.raises(Invalid):
        await keys_of(bare_store, prefix)


async def test_a_cancelled_put_stores_all_or_nothing(bare_store: ObjectStore) -> None:
    for at in range(30):
        content = bytearray(bytes([at]) * 400_000)
        task = asyncio.create_task(bare_store.put(f"wal/{at}", [memoryview(content)]))
        for _ in range(at % 6):
            await asyncio.sleep(0)
        task.cancel()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
        content[:] = b"x" * len(content)  # the buffer belongs to the test again

        assert result is None or isinstance(result, asyncio.CancelledError)
        assert result is not None or await bare_store.size(f"wal/{at}") == 400_000
    async for found in bare_store.list("wal/"):
        at = int(found.key.removeprefix("wal/"))
        assert await content_of(bare_store, found.key) == bytes([at]) * 400_000


async def test_a_cancelled_put_can_be_repeated(bare_store: ObjectStore) -> None:
    task = asyncio.create_task(bare_store.put("wal/1", [CONTENT]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with contextlib.suppress(AlreadyExists):
        await bare_store.put("wal/1", [CONTENT])

    assert await content_of(bare_store, "wal/1") == CONTENT
