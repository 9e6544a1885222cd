"""The warehouse `live` of the Iceberg REST catalog: views of streams' tables as tables that engines can only read."""

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import SystemRandom

from bearlake.clock import Clock
from bearlake.compaction.runner import InProcess
from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.compaction.workbench import Workbench
from bearlake.errors import NotFound
from bearlake.live.pieces import PieceWriter, key_in
from bearlake.live.settings import TAIL_PREFIX, LiveSettings
from bearlake.live.slices import Damaged
from bearlake.live.tail import Piece
from bearlake.live.views import View, Views
from bearlake.metadata import Metadata
from bearlake.metadata.model import partition_index
from bearlake.objects import ObjectStore
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.table.iceberg import IcebergTables, LoadedTable
from bearlake.table.synthetic import ManifestLists, Tail, describe, view_id
from bearlake.table.warehouse.answers import body_of, owner_of
from bearlake.table.warehouse.model import Answer, Refused
from bearlake.wal.keys import KeySource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """A view whose manifests are under `key`, and when they were written."""

    view_id: int
    table_location: str
    pieces: tuple[Piece, ...]
    key: str
    made_ms: int

    def fits(self, view: View, number: int, made_after_ms: int, now_ms: int) -> bool:
        """Whether the manifests are the view's, with the same files, and young enough (as pieces are, `live/tail.py`)."""
        known = self.view_id, self.table_location, self.pieces
        return known == (number, _location(view), view.pieces) and made_after_ms < self.made_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A view as its readers get it. `view_id` -1: there is no snapshot. `key`: the one of its manifests; `has_tail`: it has such."""

    answer: Answer
    view_id: int
    key: str
    has_tail: bool


class LiveCatalog:
    """Views of tables as answers of the catalog. Belongs to one event loop."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        tables: IcebergTables,
        columns: ColumnSettings,
        settings: LiveSettings,
        clock: Clock,
        compiler: SchemaCompiler | None = None,
    ) -> None:
        """The caller keeps ownership of the stores, the tables and the compiler of Protobuf schemas, as `Compactor` has it."""
        self._store = store
        self._tables = tables
        self._settings = settings
        self._clock = clock
        self._keys = KeySource(clock, SystemRandom().getrandbits, TAIL_PREFIX)
        self._threads = ThreadPoolExecutor(settings.build_concurrent_count, "live")
        runner = InProcess(
            store,
            Workbench(limits=settings.task, clock=clock, threads=self._threads),
            concurrent_count=settings.build_concurrent_count,
        )
        values = ValueSchemas(metadata, tables, columns, compiler)
        writer = PieceWriter(
            metadata, store, runner, values, settings, lambda stream: key_in(stream, self._keys), clock.now_ms
        )
        self._views = Views(
            metadata, tables, writer, settings, clock.now_ms, self._answer, values.columns, creates_tables=True
        )
        self._described: OrderedDict[int, _Described] = OrderedDict()
        self._answers: OrderedDict[int, Loaded] = OrderedDict()
        self._answer_bytes = 0
        self._lists = ManifestLists(settings.manifest_list_count_max)

    async def load(self, number: int) -> Answer:
        """Return a view of the stream with this number, with every record that was acknowledged before the call.

        Raises as `Views.view`, and:
            Unsupported: the table has a newer format.
            Refused: a part of the log is damaged. Not a kind for which engines try again.
        """
        return (await self.loaded(number)).answer

    async def loaded(self, number: int) -> Loaded:
        """Return the same with what a plan needs. Raises as `load`."""
        try:
            return await self._views.view(number)
        except Damaged as error:
            raise Refused(500, "ServiceFailureException", str(error)) from error

    async def close(self) -> None:
        """Stop the builds, and release the threads."""
        self._views.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, view: View) -> Loaded:
        """Return the answer for a view; its readers share it, and its manifests are written once."""
        if view.table is None:
            raise NotFound(f"stream {view.stream.name} has no table")
        number, tail = view.stream.number, _tail(view)
        number_of_view, now_ms = view_id(view.table, tail), self._clock.now_ms()
        known = self._described.get(number)
        is_new = known is None or not known.fits(view, number_of_view, now_ms - self._settings.reuse_ms, now_ms)
        if known is None or is_new:
            known = _Described(
                view_id=number_of_view,
                table_location=_location(view),
                pieces=view.pieces,
                key=key_in(view.stream, self._keys),
                made_ms=now_ms,
            )
        elif (loaded := self._answers.get(number)) is not None:
            return loaded
        answer = await self._describe(view.stream.name, view.table, tail, known, is_new=is_new)
        loaded = Loaded(answer=answer, view_id=number_of_view, key=known.key, has_tail=bool(tail.ranges))
        self._remember(number, known, loaded)
        return loaded

    async def _describe(self, name: str, table: LoadedTable, tail: Tail, known: _Described, *, is_new: bool) -> Answer:
        time_ms = known.made_ms - self._settings.clock_margin_ms
        text = await self._tables.run(
            name,
            lambda: describe(
                table,
                tail,
                self._tables.locations,
                self._lists,
                key=known.key,
                now_ms=time_ms,
                is_written=not is_new,
            ),
        )
        return Answer(
            body=body_of(table.metadata_location, text),
            owner=owner_of(table.metadata),
            version=known.key,
            location=table.metadata.location,
        )

    def _remember(self, number: int, described: _Described, loaded: Loaded) -> None:
        self._described[number] = described
        self._described.move_to_end(number)
        while len(self._described) > self._settings.stream_count_max:
            self._forget(self._described.popitem(last=False)[0])
        self._forget(number)
        self._answers[number] = loaded
        self._answer_bytes += len(loaded.answer.body)
        while self._answer_bytes > self._settings.answer_bytes_max:
            self._forget(next(iter(self._answers)))

    def _forget(self, number: int) -> None:
        if (loaded := self._answers.pop(number, None)) is not None:
            self._answer_bytes -= len(loaded.answer.body)


def _tail(view: View) -> Tail:
    ranges = {partition_index(partition): (start, end) for partition, start, end in view.tail}
    files = [file for piece in view.pieces for file in piece.files]
    return Tail(ranges=ranges, files=files, columns=view.columns)


def _location(view: View) -> str:
    return "" if view.table is None else view.table.metadata_location
