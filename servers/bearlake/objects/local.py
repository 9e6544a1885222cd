"""Objects as files of a local folder: the store of `bearlake up`.

Key `a/b` is the file `root/a/b`. The folder holds nothing else, so the content of an object store can be copied to it and
back. A key cannot be both an object and the folder of another object (`Invalid`). Blocking work runs on two bounded
pools of named threads, so that reads never queue behind a slow disk sync; each call is one hop. Several processes may
share a folder. `local_files.py` explains durability and its cost.
"""

import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from bearlake.clock import Clock, SystemClock
from bearlake.errors import AlreadyExists, BearlakeError, Denied, Invalid, NotFound, Unavailable
from bearlake.objects import BlockingPut, Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.objects.keys import check_key, check_prefix
from bearlake.objects.local_files import DurableFolder, FileCalls
from bearlake.objects.local_listing import walk
from bearlake.objects.ranges import Span, check_within, coalesce, scatter
from bearlake.ordered_threads import OrderedThreads
from bearlake.threads import Borrowed, Threads

T = TypeVar("T")

_LIST_PAGE_COUNT = 1000  # objects listed per thread hop
_FOLDER_MODE = 0o750


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Settings of the local store."""

    fsync: bool = True
    """Sync file and folder before a put returns. Without it, a power loss loses acknowledged records: for benchmarks and scratch data
    only."""

    write_thread_count: int = 4
    """Threads for puts and deletes, and as many more that store and commit the write path's objects. More threads keep more disk syncs in
    flight, which file system journals merge. A thread starts when it is needed, and then costs memory."""

    read_thread_count: int = 4
    """Threads for reads and listings."""

    pending_count_max: int = 256
    """Calls of one pool that run or wait for a thread; further callers wait."""

    deadline_ms: int = 30_000
    """A call that takes longer raises `Unavailable`. Must be far below the grace period of the orphan sweep."""

    coalesce_gap_bytes: int = 16 * 1024
    """One system call reads ranges that are at most this far apart: reading the gap costs less than a call (about 4 µs)."""

    temporary_age_max_ms: int = 3_600_000
    """Age at which a listing deletes the leftovers of crashed puts. Far longer than `deadline_ms`."""


class LocalObjectStore(ObjectStore):
    """An `ObjectStore` in the folder `root`, which is created if absent. The constructor does blocking work."""

    def __init__(
        self,
        root: Path,
        settings: LocalSettings | None = None,
        *,
        clock: Clock | None = None,
        calls: FileCalls | None = None,
    ) -> None:
        self._root = root.absolute()
        self._settings = settings or LocalSettings()
        self._clock = clock or SystemClock()
        with _translated(str(self._root)):
            _make_root(self._root, fsync=self._settings.fsync)
            self._folder = DurableFolder(self._root, fsync=self._settings.fsync, calls=calls or FileCalls())
        self._writers = self._threads("objects-write", self._settings.write_thread_count)
        self._readers = self._threads("objects-read", self._settings.read_thread_count)
        self._storing = OrderedThreads("objects-store", self._settings.write_thread_count)
        """Runs the steps of blocking puts."""

    @override
    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """A key that is a folder, or lies below an object, raises `Invalid`."""
        check_key(key)
        buffers = Borrowed()

        def put() -> None:
            try:
                with _translated(key, is_put=True):
                    self._folder.put(key, parts, buffers.release)
            finally:
                buffers.release()

        await self._run(self._writers, put, key, buffers)

    @override
    def blocking_put(self) -> BlockingPut | None:
        """A system call that hangs holds its thread, and the caller's buffers, until the disk answers."""

        def attempt(key: str, parts: Sequence[Buffer]) -> None:
            check_key(key)
            try:
                self._folder.put(key, parts, _nothing)
            except OSError as error:
                raise _as_ours(error, key, is_put=True) from error

        async def again(key: str, parts: Sequence[Buffer], error: BearlakeError) -> None:
            raise error  # only `RetryingObjectStore` knows whether there is another attempt

        return BlockingPut(
            start=self._storing.start, attempt=attempt, attempted=lambda seconds, size, error: None, again=again
        )

    @override
    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        check_key(key)
        if not ranges:
            return []
        spans = coalesce(ranges, self._settings.coalesce_gap_bytes)

        def read() -> list[memoryview]:
            with _translated(key):
                return scatter(ranges, spans, _read_spans(self._path(key), key, ranges, spans))

        return await self._run(self._readers, read, key)

    @override
    async def size(self, key: str) -> int:
        check_key(key)

        def size() -> int:
            with _translated(key):
                return _size_of_file(os.stat(self._path(key)))

        return await self._run(self._readers, size, key)

    @override
    async def delete(self, keys: Collection[str]) -> None:
        """Also removes folders that become empty."""
        for key in keys:
            check_key(key)
        ordered_keys = list(keys)

        def delete() -> None:
            with _translated("deletion"):
                self._folder.remove(ordered_keys)

        await self._run(self._writers, delete, "deletion")

    @override
    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects put or deleted during the listing may or may not appear."""
        check_prefix(prefix)
        remove_before_ms = self._clock.now_ms() - self._settings.temporary_age_max_ms
        found: Iterator[ObjectInfo] = walk(str(self._root), prefix, after, remove_before_ms)

        def next_page() -> list[ObjectInfo]:
            with _translated(prefix):
                return list(islice(found, _LIST_PAGE_COUNT))

        while page := await self._run(self._readers, next_page, prefix):
            for entry in page:
                yield entry

    @override
    async def close(self) -> None:
        """Threads end after their current call."""
        self._writers.close()
        self._readers.close()
        self._storing.close()

    def _threads(self, name: str, thread_count: int) -> Threads:
        settings = self._settings
        return Threads(
            name, thread_count, pending_count_max=settings.pending_count_max, deadline_ms=settings.deadline_ms
        )

    async def _run(self, threads: Threads, step: Callable[[], T], what: str, borrowed: Borrowed | None = None) -> T:
        try:
            return await threads.run(step, borrowed)
        except TimeoutError as error:
            deadline_ms = self._settings.deadline_ms
            raise Unavailable(f"{what}: no answer from the local disk within {deadline_ms} ms") from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"


def _read_spans(path: str, key: str, ranges: Sequence[ByteRange], spans: Sequence[Span]) -> list[memoryview]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        check_within(key, ranges, _size_of_file(os.fstat(descriptor)))
        return [_read_span(descriptor, span) for span in spans]
    finally:
        os.close(descriptor)


def _size_of_file(status: os.stat_result) -> int:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder of keys, not an object")
    return status.st_size


def _read_span(descriptor: int, span: Span) -> memoryview:
    view = memoryview(bytearray(span.end - span.start))
    done = 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], span.start + done)
        if count == 0:  # objects never shrink: the file was truncated from outside
            raise OSError(errno.EIO, "file is shorter than its reported size")
        done += count
    return view


def _make_root(root: Path, *, fsync: bool) -> None:
    if root.is_dir():
        return
    _make_root(root.parent, fsync=fsync)
    try:
        root.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    except FileExistsError as error:
        raise Invalid(f"{root} is not a folder") from error
    if fsync:
        FileCalls().sync_folder(str(root.parent))


@contextmanager
def _translated(what: str, *, is_put: bool = False) -> Iterator[None]:
    """Translate the operating system's errors into ours."""
    try:
        yield
    except OSError as error:
        raise _as_ours(error, what, is_put=is_put) from error


def _as_ours(error: OSError, what: str, *, is_put: bool) -> BearlakeError:
    match error:
        case FileExistsError():
            return AlreadyExists(f"object {what} exists")
        case FileNotFoundError() if is_put:
            return Unavailable(f"object {what}: its folder was removed concurrently")
        case FileNotFoundError():
            return NotFound(f"object {what} does not exist")
        case NotADirectoryError() | IsADirectoryError() if is_put:
            return Invalid(f"object {what}: a key cannot name both an object and the folder of another object")
        case NotADirectoryError() | IsADirectoryError():
            return NotFound(f"object {what} does not exist")
        case PermissionError():
            return Denied(f"object {what}: {error.strerror}")
        case _:
            return Unavailable(f"object {what}: {error.strerror}")


def _nothing() -> None:
    """The buffers of a blocking put belong to its step until the step ends."""
