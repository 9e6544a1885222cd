"""Breadth-first exploration of a part: every reachable state once, the shortest counterexample first.

The frontier holds states. A visited state is kept as a fingerprint (`fingerprints.py`) and, for traces, as the number of its parent: 12
bytes per state, and 12 to 24 bytes in the table. A trace is built by following the numbers back and replaying the steps forward.

*Safety*: `Part.violation` of each new state. *Progress* (`Part.must_finish`): from each reachable state, a path of progress steps leads
to a quiescent state (AG EF, where the path may not use faults). The progress check needs the graph, 8 bytes per progress step, and a
complete exploration.
"""

import gc
import time
from array import array
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from simulator.model.fingerprints import Fingerprints
from simulator.model.part import Part, Step, render

S = TypeVar("S", bound=Hashable)

NEVER_FINISHES = "the live processes can no longer finish an open task"
_ROOT = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise, and the shortest trace to it."""

    promise: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*self.trace, f"  => {self.promise}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of an exploration. `is_exhausted`: every state within the part's bounds was visited."""

    part: str
    state_count: int
    transition_count: int
    depth: int
    seconds: float
    is_exhausted: bool
    violation: Violation | None

    def __str__(self) -> str:
        rate = self.state_count / self.seconds if self.seconds else 0.0
        end = "violation" if self.violation else "exhausted" if self.is_exhausted else "bound reached"
        return (
            f"{self.part}: {self.state_count:,} states, {self.transition_count:,} transitions, depth {self.depth}, "
            f"{self.seconds:.1f} s ({rate:,.0f} states/s), {end}"
        )


def explore(part: Part[S], *, state_count_max: int = 1_000_000_000) -> Report:
    """Explore until a violation, the end, or `state_count_max` states."""
    was_enabled = gc.isenabled()
    gc.disable()  # states have no cycles, and there are millions of them
    try:
        return _Exploration(part, state_count_max).run()
    finally:
        if was_enabled:
            gc.enable()


class _Exploration(Generic[S]):
    def __init__(self, part: Part[S], state_count_max: int) -> None:
        self._part = part
        self._state_count_max = state_count_max
        self._seen = Fingerprints()
        self._prints = array("q")  # indexed by the state's number, in order of discovery
        self._parents = array("I")
        self._numbers: dict[int, int] = {}  # only if progress is checked
        self._sources = array("I")
        self._targets = array("I")
        self._quiescent: list[int] = []
        self._transition_count = 0
        self._depth = 0
        self._started = time.perf_counter()

    def run(self) -> Report:
        part, seen = self._part, self._seen
        asks_progress = part.must_finish
        first = part.initial()
        self._add(first, _ROOT)
        promise = part.violation(first)
        if promise:
            return self._report(promise, 0)
        frontier: deque[tuple[S, int]] = deque([(first, 0)])
        level_end = 0
        while frontier:
            state, number = frontier.popleft()
            if number > level_end:
                level_end = len(self._prints) - 1
                self._depth += 1
            for step in part.steps(state):
                self._transition_count += 1
                reached = step.state
                is_new = seen.add(hash(reached))
                if is_new:
                    added = self._record(reached, number)
                    promise = part.violation(reached)
                    if promise:
                        self._depth += 1
                        return self._report(promise, added)
                    frontier.append((reached, added))
                if asks_progress and step.action.is_progress:
                    self._sources.append(number)
                    self._targets.append(self._numbers[hash(reached)])
            if len(seen) >= self._state_count_max:
                return self._report("", -1, is_exhausted=False)
        stuck = self._first_stuck() if asks_progress else -1
        return self._report(NEVER_FINISHES if stuck >= 0 else "", stuck)

    def _add(self, state: S, parent: int) -> int:
        self._seen.add(hash(state))
        return self._record(state, parent)

    def _record(self, state: S, parent: int) -> int:
        number = len(self._prints)
        self._prints.append(hash(state))
        self._parents.append(parent)
        if self._part.must_finish:
            self._numbers[hash(state)] = number
            if self._part.is_quiescent(state):
                self._quiescent.append(number)
        return number

    def _first_stuck(self) -> int:
        """Return the number of the first state without a path to a quiescent state; -1 if there is none."""
        before: dict[int, list[int]] = {}
        for source, target in zip(self._sources, self._targets, strict=True):
            before.setdefault(target, []).append(source)
        can = bytearray(len(self._prints))
        rest = list(self._quiescent)
        for number in rest:
            can[number] = 1
        while rest:
            for source in before.get(rest.pop(), ()):
                if not can[source]:
                    can[source] = 1
                    rest.append(source)
        return can.find(0)

    def _report(self, promise: str, number: int, *, is_exhausted: bool = True) -> Report:
        return Report(
            part=self._part.name,
            state_count=len(self._seen),
            transition_count=self._transition_count,
            depth=self._depth,
            seconds=time.perf_counter() - self._started,
            is_exhausted=is_exhausted and not promise,
            violation=Violation(promise=promise, trace=tuple(render(self._trace(number)))) if promise else None,
        )

    def _trace(self, number: int) -> list[Step[S]]:
        wanted: list[int] = []
        while self._parents[number] != _ROOT:
            wanted.append(self._prints[number])
            number = self._parents[number]
        steps: list[Step[S]] = []
        state = self._part.initial()
        for fingerprint in reversed(wanted):
            step = next(step for step in self._part.steps(state) if hash(step.state) == fingerprint)
            steps.append(step)
            state = step.state
        return steps
