"""What the explorer needs of a part of the model: initial state, steps, properties, and what counts as settled.

States are immutable, hashable, and made of integers, booleans and tuples of them: their fingerprint is `hash`, which must be the same in
every run, and strings, None and enums hash differently in each process. Avoid -2 as well: Python gives it the hash of -1.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
S_co = TypeVar("S_co", covariant=True)


class Action(NamedTuple):
    """A kind of step. `text` is a format string for its arguments.

    `is_progress`: somebody alive does their work, or a message arrives. Everything else is trouble: loss, crashes, forgetting, clocks.
    """

    text: str
    is_progress: bool = True


class Step(NamedTuple, Generic[S_co]):
    """A transition: what happens, with the action's arguments, and the state after it."""

    action: Action
    arguments: tuple[Any, ...]  # Any: whatever the format string takes
    state: S_co

    def __str__(self) -> str:
        return self.action.text.format(*self.arguments)


class Part(Protocol[S]):
    """A part of the model, with its bounds and its guards."""

    @property
    def name(self) -> str:
        """The part's name, for reports."""

    def initial(self) -> S:
        """The state in which everything begins."""

    def steps(self, state: S) -> Sequence[Step[S]]:
        """All that can happen next."""

    def violation(self, state: S) -> str:
        """The promise to a client that this state breaks, as a sentence; empty if there is none."""

    def is_settled(self, state: S) -> bool:
        """Whether what was begun has come to its end. Asked only if the part's `must_settle` says so."""

    @property
    def must_settle(self) -> bool:
        """Whether each reachable state must have a way to a settled one, by progress alone."""


def render(steps: Iterable[Step[Any]]) -> list[str]:
    """Numbered lines of a trace."""
    return [f"{number:3}. {step}" for number, step in enumerate(steps, 1)]
