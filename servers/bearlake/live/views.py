"""Builds views: reads what is compacted, then the table, then the log's bounds, and writes pieces with what is new.

The order makes a view complete and free of repeats. A task commits to the table before it changes the index. Offsets that are compacted at
the first read are therefore in the table at the second one, or never. Records that were acknowledged before the build are below the bounds
of the third one. If compaction reaches the tail in between, the index shows it, and the build starts over.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from bearlake.compaction.ensuring import StreamDeleted, ensure_table
from bearlake.errors import NotFound, Unavailable
from bearlake.live.pieces import PieceWriter
from bearlake.live.settings import LiveSettings
from bearlake.live.shared_build import SharedBuild
from bearlake.live.slices import Moved
from bearlake.live.tail import Piece, choose, tail_of
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.streams.value_rules import declared
from bearlake.table.applied_tasks import read_applied_tasks
from bearlake.table.column_book import ColumnBook
from bearlake.table.declared import declared_columns
from bearlake.table.iceberg import IcebergTables, LoadedTable
from bearlake.telemetry import catalog_metrics as metrics

T = TypeVar("T")

_ATTEMPT_COUNT_MAX = 20
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A state of a stream's table with its tail. `table` None: there is no table yet, and the tail is all."""

    stream: Stream
    table: LoadedTable | None
    tail: tuple[OffsetRange, ...]
    pieces: tuple[Piece, ...]
    declared: ColumnBook | None = None
    """Declared columns, if the table lacks one of them."""

    @property
    def columns(self) -> ColumnBook | None:
        """The typed columns that the pieces need, and declared ones; None: there are none."""
        books = [piece.columns for piece in self.pieces if piece.columns is not None]
        books += [] if self.declared is None else [self.declared]
        return max(books, key=lambda book: book.version, default=None)


class Views(Generic[T]):
    """The views of all streams, as readers get them. Belongs to one event loop."""

    def __init__(
        self,
        metadata: Metadata,
        tables: IcebergTables,
        writer: PieceWriter,
        settings: LiveSettings,
        now_ms: Callable[[], int],
        finish: Callable[[View], Awaitable[T]],
        columns: Callable[[Stream], Awaitable[ColumnBook | None]],
        *,
        creates_tables: bool,
    ) -> None:
        """`columns` returns the typed columns that a stream has by its configs now. `finish` makes of a view what its readers get, once for
        all that share it, within the build's deadline. `creates_tables`: whether a view of a stream without a table creates it, as the
        first compaction would."""
        self._metadata = metadata
        self._tables = tables
        self._writer = writer
        self._settings = settings
        self._now_ms = now_ms
        self._finish = finish
        self._columns = columns
        self._creates_tables = creates_tables
        self._places = asyncio.Semaphore(settings.build_concurrent_count)
        self._builds: OrderedDict[int, SharedBuild[T]] = OrderedDict()
        self._pieces: dict[int, tuple[Piece, ...]] = {}

    async def view(self, number: int) -> T:
        """Return what `finish` makes of a view of the stream with this number; it has every record that was acknowledged before the call.

        Raises:
            NotFound: there is no such stream, or it has no table and should have none.
            Overloaded: compaction is too far behind.
            Invalid: the stream's settings name no usable schema for its values.
            Conflict: the table's columns are not ours.
            Damaged: an object of the log contradicts its checksums.
            Unavailable: a store did not answer within the deadline.
            Any exception of `finish`.
        """
        build = self._builds.setdefault(
            number, SharedBuild(partial(self._build, number), self._settings.build_pause_ms)
        )
        self._builds.move_to_end(number)
        while len(self._builds) > self._settings.stream_count_max:
            forgotten, _ = self._builds.popitem(last=False)
            self._pieces.pop(forgotten, None)
        return await build.result()

    def close(self) -> None:
        """Stop the builds."""
        for build in self._builds.values():
            build.close()

    async def _build(self, number: int) -> T:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        found = await self._build_in_time(number)
        metrics.LIVE_BUILD_SECONDS.observe(loop.time() - began_s)
        return found

    async def _build_in_time(self, number: int) -> T:
        moved: Moved | None = None
        try:
            async with asyncio.timeout(self._settings.deadline_ms / 1000):
                for _ in range(_ATTEMPT_COUNT_MAX):
                    try:
                        view = await self._build_once(number)
                    except Moved as error:
                        moved = error
                        await asyncio.sleep(_PAUSE_S)
                        continue
                    self._remember(number, view.pieces)
                    return await self._finish(view)
        except TimeoutError:
            raise Unavailable(f"no view of stream {number} within {self._settings.deadline_ms} ms") from None
        raise Unavailable(f"no view of stream {number} in {_ATTEMPT_COUNT_MAX} attempts: {moved}") from moved

    async def _build_once(self, number: int) -> View:
        stream = await self._stream(number)
        partitions = [stream.partition(index) for index in range(stream.partition_count)]
        compacted = await self._metadata.tasks.compacted(partitions)
        table = await self._table(stream)
        bounds = await self._metadata.log.bounds(partitions)
        ends = {} if table is None else read_applied_tasks(table.metadata.properties).ends
        tail = tail_of(ends, compacted, bounds) if _is_enabled(stream) else []
        now_ms = self._now_ms()
        known, made_after_ms = self._pieces.get(number, ()), now_ms - self._settings.reuse_ms
        kept, missing = choose(known, tail, made_after_ms=made_after_ms, now_ms=now_ms)
        if missing:
            async with self._places:
                try:
                    async for piece in self._writer.write(stream, missing, sum(piece.size for piece in kept)):
                        kept.append(piece)
                        self._remember(number, kept)  # also for the next build, if this one has not enough time
                except NotFound as error:  # an object of the log: compacted and deleted in the meantime
                    raise Moved(str(error)) from error
        lacking = await self._columns(stream) if _lacks_declared(stream, table) else None
        return View(stream=stream, table=table, tail=tuple(tail), pieces=tuple(kept), declared=lacking)

    def _remember(self, number: int, pieces: Sequence[Piece]) -> None:
        if number in self._builds:
            self._pieces[number] = tuple(pieces)

    async def _stream(self, number: int) -> Stream:
        found = await self._metadata.streams.by_numbers([number])
        if not found or found[0].is_deleted:
            raise NotFound(f"there is no stream with the number {number} any more")
        return found[0]

    async def _table(self, stream: Stream) -> LoadedTable | None:
        table = await self._tables.load(stream)
        if table is not None or not self._creates_tables:
            return table
        try:
            state = await ensure_table(stream, self._metadata.streams, self._tables)
        except StreamDeleted as error:
            raise NotFound(str(error)) from error
        if state is None:
            raise NotFound(f"stream {stream.name} has no table: its config table.enable is false")
        table = await self._tables.load(stream)
        if table is None:
            raise Unavailable(f"the table of stream {stream.name} was dropped just now")
        return table


def _lacks_declared(stream: Stream, table: LoadedTable | None) -> bool:
    """Whether the table lacks a declared column: none of its records was compacted yet, or the column was dropped."""
    text = declared(stream.configs)
    if not text or not _is_enabled(stream):
        return False
    names = set() if table is None else {field.name for field in table.schema().fields}
    return any(column.name not in names for column in declared_columns(text))


def _is_enabled(stream: Stream) -> bool:
    return stream_configs.table_rules(stream.name, stream.configs).is_enabled
