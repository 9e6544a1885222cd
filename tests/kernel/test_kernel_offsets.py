"""Offsets for the batches of one object, native and in Python: same values, same errors."""

import itertools
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.kernel import BatchCommit, CommitRows, PartitionKey, fallback
from bearlake.metadata.model import OutcomeRows, Slice, SliceRows
from bearlake.metadata.offset_assignment import ProducerBatchRows
from bearlake.metadata.partition_state import PartitionState, StreamState

NOW_MS = 2**40
RULE_FLAGS = 6
NAMED = 4
ONE = PartitionKey(1 << 20)

BATCHES = st.lists(
    st.builds(
        BatchCommit,
        st.sampled_from([ONE, PartitionKey(ONE + 1), PartitionKey(5 << 20)]),
        st.integers(0, 30),
        st.integers(1, 9),
        st.integers(1, 5),
        st.integers(-1, 9),
        st.sampled_from([-1, -1, 7, 8]),
        st.sampled_from([0, 1]),
        st.sampled_from([0, 5, 6, 7, 8, 9, 10, 2**31 - 1]),
        st.sampled_from([0, 0, 0, 1, 2, 4]),
        st.sampled_from([-1, -1, -1, -1, 0, 2**40]),
        st.sampled_from([-1, 5, 9, 2**31 - 1]),
    ),
    max_size=12,
)


def states(*, is_open: bool = True) -> dict[PartitionKey, PartitionState]:
    """Two partitions of an open stream, of which one has producers, and a partition of another stream."""
    stream, other = StreamState(2), StreamState(1, is_terminated=not is_open)
    remembered = (5, 9, 2**40, 0, 4, 2**40 - 5, *range(9))
    producers = {7: (0, 1, *remembered), 8: (1, 1, 2**31 - 1, 2**31 - 1, 7)}
    return {
        ONE: PartitionState(stream, start=3, end=100, size=1000, producers=producers),
        PartitionKey(ONE + 1): PartitionState(
            stream, start=0, end=2**40, size=2**41, producers={7: (1, 1, 5, 5, 7), 8: (0, 1, 5, 5, 7)}, epoch=1
        ),
        PartitionKey(5 << 20): PartitionState(other, end=9),
    }


def followed(kernel: ModuleType, batches: list[BatchCommit], *, is_open: bool) -> Any:
    """Decide the batches, and tell everything that can be seen. Every second stop is a refusal."""
    partitions = states(is_open=is_open)
    rows = CommitRows.of(batches)
    assignment = kernel.OffsetAssignment(partitions, rows.packed, NOW_MS, RULE_FLAGS)
    told: list[Any] = []
    while (at := assignment.assign()) is not None:
        assert assignment.assign() == at
        assert assignment.state is partitions[batches[at].partition]
        known = assignment.known()
        told.append((at, assignment.end, known))
        if len(told) % 2:
            assignment.accept(
                None if batches[at].producer_id < 0 else (batches[at].producer_epoch, 0, 5, 5, assignment.end)
            )
        else:
            assignment.refuse(3, -1, at)
    told += [OutcomeRows(assignment.outcomes), SliceRows(assignment.slices), ProducerBatchRows(assignment.sequences)]
    assert [(state.end, state.changed) for state in partitions.values()] == [(100, 0), (2**40, 0), (9, 0)]
    changed: dict[PartitionKey, PartitionState] = {}
    assignment.adopt(77, changed)
    assert all(partitions[key] is state for key, state in changed.items())
    for key, state in partitions.items():
        told.append(
            (key, state.start, state.end, state.size, state.changed, state.tail, state.producers, key in changed)
        )
    return told


@given(batches=BATCHES, is_open=st.booleans())
def test_both_kernels_decide_the_same(native: ModuleType, batches: list[BatchCommit], is_open: bool) -> None:
    assert followed(native, batches, is_open=is_open) == followed(fallback, batches, is_open=is_open)


@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from([0, 0, 3]), st.integers(1, 9), st.integers(1, 5)),
        min_size=1,
        max_size=12,
    )
)
def test_offsets_are_dense_and_slices_cover_the_bytes(
    kernel: ModuleType, rows: list[tuple[bool, int, int, int]]
) -> None:
    """I2."""
    batches, position = [], 0
    for is_other, gap, length, count in rows:
        position += gap
        batches.append(BatchCommit(PartitionKey(ONE + is_other), position, length, count, count))
        position += length
    assignment = kernel.OffsetAssignment(states(), CommitRows.of(batches).packed, NOW_MS, RULE_FLAGS)

    assert assignment.assign() is None

    outcomes, slices = OutcomeRows(assignment.outcomes), SliceRows(assignment.slices)
    ends = {ONE: 100, PartitionKey(ONE + 1): 2**40}
    for batch, outcome in zip(batches, outcomes, strict=True):
        assert outcome[:2] == (0, ends[batch.partition])
        ends[batch.partition] += batch.record_count
    assert sum(piece.length for piece in slices) == sum(batch.length for batch in batches)
    for piece in slices:
        inside = [
            (batch, outcome)
            for batch, outcome in zip(batches, outcomes, strict=True)
            if piece.position <= batch.position < piece.position + piece.length
        ]
        assert {batch.partition for batch, _ in inside} == {piece.partition}
        assert piece.base_offset == inside[0][1].base_offset
        assert piece.record_count == sum(batch.record_count for batch, _ in inside)
        assert piece.max_timestamp == max(batch.max_timestamp for batch, _ in inside)
    for left, right in itertools.pairwise(slices):
        assert (left.partition, left.position + left.length) != (right.partition, right.position)


def assignment(kernel: ModuleType, *batches: BatchCommit) -> Any:
    return kernel.OffsetAssignment(states(), CommitRows.of(batches).packed, NOW_MS, RULE_FLAGS)


def test_the_next_batches_of_a_producer_are_accepted_until_one_is_not_next(kernel: ModuleType) -> None:
    made = assignment(
        kernel,
        BatchCommit(ONE, 0, 10, 4, 0, 7, 0, 10),
        BatchCommit(ONE, 10, 10, 1, 0, 7, 0, 14),
        BatchCommit(ONE, 20, 10, 1, 0, 7, 0, 16),
    )

    assert made.assign() == 2

    assert made.known() == (0, NOW_MS, 14, 14, 104, 10, 13, 100, 5, 9, 2**40, 0, 4, 2**40 - 5, 0, 1, 2)
    made.refuse(2, -1, 3)
    assert made.assign() is None
    assert list(ProducerBatchRows(made.sequences)) == [(ONE, 7, 0, 10, 4, 100, 0), (ONE, 7, 0, 14, 1, 104, 0)]
    assert SliceRows(made.slices) == [Slice(ONE, 100, 5, 0, 20, 0)]


@pytest.mark.parametrize(
    "batch",
    [
        BatchCommit(ONE, 0, 10, 1, 0, 9, 0, 0), BatchCommit(ONE, 0, 10, 1, 0, 7, 1, 10), BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 9),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 10, 2), BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 10, 6),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 10, 0, 100), BatchCommit(ONE, 0, 10, 1, 0, expected_offset=100),
    ],
)  # fmt: skip
def test_a_batch_that_needs_all_the_rules_stops_the_assignment(kernel: ModuleType, batch: BatchCommit) -> None:
    made = assignment(kernel, BatchCommit(ONE, 0, 1, 1, 0), batch)

    assert made.assign() == 1
    assert made.end == 101


def test_batches_of_a_named_producer_are_accepted_in_order_with_any_step(kernel: ModuleType) -> None:
    made = assignment(
        kernel,
        BatchCommit(ONE, 0, 10, 4, 0, 7, 0, 10, NAMED, after_sequence=9),
        BatchCommit(ONE, 10, 10, 2, 0, 7, 0, 2**40, NAMED, after_sequence=10),
        BatchCommit(ONE, 20, 10, 1, 0, 7, 0, 2**40, NAMED, after_sequence=10),
    )

    assert made.assign() == 2

    assert made.known() == (0, NOW_MS, 2**40, 2**40, 104, 10, 10, 100, 5, 9, 2**40, 0, 4, 2**40 - 5, 0, 1, 2)
    made.refuse(1, 104, 3)
    assert made.assign() is None
    assert list(ProducerBatchRows(made.sequences)) == [(ONE, 7, 0, 10, 4, 100, 4), (ONE, 7, 0, 2**40, 2, 104, 4)]


@pytest.mark.parametrize(
    "batch",
    [
        BatchCommit(ONE, 0, 10, 1, 0, 9, 0, 10, NAMED),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 9, NAMED),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 11, NAMED, after_sequence=10),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 1, 10, NAMED),
        BatchCommit(PartitionKey(ONE + 1), 0, 10, 1, 0, 8, 0, 10, NAMED),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 10, NAMED | 1),
        BatchCommit(ONE, 0, 10, 1, 0, 7, 0, 10, NAMED, 100),
    ],
    ids=["unknown", "duplicate", "behind a missing one", "another epoch", "fenced", "another flag", "expected offset"],
)
def test_a_batch_of_a_named_producer_that_needs_all_the_rules_stops_the_assignment(
    kernel: ModuleType, batch: BatchCommit
) -> None:
    assert assignment(kernel, batch).assign() == 0


def test_sequences_wrap(kernel: ModuleType) -> None:
    made = assignment(kernel, BatchCommit(ONE, 0, 10, 2, 0, 8, 1, 0), BatchCommit(ONE, 10, 10, 1, 0, 8, 1, 2))

    assert made.assign() is None


def test_a_batch_without_records_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="I2"):
        assignment(kernel, BatchCommit(ONE, 0, 9, 0, 0)).assign()
    with pytest.raises(ValueError, match="I2"):
        assignment(kernel, BatchCommit(PartitionKey(ONE + 1), 0, 9, 2**63 - 1, 0)).assign()


def test_a_size_that_does_not_fit_is_refused_and_does_not_become_negative(kernel: ModuleType) -> None:
    made = assignment(kernel, BatchCommit(ONE, 0, 2**63 - 1001, 1, 0), BatchCommit(ONE, 2**63 - 1001, 1, 1, 0))

    with pytest.raises(ValueError, match="63 bits"):
        made.assign()
    made = assignment(kernel, BatchCommit(ONE, 0, 2**63 - 1001, 1, 0))
    assert made.assign() is None


def test_a_batch_can_only_be_decided_where_the_assignment_has_stopped(kernel: ModuleType) -> None:
    made = assignment(kernel, BatchCommit(ONE, 0, 10, 1, 0, 9, 0, 0), BatchCommit(ONE, 0, 10, 1, 0, 9, 0, 0))
    actions: tuple[Any, ...] = (
        lambda: made.accept(None), lambda: made.refuse(1, 2, 3), made.known, lambda: made.end, lambda: made.state,
    )  # fmt: skip

    for action in actions:
        with pytest.raises(ValueError, match="not stopped"):
            action()
    assert made.assign() == 0
    with pytest.raises(ValueError, match="not all batches"):
        made.adopt(1, {})
    made.accept((0, 0, 0, 0, 100))
    for action in actions:
        with pytest.raises(ValueError, match="not stopped"):
            action()


def test_errors_of_the_states_are_passed_on(kernel: ModuleType) -> None:
    rows = CommitRows.of([BatchCommit(ONE, 0, 10, 1, 0)]).packed

    with pytest.raises(KeyError):
        kernel.OffsetAssignment({}, rows, NOW_MS, RULE_FLAGS).assign()
    with pytest.raises(AttributeError):
        kernel.OffsetAssignment({ONE: SimpleNamespace()}, rows, NOW_MS, RULE_FLAGS).assign()
    with pytest.raises(ValueError, match="whole rows"):
        kernel.OffsetAssignment({}, rows[:-1], NOW_MS, RULE_FLAGS)


def test_an_assignment_without_batches_changes_nothing(kernel: ModuleType) -> None:
    made = assignment(kernel)

    assert made.assign() is None
    assert (made.outcomes, made.slices, made.sequences) == (b"", b"", b"")
    changed: dict[PartitionKey, Any] = {}
    made.adopt(1, changed)
    assert changed == {}
