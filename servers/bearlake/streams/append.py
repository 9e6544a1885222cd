"""Append requests and their results: one `Append` per record batch, one `AppendCall` per request.

The hot path creates no future and no task per request (10-17 us each): a call collects the outcomes of its batches and runs a
callback when the last outcome is known. `Streams.append` wraps this for callers that prefer `await`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from bearlake import kernel
from bearlake.kernel import Append as Append
from bearlake.kernel import Hold as Hold
from bearlake.telemetry.containment import fault

log = logging.getLogger(__name__)


class Verdict(IntEnum):
    """The outcome of a batch, as the stream service reports it. The first ten members have the numbers of `metadata.model.OutcomeKind`."""

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
    NO_TRANSACTION = 9
    """The producer has no transaction with this partition (any more)."""
    SERVER_FENCED = 10
    """This server lost its registration and is stopping; nothing was stored. Retry on another server."""
    NOT_STORED = 11
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


class Call(ABC):
    """A call of the write path: the part that all kinds of calls share. A subclass is also a `kernel.Results`, which holds the outcomes.

    `expire` answers the call; later outcomes are ignored. The batches may still become durable: the producer was answered "unknown", and a
    retry with the same sequence is answered as a duplicate.

    A callback that raises is a bug of its caller. Neither the write path nor other calls notice it; `failed` ends the caller.
    """

    __slots__ = ()

    @abstractmethod
    def answer(self) -> None:
        """Called once, when the outcome of every batch is known, or after the deadline."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """Called with the error that `answer` raised; ends the caller."""

    @abstractmethod
    def fill(self, outcome: Result, /) -> None:
        """As in `kernel.Results`."""

    @abstractmethod
    def close(self) -> bool:
        """As in `kernel.Results`."""

    def done(self) -> None:
        """Answer; call this once the last outcome is set."""
        try:
            self.answer()
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "answer an append", error, self.failed)

    def refuse(self, result: Result) -> None:
        """Answer now, with the same result for every batch; none of them was queued."""
        self.fill(result)
        self.done()

    def expire(self) -> None:
        """Answer now; batches without an outcome stay UNAVAILABLE."""
        if self.close():
            self.done()


class AppendCall(kernel.Results, Call):
    """Batches appended together, and the callback that runs once, when the outcome of every batch is known.

    As a sequence, the call holds one result per batch, in the order of `appends`.
    """

    __slots__ = ("_on_done", "_on_failed", "appends", "seen")

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
        super().__init__(len(appends), UNAVAILABLE)
        self.appends = appends
        self.seen = seen
        self._on_done = on_done
        self._on_failed = on_failed

    @property
    def results(self) -> list[Appended]:
        """The outcomes so far, by name; for callers that are not on the hot path."""
        return [Appended(*outcome) for outcome in self]

    def answer(self) -> None:
        """Run the callback."""
        self._on_done(self)

    def failed(self, error: Exception) -> None:
        """Tell the caller."""
        if self._on_failed is not None:
            self._on_failed(error)
