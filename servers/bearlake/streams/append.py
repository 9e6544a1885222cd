"""What goes into the log: one `Append` per record batch, one `AppendCall` per request.

The hot path has no future and no task per request (10-17 us each): a call collects the outcomes of its batches and runs a
callback when the last one is known. `Streams.append` wraps that for callers who prefer `await`.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from bearlake.kernel import Append as Append
from bearlake.kernel import Hold as Hold
from bearlake.metadata.model import BATCH_NAMED


class Verdict(IntEnum):
    """What became of a batch, in the words of the waist. The first nine are those of `metadata.model.OutcomeKind`."""

    ACCEPTED = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    FENCED = 3
    NOT_FOUND = 4
    UNEXPECTED_OFFSET = 5
    TERMINATED = 6
    UNKNOWN_PRODUCER = 7
    UNAVAILABLE = 8
    """The batch may or may not be stored: the stores did not answer in time, or the commit cannot tell (`OutcomeKind.UNSURE`).

    Retry with the same sequence."""
    SERVER_FENCED = 9
    """This server lost its registration and stops; nothing was stored. Ask another one."""
    NOT_STORED = 10
    """The object store did not take the batch's object, or that of a batch before it: nothing was stored. Retry with the same sequence."""


class Appended(NamedTuple):
    """A batch's result: `base_offset` is as in `Outcome`; `start_offset` is the partition's, -1 if unknown.

    `verdict` is a `Verdict`; an `Outcome` of the store, whose kinds have the same numbers, is passed on as it is.
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

    `results[i]` belongs to `appends[i]`. After `expire` the call is answered and later outcomes are ignored (the batches may still
    become durable: their producer was told "unknown", and a retry with the same sequence is answered as a duplicate).
    """

    __slots__ = ("_on_done", "appends", "deadline", "results", "seen", "waiting")

    def __init__(self, appends: Sequence[Append], on_done: Callable[["AppendCall"], None], seen: int) -> None:
        """`seen` is a log position that this server knew of before it received any of the batches (`outcomes.Seen`, decision 94)."""
        self.appends = appends
        self.seen = seen
        self.results: list[Result] = [UNAVAILABLE] * len(appends)
        self.deadline = 0.0
        """Loop time at which the writer gives up on this call; set by the writer."""
        self.waiting = len(appends)
        """Batches without an outcome; 0 or less when the call is answered."""
        self._on_done = on_done

    def done(self) -> None:
        """Run the callback: `resolve` has given this call its last outcome."""
        self._on_done(self)

    def refuse(self, result: Result) -> None:
        """Answer now, with this result for every batch; none was queued."""
        self.results = [result] * len(self.appends)
        self.waiting = 0
        self._on_done(self)

    def expire(self) -> None:
        """Answer now; batches without an outcome stay UNAVAILABLE."""
        if self.waiting > 0:
            self.waiting = -1
            self._on_done(self)


def may_begin(appends: Iterable[Append]) -> bool:
    """Whether any of the batches may be its producer's first one, which alone can be UNSURE (`metadata/producers.py`).

    Others have no say in what their commit has seen: a call that began long ago would make batches UNSURE that only share its object.
    """
    for _, _, _, _, _, _, producer_id, _, sequence, flags, _, after in appends:
        if producer_id >= 0 and (sequence == 0 or (flags & BATCH_NAMED and after < 0)):
            return True
    return False


def resolve(entries: Sequence[tuple[AppendCall, int, Append]], results: Sequence[Result]) -> list[AppendCall]:
    """Give each batch's result to its call, unless that is answered; returns the calls that have all their results now, in order.

    An entry is a batch's call, its place in the call, and the batch.

    Raises:
        ValueError: there are not as many results as entries; no call has got any.
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
