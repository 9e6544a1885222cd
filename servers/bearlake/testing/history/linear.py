"""Linearizability: whether operations of an object can be put in one order that agrees with real time and with what the object does.

The search goes through the history once and keeps every *configuration* that is possible so far: the object's state, and the operations
under way that have taken effect already. When an operation returns, configurations in which it has not taken effect take effects until it
has; if none is left, the history is not linearizable, and the operation that returned is the witness.

Operations that need not take effect (unknown outcomes) never return: they stay possible until an operation that supersedes them has
taken effect. Of two configurations with the same state, one that has used fewer of them can do all that the other can, so only such
minimal ones are kept; that keeps histories with many unknown operations feasible.

Source: Wing and Gong, "Testing and Verifying Concurrent Objects" (1993); Lowe, "Testing for linearizability" (2017): memoized
configurations, just-in-time linearization.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[S]):
    """One operation on the object."""

    start: int
    end: int | None
    """When it has taken effect at the latest; None: at any later time, or never."""
    effect: Callable[[S], Iterable[S]]
    """The states that it may lead to from a state; none: it is not possible there."""
    gives: Hashable = None
    """Of an optional operation: it matters only to operations under way that `want` this (a write to its readers). None: to any."""
    wants: Hashable = None
    """The `gives` of the optional operations that this one needs (a read names its write)."""
    supersedes: frozenset[int] = frozenset()
    """Indices of optional operations that cannot take effect after this one has."""

    @property
    def is_optional(self) -> bool:
        """Whether it need not take effect."""
        return self.end is None


_Configuration = tuple[S, frozenset[int]]


def first_contradiction(steps: Sequence[Step[S]], initial: S) -> int | None:
    """Index of the first operation (by its end) that no order explains; None: the history is linearizable."""
    events = sorted(
        [
            *((step.start, 0, index) for index, step in enumerate(steps)),
            *((step.end, 1, index) for index, step in enumerate(steps) if step.end is not None),
        ]
    )
    search = _Search(steps)
    found: set[_Configuration[S]] = {(initial, frozenset())}
    for _, is_end, index in events:
        if not is_end:
            search.pending.add(index)
            continue
        found = search.until(found, index)
        if not found:
            return index
        done = frozenset.intersection(*(used for _, used in found))
        over = {index, *(other for other in done if steps[other].is_optional)}
        search.pending -= over
        found = search.minimal((state, used - over) for state, used in found)
    return None


class _Search(Generic[S]):
    def __init__(self, steps: Sequence[Step[S]]) -> None:
        self._steps = steps
        self.pending: set[int] = set()

    def until(self, configurations: Iterable[_Configuration[S]], index: int) -> set[_Configuration[S]]:
        """The minimal configurations that follow from these and in which the operation has taken effect."""
        reached: dict[tuple[S, frozenset[int]], list[frozenset[int]]] = {}
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
                for other in useful - used:
                    step = self._steps[other]
                    over = used | {other} | step.supersedes
                    following.update((state_after, over) for state_after in step.effect(state))
            level = following
        return found

    def _useful(self) -> set[int]:
        """Operations under way whose effect may matter now."""
        wanted = {self._steps[index].wants for index in self.pending}
        return {
            index
            for index in self.pending
            if not self._steps[index].is_optional
            or self._steps[index].gives is None
            or self._steps[index].gives in wanted
        }

    def minimal(self, configurations: Iterable[_Configuration[S]]) -> set[_Configuration[S]]:
        """Those that no other one covers."""
        reached: dict[tuple[S, frozenset[int]], list[frozenset[int]]] = {}
        ordered = sorted(set(configurations), key=lambda item: len(item[1]))
        return {(state, used) for state, used in ordered if self._is_new(reached, state, used)}

    def _is_new(
        self, reached: dict[tuple[S, frozenset[int]], list[frozenset[int]]], state: S, used: frozenset[int]
    ) -> bool:
        optional = frozenset(index for index in used if self._steps[index].is_optional)
        smaller = reached.setdefault((state, used - optional), [])
        if any(one <= optional for one in smaller):
            return False
        smaller.append(optional)
        return True
