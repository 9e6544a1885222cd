"""Linearizability: whether the operations of an object have a total order that agrees with real time and with the object's semantics.

The search goes through the history once and keeps every *configuration* that is possible so far: the object's state, and the pending
operations that have already taken effect. When an operation returns, each configuration where the operation has not taken effect applies
pending operations until it has. If no configuration is left, the history is not linearizable, and the returned operation is the witness.

Optional operations (unknown outcomes) may never take effect. They never return: they stay pending until an operation that supersedes them
takes effect. Two rules keep histories with many optional operations feasible; neither misses or invents a contradiction.

*Choice.* Of the optional operations of one `kind`, the search first tries the one that expires first. Suppose that an order uses `b`
while `a` of the same kind is also pending, and that `a` expires with `b` or earlier. Replace `b` by `a`, and replace `a` by `b` if the
order uses `a` later. Both have the same effect, have started, and have no end. The later position is before `a` expires, so `b` has not
expired there. The new order is as valid as the old one. So only the operations of a kind that expire first need to be tried; operations
that never expire are used in the order of their starts.

*Cover.* Configuration A covers configuration B if both have the same state and have applied the same operations with an end, and if each
unused optional operation of B that A has used can be paired with an unused operation of A that B has used, of the same kind and expiring
no earlier. A can do everything that B can still do, with the partners. The search keeps only configurations that no other covers.

The search drops an optional operation that can never take effect any more (`last`), because its use no longer makes a difference.

Source: Wing and Gong, "Testing and Verifying Concurrent Objects" (1993); Lowe, "Testing for linearizability" (2017): memoized
configurations, just-in-time linearization.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[S]):
    """One operation on the object."""

    start: int
    end: int | None
    """The latest time of its effect; None: any later time, or never."""
    effect: Callable[[S], Iterable[S]]
    """The possible next states from a state; empty: the operation is not possible there."""
    gives: Hashable = None
    """An optional operation matters only to pending operations that `want` this value (a write to its readers). None: to any."""
    kind: Hashable = None
    """Optional operations of one kind have the same effect and the same `gives`, and supersede nothing. None: a kind of its own."""
    last: int | None = None
    """Once all operations that end by this time have taken effect, this optional operation is possible in no remaining state."""
    wants: Hashable = None
    """The `gives` of the optional operations that this operation needs (a read names its write)."""
    supersedes: frozenset[int] = frozenset()
    """Indices of the optional operations that cannot take effect after this operation."""

    @property
    def is_optional(self) -> bool:
        """Whether the operation may never take effect."""
        return self.end is None


_Configuration = tuple[S, frozenset[int]]
_Reached = dict[tuple[S, frozenset[int]], list[frozenset[int]]]


def first_contradiction(steps: Sequence[Step[S]], initial: S) -> int | None:
    """Return the index of the first operation (by its end) that no order explains; None: the history is linearizable."""
    events = sorted(
        [
            *((step.start, 0, index) for index, step in enumerate(steps)),
            *((step.end, 1, index) for index, step in enumerate(steps) if step.end is not None),
            *((max(step.start, step.last), 2, index) for index, step in enumerate(steps) if step.last is not None),
        ]
    )
    search = _Search(steps)
    found: set[_Configuration[S]] = {(initial, frozenset())}
    for _, what, index in events:
        if what == 0:
            search.pending.add(index)
            continue
        over = {index}
        if what == 1:
            found = search.until(found, index)
            if not found:
                return index
            done = frozenset.intersection(*(used for _, used in found))
            over.update(other for other in done if steps[other].is_optional)
        search.pending -= over
        found = search.minimal((state, used - over) for state, used in found)
    return None


class _Search(Generic[S]):
    def __init__(self, steps: Sequence[Step[S]]) -> None:
        self._steps = steps
        self.pending: set[int] = set()
        superseding: dict[int, set[int]] = defaultdict(set)
        for index, step in enumerate(steps):
            for other in step.supersedes:
                superseding[other].add(index)
        self._superseding = {other: frozenset(by) for other, by in superseding.items()}

    def until(self, configurations: Iterable[_Configuration[S]], index: int) -> set[_Configuration[S]]:
        """Return the minimal configurations that are reachable from these and where the operation has taken effect."""
        reached: _Reached[S] = {}
        found: set[_Configuration[S]] = set()
        # By number of effects, so that minimal configurations come first.
        level = self.minimal(configurations)
        useful = self._useful()
        while level:
            following: set[_Configuration[S]] = set()
            for state, used in level:
                if not self._is_new(reached, state, used):
                    continue
                if index in used:
                    found.add((state, used))
                    continue
                for other in self._choices(useful, used):
                    step = self._steps[other]
                    over = used | {other} | step.supersedes
                    following.update((state_after, over) for state_after in step.effect(state))
            level = following
        return found

    def _useful(self) -> list[list[list[int]]]:
        """Return the pending operations whose effect may matter now, by kind and by superseding operations, in order of their starts."""
        awaited = {self._steps[index].wants for index in self.pending}
        kinds: dict[Hashable, dict[frozenset[int], list[int]]] = defaultdict(lambda: defaultdict(list))
        for index in sorted(self.pending):
            step = self._steps[index]
            if step.end is not None or step.gives is None or step.gives in awaited:
                kinds[self._kind(index)][self._superseding.get(index, frozenset())].append(index)
        return [list(kind.values()) for kind in kinds.values()]

    def _kind(self, index: int) -> Hashable:
        step = self._steps[index]
        return (index,) if step.end is not None or step.kind is None else (None, step.kind)

    def _choices(self, useful: list[list[list[int]]], used: frozenset[int]) -> Iterator[int]:
        """Yield the operations to try next: of each kind, those for which no other unused operation expires with or before them."""
        for kind in useful:
            firsts = [
                first for alike in kind if (first := next((at for at in alike if at not in used), None)) is not None
            ]
            kept: list[int] = []
            for first in firsts:
                if not any(self._expires_with(other, first) for other in kept):
                    kept = [other for other in kept if not self._expires_with(first, other)]
                    kept.append(first)
            yield from kept

    def _expires_with(self, step: int, other: int) -> bool:
        """Return whether in every order `one` has expired when `other` expires."""
        mine, its = self._superseding.get(step, frozenset()), self._superseding.get(other, frozenset())
        return all(by in mine or any(self._is_before(earlier, by) for earlier in mine) for by in its)

    def _is_before(self, step: int, other: int) -> bool:
        end = self._steps[step].end
        return end is not None and end < self._steps[other].start

    def minimal(self, configurations: Iterable[_Configuration[S]]) -> set[_Configuration[S]]:
        """Return the configurations that no other configuration covers."""
        reached: _Reached[S] = {}
        ordered = sorted(set(configurations), key=lambda item: len(item[1]))
        return {(state, used) for state, used in ordered if self._is_new(reached, state, used)}

    def _is_new(self, reached: _Reached[S], state: S, used: frozenset[int]) -> bool:
        optional = frozenset(index for index in used if self._steps[index].is_optional)
        smaller = reached.setdefault((state, used - optional), [])
        if any(self._covers(steps, optional) for steps in smaller):
            return False
        smaller.append(optional)
        return True

    def _covers(self, steps: frozenset[int], other: frozenset[int]) -> bool:
        """Return whether each operation that only `one` has used has a partner that only `other` has used."""
        partners = sorted(other - steps)
        missing = sorted(steps - other)
        if len(missing) > len(partners):
            return False
        for used in missing:
            partner = next((left for left in partners if self._replaces(left, used)), None)
            if partner is None:
                return False
            partners.remove(partner)
        return True

    def _replaces(self, step: int, other: int) -> bool:
        """Return whether `one`, if unused, can replace `other`."""
        return self._kind(step) == self._kind(other) and self._expires_with(other, step)
