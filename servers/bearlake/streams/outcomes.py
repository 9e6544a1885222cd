"""Outcomes of commits: how they are counted, and what a server does about those that its own lag made undecidable."""

import logging

from bearlake.errors import BearlakeError
from bearlake.metadata import CommitLog
from bearlake.metadata.model import ObjectCommitted, OutcomeKind
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_ACCEPTED = metrics.LOG_BATCHES.labels("accepted")


def count(result: ObjectCommitted, size_bytes: int) -> list[OutcomeKind]:
    """Count what became of a commit's batches, `size_bytes` in all; returns the kinds of those that were not accepted."""
    others = [outcome.kind for outcome in result.outcomes if outcome.kind]
    _ACCEPTED.value += len(result.outcomes) - len(others)
    for kind in others:
        metrics.LOG_BATCHES.labels(kind.name.lower()).inc()
    metrics.APPEND_BYTES.value += size_bytes
    metrics.APPEND_RECORDS.value += sum(piece.record_count for piece in result.slices)
    return others


class Seen:
    """The newest log position that this server knows of: protocol servers note it when a request arrives (`AppendCall.seen`).

    A position that is too old costs availability, never safety: the commit finds batches UNSURE. A server whose follower stands still
    goes on all the same, because it reads the head then.
    """

    __slots__ = ("_log", "position")

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self.position = 0
        """A position that the log has reached."""

    def heard(self, position: int) -> None:
        """The log has reached `position`."""
        if position > self.position:
            self.position = position

    async def look(self) -> None:
        """Read the log's head: what comes later is not UNSURE for want of it. Without an answer, the next refusal asks again."""
        try:
            self.heard(await self._log.head())
        except BearlakeError as error:
            log.warning("the log's head is not known", extra={"error": repr(error)})
