"""Copies batches that rows cannot represent exactly, unchanged, into WAL-format objects, to which the index then points.

A consumer therefore gets the producer's bytes, even if they are invalid. Such batches are rare; each is counted by reason.
"""

from collections import Counter
from enum import Enum

from bearlake.compaction.output import Upload
from bearlake.compaction.segments import BatchSpan
from bearlake.metadata.compaction import SwapObject
from bearlake.metadata.model import ObjectKind, ObjectRef, Slice, partition_index
from bearlake.wal.format import Part
from bearlake.wal.keys import KeySource
from bearlake.wal.writer import seal


class KeepReason(Enum):
    """Why a batch is kept."""

    UNDECODABLE = "undecodable"
    """The records contradict the header or cannot be decompressed, so the batch has no rows."""
    INEXACT = "inexact"
    """The batch has rows in which text was replaced or a time was clamped."""
    TOO_WIDE = "too_wide"
    """The batch has so many records that the typed columns of its rows do not fit into memory, even without values."""
    LONELY_CONTROL = "lonely_control"
    """A control batch without a record beside it: a segment for it would have no row."""


class KeptBatches:
    """Collects a stream's kept batches in order of (partition, offset), and seals objects of at least `bytes_max` (the last is smaller)."""

    def __init__(self, stream_id: bytes, keys: KeySource, bytes_max: int) -> None:
        self._stream_id = stream_id
        self._keys = keys
        self._bytes_max = bytes_max
        self._spans: list[BatchSpan] = []
        self._batches: list[list[bytes]] = []
        self._size = 0
        self.counts: Counter[str] = Counter()
        """Number of batches by reason."""

    def add(self, span: BatchSpan, batch: bytes, reason: KeepReason) -> None:
        """Keep one batch; `batch` is a copy of all its bytes."""
        self.counts[reason.value] += 1
        self._size += len(batch)
        if self._spans and self._spans[-1].partition == span.partition and self._spans[-1].end == span.start:
            last = self._spans[-1]
            newest = max(last.max_timestamp, span.max_timestamp)
            self._spans[-1] = last._replace(end=span.end, length=last.length + span.length, max_timestamp=newest)
            self._batches[-1].append(batch)
            return
        self._spans.append(span)
        self._batches.append([batch])

    def seal(self, *, is_end: bool) -> tuple[SwapObject, Upload] | None:
        """Return the next full object (with `is_end` also a partial one), or None."""
        if self._size == 0 or (self._size < self._bytes_max and not is_end):
            return None
        parts = [
            Part(self._stream_id, partition_index(span.partition), batches)
            for span, batches in zip(self._spans, self._batches, strict=True)
        ]
        sealed = seal(parts, node_id=0, server_epoch=0)
        slices = [
            Slice(span.partition, span.start, span.end - span.start, position, span.length, span.max_timestamp)
            for span, position in zip(self._spans, sealed.positions, strict=True)
        ]
        reference = ObjectRef(self._keys.next(), len(sealed.buffer), ObjectKind.WAL)
        self._spans, self._batches, self._size = [], [], 0
        return SwapObject(object=reference, slices=slices), Upload(reference.key, [sealed.buffer])
