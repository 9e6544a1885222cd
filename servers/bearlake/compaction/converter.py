"""Converts WAL slices into row groups, data files and segments: the computation of a COMPACT item, without I/O.

Slices arrive in order of (partition, offset). Their batches are checked against their CRCs, decompressed, decoded into columns, and
written in row groups that end at batch boundaries. The caller stores the output, file by file and object by object. Batches that rows
cannot represent exactly go to `compaction/kept_batches.py`. Every offset of the slices ends up in a segment or a kept slice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import Struct
from typing import NamedTuple

from bearlake import kernel
from bearlake.compaction.aborted import AbortedRanges
from bearlake.compaction.kept_batches import KeepReason, KeptBatches
from bearlake.compaction.model import AbortedRange, ItemResult, WrittenFile
from bearlake.compaction.output import Output, Upload
from bearlake.compaction.segments import BatchSpan, Segments, check_cover
from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel import BatchHeader, DecodeStatus
from bearlake.metadata.compaction import SwapObject
from bearlake.metadata.model import LocatedSlice, Slice, partition_index
from bearlake.objects import Buffer
from bearlake.records.batch import COMPRESSION_MASK, HEADER_BYTES, Compression
from bearlake.records.compression import decompress
from bearlake.table.value_plan import COLUMN_BYTES_MAX
from bearlake.table.value_typing import ValueTyping
from bearlake.table.writer import record_batch

_CRC = Struct(">I")
_CRC_AT = 17
_CRC_START = 21
_ROW_BYTES = 60
"""Bytes that a row adds to its record in the columns (`kernel.Columns`)."""


class Loaded(NamedTuple):
    """A slice and its bytes."""

    located: LocatedSlice
    view: memoryview


class _Frame(NamedTuple):
    """One batch of a run: its position and its offsets."""

    position: int
    span: BatchSpan
    is_compressed: bool


@dataclass(slots=True)
class _Run:
    """Consecutive batches of one slice, decoded in one call."""

    view: memoryview
    frames: list[_Frame] = field(default_factory=list)
    bodies: list[Buffer | None] = field(default_factory=list)
    size: int = 0

    @property
    def end(self) -> int:
        last = self.frames[-1]
        return last.position + last.span.length


class Converter:
    """Converts the slices of one item into files and objects. Not thread-safe."""

    def __init__(
        self,
        output: Output,
        kept_batches: KeptBatches,
        *,
        row_group_bytes: int,
        file_bytes_max: int,
        batch_bytes_max: int,
        aborted: Sequence[AbortedRange] = (),
        typing: ValueTyping | None = None,
    ) -> None:
        """`aborted`: batches without rows; a segment covers their offsets, as those of control batches. `typing`: adds typed columns."""
        self._typing = typing
        self._null_bytes = 0 if typing is None else typing.columns.null_bytes
        self._column_bytes = 0 if typing is None else typing.columns.row_bytes(row_group_bytes)
        self._output = output
        self._kept_batches = kept_batches
        self._row_group_bytes = row_group_bytes
        self._file_bytes_max = file_bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._aborted = AbortedRanges(aborted)
        self._builder = kernel.ColumnBuilder()
        self._segments = Segments()
        self._controls: dict[
            tuple[int, int], bytes
        ] = {}  # by (partition, offset): control batches that may end up without a record beside them
        self._given: list[Slice] = []
        self._files: list[WrittenFile] = []
        self._kept_swaps: list[SwapObject] = []
        self._row_count = self._record_bytes = self._read_bytes = self._written_bytes = 0

    def feed(self, slices: Sequence[Loaded]) -> Iterator[Upload]:
        """Process `slices`; yield each completed object to store. At most one is in memory at a time.

        Raises:
            Corrupt: an object's bytes contradict their checksums or the index; the message names the object.
            MissingSchemas: values name schemas that `typing` does not know.
        """
        for loaded in slices:
            yield from self._add_slice(*loaded)
            yield from self._seal(is_end=False)

    def finish(self) -> Iterator[Upload]:
        """Yield the remaining objects, after all slices were fed."""
        yield from self._write_group()
        yield from self._finish_file()
        yield from self._seal(is_end=True)

    def result(self) -> ItemResult:
        """Return the result, after `finish`. Asserts that it names exactly the offsets that were fed."""
        made = [swap.slices for swap in chain((file.swap for file in self._files), self._kept_swaps)]
        check_cover(self._given, [piece for slices in made for piece in slices])
        return ItemResult(
            files=self._files,
            kept_objects=self._kept_swaps,
            row_count=self._row_count,
            read_bytes=self._read_bytes,
            record_bytes=self._record_bytes,
            written_bytes=self._written_bytes,
            kept_counts=dict(self._kept_batches.counts),
            error_counts=dict(self._typing.error_counts) if self._typing is not None else {},
        )

    def _add_slice(self, located: LocatedSlice, view: memoryview) -> Iterator[Upload]:
        piece = located.slice
        self._given.append(piece)
        self._read_bytes += len(view)
        run = _Run(view)
        for frame, header in _frames(located, view):
            if header.record_count == 0 or self._aborted.has(frame.span.partition, header, frame.span.start):
                yield from self._decode(run)
                run = _Run(view)
                self._add_gap(frame, view)
                continue
            if self._null_bytes * header.record_count > COLUMN_BYTES_MAX:  # a row group has whole batches
                yield from self._decode(run)
                run = _Run(view)
                self._keep(frame, view, KeepReason.TOO_WIDE)
                continue
            body, size = self._open(frame, view, header.attributes)
            self._record_bytes += size
            room = size + (_ROW_BYTES + self._column_bytes) * max(0, header.record_count)
            if self._spent_bytes + run.size + room > self._row_group_bytes:
                yield from self._decode(run)
                run = _Run(view)
                yield from self._write_group()
            run.frames.append(frame)
            run.size += room
            if frame.is_compressed:
                run.bodies.append(body)
        yield from self._decode(run)

    @property
    def _spent_bytes(self) -> int:
        return self._builder.size_bytes + self._column_bytes * self._builder.row_count

    def _open(self, frame: _Frame, view: memoryview, attributes: int) -> tuple[Buffer | None, int]:
        """Return the uncompressed records section (None: damaged, or stored uncompressed), and its size."""
        stored = frame.span.length - HEADER_BYTES
        if not frame.is_compressed:
            return None, stored
        start = frame.position + HEADER_BYTES
        try:
            codec = Compression(attributes & COMPRESSION_MASK)
            body = decompress(codec, view[start : start + stored], self._batch_bytes_max)
        except (Corrupt, TooLarge, ValueError):  # ValueError: unknown codec
            return None, stored
        return body, len(body)

    def _decode(self, run: _Run) -> Iterator[Upload]:
        """Decode the run's batches into rows. Keeps a batch that cannot become rows, and continues after it."""
        at = body_at = 0
        while at < len(run.frames):
            first = run.frames[at]
            partition = first.span.partition
            position = self._output.row_count + self._builder.row_count
            stop, status = self._builder.append(
                partition_index(partition),
                first.span.start,
                run.view,
                first.position,
                run.end,
                run.bodies[body_at:] if body_at else run.bodies,
            )
            good_end = at
            while good_end < len(run.frames) and run.frames[good_end].position < stop:
                good_end += 1
            if good_end > at:
                self._add_rows(run.frames[at:good_end], position)
                body_at += sum(frame.is_compressed for frame in run.frames[at:good_end])
            at = good_end
            if status is DecodeStatus.OK:
                assert at == len(run.frames)
            elif status is DecodeStatus.OVERFLOW:
                assert self._builder.row_count > 0
                yield from self._write_group()
            else:
                self._quarantine(run.frames[at], run.view, status)
                body_at += run.frames[at].is_compressed
                at += 1

    def _add_rows(self, frames: Sequence[_Frame], position: int) -> None:
        first, last = frames[0].span, frames[-1].span
        length = frames[-1].position + last.length - frames[0].position
        newest = max(frame.span.max_timestamp for frame in frames)
        span = BatchSpan(first.partition, first.start, last.end, length, newest)
        self._keep_controls(self._segments.add_rows(span, position))

    def _quarantine(self, frame: _Frame, view: memoryview, status: DecodeStatus) -> None:
        if status is DecodeStatus.CONTROL:
            self._add_gap(frame, view)
            return
        self._keep(frame, view, KeepReason.INEXACT if status is DecodeStatus.INEXACT else KeepReason.UNDECODABLE)

    def _keep(self, frame: _Frame, view: memoryview, reason: KeepReason) -> None:
        span = frame.span
        batch = bytes(view[frame.position : frame.position + span.length])
        self._keep_controls(self._segments.cut())
        self._kept_batches.add(span, batch, reason)

    def _add_gap(self, frame: _Frame, view: memoryview) -> None:
        """Cover a batch without rows: a control batch, an empty one, or one of an aborted transaction."""
        span = frame.span
        self._controls[span.partition, span.start] = bytes(view[frame.position : frame.position + span.length])
        self._keep_controls(self._segments.add_gap(span))

    def _keep_controls(self, spans: Sequence[BatchSpan]) -> None:
        for span in spans:
            self._kept_batches.add(span, self._controls[span.partition, span.start], KeepReason.LONELY_CONTROL)

    def _write_group(self) -> Iterator[Upload]:
        if self._builder.row_count == 0:
            return
        self._row_count += self._builder.row_count
        rows = record_batch(self._builder.take())
        self._output.write(rows if self._typing is None else self._typing.add(rows))
        if self._output.size_bytes >= self._file_bytes_max:
            yield from self._finish_file()

    def _finish_file(self) -> Iterator[Upload]:
        self._keep_controls(self._segments.cut())
        self._controls.clear()
        slices = self._segments.take()
        if self._output.row_count == 0:
            assert not slices
            return
        written, upload = self._output.finish(slices)
        self._files.append(written)
        self._written_bytes += written.file.size
        yield upload

    def _seal(self, *, is_end: bool) -> Iterator[Upload]:
        sealed = self._kept_batches.seal(is_end=is_end)
        if sealed is not None:
            swap, upload = sealed
            self._kept_swaps.append(swap)
            self._written_bytes += swap.object.size
            yield upload


def _frames(located: LocatedSlice, view: memoryview) -> Iterator[tuple[_Frame, BatchHeader]]:
    """Yield the slice's batches with their offsets. Checks each batch's CRC, and that all batches match the slice's offsets."""
    piece, key = located.slice, located.object_key
    try:
        found = kernel.batches(view, 0, len(view))
    except Corrupt as error:
        raise Corrupt(
            f"{_place(piece, piece.base_offset)}, object {key}, slice at {piece.position}: {error}"
        ) from error
    offset = piece.base_offset
    for position, _, header in found:
        end = position + header.length
        if kernel.crc32c(view, position + _CRC_START, end) != _CRC.unpack_from(view, position + _CRC_AT)[0]:
            at = piece.position + position
            raise Corrupt(f"{_place(piece, offset)}, object {key}: the CRC of the batch at {at} does not match")
        next_offset = offset + header.last_offset_delta + 1
        span = BatchSpan(piece.partition, offset, next_offset, header.length, header.max_timestamp)
        yield _Frame(position, span, header.attributes & COMPRESSION_MASK != 0), header
        offset = next_offset
    if offset != piece.end_offset:
        raise Corrupt(
            f"{_place(piece, piece.base_offset)}, object {key}, slice at {piece.position}: "
            f"its batches hold {offset - piece.base_offset} offsets, not {piece.record_count}"
        )


def _place(piece: Slice, offset: int) -> str:
    return f"partition {partition_index(piece.partition)} from offset {offset} on"
