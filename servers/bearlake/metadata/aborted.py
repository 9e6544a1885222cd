"""The aborted transactions of one partition: which batches belong to them.

A producer has one transaction at a time in a partition, so its aborted transactions do not overlap and come in the order of their offsets.
A look-up halves the list of one producer. So an answer costs the same whether ten transactions were aborted or a million.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

OFFSET = "q"
"""The type code of offsets in arrays: 64 bits, signed."""


class Aborted(NamedTuple):
    """An aborted transaction in a partition: the producer's batches in `[first_offset, marker_offset)`, and its marker.

    Transactions of one producer that lie back to back are one: the first one's batches to the last one's marker. So a producer that alone
    writes to a partition, and aborts again and again, is remembered in one row.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


class AbortedTransactions:
    """Aborted transactions of one partition: 16 bytes each, and up to 500 bytes for each producer. They are added or
    extended, never removed.

    A reader may keep using an object to which others add. What is added later lies above the reader's last stable offset.
    """

    __slots__ = ("_of_producer", "last_marker")

    def __init__(self, found: Iterable[Aborted] = ()) -> None:
        """Those of a producer come in the order of their offsets."""
        self._of_producer: dict[int, tuple[array[int], array[int]]] = {}
        self.last_marker = -1
        """The largest offset of a marker; -1: there is none."""
        for item in found:
            self.add(item)

    def add(self, found: Aborted) -> None:
        """Add a transaction whose offsets are above those of the producer's earlier ones, or extend the last one if they follow it."""
        producer_id, first_offset, marker_offset = found
        known = self._of_producer.get(producer_id)
        if known is None:
            known = self._of_producer[producer_id] = array(OFFSET), array(OFFSET)
        firsts, markers = known
        if markers and markers[-1] + 1 == first_offset:
            markers[-1] = marker_offset
        else:
            firsts.append(first_offset)
            markers.append(marker_offset)
        self.last_marker = max(self.last_marker, marker_offset)

    def has(self, producer_id: int, offset: int) -> bool:
        """Return whether the producer's transactional batch at `offset` was aborted."""
        known = self._of_producer.get(producer_id)
        if known is None:
            return False
        firsts, markers = known
        at = bisect_right(markers, offset)
        return at < len(markers) and firsts[at] <= offset

    def above(self, offset: int) -> "AbortedTransactions":
        """Return a new object with those whose marker is above `offset`."""
        return AbortedTransactions(item for item in self if item.marker_offset > offset)

    def __iter__(self) -> Iterator[Aborted]:
        """Yield all, those of a producer in the order of their offsets."""
        for producer_id, (firsts, markers) in self._of_producer.items():
            for first_offset, marker_offset in zip(firsts, markers, strict=True):
                yield Aborted(producer_id, first_offset, marker_offset)


NOTHING_ABORTED = AbortedTransactions()
"""Nobody adds to it."""
