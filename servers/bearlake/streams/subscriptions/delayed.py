"""Delayed entries: a bounded heap in memory. After a restart, reading rebuilds it, because the cursor cannot pass undelivered entries."""

from heapq import heappop, heappush


class DelayedEntries:
    """Base offsets of entries, ordered by due time (ms since 1970)."""

    __slots__ = ("_bases", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._bases: set[int] = set()

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, base: int, due_ms: int) -> None:
        """Delay the entry until `due_ms`."""
        self._bases.add(base)
        heappush(self._heap, (due_ms, base))

    def discard(self, base: int) -> None:
        """Remove an entry that no longer needs delivery."""
        self._bases.discard(base)
        while self._heap and self._heap[0][1] not in self._bases:
            heappop(self._heap)
        if len(self._heap) > 2 * len(self._bases) + 64:
            self._heap = sorted(item for item in self._heap if item[1] in self._bases)

    def next_due_ms(self) -> int | None:
        """Return the due time of the first entry; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[int]:
        """Remove and return the entries that are due, ordered by due time."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            base = heappop(self._heap)[1]
            if base in self._bases:
                self._bases.discard(base)
                due.append(base)
        return due
