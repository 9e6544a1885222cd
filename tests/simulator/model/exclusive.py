"""Exclusive and shared producers of one partition: openings on several servers, and appends that arrive late.

A paused server may lose its lease and continue with outdated answers. The rules are `metadata/epoch_rules.py` and
`metadata/producers.py` (`decide_named`), unchanged. The following are in SQL or in code that waits, so they are implemented here again:
the rule for taking the lease (see the part `leases`), `ProducerIds.raise_epoch` and `share_epoch`, and `protocols/pulsar/access.py`.

This part assumes of the part `leases` that a lease has one holder per epoch. It checks the promises of `docs/correctness.md` about
access modes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bearlake.metadata import epoch_rules, producers
from bearlake.metadata.epoch_rules import PartitionEpoch
from bearlake.metadata.model import OutcomeKind
from simulator.model.guards import guard
from simulator.model.part import Action, Step

EXCLUSIVE, SHARED = range(2)

TAKE = Action("producer {} opens as exclusive: its server takes the lease, epoch {}")
LAPSE = Action("the server of producer {} is declared lapsed", is_progress=False)
BEAT = Action("a heartbeat of the server of producer {} is executed")
RAISE = Action("the epoch is raised for producer {}, to {}; it is open")
LOST = Action("the epoch is raised for producer {}, to {}; the reply is lost", is_progress=False)
SHARE = Action("producer {} opens as shared, in epoch {}")
APPEND = Action("an append of producer {} is stored")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveGuards:
    """The rules of access modes."""

    share_waits_for_lease: bool = guard(
        "a shared producer opens only if no live server holds the lease of an exclusive producer"
    )
    share_fences_exclusive: bool = guard("the first shared producer that opens raises the epoch")
    raise_marks_exclusive: bool = guard("the store records that a raised epoch belongs to an exclusive producer")
    raise_names_lease: bool = guard("the epoch is raised for a producer only under its server's lease")
    append_names_returned_epoch: bool = guard("an append names the epoch that its producer received when it was opened")
    append_checks_epoch: bool = guard("the commit refuses appends of an older epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveBounds:
    """The bounds of the exploration."""

    kinds: tuple[int, ...] = (EXCLUSIVE, SHARED, EXCLUSIVE)
    """Producers, each on its own server."""
    epoch: int = 4


class Opening(NamedTuple):
    """A producer. `lease`: the lease epoch of its server; `received`: the epoch that it received, plus 1; `order`: its place among the
    openings."""

    lease: int = 0
    received: int = 0
    order: int = 0


class State(NamedTuple):
    """The whole state. `holder`: the producer whose server has the lease, plus 1."""

    epoch: int = 0
    is_exclusive: bool = False
    lease_epoch: int = 0
    holder: int = 0
    has_lapsed: bool = False
    opened_count: int = 0
    openings: tuple[Opening, ...] = ()
    wrong: int = 0

    def with_opening(self, at: int, opening: Opening) -> "State":
        """Return the state with this producer replaced."""
        return self._replace(openings=(*self.openings[:at], opening, *self.openings[at + 1 :]))


PROMISES: Final = (
    "",
    "an append of an exclusive producer was stored after another producer had been opened",
    "an append of a producer opened before the exclusive producer was stored",
    "an exclusive producer was replaced although its server was live",
)


class ExclusivePart:
    """The part `exclusive` of the model; see the module."""

    name = "exclusive"
    must_finish = False

    def __init__(self, bounds: ExclusiveBounds, guards: ExclusiveGuards) -> None:
        self._bounds = bounds
        self._guards = guards

    def initial(self) -> State:
        """No producer has been opened yet."""
        return State(openings=(Opening(),) * len(self._bounds.kinds))

    def is_quiescent(self, state: State) -> bool:
        """Never called: `must_finish` is false."""
        return True

    def violation(self, state: State) -> str:
        """The broken promise to producers, or ""."""
        return PROMISES[state.wrong]

    def steps(self, state: State) -> Sequence[Step[State]]:
        """Return all steps that are possible next."""
        found: list[Step[State]] = []
        if state.holder:
            lapsed = state._replace(has_lapsed=not state.has_lapsed)
            found.append(Step(BEAT if state.has_lapsed else LAPSE, (state.holder - 1,), lapsed))
        for at, kind in enumerate(self._bounds.kinds):
            opening = state.openings[at]
            if opening.received:
                found += self._append(state, at, opening)
            elif state.epoch < self._bounds.epoch:
                found += self._open_exclusive(state, at, opening) if kind == EXCLUSIVE else self._open_shared(state, at)
        return found

    def _is_held(self, state: State) -> bool:
        return state.holder != 0 and not state.has_lapsed

    def _open_exclusive(self, state: State, at: int, opening: Opening) -> Iterator[Step[State]]:
        if not opening.lease:
            if not self._is_held(state):
                epoch = state.lease_epoch + 1
                taken = state.with_opening(at, Opening(lease=epoch))
                yield Step(TAKE, (at, epoch), taken._replace(lease_epoch=epoch, holder=at + 1, has_lapsed=False))
            return
        is_own = state.holder == at + 1 and state.lease_epoch == opening.lease
        if self._guards.raise_names_lease and not is_own:
            return
        raised = epoch_rules.raised(PartitionEpoch(state.epoch, state.is_exclusive))
        replaced = 3 if self._is_held(state) and not is_own and state.openings[state.holder - 1].received else 0
        is_exclusive = raised.is_exclusive and self._guards.raise_marks_exclusive
        after = state._replace(epoch=raised.epoch, is_exclusive=is_exclusive, wrong=state.wrong or replaced)
        yield Step(RAISE, (at, raised.epoch), self._opened(after, at, opening))
        yield Step(LOST, (at, raised.epoch), after)

    def _open_shared(self, state: State, at: int) -> Iterator[Step[State]]:
        if self._guards.share_waits_for_lease and self._is_held(state):
            return
        replaced = 3 if self._is_held(state) and state.openings[state.holder - 1].received else 0
        held = PartitionEpoch(state.epoch, state.is_exclusive)
        shared = epoch_rules.shared(held) if self._guards.share_fences_exclusive else held
        free = state._replace(
            epoch=shared.epoch,
            is_exclusive=shared.is_exclusive,
            holder=0,
            has_lapsed=False,
            wrong=state.wrong or replaced,
        )
        yield Step(SHARE, (at, shared.epoch), self._opened(free, at, Opening()))

    def _opened(self, state: State, at: int, opening: Opening) -> State:
        order = state.opened_count + 1
        opened = opening._replace(received=state.epoch + 1, order=order)
        return state.with_opening(at, opened)._replace(opened_count=order)

    def _append(self, state: State, at: int, opening: Opening) -> Iterator[Step[State]]:
        guards = self._guards
        epoch = opening.received - 1 if guards.append_names_returned_epoch else state.epoch
        present = state.epoch if guards.append_checks_epoch else 0
        kind, _ = producers.decide_named(None, present, epoch, 0, is_in_step=False)
        if kind is not OutcomeKind.ACCEPTED:
            return
        later = [
            kind for kind, other in zip(self._bounds.kinds, state.openings, strict=True) if other.order > opening.order
        ]
        wrong = 0
        if later and self._bounds.kinds[at] == EXCLUSIVE:
            wrong = 1
        elif EXCLUSIVE in later:
            wrong = 2
        if wrong:
            yield Step(APPEND, (at,), state._replace(wrong=state.wrong or wrong))
