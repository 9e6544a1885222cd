"""The tail index: dense slices per partition, bounded, and no answer for unknown offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.index.tail import PartitionTail, TailIndex
from bearlake.metadata.model import Entry, EntryKind, PartitionBounds, PartitionKey, Slice

ONE, OTHER = PartitionKey(1), PartitionKey(2)


class Log:
    """Makes dense entries, and an index that they are applied to."""

    def __init__(self, slice_count_max: int = 1_000) -> None:
        self.gaps: list[PartitionKey] = []
        self.index = TailIndex(slice_count_max, self.gaps.append)
        self.position = 0
        self.ends: dict[PartitionKey, int] = {}

    def commit(self, *partitions: PartitionKey, count: int = 2, is_applied: bool = True) -> Entry:
        slices = []
        for number, partition in enumerate(partitions):
            base = self.ends.get(partition, 0)
            slices.append(Slice(partition, base, count, number * 10, 10, 0))
            self.ends[partition] = base + count
        return self.entry(
            Entry(position=self.position + 1, kind=EntryKind.COMMIT, object_key=f"o{self.position}", slices=slices),
            is_applied,
        )

    def trim(self, partition: PartitionKey, start: int) -> Entry:
        return self.entry(
            Entry(position=self.position + 1, kind=EntryKind.TRIM, partition=partition, start_offset=start), True
        )

    def entry(self, entry: Entry, is_applied: bool) -> Entry:
        self.position += 1
        if is_applied:
            self.index.apply(entry)
        return entry

    def learn(self, partition: PartitionKey, start: int, end: int) -> PartitionTail | None:
        return self.index.learn(partition, PartitionBounds(start, end, end), self.index.generation)

    def tail(self, partition: PartitionKey = ONE) -> PartitionTail:
        tail = self.index.get(partition)
        assert tail is not None
        return tail


def found(tail: PartitionTail, offset: int) -> int:
    """Base offset of the slice that the tail finds for an offset."""
    item = tail.at(tail.find(offset))
    assert item is not None
    return item.slice.base_offset


def test_an_offset_is_found_in_its_slice() -> None:
    log = Log()
    for _ in range(3):
        log.commit(ONE, OTHER)

    assert [found(log.tail(), offset) for offset in range(6)] == [0, 0, 2, 2, 4, 4]
    assert (log.tail().known_from, log.tail().end) == (0, 6)


def test_no_slice_follows_the_last_slice() -> None:
    log = Log()
    log.commit(ONE)

    assert log.tail().at(log.tail().find(1) + 1) is None


def test_entries_that_were_applied_are_not_applied_again() -> None:
    log = Log()
    entry = log.commit(ONE)

    log.index.apply(entry)

    assert (log.tail().end, log.index.slice_count, log.gaps) == (2, 1, [])


def test_a_missed_entry_is_a_gap_and_the_partition_is_forgotten() -> None:
    log = Log()
    log.commit(ONE, OTHER)
    log.commit(ONE, is_applied=False)
    woken: list[str] = []
    log.tail().waiters[lambda _: woken.append("woken")] = None

    log.commit(ONE, OTHER)

    assert log.gaps == [ONE]
    assert log.index.get(ONE) is None
    assert log.tail(OTHER).end == 4
    assert woken == ["woken"]


def test_the_oldest_entries_leave_when_there_are_too_many_slices() -> None:
    log = Log(slice_count_max=4)
    for _ in range(5):
        log.commit(ONE, OTHER)

    assert log.index.slice_count == 4
    assert (log.tail().known_from, log.tail().end, found(log.tail(), 6)) == (6, 10, 6)


def test_one_entry_with_too_many_slices_is_kept_alone() -> None:
    log = Log(slice_count_max=1)
    log.commit(ONE)

    log.commit(ONE, OTHER)

    assert (log.index.slice_count, log.tail().known_from) == (2, 2)


def test_forgotten_partitions_do_not_use_up_the_bound() -> None:
    log = Log(slice_count_max=4)
    for _ in range(100):
        log.commit(ONE)
        log.index.forget(ONE)
        log.ends[ONE] = 0

    for _ in range(3):
        log.commit(OTHER)

    assert log.index.slice_count <= 4
    assert (log.tail(OTHER).known_from, log.tail(OTHER).end) == (0, 6)


def test_bounds_of_the_store_make_the_start_known() -> None:
    log = Log()
    log.learn(ONE, 3, 10)
    log.ends[ONE] = 10

    log.commit(ONE)

    assert (log.tail().start, log.tail().known_from, log.tail().end, log.gaps) == (3, 10, 12, [])


def test_bounds_that_are_ahead_of_the_follower_are_caught_up_with() -> None:
    log = Log()
    late = [log.commit(ONE, is_applied=False), log.commit(ONE, is_applied=False)]

    log.learn(ONE, 0, 4)
    for entry in late:
        log.index.apply(entry)
    log.commit(ONE)

    assert (log.tail().known_from, log.tail().end, log.gaps) == (4, 6, [])


def test_bounds_that_are_behind_the_follower_change_nothing() -> None:
    log = Log()
    generation = log.index.generation
    log.commit(ONE)

    log.index.learn(ONE, PartitionBounds(0, 0, 0), generation)

    assert (log.tail().end, found(log.tail(), 1)) == (2, 0)


@pytest.mark.parametrize("is_reset", [True, False])
def test_bounds_older_than_those_that_were_dropped_are_ignored(is_reset: bool) -> None:
    log = Log()
    generation = log.index.generation  # the store is asked here: the partition ends at 0 …
    log.commit(ONE)  # … this entry arrives in the meantime, and is dropped again
    if is_reset:
        log.index.reset(log.position)
    else:
        log.index.forget(ONE)

    learned = log.index.learn(ONE, PartitionBounds(0, 0, 0), generation)

    assert learned is None
    assert log.index.get(ONE) is None


def test_bounds_that_arrive_after_a_deletion_do_not_revive_the_partition() -> None:
    log = Log()
    generation = log.index.generation  # asked here, answered after the stream was deleted
    log.index.forget(ONE)

    assert log.index.learn(ONE, PartitionBounds(0, 0, 0), generation) is None
    assert log.index.get(ONE) is None


@pytest.mark.parametrize("is_known", [True, False])
def test_late_bounds_do_not_hide_a_trim(is_known: bool) -> None:
    log = Log()
    log.ends[ONE] = 6
    generation = log.index.generation
    if is_known:
        log.commit(ONE)
    log.trim(ONE, 5)

    log.index.learn(ONE, PartitionBounds(0, 6, 6), generation)

    tail = log.index.get(ONE)
    assert (tail.start if tail is not None else None) == (5 if is_known else None)


def test_a_trim_moves_the_start_forward_only() -> None:
    log = Log()
    log.commit(ONE, count=10)
    log.learn(ONE, 2, 10)

    log.trim(ONE, 5)
    log.learn(ONE, 4, 10)

    assert log.tail().start == 5


def test_a_reset_wakes_everybody() -> None:
    log = Log()
    woken: list[PartitionKey] = []
    for key in (ONE, OTHER):
        log.commit(key)
        log.tail(key).waiters[lambda _, key=key: woken.append(key)] = None  # type: ignore[misc]

    log.index.reset(50)

    assert woken == [ONE, OTHER]
    assert (log.index.position, log.index.slice_count, log.index.get(ONE)) == (50, 0, None)


@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.sampled_from([ONE, OTHER]), min_size=1, max_size=4),
            st.sampled_from([("forget", ONE), ("forget", OTHER), ("learn", ONE), ("learn", OTHER)]),
        ),
        max_size=60,
    ),
    slice_count_max=st.integers(1, 12),
)
def test_whatever_happens_the_known_slices_are_dense_and_bounded(steps: list[object], slice_count_max: int) -> None:
    log = Log(slice_count_max)
    for step in steps:
        if isinstance(step, list):
            log.commit(*step)
        elif step[0] == "forget":  # type: ignore[index]
            log.index.forget(step[1])  # type: ignore[index]
        else:
            key = step[1]  # type: ignore[index]
            log.learn(key, 0, log.ends.get(key, 0))

        assert log.index.slice_count <= max(slice_count_max, len(step) if isinstance(step, list) else 4)
        for key in (ONE, OTHER):
            tail = log.index.get(key)
            if tail is not None:
                assert tail.end == log.ends.get(key, 0)
                offset = tail.known_from
                while offset < tail.end:
                    assert found(tail, offset) == offset
                    offset += 2
                assert len(tail) * 2 == tail.end - tail.known_from
    assert log.gaps == []


def swap(log: Log, *ranges: tuple[PartitionKey, int, int]) -> None:
    log.entry(Entry(position=log.position + 1, kind=EntryKind.SWAP, ranges=ranges), True)


def test_slices_that_were_swapped_leave_and_the_rest_stays() -> None:
    log = Log()
    for _ in range(4):
        log.commit(ONE, OTHER)

    swap(log, (ONE, 0, 4))

    assert (log.tail().known_from, log.tail().end, len(log.tail())) == (4, 8, 2)
    assert [found(log.tail(), offset) for offset in range(4, 8)] == [4, 4, 6, 6]
    assert (log.tail(OTHER).known_from, len(log.tail(OTHER))) == (0, 4)


def test_a_tail_that_was_swapped_completely_continues_at_its_end() -> None:
    log = Log()
    log.commit(ONE)
    swap(log, (ONE, 0, 2))

    log.commit(ONE)

    assert (log.tail().known_from, log.tail().end, found(log.tail(), 2), log.gaps) == (2, 4, 2, [])


def test_a_swap_of_an_unknown_range_changes_nothing() -> None:
    log = Log()
    log.ends[ONE] = 10
    log.learn(ONE, 0, 10)
    log.commit(ONE)

    swap(log, (ONE, 0, 8), (OTHER, 0, 3))

    assert (log.tail().known_from, log.tail().end) == (10, 12)
    assert log.index.get(OTHER) is None


def test_a_swap_of_later_slices_takes_the_earlier_ones_along() -> None:
    log = Log()
    for _ in range(4):
        log.commit(ONE)

    swap(log, (ONE, 2, 6))

    assert (log.tail().known_from, len(log.tail())) == (6, 1)


def test_swapped_slices_give_their_memory_back_although_an_old_one_stays() -> None:
    log = Log(slice_count_max=1_000_000)
    log.commit(OTHER)  # never compacted: its entry stays at the front
    for _ in range(5_000):
        log.commit(ONE)

    swap(log, (ONE, 0, 9_000))

    assert log.index.slice_count == 501
    assert (len(log.tail()), len(log.tail(OTHER))) == (500, 1)


def test_readers_continue_while_commits_swaps_and_evictions_alternate() -> None:
    log = Log(slice_count_max=50)
    for number in range(1, 400):
        log.commit(ONE, OTHER)
        if number % 7 == 0:
            swap(log, (ONE, 0, 2 * number - 6))
        tail = log.tail()
        assert [found(tail, offset) for offset in range(tail.known_from, tail.end, 2)] == list(
            range(tail.known_from, tail.end, 2)
        )
        assert log.index.slice_count <= 50 + 2
    assert log.gaps == []
