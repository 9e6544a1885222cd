"""Transactions: their values and the Protocol of the store. The state machine is in `transaction_rules.py`.

A transaction belongs to no leader and has no coordinator. The store has one row per transactional id, and each change is a compare-and-set
on the row's version, decided by a pure function. So any server can do any step, and a step that was given up cannot be done twice.

    transactional id    producer id, epoch, state, timeout, added partitions and groups
    open transaction    per partition and producer: the first offset. The commit registers it together with the batch
    aborted transaction per partition: producer, first offset, offset of the marker
    pending offset      a group's offset that the end of the transaction puts in place

**The end is one transaction of the store** (`Transactions.end`): it gives the markers their offsets in all partitions, forgets the open
transactions (which moves last stable offsets), remembers the aborted ones, and puts the pending offsets in place: all or nothing.

The marker of a partition is a control batch. The markers of one end form one object, which no store holds: its bytes follow from its key
(`records/markers.py`). Its slices are those of a COMMIT entry. So followers, the index and compaction need no rule for markers.

Source: KIP-98, KIP-360, KIP-447, KIP-890.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from bearlake.metadata.aborted import Aborted as Aborted
from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ChangeKind,
    CommittedOffset,
    Lease,
    OutcomeKind,
    PartitionKey,
    TransactionChange,
)
from bearlake.metadata.names import is_name
from bearlake.metadata.packing import unpack_rows

BATCH_BEGINS = 16
"""With BATCH_TRANSACTIONAL: the batch adds its partition to the transaction, and begins the transaction if there is none (KIP-890)."""

EPOCH_MAX = 32_767
"""Epochs of a producer id have 15 bits. The last one only fences: a producer never gets it."""

TRANSACTIONAL_ID_BYTES_MAX = 1_024
"""Limit of a transactional id in UTF-8."""

NOTHING_OPEN = -1


def is_transactional_id(name: str) -> bool:
    """Return whether every store can keep this transactional id."""
    return is_name(name, TRANSACTIONAL_ID_BYTES_MAX)


class TransactionState(IntEnum):
    """The state of a transactional id. Ending takes no time, so Kafka's states PrepareCommit and PrepareAbort do not exist."""

    EMPTY = 0
    ONGOING = 1
    COMPLETE_COMMIT = 2
    COMPLETE_ABORT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id and its newest transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 60_000
    last_producer_id: int = -1
    last_epoch: int = -1
    """Id and epoch before the producer's own last bump (-1: none): a repeat of that request names them (KIP-360, KIP-890)."""
    started_ms: int = -1
    """When the ongoing transaction began, by the store's clock (ms); -1: none is ongoing."""
    changed_ms: int = -1
    """When the row changed last, by the store's clock (ms). The store sets it."""
    partitions: frozenset[PartitionKey] = frozenset()
    """Partitions that AddPartitionsToTxn added. Those of KIP-890 are only in `Transactions.open_offsets`."""
    groups: frozenset[str] = frozenset()
    """Groups whose offsets belong to the transaction."""
    version: int = 0
    """Grows with every change; 0: not stored yet."""

    @property
    def is_ongoing(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self.state is TransactionState.ONGOING


@dataclass(frozen=True, slots=True)
class Put:
    """Store this row. If it is the row as it is, there is nothing to do."""

    after: Transaction


@dataclass(frozen=True, slots=True)
class End:
    """End the transaction and store this row."""

    after: Transaction
    is_commit: bool


Decide = Callable[[Transaction | None], Put | End | None]
"""Returns what becomes of a row (None: there is none); None: nothing. It may run on another thread."""

CHANGE_WIDTH = 6
"""Fields of a change in a packed row (`packing.py`)."""


def unpack_changes(blob: bytes) -> list[TransactionChange]:
    """Return the changes of a packed blob. Raises `Corrupt`."""
    return changes_of(unpack_rows(blob, CHANGE_WIDTH))


def changes_of(rows: Iterable[Sequence[int]]) -> list[TransactionChange]:
    """Return changes from rows of their fields."""
    return [TransactionChange(ChangeKind(row[0]), PartitionKey(row[1]), *row[2:]) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What decides which records of a partition are committed, as of log position `position`.

    The partition has offsets `[start, end)`. Everything below `open_offset` (-1: no limit) is decided; `aborted` are all aborted
    transactions at or above the start offset, by marker offset.
    """

    position: int
    start: int
    end: int
    open_offset: int = NOTHING_OPEN
    aborted: Sequence[Aborted] = ()


def last_stable_offset(start: int, end: int, open_offset: int) -> int:
    """Return the last stable offset of a partition `[start, end)` whose oldest open transaction begins at `open_offset` (-1: none).

    A trim may pass the beginning of an open transaction. The offset then stays at the start, as in Kafka: no reader is sent below it.
    """
    return end if open_offset < 0 else max(start, min(end, open_offset))


class OpenOffset(NamedTuple):
    """An open transaction in a partition."""

    partition: PartitionKey
    producer_id: int
    first_offset: int


def may_write(held: Transaction | None, batch: BatchCommit) -> OutcomeKind:
    """Decide whether a batch with BATCH_TRANSACTIONAL belongs to its producer's transaction; `held`: the row of the producer id.

    FENCED: the producer has a newer epoch. NO_TRANSACTION: no transaction of this epoch has the partition. Both come before the rules of
    sequences. So after the end of a transaction, nothing can be written to it.
    """
    assert batch.flags & BATCH_TRANSACTIONAL
    if held is None or batch.producer_epoch > held.epoch:
        return OutcomeKind.NO_TRANSACTION
    if batch.producer_epoch < held.epoch:
        return OutcomeKind.FENCED
    if batch.flags & BATCH_BEGINS or (held.is_ongoing and batch.partition in held.partitions):
        return OutcomeKind.ACCEPTED
    return OutcomeKind.NO_TRANSACTION


def marker_producer(before: Transaction, after: Transaction) -> tuple[int, int]:
    """Return producer id and epoch of the markers that end the transaction of `before`."""
    is_same = before.producer_id == after.producer_id
    return before.producer_id, after.epoch if is_same else before.epoch + 1


class Transactions(Protocol):
    """The store of transactional ids. A change names the version that its caller read, so a late or repeated change is refused (I12)."""

    async def get(self, transactional_id: str) -> Transaction | None:
        """Return the row as of now; None if there is none.

        The row is as durable as a write that was answered: a repeated request is answered from the row alone.
        """

    async def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional ids that have these producer ids now; ids that none has are left out.

        A producer id belongs to one transactional id for all time.
        """

    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        """Read the row, let `decide` say what becomes of it, and store that by `put` or `end`; returns the row as stored.

        Nothing is stored if `decide` puts the row as it is, or returns None, and then so does this. A change whose caller was cancelled is
        not decided any more: it would concern what the caller's client has begun since (decision 316).

        Raises:
            Conflict: the row changed in between. Nothing was stored.
        """

    async def put(self, after: Transaction, version: int) -> Transaction:
        """Replace the row of version `version` (0: there is none) by `after`; returns it as stored, with the next version.

        The store sets `started_ms` if `after` is ongoing and has none. `after` does not end an ongoing transaction: see `end`.

        Raises:
            Conflict: the row has another version.
        """

    async def put_offsets(
        self,
        after: Transaction,
        version: int,
        group: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
        lease: Lease,
    ) -> Transaction:
        """As `put`, and keep the group's offsets until the transaction ends; later offsets of a partition replace earlier ones.

        Raises:
            Conflict: the row has another version.
            Fenced: the group's lease was overtaken.
        """

    async def end(self, after: Transaction, version: int, *, is_commit: bool) -> Transaction:
        """End the ongoing transaction of the row of version `version`, in one transaction; `after` is the row afterwards.

        Each partition with batches of the transaction gets a marker with the epoch of `after` or, if `after` has another producer id, with
        the next epoch of the former one. Readers of committed records see the partitions' records, and the groups their
        offsets, when this returns; if it aborts, never. Partitions of deleted streams are skipped. One log entry has all markers.

        Raises:
            Conflict: the row has another version.
        """

    async def forget(self, transactional_id: str, version: int) -> None:
        """Delete the row if it has that version and no transaction is ongoing; else no effect."""

    async def list(self, *, after: str = "", limit: int = 1000, is_ongoing: bool = False) -> Sequence[Transaction]:
        """List at most `limit` rows by transactional id, after `after`; `is_ongoing`: only those with an ongoing transaction.

        They are without partitions and groups, of which a transaction may have very many: `get` returns them.
        """

    async def open_offsets(
        self, *, producer_id: int | None = None, partition: PartitionKey | None = None
    ) -> Sequence[OpenOffset]:
        """Return the open transactions of a producer or of a partition (of both if both are given), by partition and producer."""

    async def isolation(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, Isolation]:
        """Return what decides which records of these partitions are committed, all as of one log position.

        Partitions that do not exist are left out.
        """

    async def pending(self, group: str) -> set[PartitionKey]:
        """Return the partitions for which an ongoing transaction has an offset of the group (KIP-447)."""


EndRead = Callable[[Transaction, Transaction, bool], Awaitable[Transaction]]
"""Ends a transaction, by the row as it was read, the row afterwards, and whether it commits."""


async def change_in_two_steps(
    store: Transactions, transactional_id: str, decide: Decide, end: EndRead | None = None
) -> Transaction | None:
    """`Transactions.change` by `get`, and `put` or `end`: for a store that the caller's process decides for.

    `end`: instead of `store.end`, for a store that need not read the row again.
    """
    held = await store.get(transactional_id)
    step = decide(held)
    if step is None:
        return None
    if step.after is held:
        return held
    version = 0 if held is None else held.version
    if not isinstance(step, End):
        return await store.put(step.after, version)
    if end is None or held is None:
        return await store.end(step.after, version, is_commit=step.is_commit)
    return await end(held, step.after, step.is_commit)
