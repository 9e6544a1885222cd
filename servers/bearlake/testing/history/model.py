"""What a history holds: operations of clients, each with its interval of time, its call and its answer.

Times are integers of one monotone clock that all writers share (nanoseconds of CLOCK_MONOTONIC on one host; any growing number in a
simulation). Operation A happened before B only if A ended strictly before B began.

Outcomes:
    ok       the client got a positive answer
    fail     the client got a definitive refusal: the operation has no effect, now or later
    unknown  the client does not know: the operation takes effect once or never, at any time after its start
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """See the module."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """What a producer is promised."""

    IDEMPOTENT = "idempotent"
    """Sends again until it knows; each record is stored at most once, in order of sequence."""
    SINGLE = "single"
    """Sends each record once and never again; stored at most once, in order of sequence within a session (a connection)."""
    PLAIN = "plain"
    """Sends again without deduplication: an acknowledged record is stored at least once, in any order."""


class Log(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    partition: int
    incarnation: str = ""
    """Id of the incarnation; empty: the client does not know it, or the topic is never created twice."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}" + (f"@{self.incarnation}" if self.incarnation else "")


class Record(NamedTuple):
    """A record as it is sent: an id that no other record of the topic has, and a digest of key, value, headers and timestamp."""

    id: str
    digest: str = ""
    """Empty: not known (the server stamps the timestamp)."""


class Seen(NamedTuple):
    """A record as a reader gets it."""

    offset: int
    id: str
    """Empty: the reader looked at offsets alone."""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Send one batch. Answer: `offset` of its first record (None: stored, the offset is not told), `incarnation` if the call has none."""

    log: Log
    producer: str
    kind: Kind
    sequence: int
    """Grows with each batch of the producer (and session) in this partition, in the order in which the client issued them."""
    records: tuple[Record, ...]
    session: str = ""
    """Order is promised within one session of a producer. Empty for idempotent producers: one session for all."""
    is_tabular: bool = True
    """Whether rows of a table can hold the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Read from offset `start` on. Answer: `records`, the log's `end` as told (at least behind the records; it may lag).

    `fail` with `why` "out_of_range" may tell the log's `start`, where a retention rule moves it.
    """

    log: Log
    start: int
    server: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Ask for the log's bounds. Answer: `start`, `end`; both as of some moment between call and answer."""

    log: Log
    server: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """Move the start offset forward to `start`."""

    log: Log
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Read the partition's rows in SQL. Answer: `records` in any order.

    With `start` and `end`, the rows of these offsets are promised to be there.
    """

    log: Log
    start: int | None = None
    end: int | None = None
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count the rows with offsets in [start, end) in SQL, all promised to be there. Answer: `count`."""

    log: Log
    start: int
    end: int
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """All of the log was read by now, from `start` (its start then) to its end: what was acknowledged before must have been read."""

    log: Log
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A member of a group has partitions: the call is written when it learns its assignment, `ok` when it has given them up.

    The member may believe in its assignment for `patience` after it asked the last question that was confirmed (the sync, at `asked`; a
    heartbeat): the smaller of its session timeout and its rebalance timeout. None: until it gives the partitions up.
    """

    group: str
    member: str
    generation: int
    partitions: tuple[Log, ...]
    asked: int
    patience: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """A member asks whether it still has its place in this generation; `ok`: yes."""

    group: str
    member: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Write a group's offset of one partition; None: forget it."""

    group: str
    log: Log
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Read a group's offset of one partition. Answer: `offset`, None: there is none."""

    group: str
    log: Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a topic. Answer: its `incarnation`; None: not told. `fail` with `why` "exists": there was one."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a topic, or only this incarnation of it. `fail` with `why` "missing": there was none."""

    topic: str
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Ask for a topic by name. Answer: its `incarnation`, None: there is none, "": there is one whose id is not told."""

    topic: str


OfLog = Produce | Read | Bounds | Trim | Rows | Count | Complete
OfGroup = Hold | Confirm
OfOffset = Commit | Committed
OfTopic = Create | Delete | Describe
Call = OfLog | OfGroup | OfOffset | OfTopic

EXISTS = "exists"
MISSING = "missing"
OUT_OF_RANGE = "out_of_range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an operation was answered; which fields count is said by each call."""

    offset: int | None = None
    records: tuple[Seen, ...] = ()
    start: int | None = None
    end: int | None = None
    count: int | None = None
    incarnation: str | None = None
    why: str = ""
    """Of a failure: EXISTS, MISSING, OUT_OF_RANGE have a meaning, all else is text."""
    is_settled: bool = False
    """Of an unknown outcome: a server has answered. The operation may have an effect, but not after the next acknowledged write of the
    same process has had its own."""


NOTHING = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one process."""

    process: str
    start: int
    end: int | None
    """When the client stopped waiting; None: it never did."""
    outcome: Outcome
    call: Call
    answer: Answer = field(default=NOTHING)
    origin: str = ""
    """File and line of its first event."""

    @property
    def is_ok(self) -> bool:
        """Whether the answer was positive."""
        return self.outcome is Outcome.OK

    @property
    def returned(self) -> int:
        """When the operation had taken effect at the latest; only of acknowledged ones."""
        assert self.end is not None
        return self.end
