"""The interface of a part of the model: initial state, steps, properties, and quiescent states.

States are immutable, hashable, and consist of integers, booleans and tuples of them. Their fingerprint is `hash`, which must be the same
in every run, but strings, None and enums hash differently in each process. Avoid -2 as well: Python gives it the hash of -1.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
S_co = TypeVar("S_co", covariant=True)


class Action(NamedTuple):
    """A kind of step. `text` is a format string for its arguments.

    `is_progress`: a live process does its work, or a message arrives. All other steps are faults: loss, crashes, forgetting, clocks.
    """

    text: str
    is_progress: bool = True


class Step(NamedTuple, Generic[S_co]):
    """A transition: what happens, with the action's arguments, and the state after it."""

    action: Action
    arguments: tuple[Any, ...]  # Any: the types that the format string takes
    state: S_co

    def __str__(self) -> str:
        return self.action.text.format(*self.arguments)


class Part(Protocol[S]):
    """A part of the model, with its bounds and its guards."""

    @property
    def name(self) -> str:
        """The part's name, for reports."""

    def initial(self) -> S:
        """Return the initial state."""

    def steps(self, state: S) -> Sequence[Step[S]]:
        """Return all steps that are possible next."""

    def violation(self, state: S) -> str:
        """Return the promise to a client that this state breaks, as a sentence; empty if none."""

    def is_quiescent(self, state: S) -> bool:
        """Return whether all work that began has ended. Called only if `must_finish` is true."""

    @property
    def must_finish(self) -> bool:
        """Whether each reachable state must have a path of progress steps to a quiescent state."""


def render(steps: Iterable[Step[Any]]) -> list[str]:
    """Render a trace as numbered lines."""
    return [f"{number:3}. {step}" for number, step in enumerate(steps, 1)]
