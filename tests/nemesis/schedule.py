"""The schedule of faults: one or two at a time, every kind in turn, determined by the seed alone.

Kinds are drawn from a shuffled deck, so every kind happens once before any kind happens again. A kind that has not taken effect returns
to the deck at the end of its round, at most `AGAIN_MAX` times. Faults that need the same resource never overlap.
"""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nemesis.cluster import Cluster
from nemesis.process_faults import Fault

log = logging.getLogger("nemesis")

TWO_AT_ONCE = 0.4
AGAIN_MAX = 3
"""How often a kind that has not taken effect returns to the deck."""
CALM_S = (1.0, 5.0)


@dataclass
class InjectedFault:
    """One fault that was injected. Times: CLOCK_MONOTONIC in nanoseconds, the clock of the histories."""

    kind: str
    what: str
    begun: int
    ended: int = 0
    proof: str | None = None
    error: str = ""
    """Why the fault could not begin or end: a problem of the run, not of the product."""


class Schedule:
    """Begins and ends faults when `step` is called, and records them."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: Sequence[type[Fault]],
        *,
        scale: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`scale` lengthens the faults and the pauses between them; `clock` returns CLOCK_MONOTONIC in seconds."""
        self._clock = clock
        self._cluster = cluster
        self._kinds = list(kinds)
        self._random = random.Random(f"{cluster.seed}/schedule")
        self._deck: list[type[Fault]] = []
        self._seen: set[str] = set()
        self._again: Counter[str] = Counter()
        self._scale = scale
        self._open: list[tuple[float, Fault, InjectedFault]] = []
        self._next_s = self._clock() + 2.0
        self.injected_faults: list[InjectedFault] = []

    @property
    def names(self) -> list[str]:
        """The kinds that may be drawn."""
        return [kind.name for kind in self._kinds]

    def step(self) -> None:
        """End the faults whose time is over; begin those that are due."""
        for item in [item for item in self._open if item[0] <= self._clock()]:
            self._end(item)
        if not self._open and self._kinds and self._clock() >= self._next_s:
            first = self._deal(frozenset())
            if first is not None:
                self._begin(first)
            if self._random.random() < TWO_AT_ONCE:
                second = self._deal(first.resources if first else frozenset())
                if second is not None and second is not first:
                    self._begin(second)
        if not self._open and self._clock() >= self._next_s:
            self._pause()

    def end_all(self) -> None:
        """End all active faults now."""
        for item in list(self._open):
            self._end(item)

    def _deal(self, taken: frozenset[str]) -> type[Fault] | None:
        """Draw the next kind of the deck that needs none of these resources."""
        if not self._deck:
            self._deck = self._random.sample(self._kinds, len(self._kinds))
        found = next((kind for kind in self._deck if not kind.resources & taken), None)
        if found is not None:
            self._deck.remove(found)
        return found

    def _begin(self, kind: type[Fault]) -> None:
        fault = kind(self._cluster, random.Random(self._random.getrandbits(64)))
        lasts_s = self._random.uniform(*kind.seconds) * self._scale
        injected = InjectedFault(kind.name, "", int(self._clock() * 1e9))
        self.injected_faults.append(injected)
        try:
            injected.what = fault.begin()
        except Exception as error:  # noqa: BLE001 - another fault may prevent this one; the report shows the reason
            injected.error = f"{type(error).__name__}: {error}"[:200]
            injected.ended = int(self._clock() * 1e9)
            log.warning("%s could not begin: %s", kind.name, injected.error)
            self._check(kind, injected)
            return
        log.info("%s: %s, for %.1f s", kind.name, injected.what, lasts_s)
        self._open.append((self._clock() + lasts_s, fault, injected))

    def _end(self, item: tuple[float, Fault, InjectedFault]) -> None:
        _, fault, injected = item
        self._open.remove(item)
        try:
            injected.proof = fault.end()
        except Exception as error:  # noqa: BLE001 - the run continues; healing repairs the rest
            injected.error = f"{type(error).__name__}: {error}"[:200]
        injected.ended = int(self._clock() * 1e9)
        self._check(type(fault), injected)
        log.info("%s is over; seen: %s", injected.kind, injected.proof or injected.error or "nothing")
        if not self._open:
            self._pause()

    def _check(self, kind: type[Fault], injected: InjectedFault) -> None:
        """Return a kind that has never taken effect to the deck."""
        if injected.proof:
            self._seen.add(kind.name)
        elif kind.name not in self._seen and self._again[kind.name] < AGAIN_MAX:
            self._again[kind.name] += 1
            self._deck.append(kind)

    def _pause(self) -> None:
        self._next_s = self._clock() + self._random.uniform(*CALM_S) * self._scale
