"""The contents of a history: operations of clients, each with its time interval, its call and its answer.

Times are integers of one monotonic clock that all writers share (nanoseconds of CLOCK_MONOTONIC on one host; any growing number in a
simulation). Operation A happened before B only if A ended strictly before B began.

Outcomes:
    ok       the client received a positive answer
    fail     the client received a definitive refusal: the operation has no effect, now or later
    unknown  the client received neither: the operation takes effect once or never, at any time after its start
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """The outcome of an operation; see the module."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """The delivery guarantee of a producer."""

    IDEMPOTENT = "idempotent"
    """Retries until the outcome is known; each record is stored at most once, in order of sequence."""
    SINGLE = "single"
    """Sends each record once, without retries; stored at most once, in order of sequence within a session (a connection)."""
    PLAIN = "plain"
    """Retries without deduplication: an acknowledged record is stored at least once, in any order."""


class Log(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    partition: int
    incarnation: str = ""
    """Id of the incarnation; empty: unknown to the client, or the topic is never created twice."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}" + (f"@{self.incarnation}" if self.incarnation else "")


class Record(NamedTuple):
    """A record as sent: an id unique in the topic, and a digest of key, value, headers and timestamp."""

    id: str
    digest: str = ""
    """Empty: unknown (the server sets the timestamp)."""


class Seen(NamedTuple):
    """A record as a reader receives it."""

    offset: int
    id: str
    """Empty: the reader only reads offsets."""
    digest: str = ""


class Write(NamedTuple):
    """A record of a transaction: an id unique in the topic."""

    partition: int
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Send one batch. Answer: `offset` of its first record (None: stored at an unknown offset), `incarnation` if the call has none."""

    log: Log
    producer: str
    kind: Kind
    sequence: int
    """Grows with each batch of the producer (and session) in this partition, in the order in which the client issued them."""
    records: tuple[Record, ...]
    session: str = ""
    """Order is promised within one session of a producer. Empty for idempotent producers, which have a single session."""
    is_tabular: bool = True
    """Whether table rows can hold the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Read from offset `start` on. Answer: `records`, and the log's `end` (not before the end of the records; it may lag).

    A `fail` with `why` "out_of_range" may include the log's `start`, if retention moves it.
    """

    log: Log
    start: int
    server: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Ask for the log's bounds. Answer: `start` and `end`, both as of some moment between call and answer."""

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

    With `start` and `end`, the rows of all offsets in [start, end) must be present.
    """

    log: Log
    start: int | None = None
    end: int | None = None
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Count the rows with offsets in [start, end) in SQL; all must be present. Answer: `count`."""

    log: Log
    start: int
    end: int
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The log has been read from `start` (its start at that time) to its end: reads must have returned all acknowledged records."""

    log: Log
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """A member of a share group accepts or rejects records that it was given, at these offsets. Answer: `records`; `ok`: that is stored."""

    log: Log
    group: str
    offsets: tuple[int, ...]
    sent: int = -1
    """The records were sent to the member at this time or later; -1: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A member asks for records of a share group until there are none. Answer: `end`; all offsets in [start, end) were done."""

    log: Log
    group: str
    start: int = 0
    """Where the group began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Read a partition with key compaction from its start to its end. Answer: `records`, in order of offsets, which may have gaps.

    The id of a record begins with its key, up to `KEY_END`. The client asked for the end when it had read what was there, and then read on
    up to it.
    """

    log: Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A member of a group owns partitions: the call is written when it receives its assignment, `ok` when it has given them up.

    The member may believe in its assignment for `timeout` after it sent the last confirmed request (the sync, at `asked`; a
    heartbeat). `timeout` is the smaller of its session timeout and its rebalance timeout; None: until it gives the partitions up.
    """

    group: str
    member: str
    generation: int
    partitions: tuple[Log, ...]
    asked: int
    timeout: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """A member asks whether it still belongs to this generation; `ok`: yes."""

    group: str
    member: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Write a group's offset of one partition; None: delete the offset."""

    group: str
    log: Log
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Read a group's offset of one partition. Answer: `offset`; None: no offset."""

    group: str
    log: Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a topic. Answer: its `incarnation`; None: not returned. `fail` with `why` "exists": the topic exists."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a topic, or only this incarnation of it. `fail` with `why` "missing": no such topic."""

    topic: str
    incarnation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Ask for a topic by name. Answer: its `incarnation`; None: no such topic; "": the topic exists, its id is not returned."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transact:
    """Write records in one transaction. `ok`: it was committed. `fail`: it was aborted. A topic has either transactions or other writes."""

    topic: str
    producer: str
    """The transactional id."""
    sequence: int
    """Grows with each transaction of the producer."""
    writes: tuple[Write, ...]
    """In the order in which they were sent."""
    source: str = ""
    """The topic whose committed records the writes copy (`copies.py`); "": none. A whole scan of `topic` follows the last copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Read committed records of one partition from `start` on. Answer: `records`, in order of offsets, which may have gaps.

    `is_whole`: the answer has all records from the log's start to its end, and no transaction was open any more.
    """

    topic: str
    partition: int
    start: int = 0
    is_whole: bool = False


OfLog = Produce | Read | Bounds | Trim | Rows | Count | Complete | Take | Drain | Survey
OfGroup = Hold | Confirm
OfOffset = Commit | Committed
OfTopic = Create | Delete | Describe
OfTransactions = Transact | Scan
Call = OfLog | OfGroup | OfOffset | OfTopic | OfTransactions

KEY_END = "|"
"""Ends the key in the id of a record with which key compaction is checked."""

EXISTS = "exists"
MISSING = "missing"
OUT_OF_RANGE = "out_of_range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to an operation; each call documents which fields it uses."""

    offset: int | None = None
    records: tuple[Seen, ...] = ()
    start: int | None = None
    end: int | None = None
    count: int | None = None
    incarnation: str | None = None
    why: str = ""
    """The reason of a failure: EXISTS, MISSING and OUT_OF_RANGE have a meaning, any other value is free text."""
    is_answered: bool = False
    """The outcome is unknown although a server answered. The operation may take effect, but not after the next acknowledged write of the
    same process has taken effect."""


NOTHING = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one process."""

    process: str
    start: int
    end: int | None
    """When the client stopped waiting; None: never."""
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
        """The latest time of the operation's effect; only defined for acknowledged operations."""
        assert self.end is not None
        return self.end
