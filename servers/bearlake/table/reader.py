"""Reads data files: footers, row groups as blocks of record batches, and records by time.

Reads only the required bytes from the object store, on the event loop, and decodes on separate threads. pyarrow is imported on such a
thread with the first data file, because a server that reads no history does not need it (0.2 s, 40 MB).

Keeps nothing: the caller (`streams/history.py`) does caching, single flight and read-ahead.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bearlake.errors import Corrupt, Invalid, OutOfRange, Unsupported
from bearlake.metadata.model import ObjectRef
from bearlake.objects import ByteRange, ObjectStore
from bearlake.table.file_tail import needed

if TYPE_CHECKING:
    from bearlake.table.blocks import Block, Rows
    from bearlake.table.footer import Footer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFileSettings:
    """How data files are read."""

    thread_count: int = 2
    """Threads that decode. More threads serve more lagging consumers at once, and take CPU time from other work. 0: the thread of the event
    loop, which blocks (for tests in virtual time)."""
    footer_bytes: int = 64 * 1024
    """First read (bytes) from the end of a file. A longer footer costs a second read; a row group takes about 2 KiB of footer."""
    compressed_bytes_min: int = 1024 * 1024
    """A batch that was compressed when it arrived, and is larger than this uncompressed, is compressed again when it is sent. Smaller: less
    network; larger: less CPU."""


async def read_ranges(store: ObjectStore, ref: ObjectRef, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
    """Read byte ranges of a data file, as its footer names them. Raises `Corrupt`, `NotFound`, `Unavailable`."""
    try:
        return await store.read(ref.key, ranges)
    except (OutOfRange, Invalid) as error:  # about byte ranges; must not be mistaken for errors about offsets
        raise Corrupt(f"data file {ref.key} has unexpected content: {error}") from error


class DataFileReader:
    """Reads data files of an object store. Use from the event loop's thread only."""

    def __init__(self, store: ObjectStore, settings: DataFileSettings) -> None:
        self._store = store
        self._settings = settings
        self._executor: ThreadPoolExecutor | None = None

    async def footer(self, ref: ObjectRef) -> "Footer":
        """Read the file's footer.

        Raises:
            NotFound: the file is gone; resolve the offset again.
            Corrupt: not one of our data files.
            Unavailable: the store did not answer in time.
            Unsupported: pyarrow is not installed.
        """
        start = max(0, ref.size - self._settings.footer_bytes)
        (tail,) = await read_ranges(self._store, ref, [ByteRange(start, ref.size)])
        try:
            while (count := needed(tail, ref.size)) > len(tail):
                (tail,) = await read_ranges(self._store, ref, [ByteRange(ref.size - count, ref.size)])
        except Corrupt as error:
            raise Corrupt(f"data file {ref.key}: {error}") from error
        return await self._run(ref, _parse_footer, tail)

    async def block(
        self,
        ref: ObjectRef,
        footer: "Footer",
        group: int,
        decoding: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> "Block":
        """Read a row group as record batches. It is decoded within the context `decoding`. Raises as `footer` does.

        If the caller is cancelled, this raises when no thread uses the memory any more, after some tens of milliseconds at most.
        """
        ranges = [footer.range_of_values(group)]
        parts = await read_ranges(self._store, ref, ranges)
        async with decoding():
            return await self._run(
                ref, _decode, ref.size, ranges, parts, footer, group, self._settings.compressed_bytes_min
            )

    async def first_at(
        self, ref: ObjectRef, footer: "Footer", group: int, rows: "Rows", timestamp: int | None
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp in ms) of the first of `rows` at or after `timestamp` (ms), or, if None, of the first with the largest.

        Returns None if there is no such row. Reads only the required columns. Raises as `footer` does.
        """
        ranges = footer.time_ranges(group)
        parts = await read_ranges(self._store, ref, ranges)
        return await self._run(ref, _first_at, ref.size, ranges, parts, footer, group, rows, timestamp)

    async def close(self) -> None:
        """Shut down the threads without waiting; pending results are discarded."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, ref: ObjectRef, step: Callable[..., T], *arguments: object) -> T:
        try:
            if self._settings.thread_count == 0:
                return step(*arguments)
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._settings.thread_count, thread_name_prefix="data-files")
            return await _to_its_end(self._executor.submit(step, *arguments))
        except Corrupt as error:
            raise Corrupt(f"{ref.key}: {error}") from error
        except ImportError as error:
            raise Unsupported(f"reading history needs pyarrow, install bearlake[history]: {error}") from error


async def _to_its_end(call: Future[T]) -> T:
    """Return a thread's result. A cancellation takes effect when the thread does not run the call, or has ended it."""
    answer = asyncio.wrap_future(call)
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        if not call.cancel():
            answer.add_done_callback(_mark_retrieved)
            await asyncio.wait({answer})
        raise


def _mark_retrieved(answer: "asyncio.Future[T]") -> None:
    """Mark the error of a result that nobody needs any more, so that asyncio does not report it."""
    if not answer.cancelled():
        answer.exception()


def _parse_footer(tail: memoryview) -> "Footer":
    from bearlake.table import footer

    return footer.parse(tail)


def _decode(
    size: int,
    ranges: Sequence[ByteRange],
    parts: Sequence[memoryview],
    footer: "Footer",
    group: int,
    compressed_bytes_min: int,
) -> "Block":
    from bearlake.table import blocks
    from bearlake.table.sparse import SparseFile

    return blocks.decode(SparseFile(size, ranges, parts), footer, group, compressed_bytes_min)


def _first_at(
    size: int,
    ranges: Sequence[ByteRange],
    parts: Sequence[memoryview],
    footer: "Footer",
    group: int,
    rows: "Rows",
    timestamp: int | None,
) -> tuple[int, int] | None:
    from bearlake.table import blocks
    from bearlake.table.sparse import SparseFile

    return blocks.first_at(SparseFile(size, ranges, parts), footer, group, rows, timestamp)
