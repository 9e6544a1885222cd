"""The state machine of a transactional id, as pure functions: what a request makes of the row, or why it is refused.

    state \\ request    InitProducerId        add partitions, group    EndTxn
    ---------------    -------------------   ----------------------   ---------------------------------------------------------
    (no row)           EMPTY, epoch 0        INVALID_MAPPING          INVALID_MAPPING
    EMPTY, COMPLETE_*  EMPTY, epoch + 1      ONGOING                  V1: the same result again is repeated, else INVALID_STATE
                                                                      V2: a repeat is repeated; abort: epoch + 1; commit: INVALID_STATE
    ONGOING            abort, then epoch + 1 ONGOING                  COMPLETE_*; V2: epoch + 1

V1 are the transactions of KIP-98; V2 those of KIP-890, whose epoch grows with every end, so that a request of an earlier transaction is
always fenced. A producer whose epoch is used up gets a new producer id.

Differences from Kafka: there is no state in which the end is under way, so no request gets CONCURRENT_TRANSACTIONS because of it, and
InitProducerId aborts an ongoing transaction and bumps the epoch in one step.

Source: org.apache.kafka.coordinator.transaction.TransactionCoordinator and TransactionMetadata (rules), KIP-360, KIP-890.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import Enum, auto

from bearlake.metadata.model import PartitionKey
from bearlake.metadata.transactions import EPOCH_MAX, End, Put, Transaction, TransactionState

ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT, EMPTY = (
    TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.EMPTY,
)

NO_PRODUCER = (-1, -1)


class Problem(Enum):
    """Why a request is refused; named by Kafka's error codes."""

    INVALID_MAPPING = auto()
    """The transactional id is unknown, or has another producer id."""
    FENCED = auto()
    """The producer's epoch is not the newest one: another producer has the transactional id, or its transaction timed out."""
    INVALID_STATE = auto()
    """The request makes no sense in this state."""
    TOO_MANY_GROUPS = auto()
    """The transaction has the offsets of as many groups as the server allows."""


Step = Put | End | Problem


def initialize(
    held: Transaction | None,
    transactional_id: str,
    timeout_ms: int,
    new_producer_id: int,
    expected: tuple[int, int] = NO_PRODUCER,
) -> Step:
    """InitProducerId. `new_producer_id` is used if one is needed. `expected`: id and epoch that the producer has (KIP-360).

    Without `expected`, every call bumps the epoch, so a repeat does no harm: it fences the call before, whose answer was lost.
    """
    if held is None:
        return Put(
            Transaction(transactional_id=transactional_id, producer_id=new_producer_id, epoch=0, timeout_ms=timeout_ms)
        )
    bumps_itself = expected != NO_PRODUCER
    if bumps_itself and expected != (held.producer_id, held.epoch):
        is_repeat = expected == (held.last_producer_id, held.last_epoch) and held.state is EMPTY
        return Put(held) if is_repeat else Problem.FENCED
    after = replace(_bumped(held, new_producer_id, is_own=bumps_itself), state=EMPTY, timeout_ms=timeout_ms)
    return End(after, is_commit=False) if held.is_ongoing else Put(after)


def add(
    held: Transaction | None,
    producer: tuple[int, int],
    *,
    partitions: Collection[PartitionKey] = (),
    group: str | None = None,
) -> Step:
    """AddPartitionsToTxn, AddOffsetsToTxn, and the implicit additions of KIP-890. `producer`: its id and epoch."""
    if isinstance(known := _check(held, producer), Problem):
        return known
    groups = known.groups if group is None else known.groups | {group}
    if known.is_ongoing and known.partitions.issuperset(partitions) and groups == known.groups:
        return Put(known)
    return Put(replace(known, state=ONGOING, partitions=known.partitions.union(partitions), groups=groups))


def end(
    held: Transaction | None, producer: tuple[int, int], new_producer_id: int, *, is_commit: bool, bumps: bool
) -> Step:
    """EndTxn. `bumps`: as in KIP-890, with an epoch per transaction; `new_producer_id` is used if the epoch is used up."""
    result = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
    is_repeat = held is not None and producer == (held.last_producer_id, held.last_epoch)
    if (
        held is not None
        and bumps
        and is_repeat
        and producer != NO_PRODUCER
        and held.state in (COMPLETE_COMMIT, COMPLETE_ABORT)
    ):
        return Put(held) if held.state is result else Problem.INVALID_STATE
    if isinstance(known := _check(held, producer), Problem):
        return known
    if known.is_ongoing:
        return End(_ended(known, new_producer_id, result, bumps=bumps), is_commit)
    if bumps and not is_commit:  # the producer cannot know whether anything of its transaction arrived
        return Put(_ended(known, new_producer_id, result, bumps=True))
    return Put(known) if not bumps and known.state is result else Problem.INVALID_STATE


def expire(held: Transaction, new_producer_id: int) -> End:
    """Abort a transaction that took too long, and fence its producer: the epoch grows, and nobody is told the new one."""
    assert held.is_ongoing
    after = replace(_bumped(held, new_producer_id, is_own=False), state=COMPLETE_ABORT)
    return End(after, is_commit=False)


def _check(held: Transaction | None, producer: tuple[int, int]) -> Transaction | Problem:
    if held is None or held.producer_id != producer[0]:
        return Problem.INVALID_MAPPING
    return held if held.epoch == producer[1] else Problem.FENCED


def _ended(held: Transaction, new_producer_id: int, state: TransactionState, *, bumps: bool) -> Transaction:
    after = _bumped(held, new_producer_id, is_own=True) if bumps else _cleared(held)
    return replace(after, state=state)


def _bumped(held: Transaction, new_producer_id: int, *, is_own: bool) -> Transaction:
    """Return the row with the next epoch, or a new producer id. `is_own`: the producer bumps itself, so that it may repeat the request."""
    last = (held.producer_id, held.epoch) if is_own else NO_PRODUCER
    is_used_up = held.epoch >= EPOCH_MAX - 1
    return replace(
        _cleared(held),
        producer_id=new_producer_id if is_used_up else held.producer_id,
        epoch=0 if is_used_up else held.epoch + 1,
        last_producer_id=last[0],
        last_epoch=last[1],
    )


def _cleared(held: Transaction) -> Transaction:
    return replace(held, started_ms=-1, partitions=frozenset(), groups=frozenset(), last_producer_id=-1, last_epoch=-1)
