"""Writes pieces, with the code of a compaction task: their rows are those that compaction will write."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from bearlake.compaction.aborted import aborted_ranges, of_slices
from bearlake.compaction.model import AbortedRange, ItemResult, WorkItem
from bearlake.compaction.runner import Runner
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.errors import Corrupt, Overloaded
from bearlake.live.settings import LiveSettings
from bearlake.live.slices import Damaged, portions, tail_slices
from bearlake.live.tail import Piece
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange, TaskKind
from bearlake.metadata.model import LocatedSlice, Stream
from bearlake.objects import ObjectStore
from bearlake.table.column_book import ColumnBook
from bearlake.telemetry import catalog_metrics as metrics
from bearlake.wal.keys import KeySource

_FILE_BYTES_MAX = 512 * 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Typed:
    """A stream whose values become columns: the part of a task that `ValueSchemas.run` needs."""

    stream: Stream
    columns: ColumnBook | None = None


class PieceWriter:
    """Writes pieces."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        runner: Runner,
        values: ValueSchemas,
        settings: LiveSettings,
        next_key: Callable[[Stream], str],
        now_ms: Callable[[], int],
    ) -> None:
        """`store` has the log; `runner` writes the files. `next_key` returns a new key of a stream (`key_in`)."""
        self._metadata = metadata
        self._store = store
        self._runner = runner
        self._values = values
        self._settings = settings
        self._next_key = next_key
        self._now_ms = now_ms

    async def write(self, stream: Stream, ranges: Sequence[OffsetRange], kept_bytes: int) -> AsyncIterator[Piece]:
        """Write the rows of `ranges`, in pieces of at most `LiveSettings.piece_bytes_max`, each under a new key.

        `kept_bytes`: bytes of the log in other pieces of the view.

        Raises:
            Moved: compaction has reached the offsets.
            NotFound: an object of the log does not exist (any more).
            Overloaded: the offsets are more than `LiveSettings` allows.
            Invalid: the stream's settings name no usable schema.
            Damaged: an object contradicts its checksums; the message says where.
            Unavailable: a store did not answer.
        """
        # Before the slices: a trim between the reads may remove what was aborted, and the batches with it.
        aborted = await aborted_ranges(self._metadata, ranges)
        slices = await tail_slices(self._metadata, self._store, ranges, self._settings.tail_slice_count_max)
        if slices is None:
            raise _behind(stream, f"more than live.tail_slice_count_max = {self._settings.tail_slice_count_max} slices")
        if (size := kept_bytes + _size(slices)) > self._settings.tail_bytes_max:
            raise _behind(stream, f"{size} bytes, more than live.tail_bytes_max = {self._settings.tail_bytes_max},")
        for part, group in portions(ranges, slices, self._settings.piece_bytes_max):
            yield await self._write(stream, part, group, of_slices(aborted, group))

    async def _write(
        self,
        stream: Stream,
        ranges: Sequence[OffsetRange],
        slices: Sequence[LocatedSlice],
        aborted: Sequence[AbortedRange],
    ) -> Piece:
        made_ms, key = self._now_ms(), self._next_key(stream)
        typed = _Typed(stream)
        plan = await self._values.plan(stream)
        typed.columns = None if plan is None else plan.columns.book
        item = WorkItem(
            kind=TaskKind.COMPACT,
            stream_id=stream.id,
            output_prefix=key,
            kept_prefix=f"{key}-kept/",
            slices=slices,
            file_bytes_max=_FILE_BYTES_MAX,
            row_group_bytes=_ROW_GROUP_BYTES,
            aborted=aborted,
            values=plan,
        )
        try:
            results: list[ItemResult] = await self._values.run([typed], [[item]], self._runner)
        except Corrupt as error:
            raise Damaged(f"the tail of {stream.name} is damaged: {error}") from error
        files = tuple(written.file for result in results for written in result.files)
        metrics.LIVE_PIECES.inc()
        metrics.LIVE_PIECE_RECORDS.inc(sum(file.row_count for file in files))
        metrics.LIVE_PIECE_BYTES.inc(sum(file.size for file in files))
        size = _size(slices)
        return Piece(
            ranges=tuple(ranges),
            files=files,
            columns=typed.columns,
            made_ms=made_ms,
            size=size,
            is_full=size > self._settings.piece_bytes_max // 2,
        )


def key_in(stream: Stream, keys: KeySource) -> str:
    """Return a new key `tail/<hour>/<stream's id>/<UUID>`: keys sort by hour, and clients get access to those of one stream alone.

    `keys` has the prefix `TAIL_PREFIX`.
    """
    hour, _, name = keys.next().rpartition("/")
    return f"{hour}/{stream.id.hex}/{name}"


def _behind(stream: Stream, how_far: str) -> Overloaded:
    return Overloaded(
        f"the table of {stream.name} is {how_far} behind the log: read the table without its tail, and see why compaction is behind"
    )


def _size(slices: Sequence[LocatedSlice]) -> int:
    return sum(found.slice.length for found in slices)
