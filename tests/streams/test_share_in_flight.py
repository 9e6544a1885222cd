"""The records that a share group has in flight: rules of KIP-932, and a comparison with a model that has one state per offset."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.errors import BearlakeError, Corrupt, Invalid
from bearlake.streams.subscriptions.share.acknowledgements import AckType, InvalidRecordState, ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired, Batch
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.partition import joined
from bearlake.streams.subscriptions.share.runs import RecordState

LIMIT = 3
FOREVER = 1e9


def acquired(
    state: InFlight,
    *batches: Batch,
    member: str = "a",
    count: int = 1_000,
    strict: bool = False,
    until: float = FOREVER,
) -> list[Acquired]:
    offset = state.next_offset(1_000)
    assert offset is not None
    return state.acquire(
        batches,
        offset,
        member,
        until,
        record_count_max=count,
        is_strict=strict,
        count_max=1_000,
        delivery_count_max=LIMIT,
    )


def acknowledge(state: InFlight, *acks: ShareAck, member: str = "a", until: float | None = FOREVER) -> None:
    state.acknowledge(acks, member, delivery_count_max=LIMIT, renewed_until=until)


def states(state: InFlight) -> list[tuple[int, int, RecordState, int]]:
    return [(run.start, run.end, run.state, run.delivery_count) for run in state.runs]


def test_whole_batches_are_acquired_until_the_limit_of_records_is_reached() -> None:
    state = InFlight(0)

    assert acquired(state, Batch(0, 4), Batch(4, 8), Batch(8, 12), count=5) == [Acquired(0, 4, 1), Acquired(4, 8, 1)]


def test_strict_acquisition_stops_inside_a_batch() -> None:
    state = InFlight(0)

    assert acquired(state, Batch(0, 4), Batch(4, 8), count=5, strict=True) == [Acquired(0, 4, 1), Acquired(4, 5, 1)]
    assert state.end == 5


def test_no_more_than_the_limit_of_offsets_is_in_flight() -> None:
    state = InFlight(0)

    found = state.acquire(
        [Batch(0, 10)],
        0,
        "a",
        FOREVER,
        record_count_max=100,
        is_strict=False,
        count_max=6,
        delivery_count_max=LIMIT,
    )

    assert found == [Acquired(0, 6, 1)]
    assert state.next_offset(6) is None
    acknowledge(state, ShareAck(2, 4, [AckType.RELEASE]))
    assert state.next_offset(6) == 2


def test_accepted_records_move_the_start_once_all_before_them_are_done() -> None:
    state = InFlight(5)
    acquired(state, Batch(5, 10))

    acknowledge(state, ShareAck(6, 10, [AckType.ACCEPT]))
    assert state.mark_delete == 5
    acknowledge(state, ShareAck(5, 6, [AckType.ACCEPT]))

    assert (state.mark_delete, state.end, states(state)) == (10, 10, [])


def test_one_type_for_each_offset() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 4))

    acknowledge(state, ShareAck(0, 4, [AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW]))

    assert states(state) == [
        (1, 2, RecordState.AVAILABLE, 1),
        (2, 3, RecordState.DONE, 0),
        (3, 4, RecordState.ACQUIRED, 1),
    ]


def test_a_released_record_is_delivered_again_until_its_limit_and_is_then_done() -> None:
    state = InFlight(0)

    for count in range(1, LIMIT + 1):
        assert acquired(state, Batch(0, 1)) == [Acquired(0, 1, count)]
        acknowledge(state, ShareAck(0, 1, [AckType.RELEASE]))

    assert state.mark_delete == 1


@pytest.mark.parametrize("width", [8, 4, 3, 1])
@pytest.mark.parametrize(
    ("limit", "parts"),
    [
        (2, [[8]] * 2),
        (3, [[8]] * 2 + [[1] * 8]),
        (5, [[8]] * 3 + [[4, 4], [1] * 8]),
        (8, [[8]] * 4 + [[4, 4], [2] * 4, [1] * 8, [1] * 8]),
    ],
)
def test_records_near_their_limit_are_delivered_in_parts_and_at_last_one_by_one_whatever_their_batches(
    limit: int, parts: list[list[int]], width: int
) -> None:
    """KAFKA-17541: a record that makes its consumers fail does not use up the deliveries of what was acquired with it."""
    state = InFlight(0)
    batches = [*(Batch(start, min(8, start + width)) for start in range(0, 8, width)), Batch(8, 16)]
    terms: dict[str, Any] = {"record_count_max": 8, "is_strict": False, "count_max": 100, "delivery_count_max": limit}
    for delivery, sizes in enumerate(parts, start=1):
        start = 0
        for size in sizes:  # other members hold what is before
            left = [batch for batch in batches if batch.end > start]
            taken = joined(state.acquire(left, start, "a", FOREVER, **terms))
            assert [tuple(item) for item in taken] == [(start, start + size, delivery)]
            start += size
        state.release("a", delivery_count_max=limit)

    assert state.mark_delete == 8


def test_a_request_ends_before_a_batch_near_its_limit_and_behind_a_part_of_it() -> None:
    state, batches = InFlight(0), [Batch(0, 4), Batch(4, 8), Batch(8, 12)]
    acquired(state, batches[0], member="b")
    for _ in range(LIMIT - 1):
        acquired(state, batches[1])
        state.release("a", delivery_count_max=LIMIT)
    state.release("b", delivery_count_max=LIMIT)

    assert acquired(state, *batches) == [Acquired(0, 4, 2)]
    assert acquired(state, *batches[1:]) == [Acquired(4, 5, LIMIT)]
    state.acknowledge([ShareAck(4, 5, [AckType.REJECT])], "a", delivery_count_max=LIMIT, renewed_until=None)
    assert acquired(state, *batches[1:]) == [Acquired(5, 6, LIMIT)]


def test_an_expired_lock_releases_its_records_only() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 2), until=10.0)
    acquired(state, Batch(2, 4), member="b", until=20.0)

    assert state.first_deadline() == 10.0
    assert state.expire(10.0, delivery_count_max=LIMIT)

    assert states(state) == [(0, 2, RecordState.AVAILABLE, 1), (2, 4, RecordState.ACQUIRED, 1)]
    assert not state.expire(19.0, delivery_count_max=LIMIT)


def test_renewing_moves_the_deadline_and_counts_no_delivery() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 2), until=10.0)

    acknowledge(state, ShareAck(0, 1, [AckType.RENEW]), until=30.0)
    state.expire(10.0, delivery_count_max=LIMIT)

    assert states(state) == [(0, 1, RecordState.ACQUIRED, 1), (1, 2, RecordState.AVAILABLE, 1)]


def test_renewing_is_refused_where_it_is_not_allowed() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 2))

    with pytest.raises(InvalidRecordState, match="not enabled"):
        acknowledge(state, ShareAck(0, 1, [AckType.RENEW]), until=None)


def test_who_does_not_hold_the_lock_of_every_record_changes_nothing() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 2))
    acquired(state, Batch(2, 4), member="b")
    before = states(state)

    for member, start, end in (("a", 0, 4), ("c", 0, 1)):
        with pytest.raises(InvalidRecordState):
            acknowledge(state, ShareAck(start, end, [AckType.ACCEPT]), member=member)

    assert states(state) == before


def test_offsets_before_the_start_are_ignored_and_offsets_never_acquired_are_refused() -> None:
    state = InFlight(4)
    acquired(state, Batch(4, 6))

    acknowledge(state, ShareAck(0, 4, [AckType.ACCEPT]))
    with pytest.raises(Invalid):
        acknowledge(state, ShareAck(4, 7, [AckType.ACCEPT]))

    assert state.mark_delete == 4


@pytest.mark.parametrize(
    "acks",
    [
        [ShareAck(2, 2, [1])],
        [ShareAck(0, 3, [1, 1])],
        [ShareAck(0, 1, [])],
        [ShareAck(0, 1, [7])],
        [ShareAck(2, 3, [1]), ShareAck(0, 1, [1])],
        [ShareAck(0, 2, [1]), ShareAck(1, 3, [1])],
    ],
)
def test_malformed_acknowledgements_are_refused(acks: list[ShareAck]) -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 4))

    with pytest.raises(Invalid):
        acknowledge(state, *acks)


def test_offsets_without_records_are_done() -> None:
    state = InFlight(0)

    found = acquired(state, Batch(2, 4), Batch(4, 6, is_empty=True), Batch(8, 9))

    assert found == [Acquired(2, 4, 1), Acquired(8, 9, 1)]
    assert state.mark_delete == 2
    acknowledge(state, ShareAck(2, 4, [AckType.ACCEPT]))
    assert state.mark_delete == 8


def test_a_member_that_goes_releases_what_it_holds() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 2))
    acquired(state, Batch(2, 4), member="b")

    assert state.release("a", delivery_count_max=LIMIT)

    assert state.next_offset(1_000) == 0
    assert not state.release("a", delivery_count_max=LIMIT)


def test_a_trim_inside_a_run_keeps_the_rest() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 6))

    assert state.trim(3)
    assert not state.trim(2)

    assert states(state) == [(3, 6, RecordState.ACQUIRED, 1)]


def test_the_stored_form_keeps_delivery_counts_and_no_locks() -> None:
    state = InFlight(0)
    acquired(state, Batch(0, 4))
    acknowledge(state, ShareAck(1, 2, [AckType.ACCEPT]), ShareAck(2, 3, [AckType.RELEASE]))
    packed, is_whole = state.pack()

    found = InFlight.unpack(state.mark_delete, packed)

    assert is_whole
    assert states(found) == [
        (0, 1, RecordState.AVAILABLE, 1),
        (1, 2, RecordState.DONE, 0),
        (2, 4, RecordState.AVAILABLE, 1),
    ]
    assert acquired(found, Batch(0, 4), member="b") == [Acquired(0, 1, 2), Acquired(2, 4, 2)]


def test_nothing_in_flight_is_stored_as_nothing() -> None:
    assert InFlight(7).pack() == (b"", True)


@pytest.mark.parametrize("packed", [b"\x01\x01\x01", b"\x02\x01", b"\x02\x00\x01", b"\x02\x81", b"\x02\x01\x80"])
def test_damaged_stored_forms_are_refused(packed: bytes) -> None:
    with pytest.raises(Corrupt):
        InFlight.unpack(0, packed)


def test_records_that_were_locked_for_the_last_time_when_their_dispatcher_died_are_given_up() -> None:
    state = InFlight(0)
    for delivery in range(1, LIMIT + 1):
        locked = sum(run.end - run.start for run in acquired(state, Batch(0, 3)))
        if delivery < LIMIT:
            acknowledge(state, ShareAck(0, 3, [AckType.RELEASE]))
    acquired(state, Batch(1, 3))

    heir = InFlight.unpack(state.mark_delete, state.pack()[0])

    assert locked == 1
    assert acquired(heir, Batch(0, 3), Batch(3, 4)) == [Acquired(2, 3, LIMIT)]
    assert acquired(heir, Batch(0, 3), Batch(3, 4)) == [Acquired(3, 4, 1)]
    assert heir.mark_delete == 2


# -- a model with one state per offset --------------------------------------------------------------------------------


@dataclass
class Cell:
    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = 0.0
    unit: int = field(default=-1, compare=False)
    """The first offset that was first acquired with this one."""


@dataclass
class Model:
    """One cell per offset."""

    limit: int
    start: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    """By unit: the number of its offsets."""

    @property
    def end(self) -> int:
        return self.start + len(self.cells)

    def settle(self) -> None:
        while self.cells and self.cells[self.start].state is RecordState.DONE:
            del self.cells[self.start]
            self.start += 1

    def acquire(self, batch: Batch, member: str, deadline: float) -> None:
        offsets, unit = range(max(batch.start, self.start), batch.end), self.end
        near = max(2, -(-self.limit // 2))
        present = [
            self.cells[at] for at in offsets if at in self.cells and self.cells[at].state is RecordState.AVAILABLE
        ]
        if not batch.is_empty and any(near <= cell.count < self.limit for cell in present):
            self.acquire_few(present, member, deadline)
            return
        for offset in offsets:
            cell = self.cells.setdefault(offset, Cell(unit=unit))
            if cell.state is not RecordState.AVAILABLE:
                continue
            if batch.is_empty or cell.count >= self.limit:
                cell.state, cell.count = RecordState.DONE, 0
            else:
                self.lock(cell, member, deadline)
        self.sizes[unit] = self.end - unit
        self.settle()

    def acquire_few(self, available: list[Cell], member: str, deadline: float) -> None:
        near = max(2, -(-self.limit // 2))
        taken, part = 0, 0
        for cell in available:
            is_last = cell.count == self.limit - 1
            if taken and (is_last or cell.unit != available[0].unit):
                break
            if not part and cell.count >= near and not is_last:
                part = max(1, self.sizes[cell.unit] // 2 ** (cell.count - near + 1))
            if part and taken >= part:
                break
            if cell.count >= self.limit:
                cell.state, cell.count = RecordState.DONE, 0
                continue
            self.lock(cell, member, deadline)
            taken += 1
            if is_last:
                break
        self.settle()

    @staticmethod
    def lock(cell: Cell, member: str, deadline: float) -> None:
        cell.state, cell.member, cell.deadline = RecordState.ACQUIRED, member, deadline
        cell.count += 1

    def acknowledge(self, start: int, end: int, kind: AckType, member: str, deadline: float) -> bool:
        offsets = range(max(start, self.start), end)
        if end > self.end:
            return False
        if any(self.cells[at].state is not RecordState.ACQUIRED or self.cells[at].member != member for at in offsets):
            return False
        for at in offsets:
            if kind is AckType.RENEW:
                self.cells[at].deadline = deadline
            elif kind is AckType.RELEASE:
                self.release(self.cells[at])
            else:
                self.cells[at] = Cell(RecordState.DONE)
        self.settle()
        return True

    def release(self, cell: Cell) -> None:
        cell.state = RecordState.DONE if cell.count >= self.limit else RecordState.AVAILABLE
        cell.count = 0 if cell.state is RecordState.DONE else cell.count
        cell.member, cell.deadline = "", 0.0

    def restart(self) -> None:
        """Locks end, and neighbours with the same count are a unit."""
        last, unit = None, -1
        for offset, cell in self.cells.items():
            if cell.state is RecordState.ACQUIRED:
                cell.state, cell.member, cell.deadline = RecordState.AVAILABLE, "", 0.0
            if last is None or (last.state, last.count) != (cell.state, cell.count):
                unit = offset
            cell.unit, last = unit, cell
            self.sizes[unit] = offset + 1 - unit

    def release_if(self, is_meant: Callable[[Cell], bool]) -> None:
        for cell in self.cells.values():
            if cell.state is RecordState.ACQUIRED and is_meant(cell):
                self.release(cell)
        self.settle()


def flat(state: InFlight) -> dict[int, Cell]:
    return {
        offset: Cell(run.state, run.delivery_count, run.member, run.deadline)
        for run in state.runs
        for offset in range(run.start, run.end)
    }


STEP = st.one_of(
    st.tuples(st.just("acquire"), st.sampled_from("ab"), st.integers(1, 6), st.integers(0, 5), st.booleans()),
    st.tuples(
        st.just("acknowledge"), st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 8), st.sampled_from(AckType)
    ),
    st.tuples(st.just("release"), st.sampled_from("ab")),
    st.tuples(st.just("expire")),
    st.tuples(st.just("restart")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=25), st.sampled_from([3, 4, 8]))
def test_every_sequence_of_requests_gives_the_states_of_a_model_with_one_state_per_offset(
    steps: list[Any], limit: int
) -> None:
    state, model, now = InFlight(0), Model(limit), 0.0
    for step in steps:
        now += 1.0
        match step:
            case ("acquire", member, size, lock_s, is_empty):
                start = state.next_offset(1_000)
                assert start is not None
                batch = Batch(start, start + size, is_empty)
                state.acquire(
                    [batch],
                    start,
                    member,
                    now + lock_s,
                    record_count_max=1_000,
                    is_strict=False,
                    count_max=1_000,
                    delivery_count_max=limit,
                )
                model.acquire(batch, member, now + lock_s)
            case ("acknowledge", member, start, size, kind):
                ack = ShareAck(start, start + size, [kind])
                expected = model.acknowledge(start, start + size, kind, member, now + 9)
                try:
                    state.acknowledge([ack], member, delivery_count_max=limit, renewed_until=now + 9)
                except BearlakeError:
                    assert not expected
                else:
                    assert expected
            case ("release", member):
                state.release(member, delivery_count_max=limit)
                model.release_if(lambda cell, member=member: cell.member == member)
            case ("expire",):
                state.expire(now, delivery_count_max=limit)
                model.release_if(lambda cell, now=now: cell.deadline <= now)
            case ("restart",):
                state = InFlight.unpack(state.mark_delete, state.pack()[0])
                model.restart()

        assert (state.mark_delete, state.end) == (model.start, model.end)
        assert flat(state) == model.cells
        assert all(left.end == right.start for left, right in zip(state.runs, state.runs[1:], strict=False))
