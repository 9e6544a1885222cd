"""Key compaction: which data files of a stream are cleaned together, and when. Pure.

A *cleaning* is a MERGE task whose worker leaves out superseded records. It covers, in every partition, all offsets from the start to a
*bound*: no record at or above the bound is removed or supersedes another. The bound is the first offset that

- is not compacted yet, or not below the last stable offset (transactions), or
- belongs to a data file that cannot be cleaned now: it is in another task, or its newest record is younger than `min.compaction.lag.ms`.

A data file is *dirty* until a cleaning has written it. A cleaning takes whole files, so each file that it writes is clean: none of its
records is superseded by a record below the bound. Therefore only dirty files can supersede records of other files, and a later cleaning
compares clean records with dirty keys only.

A stream is due when more than `min.cleanable.dirty.ratio` of the bytes below the bounds are dirty, or a dirty record is older than
`max.compaction.lag.ms`. Kafka decides by partition; data files have several partitions, so Bearlake decides by stream.
Source: Apache Kafka, `LogCleanerManager.grabFilthiestCompactedLog`, `cleanableOffsets`; "Topic Configs".
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bearlake.compaction.cleaned_files import is_cleaned
from bearlake.compaction.settings import KeyCompactionSettings
from bearlake.metadata.model import LocatedSlice, ObjectKind, ObjectRef, PartitionBounds, PartitionKey
from bearlake.streams.key_compaction_rules import KeyCompactionRules


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """One cleaning. `bounds` by partition. `inputs`: the files below the bounds, with their slices; `dirty`: the files among them whose
    records may supersede records of others; `kept`: slices of kept objects below the bounds.

    `is_too_large`: files were left out because of the limits of a task.
    """

    bounds: Mapping[PartitionKey, int]
    inputs: Mapping[ObjectRef, Sequence[LocatedSlice]]
    dirty: Sequence[ObjectRef]
    kept: Sequence[LocatedSlice]
    is_too_large: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of the inputs."""
        return sum(reference.size for reference in self.inputs)

    @property
    def dirty_bytes(self) -> int:
        """Bytes of the inputs that were never cleaned."""
        return sum(reference.size for reference in self.inputs if not is_cleaned(reference.key))

    @property
    def oldest_dirty_ms(self) -> int:
        """Time (ms) of the oldest segment of files that were never cleaned: that of its newest record."""
        return min(
            (
                located.slice.max_timestamp
                for reference, pieces in self.inputs.items()
                if not is_cleaned(reference.key)
                for located in pieces
            ),
            default=0,
        )

    def is_due(self, rules: KeyCompactionRules, now_ms: int) -> bool:
        """Return whether the stream is to be cleaned now."""
        dirty_bytes = self.dirty_bytes
        return dirty_bytes > 0 and (
            dirty_bytes > rules.dirty_ratio_min * self.size_bytes or self.is_late(rules, now_ms)
        )

    def is_late(self, rules: KeyCompactionRules, now_ms: int) -> bool:
        """Return whether a dirty record has reached `max.compaction.lag.ms`."""
        return self.dirty_bytes > 0 and self.oldest_dirty_ms + rules.lag_ms_max <= now_ms


def plan(
    located: Iterable[LocatedSlice],
    bounds: Mapping[PartitionKey, PartitionBounds],
    rules: KeyCompactionRules,
    settings: KeyCompactionSettings,
    *,
    now_ms: int,
    may_take: Callable[[str], bool] = lambda key: True,
) -> CleaningPlan:
    """Plan a cleaning of a stream, from its compacted slices and segments, by (partition, offset), and its partitions' bounds.

    `may_take`: whether a file of this key may be an input.
    """
    slices = list(located)
    # Without a lag, no record is too young: not even one whose producer's clock is ahead.
    newest_ms = now_ms - rules.lag_ms_min if rules.lag_ms_min > 0 else None
    files: dict[ObjectRef, list[LocatedSlice]] = {}
    barriers: dict[PartitionKey, int] = {}
    barred: set[ObjectRef] = set()
    for found in slices:
        piece, reference = found.slice, found.object
        barriers.setdefault(piece.partition, piece.end_offset)
        barriers[piece.partition] = max(barriers[piece.partition], piece.end_offset)
        is_file = found.kind is ObjectKind.PARQUET
        if is_file:
            files.setdefault(reference, []).append(found)
        limit = bounds.get(piece.partition)
        is_open = limit is None or piece.end_offset > limit.last_stable
        is_old = newest_ms is None or piece.max_timestamp <= newest_ms or (is_file and is_cleaned(reference.key))
        if is_open or not is_old or (is_file and not may_take(reference.key)):
            barred.add(reference)
    _lower(barriers, slices, files, barred)
    is_too_large = _shrink(files, barred, settings)
    _lower(barriers, slices, files, barred)
    inputs = {reference: pieces for reference, pieces in files.items() if reference not in barred}
    return CleaningPlan(
        bounds=barriers,
        inputs=inputs,
        dirty=_dirty(inputs),
        kept=[
            found
            for found in slices
            if found.kind is not ObjectKind.PARQUET and found.slice.end_offset <= barriers[found.slice.partition]
        ],
        is_too_large=is_too_large,
    )


def _lower(
    barriers: dict[PartitionKey, int],
    slices: Sequence[LocatedSlice],
    files: Mapping[ObjectRef, Sequence[LocatedSlice]],
    barred: set[ObjectRef],
) -> None:
    """Lower the barriers to the first slice of each barred object, and bar each file with a slice above a barrier; repeatedly."""
    for found in slices:
        if found.object in barred:
            partition, base, *_ = found.slice
            barriers[partition] = min(barriers[partition], base)
    is_changed = True
    while is_changed:
        is_changed = False
        for reference, pieces in files.items():
            if reference in barred or all(
                found.slice.base_offset < barriers[found.slice.partition] for found in pieces
            ):
                continue
            barred.add(reference)
            is_changed = True
            for found in pieces:
                partition, base, *_ = found.slice
                barriers[partition] = min(barriers[partition], base)


def _shrink(
    files: Mapping[ObjectRef, Sequence[LocatedSlice]], barred: set[ObjectRef], settings: KeyCompactionSettings
) -> bool:
    """Bar dirty files with the highest offsets until a task may take the others; return whether that was necessary."""
    taken = [reference for reference in files if reference not in barred]
    count, size = len(taken), sum(reference.size for reference in taken)
    is_too_large = count > settings.input_count_max or size > settings.input_bytes_max
    dirty = sorted(
        (reference for reference in taken if not is_cleaned(reference.key)),
        key=lambda reference: max(found.slice.base_offset for found in files[reference]),
    )
    while dirty and (count > settings.input_count_max or size > settings.input_bytes_max):
        reference = dirty.pop()
        barred.add(reference)
        count, size = count - 1, size - reference.size
    return is_too_large


def _dirty(inputs: Mapping[ObjectRef, Sequence[LocatedSlice]]) -> list[ObjectRef]:
    """Return the files whose records may supersede records of others: dirty files, and what lies above dirty offsets."""
    first: dict[PartitionKey, int] = {}
    for reference, pieces in inputs.items():
        if not is_cleaned(reference.key):
            for found in pieces:
                partition, base, *_ = found.slice
                first[partition] = min(base, first.get(partition, base))
    return sorted(
        reference
        for reference, pieces in inputs.items()
        if not is_cleaned(reference.key)
        or any(found.slice.base_offset > first.get(found.slice.partition, found.slice.base_offset) for found in pieces)
    )


def cut(plan_: CleaningPlan, bytes_max: int) -> list[list[ObjectRef]]:
    """Split the inputs into runs of at most `bytes_max` bytes, but at least one file, by their first offsets."""
    ordered = sorted(plan_.inputs, key=lambda reference: plan_.inputs[reference][0].slice[:2])
    groups: list[list[ObjectRef]] = []
    room = 0
    for reference in ordered:
        if not groups or reference.size > room:
            groups.append([])
            room = bytes_max
        groups[-1].append(reference)
        room -= reference.size
    return groups


def slices_of(plan_: CleaningPlan, references: Collection[ObjectRef]) -> list[LocatedSlice]:
    """Return the slices of some inputs, by partition and offset."""
    return sorted(found for reference in references for found in plan_.inputs[reference])
