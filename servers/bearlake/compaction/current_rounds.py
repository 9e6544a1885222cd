"""Plans one round of a current table: up to which offsets, from which files, in which work items. Pure.

A round takes at most `round_bytes_max` of data files, or as much as the current table has. If there is more, it ends at the same share of
each partition's offsets, so that the next round goes on from there. What the round says is exact in any case: the newest records below its
ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bearlake.compaction.model import CurrentWork, WorkItem
from bearlake.compaction.quarantine import KEPT_PREFIX
from bearlake.compaction.settings import CompactionSettings
from bearlake.errors import Invalid
from bearlake.metadata.compaction import TaskKind
from bearlake.metadata.model import ObjectKind, ObjectRef, Stream
from bearlake.streams.current_rules import CurrentRules
from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_model import OWN_FILE, CurrentState, CurrentView, SourceFile

_MICROSECONDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round: where the table is afterwards (`ends`), the files to read, and whether it reaches the stream's table."""

    ends: Mapping[int, int]
    sources: Sequence[SourceFile]
    is_whole: bool


def plan_round(view: CurrentView, bytes_max: int) -> Round:
    """Return the next round of a table that is behind."""
    spans = _spans(view)
    sources = _between(view.sources, spans)
    size = sum(source.size for source in sources)
    if size <= bytes_max:
        return Round(ends={**view.starts, **view.ends}, sources=sources, is_whole=True)
    first = min(source.offset_min for source in sources)
    cut = {}
    for index, (start, end) in spans.items():
        low = min(max(start, first), end)
        cut[index] = max(start, low + -(-(end - low) * bytes_max // size))
    sources = _between(sources, {index: (start, cut[index]) for index, (start, _) in spans.items()})
    is_whole = all(cut[index] >= end for index, (_, end) in spans.items())
    return Round(ends={**view.starts, **cut}, sources=sources, is_whole=is_whole)


def bytes_of_round(view: CurrentView, bytes_min: int) -> int:
    """Return how many bytes of data files a round may take: at least `bytes_min`, and as much as the current table has.

    A round may write the whole table anew. A new table of many keys then doubles with each round, so all rounds write about twice
    the table; rounds of a fixed size would write it once for each of them.
    """
    return max(bytes_min, sum(file.size for file in view.files))


def half_of(view: CurrentView, bytes_max: int) -> int:
    """Return the bytes of data files for a round with about half of the records of the round with `bytes_max`.

    Raises `Invalid`: that round has one record of each partition at most.
    """
    if bytes_max == 1:
        raise Invalid(
            "a current table's round takes too much memory with one record of each partition: raise compaction.task.current_bytes"
        )
    size = sum(source.size for source in _between(view.sources, _spans(view)))
    return max(1, min(bytes_max, size) // 2)


def _spans(view: CurrentView) -> dict[int, tuple[int, int]]:
    """Return the offsets that the current table lacks, by partition index: from a start up to an end."""
    return {index: (view.starts.get(index, 0), end) for index, end in view.ends.items()}


def _between(sources: Sequence[SourceFile], spans: Mapping[int, tuple[int, int]]) -> list[SourceFile]:
    """Return the files that may have rows of a partition with offsets from the start of its span up to its end."""
    due = [(index, start, end) for index, (start, end) in spans.items() if start < end]
    return [
        source
        for source in sources
        if any(
            source.partition_min <= index <= source.partition_max
            and source.offset_min < end
            and source.offset_max >= start
            for index, start, end in due
        )
    ]


def items_of(
    stream: Stream,
    view: CurrentView,
    found: Round,
    rules: CurrentRules,
    columns: CurrentColumns,
    settings: CompactionSettings,
    round_id: str,
) -> list[WorkItem]:
    """Return the round's work items; buckets are dealt out in turn."""
    files: dict[int, list[ObjectRef]] = {bucket: [] for bucket in range(rules.bucket_count)}
    for file in view.files:
        files[file.bucket].append(ObjectRef(file.key, file.size, ObjectKind.PARQUET))
    size = sum(source.size for source in found.sources) + sum(file.size for file in view.files)
    wanted = -(-size // settings.current.item_bytes_max)
    count = max(1, min(wanted, settings.current.item_count_max, rules.bucket_count))
    inputs = [ObjectRef(source.key, source.size, ObjectKind.PARQUET) for source in found.sources]
    return [
        WorkItem(
            kind=TaskKind.MERGE,
            stream_id=stream.id,
            output_prefix=f"{view.location_key}{OWN_FILE}{round_id}-{number:04x}",
            kept_prefix=KEPT_PREFIX,
            slices=(),
            inputs=inputs,
            file_bytes_max=settings.merge.file_bytes,
            row_group_bytes=settings.worker.row_group_bytes,
            current=CurrentWork(
                starts=view.starts,
                ends=found.ends,
                bucket_count=rules.bucket_count,
                buckets={bucket: files[bucket] for bucket in range(number, rules.bucket_count, count)},
                columns=columns,
                newest_us=0 if view.state is None else view.state.newest_us,
                remember_us=rules.remember_ms * _MICROSECONDS,
            ),
        )
        for number in range(count)
    ]


def state_after(
    view: CurrentView, found: Round, rules: CurrentRules, *, round_id: str, newest_us: int, now_ms: int
) -> CurrentState:
    """Return what the table says after the round. `now_ms`: a time before the view.

    A round that does not reach the stream's table keeps the earlier time: key compaction may since have removed tombstones that it has not
    read.
    """
    before = view.state
    return CurrentState(
        round=round_id,
        source=view.source,
        source_snapshot=view.source_snapshot,
        sequence=view.sequence if found.is_whole else -1 if before is None else before.sequence,
        is_whole=found.is_whole,
        newest_us=newest_us,
        at_ms=now_ms if found.is_whole or before is None else before.at_ms,
        buckets=rules.bucket_count,
        envelope=rules.envelope.value,
    )
