"""The rules of the commit log without a store: decisions that leave no trace, idempotent replay."""

from itertools import starmap

import pytest

from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import (
    BATCH_CONTROL,
    BatchCommit,
    Outcome,
    OutcomeKind,
    PartitionKey,
    Slice,
    partition_key,
)
from bearlake.metadata.partition_state import PartitionState, StreamState

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)
KEY = partition_key(1, 0)


class EmptyCheckpoint:
    """Streams 1 and 2 with ten empty partitions each."""

    def __init__(self) -> None:
        self.streams = {1: StreamState(10), 2: StreamState(10)}

    def stream(self, number: int) -> StreamState | None:
        known = self.streams.get(number)
        return None if known is None else StreamState(known.partition_count, is_deleted=known.is_deleted)

    def partition(self, key: PartitionKey, stream: StreamState) -> PartitionState:
        return PartitionState(stream)

    def floor_of(self, key: PartitionKey, producer_id: int) -> int | None:
        return 0


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(EmptyCheckpoint())


def test_a_decision_that_is_not_adopted_leaves_no_trace(ledger: Ledger) -> None:
    batches = [BatchCommit(KEY, 0, 10, 3, 0, 1, 0, 0), BatchCommit(KEY, 10, 10, 3, 0, 1, 0, 3)]
    first, second = ledger.decide(batches, 5), ledger.decide(batches, 5)

    assert first.outcomes == second.outcomes == [Outcome(ACCEPTED, 0, 0), Outcome(ACCEPTED, 3, 0)]
    state = ledger.partitions[KEY]
    assert (state.end, state.size, state.producers, state.tail) == (0, 0, {}, [])
    assert ledger.applied == 0


def test_batches_of_a_partition_need_not_lie_together(ledger: Ledger) -> None:
    other = partition_key(2, 0)
    decision = ledger.decide(
        [
            BatchCommit(KEY, 0, 10, 3, 0, 1, 0, 0),
            BatchCommit(other, 10, 10, 1, 0, 1, 0, 0),
            BatchCommit(KEY, 20, 10, 2, 0, 1, 0, 3),
        ],
        5,
    )
    ledger.adopt(decision, 1)

    assert [outcome.base_offset for outcome in decision.outcomes] == [0, 0, 3]
    assert decision.slices == [Slice(KEY, 0, 3, 0, 10, 0), Slice(other, 0, 1, 10, 10, 0), Slice(KEY, 3, 2, 20, 10, 0)]
    assert (ledger.partitions[KEY].end, ledger.partitions[KEY].tail) == (5, [0, 1])


def test_adopting_and_replaying_an_entry_give_the_same_state(ledger: Ledger) -> None:
    follower = Ledger(EmptyCheckpoint())
    sequence = 0
    for position in range(1, 8):
        batches = [
            BatchCommit(KEY, 0, 10, position, 0, 1, 0, sequence),
            BatchCommit(KEY, 10, 10, 1, 0),
            BatchCommit(partition_key(2, 3), 20, 10, 1, 0, 2, position, 0),
        ]
        decision = ledger.decide(batches, position)
        ledger.adopt(decision, position)
        follower.replay_commit(position, position, decision.slices, decision.batches)
        sequence += position

    for key in (KEY, partition_key(2, 3)):
        mine, theirs = ledger.partitions[key], follower.partitions[key]
        assert (mine.end, mine.size, mine.producers, mine.tail) == (
            theirs.end,
            theirs.size,
            theirs.producers,
            theirs.tail,
        )


def test_replay_on_a_newer_checkpoint_changes_nothing(ledger: Ledger) -> None:
    entries = []
    for position in range(1, 4):
        decision = ledger.decide([BatchCommit(KEY, 0, 10, 2, 0, 1, 0, 2 * position - 2)], position)
        ledger.adopt(decision, position)
        entries.append((position, position, decision.slices, decision.batches))
    state = ledger.partitions[KEY]
    before = (state.end, state.size, dict(state.producers))
    state.tail.clear()
    list(starmap(ledger.replay_commit, entries))

    assert (state.end, state.size, state.producers) == before
    assert state.tail == [0, 1, 2, 2, 4, 3]


def test_a_missed_entry_is_noticed(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="I2"):
        ledger.replay_commit(1, 0, [Slice(KEY, 5, 1, 0, 10, 0)], [])
    with pytest.raises(AssertionError, match="gaps"):
        ledger.adopt(ledger.decide([BatchCommit(KEY, 0, 10, 2, 0)], 0), 2)


def test_batches_without_offsets_are_a_bug(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="I2"):
        ledger.decide([BatchCommit(KEY, 0, 10, 0, 0)], 0)


def test_markers_are_not_batches_of_a_sequence(ledger: Ledger) -> None:
    ledger.adopt(ledger.decide([BatchCommit(KEY, 0, 10, 1, 0, 1, 0, 0)], 0), 1)
    marker = BatchCommit(KEY, 0, 10, 1, 0, 1, 0, -1, BATCH_CONTROL)
    decision = ledger.decide([marker, BatchCommit(KEY, 10, 10, 1, 0, 1, 0, 1)], 0)

    assert decision.outcomes == [Outcome(ACCEPTED, 1, 0), Outcome(ACCEPTED, 2, 0)]


def test_a_stream_that_is_deleted_or_grown_is_noticed_by_its_entry() -> None:
    checkpoint = EmptyCheckpoint()
    ledger = Ledger(checkpoint)
    new = partition_key(1, 10)
    assert ledger.existing(KEY) is not None
    assert ledger.existing(new) is None
    checkpoint.streams[1] = StreamState(11)
    ledger.replay_stream(1, 1)
    assert ledger.existing(new) is not None
    checkpoint.streams[1] = StreamState(11, is_deleted=True)
    ledger.replay_stream(2, 1)

    assert ledger.existing(KEY) is None
    assert ledger.decide([BatchCommit(KEY, 0, 10, 1, 0)], 0).outcomes == [Outcome(NOT_FOUND, -1, -1)]
    assert ledger.applied == 2


def test_rolling_up_frees_the_memory_of_the_rolled_up_commits(ledger: Ledger) -> None:
    for position in range(1, 5):
        ledger.adopt(ledger.decide([BatchCommit(KEY, 0, 10, 1, 0)], 0), position)
    ledger.rolled_up(2)
    assert ledger.partitions[KEY].tail == [2, 3, 3, 4]
    assert set(ledger.unrolled) == {KEY}
    ledger.rolled_up(4)

    assert ledger.partitions[KEY].tail == []
    assert ledger.unrolled == {}


def test_memory_is_bounded_and_unrolled_partitions_stay() -> None:
    ledger = Ledger(EmptyCheckpoint(), partition_count_max=10)
    keys = [partition_key(1 + number // 10, number % 10) for number in range(20)]
    ledger.adopt(ledger.decide([BatchCommit(key, 0, 10, 1, 0) for key in keys[:5]], 0), 1)
    for key in keys[5:]:
        assert ledger.existing(key) is not None
    ledger.evict()

    assert len(ledger.partitions) <= 10
    assert set(keys[:5]) <= set(ledger.partitions)


def test_a_reset_ledger_starts_at_the_checkpoint(ledger: Ledger) -> None:
    ledger.adopt(ledger.decide([BatchCommit(KEY, 0, 10, 1, 0)], 0), 1)
    ledger.reset(7)

    assert (ledger.applied, ledger.rolled, len(ledger.partitions), ledger.unrolled) == (7, 7, 0, {})
