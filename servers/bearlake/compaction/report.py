"""A worker's reports on its tasks: metrics per stream (the metric families limit their number), and how claims ended."""

from collections import OrderedDict
from enum import StrEnum

from bearlake.compaction.commit import Committer, Work
from bearlake.metadata.compaction import Task, TaskKind
from bearlake.telemetry import metrics

RECENT_COUNT_MAX = 100
"""Number of recent streams whose offsets are measured even without a large backlog."""


class Outcome(StrEnum):
    """How a claim of a task ended."""

    DONE = "done"
    RECOVERED = "recovered"
    """Completed with the table commit of an earlier epoch."""
    FAILED = "failed"
    QUARANTINED = "quarantined"
    FENCED = "fenced"
    CANCELLED = "cancelled"
    RELEASED = "released"


class Reporter:
    """Counts the results of one worker."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._recent: OrderedDict[int, None] = OrderedDict()

    def recent(self) -> list[int]:
        """Return the numbers of the streams that this worker compacted most recently."""
        return list(self._recent)

    def table_records(self, number: int) -> int | None:
        """Return the sum of the stream's table ends at the last commit, or None if there was none."""
        state = self._committer.state(number)
        return None if state is None else sum(state.ends.values())

    def ended(self, task: Task, outcome: Outcome) -> None:
        """Count the end of a claim."""
        metrics.COMPACTION_TASKS.labels(task.kind.name.lower(), outcome).inc()

    def done(self, work: Work, now_s: float) -> None:
        """Report a completed task, at the loop's time `now_s`."""
        is_own = work.winner == work.claim.epoch
        self.ended(work.task, Outcome.DONE if is_own else Outcome.RECOVERED)
        name = work.stream.name
        self._recent[work.stream.number] = None
        self._recent.move_to_end(work.stream.number)
        while len(self._recent) > RECENT_COUNT_MAX:
            self._recent.popitem(last=False)
        items = work.result.items
        written = sum(item.written_bytes for item in items)
        if work.cleaning is not None:
            metrics.KEY_COMPACTION_BYTES.labels("read").inc(sum(item.read_bytes for item in items))
            metrics.KEY_COMPACTION_BYTES.labels("written").inc(written)
            return
        if work.task.kind is TaskKind.MERGE:
            metrics.COMPACTION_MERGED_BYTES.inc(written)
            return
        fresh_s = work.task.age_ms / 1000 + now_s - work.started_s
        metrics.COMPACTION_FRESHNESS_SECONDS.observe(fresh_s)
        metrics.COMPACTION_STREAM_FRESHNESS.labels(name).set(fresh_s)
        records = sum(item.record_bytes for item in items)
        metrics.COMPACTION_READ_BYTES.labels(name).inc(sum(item.read_bytes for item in items))
        metrics.COMPACTION_RECORD_BYTES.labels(name).inc(records)
        metrics.COMPACTION_WRITTEN_BYTES.labels(name).inc(written)
        metrics.COMPACTION_ROWS.labels(name).inc(sum(item.row_count for item in items))
        if written:
            metrics.COMPACTION_STREAM_RATIO.labels(name).set(records / written)
        for item in items:
            for reason, count in item.kept_counts.items():
                metrics.COMPACTION_KEPT.labels(reason).inc(count)
            for code, count in item.error_counts.items():
                metrics.VALUE_ERRORS.labels(name, code).inc(count)
