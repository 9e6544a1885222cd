"""Outcomes of commits: counts them, and tracks the log position that decides whether a batch is UNSURE."""

import logging
from collections.abc import Sequence

from bearlake.errors import BearlakeError
from bearlake.metadata import CommitLog
from bearlake.metadata.model import ObjectCommitted, OutcomeKind, OutcomeRows, SliceRows
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_ACCEPTED = metrics.LOG_BATCHES.labels("accepted")


def count(result: ObjectCommitted, size_bytes: int) -> Sequence[OutcomeKind]:
    """Count the outcomes of a commit's batches (`size_bytes` in total); returns the kinds of the batches that were not accepted."""
    others = OutcomeRows.of(result.outcomes).others()
    _ACCEPTED.value += len(result.outcomes) - len(others)
    for kind in others:
        metrics.LOG_BATCHES.labels(kind.name.lower()).inc()
    metrics.APPEND_BYTES.value += size_bytes
    metrics.APPEND_RECORDS.value += SliceRows.of(result.slices).record_count()
    return others


class Seen:
    """The newest log position that this server knows. Protocol servers record it when a request arrives (`AppendCall.seen`).

    A position that is too old costs availability, never safety: the commit reports batches as UNSURE. The writer then calls `look`, so a
    server whose follower is stuck recovers.
    """

    __slots__ = ("_log", "position")

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self.position = 0
        """A log position that the store has reached."""

    def advance(self, position: int) -> None:
        """Record that the log has reached `position`."""
        if position > self.position:
            self.position = position

    async def read_head(self) -> None:
        """Read the log's head, so that later batches are not UNSURE because of lag. If the store fails, the next UNSURE outcome retries."""
        try:
            self.advance(await self._log.head())
        except BearlakeError as error:
            log.warning("cannot read the head of the log", extra={"error": repr(error)})
