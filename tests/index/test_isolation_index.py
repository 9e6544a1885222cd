"""The isolation index: answers of the store and entries of the log, in any order of arrival."""

from typing import Any

from bearlake.index.isolation import RECENT_COUNT, IsolationIndex
from bearlake.metadata.model import ChangeKind, Entry, EntryKind, PartitionKey, TransactionChange
from bearlake.metadata.transactions import Aborted, Isolation

P, Q = PartitionKey(1 << 20), PartitionKey(2 << 20)


def entry(position: int, *changes: TransactionChange) -> Entry:
    return Entry(position=position, kind=EntryKind.COMMIT, changes=changes)


def begun(
    first: int, *, partition: PartitionKey = P, producer: int = 5, open_offset: int | None = None
) -> TransactionChange:
    offset = first if open_offset is None else open_offset
    return TransactionChange(ChangeKind.BEGUN, partition, producer, first, -1, offset)


def aborted(first: int, marker: int, *, producer: int = 5, open_offset: int = -1) -> TransactionChange:
    return TransactionChange(ChangeKind.ABORTED, P, producer, first, marker, open_offset)


def found(**fields: Any) -> Isolation:
    return Isolation(**{"start": 0, "end": 20, **fields})


def state(index: IsolationIndex, partition: PartitionKey = P) -> Any:
    known = index.get(partition)
    return None if known is None else (known.open_offset, list(known.aborted))


def test_a_partition_is_unknown_until_the_store_was_asked() -> None:
    index = IsolationIndex()
    index.apply(entry(1, begun(0)))
    before = state(index)
    index.learn({P: found(position=1, open_offset=0)})

    assert before is None
    assert state(index) == (0, [])


def test_the_state_follows_the_log() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=3), Q: found(position=3)})
    known = index.get(P)
    assert known is not None
    committed_from = [known.committed_from]
    index.apply(entry(4, begun(7)))
    committed_from.append(known.committed_from)
    ends = [known.last_stable(5), known.last_stable(9)]
    index.apply(entry(5, aborted(7, 9)))
    committed_from.append(known.committed_from)

    assert committed_from == [0, -1, 10]  # at last, after the marker
    assert ends == [5, 7]
    assert state(index) == (-1, [Aborted(5, 7, 9)])
    assert state(index, Q) == (-1, [])


def test_entries_that_an_answer_includes_are_not_applied_again() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=5, aborted=[Aborted(5, 7, 9)])})
    index.apply(entry(4, begun(7)))
    index.apply(entry(5, aborted(7, 9)))

    assert state(index) == (-1, [Aborted(5, 7, 9)])


def test_entries_that_arrive_before_the_answer_count() -> None:
    """The reply of the store took longer than the next entries."""
    index = IsolationIndex()
    index.apply(entry(4, begun(7)))
    index.apply(entry(5, aborted(7, 9, open_offset=-1)))
    index.apply(entry(6, begun(12, producer=6)))
    index.learn({P: found(position=3)})

    assert state(index) == (12, [Aborted(5, 7, 9)])


def test_an_answer_older_than_what_is_remembered_is_refused() -> None:
    index = IsolationIndex()
    for position in range(1, RECENT_COUNT + 3):
        index.apply(entry(position, begun(0, partition=Q)))

    assert not index.learn({P: found(position=1)})
    assert index.get(P) is None
    assert index.learn({P: found(position=2)})


def test_a_reset_forgets_everything_and_refuses_older_answers() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=3)})
    index.reset(10)

    assert index.get(P) is None
    assert not index.learn({P: found(position=9)})
    assert index.learn({P: found(position=10)})


def test_a_trim_forgets_what_was_aborted_below_it() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=3, aborted=[Aborted(4, 0, 2), Aborted(5, 3, 6)])})
    index.apply(Entry(position=4, kind=EntryKind.TRIM, partition=P, start_offset=4))

    assert state(index) == (-1, [Aborted(5, 3, 6)])


def test_an_older_answer_does_not_replace_a_newer_one() -> None:
    """Two readers asked the store, and the answers arrive in the other order."""
    index = IsolationIndex()
    index.learn({P: found(position=5, end=9, open_offset=7)})

    assert index.learn({P: found(position=3, end=6)})
    assert state(index) == (7, [])
    known = index.get(P)
    assert known is not None
    assert known.end == 9


def test_a_trim_moves_the_start_of_the_state() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=3)})
    index.apply(Entry(position=4, kind=EntryKind.TRIM, partition=P, start_offset=4))

    known = index.get(P)
    assert known is not None
    assert known.start == 4


def test_a_trim_past_the_beginning_of_an_open_transaction_keeps_the_last_stable_offset_at_the_start() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=3, open_offset=2)})
    index.apply(Entry(position=4, kind=EntryKind.TRIM, partition=P, start_offset=8))

    known = index.get(P)
    assert known is not None
    assert known.last_stable(20) == 8


def test_an_answer_in_progress_keeps_what_was_aborted_when_a_trim_comes() -> None:
    index = IsolationIndex()
    index.learn({P: found(position=3, aborted=[Aborted(5, 0, 2)])})
    known = index.get(P)
    assert known is not None
    before = known.aborted_from(0)
    index.apply(Entry(position=4, kind=EntryKind.TRIM, partition=P, start_offset=8))

    assert before.has(5, 1)
    assert not known.aborted_from(0).has(5, 1)
