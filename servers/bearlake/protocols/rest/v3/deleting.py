"""Translates the refusal of a coordinator to delete a group into the problem that the client gets."""

from collections.abc import Iterator
from contextlib import contextmanager

from bearlake.protocols.rest.problems import Problem
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.problems import Problem as GroupProblem


@contextmanager
def refusals_of(name: str) -> Iterator[None]:
    """Translate refusals of the block, which deletes the group, into `Problem` (404, 409); others pass."""
    try:
        yield
    except GroupRefusal as refusal:
        if refusal.problem is GroupProblem.NON_EMPTY:
            raise Problem(409, 409, f"group {name[:249]!r} has members: stop its consumers first") from refusal
        if refusal.problem is GroupProblem.NOT_FOUND:
            raise Problem(404, 404, f"there is no group {name[:249]!r}") from refusal
        raise
