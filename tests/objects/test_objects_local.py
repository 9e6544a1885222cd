"""The local folder: order of its system calls, crashes, borrowed buffers."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import AlreadyExists, Denied, Invalid, NotFound, Unavailable
from bearlake.objects import BlockingPut, Buffer, ByteRange, ObjectStore
from bearlake.objects.fault_settings import InjectedFaults
from bearlake.objects.local import LocalObjectStore, LocalSettings
from bearlake.objects.local_files import FileCalls
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.objects.retrying import RetrySettings
from fixtures.waiting import WAIT_S


class RecordingCalls(FileCalls):
    """Notes every call; paths relative to `root`, with temporary names shortened."""

    def __init__(self, root: Path, *, anonymous: bool) -> None:
        self.has_anonymous_files = anonymous
        self._root = str(root)
        self.seen: list[str] = []

    def create(self, path: str, *, anonymous: bool) -> int:
        self._note("create", path)
        return super().create(path, anonymous=anonymous)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        self._note("write", "")
        return super().write(descriptor, parts)

    def sync_file(self, descriptor: int) -> None:
        self._note("sync file", "")
        super().sync_file(descriptor)

    def link(self, source: str, target: str) -> None:
        self._note("link", target)
        super().link(source, target)

    def link_anonymous(self, descriptor: int, target: str) -> None:
        self._note("link", target)
        super().link_anonymous(descriptor, target)

    def unlink(self, path: str) -> None:
        self._note("unlink", path)
        super().unlink(path)

    def make_folder(self, path: str) -> None:
        self._note("make folder", path)
        super().make_folder(path)

    def sync_folder(self, path: str) -> None:
        self._note("sync folder", path)
        super().sync_folder(path)

    def _note(self, name: str, path: str) -> None:
        place = path.removeprefix(self._root).removeprefix("/")
        self.seen.append(f"{name} {place.split('.tmp-')[0]}".strip())


class PausingCalls(FileCalls):
    """Pauses inside one call, so that tests can act in the meantime."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        self._pause("write")
        return super().write(descriptor, parts)

    def sync_file(self, descriptor: int) -> None:
        self._pause("sync file")
        super().sync_file(descriptor)

    def _pause(self, name: str) -> None:
        if name == self._name:
            self.reached.set()
            assert self.go_on.wait(WAIT_S)


class ShortWriteCalls(FileCalls):
    """Writes at most 1000 bytes per call, as a disk that is nearly full or a signal may."""

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        return os.write(descriptor, b"".join(parts)[:1000])


class FailingCalls(FileCalls):
    def __init__(self, error_number: int) -> None:
        self._error_number = error_number

    def sync_file(self, descriptor: int) -> None:
        raise OSError(self._error_number, os.strerror(self._error_number))


OpenLocal = Callable[..., LocalObjectStore]


@pytest.fixture
async def open_local(tmp_path: Path) -> AsyncIterator[OpenLocal]:
    """Opens stores on `tmp_path`, and closes them after the test."""
    stores: list[LocalObjectStore] = []

    def open_one(settings: LocalSettings | None = None, **options: Any) -> LocalObjectStore:
        stores.append(LocalObjectStore(tmp_path, settings, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


async def keys_of(store: LocalObjectStore) -> list[str]:
    return [found.key async for found in store.list("")]


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def test_a_put_syncs_the_file_then_links_it_then_syncs_the_folder(tmp_path: Path, open_local: OpenLocal) -> None:
    calls = RecordingCalls(tmp_path, anonymous=True)
    store = open_local(calls=calls)
    calls.seen = []
    await store.put("a/b/one", [b"content"])
    first, calls.seen = calls.seen, []
    await store.put("a/b/two", [b"content"])

    second = ["create a/b", "write", "sync file", "link a/b/two", "sync folder a/b"]
    assert first[:4] == ["make folder a", "sync folder", "make folder a/b", "sync folder a"]
    assert first[4:] == [call.replace("two", "one") for call in second]
    assert calls.seen == second


async def test_without_anonymous_files_the_order_is_the_same(tmp_path: Path, open_local: OpenLocal) -> None:
    calls = RecordingCalls(tmp_path, anonymous=False)
    store = open_local(calls=calls)
    await store.put("one", [b"content"])

    assert calls.seen == ["create", "write", "sync file", "link one", "unlink", "sync folder"]


async def test_a_taken_name_is_made_durable_before_it_is_reported(tmp_path: Path, open_local: OpenLocal) -> None:
    calls = RecordingCalls(tmp_path, anonymous=True)
    store = open_local(calls=calls)
    await store.put("one", [b"content"])
    calls.seen = []
    with pytest.raises(AlreadyExists):
        await store.put("one", [b"content"])

    assert calls.seen == ["create", "write", "sync file", "link one", "sync folder"]


async def test_without_fsync_nothing_is_synced(tmp_path: Path, open_local: OpenLocal) -> None:
    calls = RecordingCalls(tmp_path, anonymous=True)
    store = open_local(LocalSettings(fsync=False), calls=calls)
    await store.put("a/one", [b"content"])

    assert not any("sync" in call for call in calls.seen)


@pytest.mark.parametrize("anonymous", [True, False])
async def test_a_failed_sync_is_unavailable_and_leaves_nothing(
    tmp_path: Path, open_local: OpenLocal, anonymous: bool
) -> None:
    calls = FailingCalls(5)
    calls.has_anonymous_files = anonymous
    store = open_local(calls=calls)
    with pytest.raises(Unavailable):
        await store.put("one", [b"content"])

    assert names_in(tmp_path) == []


@pytest.mark.parametrize(("number", "kind"), [(28, Unavailable), (122, Unavailable), (13, Denied), (30, Unavailable)])
async def test_errors_of_the_operating_system_become_ours_with_their_cause(
    tmp_path: Path, open_local: OpenLocal, number: int, kind: type[Exception]
) -> None:
    store = open_local(calls=FailingCalls(number))
    with pytest.raises(kind) as caught:
        await store.put("one", [b"content"])

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == number


async def test_short_writes_are_continued(tmp_path: Path, open_local: OpenLocal) -> None:
    store = open_local(calls=ShortWriteCalls())
    parts = [bytes([at]) * at * 10 for at in range(40)]
    await store.put("one", parts)

    assert (tmp_path / "one").read_bytes() == b"".join(parts)


async def test_leftovers_of_crashed_puts_are_invisible_and_removed_when_old(
    tmp_path: Path, open_local: OpenLocal
) -> None:
    clock = ManualClock(2_000_000_000_000)
    store = open_local(LocalSettings(temporary_age_max_ms=60_000), clock=clock)
    await store.put("wal/one", [b"content"])
    for name, age_s in (("old", 61), ("young", 59)):
        leftover = tmp_path / "wal" / f".tmp-{name}"
        leftover.write_bytes(b"half of it")
        os.utime(leftover, (2_000_000_000 - age_s, 2_000_000_000 - age_s))

    assert await keys_of(store) == ["wal/one"]
    assert names_in(tmp_path) == ["wal", "wal/.tmp-young", "wal/one"]


async def test_a_key_cannot_be_an_object_and_a_folder(tmp_path: Path, open_local: OpenLocal) -> None:
    store = open_local()
    await store.put("a", [b"content"])
    await store.put("b/c", [b"content"])

    with pytest.raises(Invalid):
        await store.put("a/b", [b"content"])
    with pytest.raises(Invalid):
        await store.put("b", [b"content"])
    with pytest.raises(NotFound):
        await store.read("b", [ByteRange(0, 0)])


async def test_emptied_folders_are_removed_but_the_root_stays(tmp_path: Path, open_local: OpenLocal) -> None:
    store = open_local()
    await store.put("a/b/c", [b"content"])
    await store.put("a/d", [b"content"])
    await store.delete(["a/b/c"])

    assert names_in(tmp_path) == ["a", "a/d"]
    await store.delete(["a/d"])
    assert names_in(tmp_path) == []
    await store.put("e", [b"content"])


async def test_puts_continue_while_another_store_empties_their_folder(tmp_path: Path, open_local: OpenLocal) -> None:
    first, second = open_local(), open_local()
    stored: list[str] = []

    async def put_all() -> None:
        for at in range(150):
            await first.put(f"wal/deep/{at}", [b"content"])
            stored.append(f"wal/deep/{at}")

    async def delete_all() -> None:
        for _ in range(150):
            await second.delete(stored)

    async with asyncio.TaskGroup() as group:
        group.create_task(put_all())
        group.create_task(delete_all())
    await second.delete(stored[:-1])
    await first.put("wal/deep/last", [b"content"])

    assert set(await keys_of(first)) - {"wal/deep/149"} == {"wal/deep/last"}


async def test_two_stores_on_one_folder_do_not_replace_each_others_objects(
    tmp_path: Path, open_local: OpenLocal
) -> None:
    stores = [open_local() for _ in range(2)]
    for at in range(20):
        results = await asyncio.gather(*(store.put(f"wal/{at}", [b"x"]) for store in stores), return_exceptions=True)

        assert sorted(type(result).__name__ for result in results) == ["AlreadyExists", "NoneType"]


async def test_a_cancelled_put_waits_until_its_buffers_were_read(tmp_path: Path, open_local: OpenLocal) -> None:
    calls = PausingCalls("write")
    store = open_local(calls=calls)
    task = asyncio.create_task(store.put("one", [memoryview(bytearray(b"content"))]))
    await asyncio.to_thread(calls.reached.wait, WAIT_S)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=0.05)
    assert not done  # the thread may still read the buffers
    calls.go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_put_past_its_deadline_is_unavailable_although_the_disk_still_syncs(
    tmp_path: Path, open_local: OpenLocal
) -> None:
    calls = PausingCalls("sync file")
    threads_before = set(threading.enumerate())
    store = open_local(LocalSettings(deadline_ms=50), calls=calls)
    buffer = bytearray(b"content")
    with pytest.raises(Unavailable):
        await store.put("one", [memoryview(buffer)])
    buffer[:] = b"changed"
    calls.go_on.set()
    await store.close()
    for thread in set(threading.enumerate()) - threads_before:
        if thread.name.startswith("objects-"):
            await asyncio.to_thread(thread.join, WAIT_S)

    assert (tmp_path / "one").read_bytes() == b"content"


async def test_calls_wait_for_a_place_when_too_many_are_pending(tmp_path: Path, open_local: OpenLocal) -> None:
    calls = PausingCalls("write")
    settings = LocalSettings(deadline_ms=50, pending_count_max=1, write_thread_count=1)
    store = open_local(settings, calls=calls)
    first = asyncio.create_task(store.put("one", [b"content"]))
    await asyncio.to_thread(calls.reached.wait, WAIT_S)
    with pytest.raises(Unavailable):
        await store.put("two", [b"content"])
    calls.go_on.set()
    await asyncio.gather(first, return_exceptions=True)

    assert "two" not in await keys_of(store)


async def test_threads_are_named_and_bounded(tmp_path: Path, open_local: OpenLocal) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    store = open_local(LocalSettings(write_thread_count=2, read_thread_count=1))
    async with asyncio.TaskGroup() as group:
        for at in range(50):
            group.create_task(store.put(f"wal/{at}", [b"content"]))
    await keys_of(store)
    names = sorted(thread.name for thread in threading.enumerate() if thread.ident not in before)

    assert [name for name in names if name.startswith("objects-")] == names
    assert len(names) <= 3


# -- puts in steps -------------------------------------------------------------------------------------------------


async def in_a_step(store: ObjectStore, work: Callable[[BlockingPut], None]) -> None:
    """Run `work` in a step of the store; raises what it raises."""
    put = store.blocking_put()
    assert put is not None
    ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    put.start(lambda: work(put), lambda: None, ended.set_result)
    error = await ended
    if error is not None:
        raise error


async def test_a_step_puts_in_a_thread_of_the_store_and_goes_on_when_the_object_is_durable(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    seen: list[tuple[bytes, str]] = []

    def work(put: BlockingPut) -> None:
        put.attempt("a/b", [b"x", memoryview(b"y")])
        seen.append(((tmp_path / "a/b").read_bytes(), threading.current_thread().name))

    await in_a_step(store, work)
    await in_a_step(store, lambda put: put.attempt("a/c", [b""]))
    await store.close()

    assert seen[0][0] == b"xy"
    assert seen[0][1].startswith("objects-store")


@pytest.mark.parametrize(
    ("key", "kind"), [("a/b", AlreadyExists), ("a", Invalid), ("a/b/c", Invalid), ("../a", Invalid)]
)
async def test_an_attempt_raises_as_a_put(tmp_path: Path, key: str, kind: type[Exception]) -> None:
    store = LocalObjectStore(tmp_path)
    await store.put("a/b", [b"x"])

    with pytest.raises(kind):
        await store.put(key, [b"z"])
    with pytest.raises(kind):
        await in_a_step(store, lambda put: put.attempt(key, [b"z"]))

    await store.close()
    assert (tmp_path / "a/b").read_bytes() == b"x"


async def test_a_closed_store_starts_no_step(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path)
    await store.close()

    with pytest.raises(Unavailable):
        await in_a_step(store, lambda put: put.attempt("a", [b"x"]))


async def test_the_layers_of_a_store_keep_their_rules_for_attempts(tmp_path: Path) -> None:
    calls: list[tuple[str, str, int]] = []

    class Calls:
        def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
            calls.append((operation, outcome, size_bytes))

    settings = ObjectStoreSettings(retry=RetrySettings(pause_first_ms=0))
    store = open_store(f"file://{tmp_path}", settings, recorder=Calls())
    put = store.blocking_put()
    assert put is not None

    with pytest.raises(Invalid, match="markers"):
        put.attempt("markers/0/0", [b"x"])
    put.attempt("a/b", [b"xy"])
    put.attempted(0.1, 2, None)
    put.attempted(0.1, 2, Unavailable("lost"))
    await put.again("a/b", [b"xy"], Unavailable("the reply was lost"))
    with pytest.raises(Denied):
        await put.again("a/c", [b"xy"], Denied("no"))
    await store.close()

    assert calls[:2] == [("put", "ok", 2), ("put", "unavailable", 0)]
    assert ("put", "already_exists", 0) in calls[2:]
    assert not (tmp_path / "a/c").exists()


async def test_injected_faults_leave_no_way_around_them(tmp_path: Path) -> None:
    faults = InjectedFaults(put_latency_ms=1)
    store = open_store(f"file://{tmp_path}", ObjectStoreSettings(faults=faults))

    assert store.blocking_put() is None
    await store.close()
