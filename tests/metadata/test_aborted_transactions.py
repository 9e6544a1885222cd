"""The aborted transactions of a partition: which batches belong to them, and that a look-up reads few of them."""

import random

from hypothesis import given
from hypothesis import strategies as st

from bearlake.metadata import aborted
from bearlake.metadata.aborted import Aborted, AbortedTransactions

GAPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), max_size=12)


@given(gaps=GAPS, cut=st.integers(-1, 40))
def test_a_batch_is_aborted_if_a_transaction_of_its_producer_has_its_offset(
    gaps: list[tuple[int, int, int]], cut: int
) -> None:
    found: list[Aborted] = []
    ends = [0, 0, 0]
    for producer_id, gap, length in gaps:
        first = ends[producer_id] + gap
        ends[producer_id] = first + length + 1
        found.append(Aborted(producer_id, first, first + length))
    known = AbortedTransactions(found)
    found = back_to_back(found)
    left = [item for item in found if item.marker_offset > cut]

    for index, items in ((known, found), (known.above(cut), left)):
        assert sorted(index) == sorted(items)
        assert index.last_marker == max((item.marker_offset for item in items), default=-1)
        for producer_id in range(3):
            for offset in range(60):
                is_aborted = any(
                    item.producer_id == producer_id and item.first_offset <= offset < item.marker_offset
                    for item in items
                )
                assert index.has(producer_id, offset) == is_aborted


def back_to_back(found: list[Aborted]) -> list[Aborted]:
    """Join transactions of a producer where one begins right behind the marker of another."""
    covered = {(item.producer_id, item.first_offset): item.marker_offset for item in found}
    for producer_id, first in sorted(covered, reverse=True):
        behind = producer_id, covered[producer_id, first] + 1
        if behind in covered:
            covered[producer_id, first] = covered.pop(behind)
    return [Aborted(producer_id, first, marker) for (producer_id, first), marker in covered.items()]


def test_transactions_back_to_back_are_one() -> None:
    known = AbortedTransactions(
        [Aborted(7, 0, 2), Aborted(8, 0, 2), Aborted(7, 3, 5), Aborted(8, 4, 5), Aborted(7, 6, 9)]
    )

    assert sorted(known) == [Aborted(7, 0, 9), Aborted(8, 0, 2), Aborted(8, 4, 5)]
    assert not known.has(8, 3)


def test_a_look_up_among_a_million_aborted_transactions_reads_few_of_them(monkeypatch) -> None:
    """A producer that always aborts must not make each batch of an answer cost more."""
    read: list[int] = []

    class Counted(list[int]):
        def __getitem__(self, at):
            read.append(at)
            return super().__getitem__(at)

    monkeypatch.setattr(aborted, "array", lambda _: Counted())
    known = AbortedTransactions(Aborted(7, 4 * at, 4 * at + 2) for at in range(100_000))
    offset = random.Random(1).randrange(400_000)
    read.clear()
    is_aborted = known.has(7, offset)

    assert is_aborted == (offset % 4 < 2)
    assert len(read) <= 20
