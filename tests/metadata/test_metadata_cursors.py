"""Behaviour of every metadata store: cursors of subscriptions, moved under the lease of their partition's dispatcher."""

from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced, Invalid, NotFound, TooLarge
from bearlake.metadata.model import partition_key
from bearlake.metadata.subscriptions import (
    ACKNOWLEDGED_BYTES_MAX,
    EARLIEST,
    LATEST,
    PROPERTIES_BYTES_MAX,
    SAVED_ALL,
    Cursor,
    CursorId,
    CursorSave,
    CursorsSaved,
    CursorUpdate,
    dispatch_lease,
    pack_ranges,
)
from fixtures import by_name


@pytest.fixture
async def key(scene: Any) -> Any:
    return await scene.partition()


async def create(scene: Any, key: Any, name: str = "sub", mark_delete: int = EARLIEST, **properties: str) -> Cursor:
    cursors = scene.metadata.cursors
    after = await cursors.deletion_count(key)
    return await cursors.create(key, name, mark_delete=mark_delete, properties=properties, after=after)


async def delete(scene: Any, key: Any, names: list[str], lease: Any) -> None:
    cursors = scene.metadata.cursors
    stored = {cursor.name: cursor.generation for cursor in await cursors.load(key)}
    after = await cursors.deletion_count(key)
    await cursors.delete(key, {name: stored.get(name, 0) for name in names}, lease, after=after)


async def lease_of(scene: Any, key: Any) -> Any:
    return await scene.metadata.leases.acquire(dispatch_lease(key), scene.server)


async def test_a_cursor_starts_inside_its_partition(scene: Any, key: Any) -> None:
    await scene.commit(scene.batch(key, 9))
    await scene.metadata.log.trim(key, 3)
    marks = [(await create(scene, key, f"at {mark}", mark)).mark_delete for mark in (EARLIEST, 2, 3, 5, 9, 10, LATEST)]

    assert marks == [3, 3, 3, 5, 9, 9, 9]


async def test_a_cursor_is_created_once(scene: Any, key: Any, peer: Any) -> None:
    first = await create(scene, key, "sub", EARLIEST, color="blue")
    await scene.commit(scene.batch(key, 9))
    again = await peer.cursors.create(key, "sub", mark_delete=LATEST, properties={}, after=0)

    assert first == again
    assert (first.partition, first.name, first.mark_delete, first.acknowledged) == (key, "sub", 0, b"")
    assert (first.properties, first.revision) == ({"color": "blue"}, 0)
    assert first.created_ms > 1_600_000_000_000


async def test_all_cursors_of_a_partition_are_loaded(scene: Any, peer: Any) -> None:
    stream = await scene.stream("wide", 2)
    names = ["a", "B", "ä", "𝄞", "a/b", " ", "x" * 1024]
    for name in names:
        await create(scene, stream.partition(0), name)

    loaded = await peer.cursors.load(stream.partition(0))
    assert [cursor.name for cursor in loaded] == sorted(names)
    assert await peer.cursors.load(stream.partition(1)) == []
    assert await peer.cursors.load(partition_key(99, 0)) == []


async def test_a_save_moves_cursors(scene: Any, key: Any, peer: Any) -> None:
    first, second = await create(scene, key, "first", kept="yes"), await create(scene, key, "second", color="blue")
    lease = await lease_of(scene, key)
    ranges = pack_ranges(5, [(7, 8), (2**40, 2**41)])
    updates = [CursorUpdate("first", 5, ranges, 1), CursorUpdate("second", 2**40, b"", 7, {"color": "red"})]

    assert await scene.metadata.cursors.save([CursorSave(key, updates, lease)]) == SAVED_ALL
    assert await peer.cursors.load(key) == [
        replace(first, mark_delete=5, acknowledged=ranges, revision=1),
        replace(second, mark_delete=2**40, properties={"color": "red"}, revision=7),
    ]


async def test_a_late_save_changes_nothing(scene: Any, key: Any) -> None:
    await create(scene, key)
    lease = await lease_of(scene, key)

    async def save(revision: int, mark_delete: int) -> Any:
        update = CursorUpdate("sub", mark_delete, bytes([revision]), revision, {"at": str(revision)})
        return await scene.metadata.cursors.save([CursorSave(key, [update], lease)])

    assert await save(3, 30) == SAVED_ALL
    for late in (1, 2):
        assert await save(late, 10) == CursorsSaved(set(), {CursorId(key, "sub")})
    assert await save(3, 10) == SAVED_ALL  # a repeat of the same save
    (stored,) = await scene.metadata.cursors.load(key)
    assert (stored.mark_delete, stored.acknowledged, stored.properties, stored.revision) == (30, b"\3", {"at": "3"}, 3)
    assert await save(4, 20) == SAVED_ALL
    assert [cursor.mark_delete for cursor in await scene.metadata.cursors.load(key)] == [20]


async def test_saves_of_overtaken_cursors_are_refused_and_the_others_succeed(scene: Any) -> None:
    stream = await scene.stream("wide", 40)
    keys = [stream.partition(index) for index in range(40)]
    leases = {key: await lease_of(scene, key) for key in keys}
    for key in keys:
        await create(scene, key)
    other = await scene.register(scene.metadata, "server-1")
    await scene.metadata.leases.release(leases[keys[3]])
    await scene.metadata.leases.release(leases[keys[33]])
    await scene.metadata.leases.acquire(dispatch_lease(keys[33]), other)
    saves = [CursorSave(key, [CursorUpdate("sub", 7, b"", 1)], leases[key]) for key in keys]

    assert await scene.metadata.cursors.save(saves) == CursorsSaved({keys[3], keys[33]}, set())
    marks = [(await scene.metadata.cursors.load(key))[0].mark_delete for key in keys]
    assert [index for index, mark in enumerate(marks) if mark == 0] == [3, 33]


async def test_a_replaced_server_saves_nothing(scene: Any, key: Any) -> None:
    await create(scene, key)
    lease = await lease_of(scene, key)
    await scene.register(scene.metadata)

    assert await scene.metadata.cursors.save(
        [CursorSave(key, [CursorUpdate("sub", 7, b"", 1)], lease)]
    ) == CursorsSaved({key}, set())
    with pytest.raises(Fenced):
        await delete(scene, key, ["sub"], lease)
    assert [cursor.mark_delete for cursor in await scene.metadata.cursors.load(key)] == [0]


async def test_an_empty_save_succeeds(scene: Any, key: Any) -> None:
    lease = await lease_of(scene, key)

    assert await scene.metadata.cursors.save([]) == SAVED_ALL
    assert await scene.metadata.cursors.save([CursorSave(key, [], lease)]) == SAVED_ALL
    await scene.metadata.leases.release(lease)
    assert await scene.metadata.cursors.save([CursorSave(key, [], lease)]) == CursorsSaved({key}, set())


async def test_a_save_restores_no_deleted_cursor(scene: Any, key: Any) -> None:
    lease = await lease_of(scene, key)
    await create(scene, key)
    await delete(scene, key, ["sub", "absent"], lease)

    saved = await scene.metadata.cursors.save([CursorSave(key, [CursorUpdate("sub", 7, b"", 1)], lease)])
    assert saved == CursorsSaved(set(), {CursorId(key, "sub")})
    assert await scene.metadata.cursors.load(key) == []
    await delete(scene, key, ["sub"], lease)
    await scene.commit(scene.batch(key, 4))
    assert (await create(scene, key, "sub", LATEST)).mark_delete == 4


async def test_a_late_creation_restores_no_deleted_subscription(scene: Any, key: Any, peer: Any) -> None:
    lease = await lease_of(scene, key)
    late = await scene.metadata.cursors.deletion_count(key)
    await create(scene, key)
    await delete(scene, key, ["sub"], lease)

    with pytest.raises(Conflict):
        await peer.cursors.create(key, "sub", mark_delete=0, properties={}, after=late)
    assert await scene.metadata.cursors.load(key) == []
    assert (await create(scene, key)).name == "sub"
    assert (await peer.cursors.create(key, "sub", mark_delete=0, properties={}, after=late)).name == "sub"


async def test_a_late_deletion_removes_no_recreated_cursor(scene: Any, key: Any, peer: Any) -> None:
    lease = await lease_of(scene, key)
    cursors = scene.metadata.cursors
    first = await create(scene, key)
    late = await cursors.deletion_count(key)
    await delete(scene, key, ["sub"], lease)
    again = await create(scene, key)
    assert again.generation > first.generation

    with pytest.raises(Conflict):
        await cursors.delete(key, {"sub": first.generation}, lease, after=late)
    await cursors.delete(key, {"sub": first.generation}, lease, after=await cursors.deletion_count(key))
    assert await peer.cursors.load(key) == [again]


async def test_a_late_deletion_removes_no_cursor_that_a_caller_has_found_since(scene: Any, key: Any, peer: Any) -> None:
    lease = await lease_of(scene, key)
    cursors = scene.metadata.cursors
    first = await create(scene, key)
    late = await cursors.deletion_count(key)
    assert await peer.cursors.create(key, "sub", mark_delete=LATEST, properties={}, after=late) == first

    with pytest.raises(Conflict):
        await cursors.delete(key, {"sub": first.generation}, lease, after=late)
    assert await peer.cursors.load(key) == [first]
    await delete(scene, key, ["sub"], lease)
    assert await peer.cursors.load(key) == []


async def test_a_deletion_that_deletes_nothing_refuses_earlier_deletions(scene: Any, key: Any) -> None:
    lease = await lease_of(scene, key)
    cursors = scene.metadata.cursors
    first = await create(scene, key)
    late = await cursors.deletion_count(key)

    await cursors.delete(key, {}, lease, after=late)
    with pytest.raises(Conflict):
        await cursors.delete(key, {"sub": first.generation}, lease, after=late)
    assert await cursors.load(key) == [first]


async def test_a_late_save_moves_no_recreated_cursor(scene: Any, key: Any) -> None:
    lease = await lease_of(scene, key)
    cursors = scene.metadata.cursors
    await create(scene, key)
    late = CursorSave(key, [CursorUpdate("sub", 7, b"", 1)], lease)
    await delete(scene, key, ["sub"], lease)
    again = await create(scene, key)

    assert await cursors.save([late]) == CursorsSaved(set(), {CursorId(key, "sub")})
    assert await cursors.load(key) == [again]
    update = CursorUpdate("sub", 3, b"", 1, generation=again.generation)
    assert await cursors.save([CursorSave(key, [update], lease)]) == SAVED_ALL
    assert await cursors.load(key) == [replace(again, mark_delete=3, revision=1)]


async def test_limits_are_reported(scene: Any, key: Any) -> None:
    cursors = scene.metadata.cursors
    lease = await lease_of(scene, key)
    await create(scene, key, "kept")
    full, too_many = b"x" * ACKNOWLEDGED_BYTES_MAX, b"x" * (ACKNOWLEDGED_BYTES_MAX + 1)

    assert await cursors.save([CursorSave(key, [CursorUpdate("kept", 1, full, 1)], lease)]) == SAVED_ALL
    with pytest.raises(TooLarge):
        await cursors.save([CursorSave(key, [CursorUpdate("kept", 2, too_many, 2)], lease)])
    with pytest.raises(TooLarge):
        await create(scene, key, "sub", text="x" * PROPERTIES_BYTES_MAX)
    wordy = CursorUpdate("kept", 2, b"", 2, {"text": "x" * PROPERTIES_BYTES_MAX})
    with pytest.raises(TooLarge):
        await cursors.save([CursorSave(key, [wordy], lease)])
    for name in ("", "x" * 1025, "a\0b"):
        with pytest.raises(Invalid, match="1 to 1024"):
            await create(scene, key, name)
    (kept,) = await cursors.load(key)
    assert (kept.mark_delete, kept.acknowledged, kept.revision) == (1, full, 1)


async def test_properties_may_be_any_text(scene: Any, key: Any) -> None:
    properties = {"": "", "ä": '\0\n"', "𝄞": "x" * 1000}

    assert (
        await scene.metadata.cursors.create(key, "sub", mark_delete=0, properties=properties, after=0)
    ).properties == properties
    assert (await scene.metadata.cursors.load(key))[0].properties == properties


async def test_cursors_of_a_stream_are_listed_in_pages(scene: Any, peer: Any) -> None:
    before, stream, behind = [await scene.stream(name, 3) for name in ("before", "listed", "behind")]
    for of in (before, stream, behind):
        for index in (2, 0):
            for name in ("b", "a"):
                await create(scene, of.partition(index), name, color="blue")
    key = stream.partition(0)
    lease = await lease_of(scene, key)
    await scene.metadata.cursors.save([CursorSave(key, [CursorUpdate("a", 3, b"ranges", 1)], lease)])
    due = [CursorId(stream.partition(index), name) for index in (0, 2) for name in ("a", "b")]

    everything = await peer.cursors.list(stream.number)
    assert [CursorId(cursor.partition, cursor.name) for cursor in everything] == due
    assert (everything[0].mark_delete, everything[0].acknowledged) == (3, b"")
    assert everything[0].properties == {"color": "blue"}
    pages, after = [], None
    while page := await peer.cursors.list(stream.number, after=after, limit=3):
        pages.append(len(page))
        after = CursorId(page[-1].partition, page[-1].name)
    assert pages == [3, 1]
    assert await peer.cursors.list(99) == []


async def test_cursors_are_deleted_with_their_stream(scene: Any, key: Any) -> None:
    stream = await scene.metadata.streams.get("orders")
    lease = await lease_of(scene, key)
    await create(scene, key)
    await by_name.delete(scene.metadata, "orders")

    for _ in range(2):
        with pytest.raises(NotFound):
            await create(scene, key)
        assert await scene.metadata.cursors.load(key) == []
        assert await scene.metadata.cursors.list(stream.number) == []
        saved = await scene.metadata.cursors.save([CursorSave(key, [CursorUpdate("sub", 1, b"", 1)], lease)])
        assert saved.overtaken == set()
        await scene.maintain(0)
    again = await scene.partition()
    assert await scene.metadata.cursors.load(again) == []


async def test_partitions_that_do_not_exist_have_no_cursors(scene: Any, key: Any) -> None:
    for absent in (partition_key(99, 0), key + 1):
        with pytest.raises(NotFound):
            await create(scene, absent)
