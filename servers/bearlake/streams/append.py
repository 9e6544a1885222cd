"""Append requests and their results: one `Append` per record batch, one `AppendCall` per request.

The hot path creates no future and no task per request (10-17 us each): a call collects the outcomes of its batches and runs a
callback when the last outcome is known. `Streams.append` wraps this for callers that prefer `await`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from bearlake.kernel import Append as Append
from bearlake.kernel import Hold as Hold
from bearlake.metadata.model import BATCH_NAMED
from bearlake.telemetry.containment import fault

log = logging.getLogger(__name__)


class Verdict(IntEnum):
    """The outcome of a batch, as the stream service reports it. The first nine members have the numbers of `metadata.model.OutcomeKind`."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    FENCED = 3
    NOT_FOUND = 4
    UNEXPECTED_OFFSET = 5
    TERMINATED = 6
    UNKNOWN_PRODUCER = 7
    UNAVAILABLE = 8
    """The batch may or may not be stored: the stores did not answer in time, or the commit cannot decide (`OutcomeKind.UNSURE`).

    Retry with the same sequence."""
    SERVER_FENCED = 9
    """This server lost its registration and is stopping; nothing was stored. Retry on another server."""
    NOT_STORED = 10
    """The put of the batch's object, or of an earlier batch's object, failed: the batch is not stored. Retry with the same sequence."""


class Appended(NamedTuple):
    """A batch's result: `base_offset` is as in `Outcome`; `start_offset` is the partition's start offset, -1 if unknown.

    `verdict` is a `Verdict`. The store's `Outcome` is passed on unchanged, because its kinds have the same numbers.
    """

    verdict: int
    base_offset: int
    start_offset: int


Result: TypeAlias = tuple[int, int, int]
"""An `Appended` or an `Outcome`: (verdict, base_offset, start_offset)."""

UNAVAILABLE = Appended(Verdict.UNAVAILABLE, -1, -1)
SERVER_FENCED = Appended(Verdict.SERVER_FENCED, -1, -1)
NOT_STORED = Appended(Verdict.NOT_STORED, -1, -1)


class AppendCall:
    """Batches appended together, and the callback that runs once, when the outcome of every batch is known.

    `results[i]` belongs to `appends[i]`. `expire` answers the call; later outcomes are ignored. The batches may still become durable:
    the producer was answered "unknown", and a retry with the same sequence is answered as a duplicate.

    A callback that raises is a bug of its caller. Neither the write path nor other calls notice it; `on_failed` ends the caller.
    """

    __slots__ = ("_on_done", "_on_failed", "appends", "deadline", "results", "seen", "waiting")

    def __init__(
        self,
        appends: Sequence[Append],
        on_done: Callable[["AppendCall"], None],
        seen: int,
        on_failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """`seen` is a log position that this server knew before it received any of the batches (`outcomes.Seen`, decision 94).

        `on_failed` is called with the error that `on_done` raised; it closes the caller's connection.
        """
        self.appends = appends
        self.seen = seen
        self.results: list[Result] = [UNAVAILABLE] * len(appends)
        self.deadline = 0.0
        """Loop time at which the writer gives up on this call; set by the writer."""
        self.waiting = len(appends)
        """Batches without an outcome; 0 or less once the call is answered."""
        self._on_done = on_done
        self._on_failed = on_failed

    def done(self) -> None:
        """Run the callback; call this once `resolve` has set the last outcome."""
        try:
            self._on_done(self)
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "answer an append", error, self._on_failed)

    def refuse(self, result: Result) -> None:
        """Answer now, with the same result for every batch; none of them was queued."""
        self.results = [result] * len(self.appends)
        self.waiting = 0
        self.done()

    def expire(self) -> None:
        """Answer now; batches without an outcome stay UNAVAILABLE."""
        if self.waiting > 0:
            self.waiting = -1
            self.done()


def may_begin(appends: Iterable[Append]) -> bool:
    """Whether any of the batches may be its producer's first batch; only first batches can be UNSURE (`metadata/producers.py`).

    Other batches must not lower their commit's `seen`: one old call would make other calls' batches in the same object UNSURE.
    """
    for _, _, _, _, _, _, producer_id, _, sequence, flags, _, after in appends:
        if producer_id >= 0 and (sequence == 0 or (flags & BATCH_NAMED and after < 0)):
            return True
    return False


def resolve(entries: Sequence[tuple[AppendCall, int, Append]], results: Sequence[Result]) -> list[AppendCall]:
    """Set each batch's result on its call, unless the call is answered; returns the calls that are now complete, in order.

    An entry is (call, index of the batch in the call, batch).

    Raises:
        ValueError: the numbers of results and entries differ; no call was changed.
    """
    if len(entries) != len(results):
        raise ValueError(f"{len(results)} results for {len(entries)} batches")
    resolved = []
    for (call, place, _), result in zip(entries, results, strict=True):
        if call.waiting > 0:
            call.results[place] = result
            call.waiting -= 1
            if call.waiting == 0:
                resolved.append(call)
    return resolved
