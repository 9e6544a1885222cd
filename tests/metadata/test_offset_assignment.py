"""The decision on an object in packed rows gives what the rules give batch by batch, with both kernels."""

import copy
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.kernel import fallback
from bearlake.metadata import offset_assignment
from bearlake.metadata.batch_decision import Unknowns, decide_batch, refused
from bearlake.metadata.model import BATCH_CONTROL, BATCH_IN_STEP, BATCH_NAMED, BatchCommit, Outcome, PartitionKey, Slice
from bearlake.metadata.partition_state import NOWHERE, PartitionState, StreamState
from bearlake.metadata.producers import ACCEPTED

try:
    from bearlake.kernel import _native
except ImportError:
    _native = None  # type: ignore[assignment]  # the kernel is not compiled

KERNELS = [kernel for kernel in (_native, fallback) if kernel is not None]
OPEN, CLOSED, NO_SUCH = PartitionKey(1 << 20), PartitionKey(2 << 20), PartitionKey(9 << 20)
UNKNOWNS = Unknowns(
    expired_id=3, position_floor=5, seen=4, floor_of=lambda partition, producer_id: producer_id % 3 or None
)

BATCHES = st.lists(
    st.builds(
        BatchCommit,
        st.sampled_from([OPEN, OPEN, OPEN, PartitionKey(OPEN + 1), CLOSED, NO_SUCH]),
        st.integers(0, 20),
        st.integers(1, 9),
        st.integers(1, 3),
        st.integers(-1, 3),
        st.sampled_from([-1, 2, 4, 5, 6]),
        st.sampled_from([0, 0, 1]),
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, 2**31 - 1, 2**40]),
        st.sampled_from([0, 0, BATCH_CONTROL, BATCH_NAMED, BATCH_NAMED, BATCH_NAMED | BATCH_IN_STEP]),
        st.sampled_from([-1, -1, -1, 10, 11, 2**62]),
        st.sampled_from([-1, 1, 3, 4, 2**40]),
    ),
    max_size=15,
)


class States(dict[PartitionKey, PartitionState]):
    """An open stream with two partitions, a terminated stream with one, and no others."""

    def __init__(self) -> None:
        stream = StreamState(2)
        producers = {4: (0, 1, 2, 3, 7), 5: (0, 1, 2**31 - 1, 2**31 - 1, 9, 4, 4, 8)}
        super().__init__(
            {
                OPEN: PartitionState(stream, start=1, end=10, size=100, producers=dict(producers)),
                PartitionKey(OPEN + 1): PartitionState(
                    stream, epoch=1, producers={4: (1, 1, 2, 2, 7), 5: (0, 1, 3, 3, 9)}
                ),
                CLOSED: PartitionState(StreamState(1, is_terminated=True), end=10, producers=dict(producers)),
            }
        )

    def __missing__(self, key: PartitionKey) -> PartitionState:
        return NOWHERE


def by_the_rules(states: States, batches: list[BatchCommit]) -> tuple[Any, ...]:
    """Outcomes, slices, rows of producers, and the ends, sizes and producers: each batch by `decide_batch`, without a short cut."""
    ends = {key: [state.end, state.size, {**state.producers}] for key, state in states.items()}
    outcomes: list[Outcome] = []
    slices: list[Slice] = []
    rows: list[tuple[int, ...]] = []
    for batch in batches:
        partition, position, length, count, newest, producer_id, epoch, sequence, flags, *_ = batch
        state = states[partition]
        end, size, producers = ends.get(partition, [0, 0, {}])
        known = producers.get(producer_id)
        if not state.stream.is_open:
            outcomes.append(refused(batch, state, known, end, 8, UNKNOWNS))
            continue
        kind, base, made = decide_batch(batch, state, known, end, 8, UNKNOWNS)
        if kind is not ACCEPTED:
            outcomes.append(Outcome(kind, base, state.start))
            continue
        if made is not None:
            producers[producer_id] = made
            rows.append((partition, producer_id, epoch, sequence, count, end, flags))
        outcomes.append(Outcome(kind, end, state.start))
        last = slices[-1] if slices else None
        if last is not None and last.partition == partition and last.position + last.length == position:
            joined = last.record_count + count, last.position, last.length + length, max(last.max_timestamp, newest)
            slices[-1] = Slice(partition, last.base_offset, *joined)
        else:
            slices.append(Slice(partition, end, count, position, length, newest))
        ends[partition] = [end + count, size + length, producers]
    return outcomes, slices, rows, ends


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__.rpartition(".")[2])
@given(batches=BATCHES)
def test_packed_batches_are_decided_by_the_rules(kernel: ModuleType, batches: list[BatchCommit]) -> None:
    states = States()
    outcomes, slices, rows, ends = by_the_rules(copy.deepcopy(states), batches)

    with mock.patch.object(offset_assignment, "kernel", SimpleNamespace(OffsetAssignment=kernel.OffsetAssignment)):
        decision = offset_assignment.assign_offsets(states, batches, 8, UNKNOWNS)
    before = {key: state.end for key, state in states.items()}
    changed: dict[PartitionKey, PartitionState] = {}
    decision.assignment.adopt(6, changed)

    assert (decision.outcomes, decision.slices, decision.batches) == (outcomes, slices, rows)
    assert {key: [state.end, state.size, state.producers] for key, state in states.items()} == ends
    assert changed.keys() == {piece.partition for piece in slices}
    assert all((state.tail, state.changed) == ([before[key], 6], 6) for key, state in changed.items())
    assert (NOWHERE.end, NOWHERE.tail, NOWHERE.producers) == (0, [], {})
