"""Which faults happen when: one or two at a time, of every kind in turn, by the seed alone.

Kinds are dealt from a shuffled deck, so each has happened before one comes again. A kind that has not been seen at work comes once more
at the end of its round, a few times at most. Faults that need the same resource never overlap.
"""

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nemesis.process_faults import Fault
from nemesis.world import World

log = logging.getLogger("nemesis")

TWO_AT_ONCE = 0.4
AGAIN_MAX = 3
"""How often a kind that has not been seen at work is put back into the deck."""
CALM_S = (1.0, 5.0)


@dataclass
class Happening:
    """One fault, as it was. Times: CLOCK_MONOTONIC in nanoseconds, the clock of the histories."""

    kind: str
    what: str
    begun: int
    ended: int = 0
    proof: str | None = None
    error: str = ""
    """Why it could not begin or end, of which the run is to blame."""


class Schedule:
    """Begins and ends faults, when `step` is called; keeps what has happened."""

    def __init__(
        self,
        world: World,
        kinds: Sequence[type[Fault]],
        *,
        scale: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`scale` lengthens faults and the calm between them; `clock` is CLOCK_MONOTONIC in seconds."""
        self._clock = clock
        self._world = world
        self._kinds = list(kinds)
        self._random = random.Random(f"{world.seed}/schedule")
        self._deck: list[type[Fault]] = []
        self._seen: set[str] = set()
        self._again: Counter[str] = Counter()
        self._scale = scale
        self._open: list[tuple[float, Fault, Happening]] = []
        self._next_s = self._clock() + 2.0
        self.happenings: list[Happening] = []

    @property
    def names(self) -> list[str]:
        """The kinds that may be drawn."""
        return [kind.name for kind in self._kinds]

    def step(self) -> None:
        """End what is over; begin what is due."""
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
            self._rest()

    def end_all(self) -> None:
        """End what is open, now."""
        for item in list(self._open):
            self._end(item)

    def _deal(self, taken: frozenset[str]) -> type[Fault] | None:
        """The next kind of the deck that needs none of these resources."""
        if not self._deck:
            self._deck = self._random.sample(self._kinds, len(self._kinds))
        found = next((kind for kind in self._deck if not kind.resources & taken), None)
        if found is not None:
            self._deck.remove(found)
        return found

    def _begin(self, kind: type[Fault]) -> None:
        fault = kind(self._world, random.Random(self._random.getrandbits(64)))
        lasts_s = self._random.uniform(*kind.seconds) * self._scale
        happening = Happening(kind.name, "", int(self._clock() * 1e9))
        self.happenings.append(happening)
        try:
            happening.what = fault.begin()
        except Exception as error:  # noqa: BLE001 - another fault may have made this one impossible; the report says so
            happening.error = f"{type(error).__name__}: {error}"[:200]
            happening.ended = int(self._clock() * 1e9)
            log.warning("%s could not begin: %s", kind.name, happening.error)
            self._judge(kind, happening)
            return
        log.info("%s: %s, for %.1f s", kind.name, happening.what, lasts_s)
        self._open.append((self._clock() + lasts_s, fault, happening))

    def _end(self, item: tuple[float, Fault, Happening]) -> None:
        _, fault, happening = item
        self._open.remove(item)
        try:
            happening.proof = fault.end()
        except Exception as error:  # noqa: BLE001 - the run goes on; healing mends what it can
            happening.error = f"{type(error).__name__}: {error}"[:200]
        happening.ended = int(self._clock() * 1e9)
        self._judge(type(fault), happening)
        log.info("%s is over; seen: %s", happening.kind, happening.proof or happening.error or "nothing")
        if not self._open:
            self._rest()

    def _judge(self, kind: type[Fault], happening: Happening) -> None:
        """Put a kind back that has never been seen at work."""
        if happening.proof:
            self._seen.add(kind.name)
        elif kind.name not in self._seen and self._again[kind.name] < AGAIN_MAX:
            self._again[kind.name] += 1
            self._deck.append(kind)

    def _rest(self) -> None:
        self._next_s = self._clock() + self._random.uniform(*CALM_S) * self._scale
