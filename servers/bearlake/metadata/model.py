"""Values of the metadata store: streams, servers, commits, slices, groups, leases.

Values of which a commit has one per batch or partition (`BatchCommit`, `Outcome`, `Slice`) are NamedTuples. The commit path hands them
on in packed form (`CommitRows`, `OutcomeRows`, `SliceRows`). Other values are frozen dataclasses. `kernel.log` defines `BatchCommit`, since
its C code knows the fields.

A partition is named by a `PartitionKey`, one integer: the stream's number (one per incarnation, never reused) and the partition's index.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from bearlake.kernel import BATCH_CONTROL as BATCH_CONTROL
from bearlake.kernel import BATCH_NAMED as BATCH_NAMED
from bearlake.kernel import PARTITION_BITS as PARTITION_BITS
from bearlake.kernel import BatchCommit as BatchCommit
from bearlake.kernel import CommitRows as CommitRows
from bearlake.kernel import PartitionKey as PartitionKey
from bearlake.kernel import Rows
from bearlake.metadata.group_values import CommittedOffset as CommittedOffset
from bearlake.metadata.group_values import GroupListing as GroupListing
from bearlake.metadata.group_values import GroupSnapshot as GroupSnapshot
from bearlake.metadata.transaction_changes import ChangeKind as ChangeKind
from bearlake.metadata.transaction_changes import TransactionChange as TransactionChange

PARTITION_COUNT_MAX = 1 << PARTITION_BITS
_NO_PARTITION = PartitionKey(0)


def partition_key(stream_number: int, index: int) -> PartitionKey:
    """Return the key of partition `index` (0 <= index < 2**20) of the stream with that number (1 <= number < 2**43)."""
    return PartitionKey(stream_number << PARTITION_BITS | index)


def stream_number(partition: PartitionKey) -> int:
    """Return the number of the stream that the partition belongs to."""
    return partition >> PARTITION_BITS


def partition_index(partition: PartitionKey) -> int:
    """Return the partition's index in its stream."""
    return partition & (PARTITION_COUNT_MAX - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A stream to create: its name, partition count (1 … 2**20) and the configs that differ from the defaults."""

    name: str
    partition_count: int
    configs: Mapping[str, str] = field(default_factory=dict)
    after: int = 0
    """Number of the name's newest incarnation that the creator has seen (`StreamCatalog.newest`); 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One incarnation of a stream, as of log position `version`."""

    name: str
    id: uuid.UUID
    number: int
    partition_count: int
    configs: Mapping[str, str]
    created_ms: int
    is_deleted: bool = False
    is_terminated: bool = False
    """The stream takes no more batches, permanently; its records stay readable."""
    version: int = 0

    def partition(self, index: int) -> PartitionKey:
        """Return the key of partition `index`, which must exist."""
        return partition_key(self.number, index)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRef:
    """A server process in one of its epochs; the epoch fences everything that it writes."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The store's answer to a server that registers."""

    server: ServerRef
    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A live server. `endpoints` maps a listener's name (`kafka`, `kafka:EXTERNAL`, `admin`, …) to its advertised `host:port`."""

    ref: ServerRef
    name: str
    zone: str | None
    endpoints: Mapping[str, str]
    version: str
    is_draining: bool
    heartbeat_count: int
    """Heartbeats of this epoch; while the count does not change, observers count towards `timeout_ms`."""
    timeout_ms: int
    """Time without heartbeats after which an observer declares the server lapsed; the server's own setting."""


BATCH_TRANSACTIONAL = 1
BATCH_IN_STEP = 8
"""With BATCH_NAMED: the sequence must not skip, and starts at 0 for a new producer or epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCommit:
    """A WAL object to commit. `token` is the object's key; `batches` are ordered by position, batches of one partition back to back.

    `seen` is a log position that the server knew before it received any batch that may be the first of its producer (0: none).
    `is_transactional`: one of the batches may have BATCH_TRANSACTIONAL.
    """

    token: str
    server: ServerRef
    size: int
    batches: Sequence[BatchCommit]
    seen: int = 0
    is_transactional: bool = False


class OutcomeKind(IntEnum):
    """The decision on a batch. Only ACCEPTED batches are added to the log by this commit."""

    ACCEPTED = 0
    DUPLICATE = 1
    """The batch is one of the producer's last five in the partition; `base_offset` is the original one.

    For a named producer: any of its batches; `base_offset` is -1 if the batch is older than the last five.
    """
    OUT_OF_ORDER = 2
    """The sequence is not the producer's next one: an earlier batch is missing. An unknown producer starts at 0 (I9)."""
    FENCED = 3
    """A newer producer epoch has written to the partition, or the epoch was raised (`ProducerIds.raise_epoch`)."""
    NOT_FOUND = 4
    """The stream was deleted, or the partition does not exist."""
    UNEXPECTED_OFFSET = 5
    """The partition's end is not the expected offset; `base_offset` is the end. The producer's sequence is not used up."""
    TERMINATED = 6
    """The stream is terminated (`StreamCatalog.terminate`) and takes no more batches. A batch stored before that is a DUPLICATE."""
    UNKNOWN_PRODUCER = 7
    """The sequence is not 0, and the producer's state may have expired (`ProducerIds.expire`): it must start a new epoch at 0.

    For a named producer: the store has neither its state nor its registration. The producer must register its name again.
    """
    UNSURE = 8
    """The batch may already be stored, by a commit of a producer whose state has expired since, so the store decides nothing (I9).

    The server received the batch before it knew of the expiry (`ObjectCommit.seen`). If the client sends it again, it is decided anew.
    """
    NO_TRANSACTION = 9
    """The batch is transactional, and its producer has no transaction with this partition (`transactions.may_write`)."""


class Outcome(NamedTuple):
    """A batch's outcome; `start_offset` is the partition's start offset (-1 if none).

    `base_offset` is the batch's if it is ACCEPTED or a DUPLICATE, the partition's end if it is an UNEXPECTED_OFFSET, else -1.
    """

    kind: OutcomeKind
    base_offset: int
    start_offset: int


_ACCEPTED_KIND = bytes([OutcomeKind.ACCEPTED])


def _outcome(fields: tuple[int, ...]) -> Outcome:
    kind, base_offset, start_offset = fields
    return Outcome(OutcomeKind(kind), base_offset, start_offset)


class OutcomeRows(Rows[Outcome], width=len(Outcome._fields)):
    """Outcomes in packed form. Reading a row whose kind is unknown raises `ValueError`."""

    __slots__ = ("_others",)
    make = staticmethod(_outcome)
    _others: Sequence[OutcomeKind]

    def others(self) -> Sequence[OutcomeKind]:
        """Return the kinds of the batches that were not accepted."""
        try:
            return self._others
        except AttributeError:  # the first of two questions per commit
            kinds = self.packed[:: 8 * self.width]  # the first byte of a row: kinds are less than 256
            self._others = tuple(map(OutcomeKind, kinds.translate(None, _ACCEPTED_KIND)))
            return self._others


class Slice(NamedTuple):
    """Committed bytes `[position, position + length)` of one partition in one WAL object, offsets `[base, base + count)`.

    The bytes are whole record batches, back to back. Their stored base offsets are meaningless: the first batch starts at
    `base_offset`, each next batch where the previous one ended.
    """

    partition: PartitionKey
    base_offset: int
    record_count: int
    position: int
    length: int
    max_timestamp: int

    @property
    def end_offset(self) -> int:
        """First offset after the slice."""
        return self.base_offset + self.record_count


_RECORD_COUNT = itemgetter(Slice._fields.index("record_count"))


class SliceRows(Rows[Slice], width=len(Slice._fields)):
    """Slices in packed form."""

    __slots__ = ()
    make = staticmethod(partial(tuple.__new__, Slice))

    def record_count(self) -> int:
        """Return the records of all slices."""
        return sum(map(_RECORD_COUNT, self._struct.iter_unpack(self.packed)))


NO_ROW = -1
"""`Slice.position` of a segment without rows: key compaction removed all of them. The segment names a data file only for form."""


class ObjectKind(IntEnum):
    """How an object holds its slices."""

    WAL = 0
    """Record batches as received, `wal/format.py`."""
    PARQUET = 1
    """Rows of a table's data file, `table/`; its slices are called segments, and their `position` is a row number."""


class ObjectRef(NamedTuple):
    """An object that holds slices: its key, size in bytes, and kind."""

    key: str
    size: int
    kind: ObjectKind = ObjectKind.WAL


NO_STREAM = 0
"""The number of no stream."""


class EntryKind(IntEnum):
    """The change that a log entry records."""

    COMMIT = 1
    """Slices of one WAL object were appended."""
    TRIM = 2
    """A partition's start offset moved to `Trim.start`."""
    STREAM = 3
    """The stream `stream_number` was created, altered, grown or deleted, or producers of one or more streams expired: read it again."""
    SWAP = 4
    """Compaction moved offsets to new objects: cached locations of `ranges` are out of date. No offset or bound changes."""
    POLICY = 5
    """The access rules or the quotas changed: read them again.

    Stored as a STREAM entry of stream 0, which does not exist (decision 117).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the commit log.

    COMMIT: `object_key`, `object_size` and `slices` by position in the object (per partition: in offset order); `changes` of
    transactions.
    TRIM: `partition`, `start_offset`. STREAM: `stream_number`. SWAP: `ranges`, as (partition, start, end).
    Fields that the kind does not use have their defaults.
    """

    position: int
    kind: EntryKind
    object_key: str = ""
    object_size: int = 0
    slices: Sequence[Slice] = ()
    partition: PartitionKey = _NO_PARTITION
    start_offset: int = 0
    stream_number: int = 0
    ranges: Sequence[tuple[PartitionKey, int, int]] = ()
    changes: Sequence[TransactionChange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A page of the log: entries by position, and the position of the head at the time of the read."""

    entries: Sequence[Entry]
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectCommitted:
    """Result of a commit: one outcome per batch, in order, and the log entry (`position` 0 and no slices if none was written).

    `is_transactional`: the entry may have transaction changes, which are only in the log.
    """

    position: int
    outcomes: Sequence[Outcome]
    slices: Sequence[Slice]
    is_transactional: bool = False


class PartitionBounds(NamedTuple):
    """Offsets of a partition: readable `[start, end)`; read_committed readers stop at `last_stable` (== end without transactions)."""

    start: int
    end: int
    last_stable: int


class PartitionUsage(NamedTuple):
    """Bytes and records of a partition that are still readable."""

    size_bytes: int
    record_count: int


class LocatedSlice(NamedTuple):
    """A slice (or segment, by `kind`) together with the object that holds it."""

    slice: Slice
    object_key: str
    object_size: int
    kind: ObjectKind = ObjectKind.WAL

    @property
    def object(self) -> ObjectRef:
        """The object that holds the slice."""
        return ObjectRef(self.object_key, self.object_size, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Result of a lookup: slices in offset order (may be empty), bounds, and the log position as of which the result is true."""

    slices: Sequence[LocatedSlice]
    bounds: PartitionBounds
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """An idempotent producer's newest state in a partition, for DescribeProducers (KIP-664). Times in ms, by the store's clock."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int


PRODUCER_NAME_BYTES_MAX = 1024
"""Limit of a producer's name in UTF-8, including the prefix of its protocol."""


class NamedProducer(NamedTuple):
    """A named producer of a partition: its id, and the newest epoch and sequence that it has written (-1: none remembered).

    `partition_epoch` is the partition's epoch (0: never raised); a producer that may skip sequences writes with it. `floor` is the log
    position of the newest expiry of named producers before the name was registered (0: none). Batches that a server received before it
    knew of that position may have been stored by a previous producer of the name (`metadata/producers.py`).
    """

    producer_id: int
    epoch: int
    last_sequence: int
    partition_epoch: int
    floor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A held lease. `epoch` grows with every change of holder."""

    name: str
    holder: ServerRef
    epoch: int
