"""The write buffer, native and in Python: batches become one object, and calls get their outcomes."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.kernel import Append, BatchCommit, PartitionKey
from bearlake.wal import v1

A, B = b"A" * 16, b"B" * 16
NONE = (8, -1, -1)
NAMED = 4


class Hold:
    def __init__(self) -> None:
        self.held = 0
        self.calls: list[int] = []

    def acquire(self, count: int = 1) -> None:
        self.held += count

    def release(self, count: int = 1) -> None:
        self.held -= count
        self.calls.append(count)


def append(partition: int, batch: Any, hold: Hold | None = None, stream: bytes = A, **fields: int) -> Append:
    numbers = {"record_count": 2, "max_timestamp": 50, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    return Append(PartitionKey(partition), stream, batch, hold, flags=fields.pop("flags", 0), **(numbers | fields))


def add(kernel: ModuleType, buffer: Any, *appends: Append, start: int = 0, seen: int = 0) -> tuple[Any, int]:
    results = kernel.Results(len(appends), NONE)
    return results, buffer.add(results, appends, start, seen)


# -- results ---------------------------------------------------------------------------------------------------------


def test_results_are_a_sequence_of_outcomes(kernel: ModuleType) -> None:
    results = kernel.Results(2, NONE)

    assert (len(results), list(results), results[1], results.waiting) == (2, [NONE, NONE], NONE, 2)
    with pytest.raises(IndexError):
        results[2]


def test_filled_results_wait_for_nothing(kernel: ModuleType) -> None:
    results = kernel.Results(3, NONE)

    results.fill((9, -1, 2**40))

    assert (list(results), results.waiting) == ([(9, -1, 2**40)] * 3, 0)
    for bad in ((1, 2), [1, 2, 3], None):
        with pytest.raises(ValueError, match="an outcome is a tuple of 3"):
            results.fill(bad)


def test_closed_results_ignore_later_outcomes(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    results, _ = add(kernel, buffer, append(1, b"a"))
    buffer.join(0, 0)

    assert results.close() is True
    assert results.close() is False
    assert buffer.resolve([(0, 7, 0)]) == []
    assert list(results) == [NONE]


@pytest.mark.parametrize("count", [-1, 2**31])
def test_an_impossible_number_of_results_is_refused(kernel: ModuleType, count: int) -> None:
    with pytest.raises(ValueError, match="results"):
        kernel.Results(count, NONE)


# -- add -------------------------------------------------------------------------------------------------------------


def test_batches_are_added_up_to_the_limit(kernel: ModuleType) -> None:
    hold = Hold()
    appends = [append(1, b"aaaa", hold), append(2, b"bb", hold), append(1, b"cc", hold), append(1, b"d", hold)]
    buffer, later = kernel.WriteBuffer(8), kernel.WriteBuffer(8)

    results, at = add(kernel, buffer, *appends)

    assert (at, buffer.size, buffer.count, buffer.slice_count, hold.held) == (3, 8, 3, 2, 3)
    assert later.add(results, appends, at, 0) == 4
    assert (later.size, hold.held) == (1, 4)


def test_batches_are_added_up_to_their_number(kernel: ModuleType) -> None:
    hold = Hold()
    appends = [append(1, b"aaaa", hold), append(2, b"bb", hold), append(1, b"cc", hold)]
    buffer, later = kernel.WriteBuffer(100, 2), kernel.WriteBuffer(100, 1)

    results, at = add(kernel, buffer, *appends)

    assert (at, buffer.count, hold.held) == (2, 2, 2)
    assert later.add(results, appends, at, 0) == 3
    assert later.add(results, appends, at, 0) == at


@pytest.mark.parametrize("count", [-1, 0, 2**31])
def test_a_buffer_has_room_for_at_least_one_batch(kernel: ModuleType, count: int) -> None:
    with pytest.raises(ValueError, match="room for a batch"):
        kernel.WriteBuffer(100, count)


def test_an_empty_buffer_takes_one_batch_whatever_its_size(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(10)

    assert add(kernel, buffer, append(1, bytes(100)), append(1, b"x"))[1] == 1


@pytest.mark.parametrize(
    ("fields", "lowers"),
    [
        ({}, False), ({"producer_id": 5, "base_sequence": 0}, True), ({"producer_id": 5, "base_sequence": 9}, False),
        ({"base_sequence": 0}, False), ({"producer_id": 5, "base_sequence": 9, "flags": NAMED}, True),
        ({"producer_id": 5, "base_sequence": 9, "flags": NAMED, "after_sequence": 8}, False),
    ],
)  # fmt: skip
def test_only_a_batch_that_may_be_its_producers_first_lowers_the_position_seen(
    kernel: ModuleType, fields: dict[str, int], lowers: bool
) -> None:
    buffer = kernel.WriteBuffer(100)
    buffer.seen = 70

    add(kernel, buffer, append(1, b"a", **fields), seen=30)
    add(kernel, buffer, append(1, b"b", **fields), seen=90)

    assert buffer.seen == (30 if lowers else 70)


def test_wrong_appends_are_refused(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    results = kernel.Results(1, NONE)

    for appends, start in (([(1, 2)], 0), ([append(1, b"")], 0), ([append(1, b"a")] * 2, 0), ([append(1, b"a")], -1)):
        with pytest.raises(ValueError, match=r"append|batch"):
            buffer.add(results, appends, start, 0)
    with pytest.raises(TypeError):
        buffer.add(object(), [append(1, b"a")], 0, 0)
    assert (buffer.size, buffer.count) == (0, 0)


# -- join ------------------------------------------------------------------------------------------------------------


def test_slices_are_sorted_and_batches_keep_their_order(kernel: ModuleType) -> None:
    """I3."""
    buffer = kernel.WriteBuffer(100)
    add(kernel, buffer, append(7, b"b7", stream=B), append(2, b"a2-1"), append(1, b"a1"), append(2, b"a2-2"))
    add(kernel, buffer, append(2, b"a2-3", producer_id=9, producer_epoch=3, base_sequence=4, flags=1))

    joined = buffer.join(3, 2)

    assert type(joined) is bytearray
    assert joined == b"\0\0\0" + b"a1" + b"a2-1a2-2a2-3" + b"b7" + b"\0\0"
    assert buffer.commits() == [
        BatchCommit(PartitionKey(1), 3, 2, 2, 50),
        BatchCommit(PartitionKey(2), 5, 4, 2, 50),
        BatchCommit(PartitionKey(2), 9, 4, 2, 50),
        BatchCommit(PartitionKey(2), 13, 4, 2, 50, 9, 3, 4, 1),
        BatchCommit(PartitionKey(7), 17, 2, 2, 50),
    ]
    assert all(type(commit) is BatchCommit for commit in buffer.commits())


def test_the_index_has_an_entry_per_slice(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    add(kernel, buffer, append(5 << 20 | 7, b"xyz", stream=B), append(4 << 20, b"ab"), append(4 << 20, b"c"))
    joined = buffer.join(1, 0)

    entries = list(v1.ENTRY.iter_unpack(buffer.index(joined)))

    crc = kernel.crc32c
    assert entries == [(A, 0, 2, 1, 3, crc(b"abc", 0, 3)), (B, 7, 1, 4, 3, crc(b"xyz", 0, 3))]
    with pytest.raises(ValueError, match="index"):
        buffer.index(bytearray(2))


def test_holds_are_released_once_the_batches_are_copied(kernel: ModuleType) -> None:
    memory, hold = bytearray(b"arrived"), Hold()
    buffer = kernel.WriteBuffer(100)
    add(kernel, buffer, append(1, memoryview(memory)[:3], hold), append(1, memoryview(memory)[3:], hold))
    assert hold.held == 2

    joined = buffer.join(0, 0)

    assert (hold.held, hold.calls) == (0, [2])
    memory[:] = b"poison!"
    assert joined == b"arrived"


def test_a_buffer_is_joined_once_and_with_batches(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    for front, back in ((0, 0), (-1, 0)):
        with pytest.raises(ValueError, match="must have batches"):
            buffer.join(front, back)
    results, _ = add(kernel, buffer, append(1, b"a"))
    for early in (buffer.commits, lambda: buffer.resolve([(0, 0, 0)]), lambda: buffer.index(bytearray())):
        with pytest.raises(ValueError, match=r"."):
            early()
    buffer.join(0, 0)

    for late in (lambda: buffer.join(0, 0), lambda: buffer.add(results, [append(1, b"a")], 0, 0)):
        with pytest.raises(ValueError, match="joined already"):
            late()


PLACED = st.lists(
    st.tuples(st.sampled_from([A, B]), st.integers(0, 40), st.binary(min_size=1, max_size=5)), min_size=1, max_size=99
)


@given(rows=PLACED)
def test_every_batch_is_where_its_commit_says_and_gets_its_outcome(
    kernel: ModuleType, rows: list[tuple[bytes, int, bytes]]
) -> None:
    buffer = kernel.WriteBuffer(1 << 20)
    results, _ = add(kernel, buffer, *(append(at, batch, stream=stream) for stream, at, batch in rows))
    joined = buffer.join(9, 4)
    commits = buffer.commits()

    order = sorted(range(len(rows)), key=lambda at: rows[at][:2])
    assert [joined[item.position : item.position + item.length] for item in commits] == [rows[at][2] for at in order]
    assert buffer.resolve([(0, at, 5) for at in order]) == [results]
    assert [base for _, base, _ in results] == list(range(len(rows)))


# -- arrange ---------------------------------------------------------------------------------------------------------


@given(rows=PLACED, front=st.integers(0, 9))
def test_arranged_batches_make_the_same_object_as_joined_ones(
    kernel: ModuleType, rows: list[tuple[bytes, int, bytes]], front: int
) -> None:
    joined, arranged = kernel.WriteBuffer(1 << 20), kernel.WriteBuffer(1 << 20)
    for buffer in (joined, arranged):
        add(kernel, buffer, *(append(at, batch, stream=stream) for stream, at, batch in rows))
    target = joined.join(front, 4)

    parts = arranged.arrange(front)

    assert bytes(front) + b"".join(parts) + bytes(4) == target
    assert arranged.commits() == joined.commits()
    if arranged.can_arrange:
        assert arranged.index(None) == joined.index(target)
    assert arranged.resolve([(0, 1, 2)] * len(rows)) != []


def test_arranged_batches_stay_in_their_memory_until_it_is_released(kernel: ModuleType) -> None:
    memory, hold = bytearray(b"arrived"), Hold()
    buffer = kernel.WriteBuffer(100)
    add(kernel, buffer, append(1, memoryview(memory)[:3], hold), append(1, memoryview(memory)[3:], hold))

    parts = buffer.arrange(40)
    assert (hold.held, [bytes(part) for part in parts]) == (2, [b"arr", b"ived"])
    memory[:] = b"changed"
    assert b"".join(parts) == b"changed"  # no copy
    buffer.release()

    assert (hold.held, hold.calls) == (0, [2])
    buffer.release()
    assert hold.calls == [2]
    with pytest.raises(ValueError, match="index"):
        buffer.index(None)


def test_views_of_arranged_batches_keep_memory_that_was_released(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(1 << 20)
    add(kernel, buffer, append(1, bytearray(b"x" * 100_000)))
    parts = buffer.arrange(0)
    buffer.release()
    del buffer

    assert bytes(parts[0]) == b"x" * 100_000


def test_a_buffer_is_arranged_once_and_with_batches(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    for front in (0, -1):
        with pytest.raises(ValueError, match="must have batches"):
            buffer.arrange(front)
    results, _ = add(kernel, buffer, append(1, b"a"))
    for early in (buffer.release, lambda: buffer.index(None)):
        with pytest.raises(ValueError, match=r"joined|index"):
            early()
    buffer.arrange(0)

    for late in (
        lambda: buffer.join(0, 0), lambda: buffer.arrange(0), lambda: buffer.add(results, [append(1, b"a")], 0, 0)
    ):  # fmt: skip
        with pytest.raises(ValueError, match="joined already"):
            late()


# -- outcomes --------------------------------------------------------------------------------------------------------


def test_calls_are_returned_with_their_last_outcome(kernel: ModuleType) -> None:
    first_part, rest = kernel.WriteBuffer(3), kernel.WriteBuffer(100)
    appends = [append(1, b"aaa"), append(1, b"b")]
    split = kernel.Results(2, NONE)
    at = first_part.add(split, appends, 0, 0)
    rest.add(split, appends, at, 0)
    other, _ = add(kernel, rest, append(1, b"c"))
    first_part.join(0, 0)
    rest.join(0, 0)

    assert first_part.resolve([(0, 1, 2)]) == []
    assert rest.resolve([(3, -1, -1), (0, 5, 6)]) == [split, other]
    assert (list(split), list(other)) == ([(0, 1, 2), (3, -1, -1)], [(0, 5, 6)])


def test_a_wrong_number_of_outcomes_changes_nothing(kernel: ModuleType) -> None:
    buffer = kernel.WriteBuffer(100)
    results, _ = add(kernel, buffer, append(1, b"a"), append(1, b"b"))
    buffer.join(0, 0)

    with pytest.raises(ValueError, match="1 results for 2 batches"):
        buffer.resolve([(0, 1, 2)])

    assert (results.waiting, list(results)) == (2, [NONE, NONE])
