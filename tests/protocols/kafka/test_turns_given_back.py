"""When the turn of a large request comes while its connection must wait for something else, the turn passes on."""

import pytest

from bearlake.protocols.kafka.large_requests import LargeRequests
from bearlake.streams.client_turns import ClientTurns, Turn

SIZE = 100


class Owner:
    """A connection whose client does not read its answers while `is_stuck`."""

    def __init__(self, turns: ClientTurns) -> None:
        self.client = "a"
        self.is_stuck = False
        self.large = LargeRequests(self, turns)
        self.turn: Turn
        self.taken = 0

    def wait_for_turn(self) -> None:
        pass

    def relieved(self) -> None:
        if not self.is_stuck and self.large.may_take(SIZE, is_lane_free=True):
            self.turn = self.large.take()
            self.taken += 1

    def close(self, why: str, reason: str) -> None:
        raise AssertionError(why)


@pytest.mark.parametrize("is_stuck", [True, False])
async def test_a_turn_that_comes_while_the_connection_must_wait_passes_to_the_next(is_stuck: bool) -> None:
    turns = ClientTurns(2 * SIZE)
    first, second, third = (Owner(turns) for _ in range(3))
    for owner in (first, second, third):
        owner.relieved()
    second.is_stuck = is_stuck
    assert (first.taken, second.taken, third.taken) == (1, 0, 0)

    first.turn.end()

    assert (second.taken, third.taken) == ((0, 1) if is_stuck else (1, 0))
    if is_stuck:
        third.turn.end()
        second.is_stuck = False
        second.relieved()
    assert second.taken == 1, "it asks again"
    second.turn.end()
    third.large.closed()


async def test_turns_that_nobody_can_take_pass_by_however_many_wait() -> None:
    """Each turn was given back inside of the one before: 250 connections ended in a RecursionError, and their bytes were lost."""
    turns = ClientTurns(2 * SIZE)
    first, *stuck, last = (Owner(turns) for _ in range(2_000))
    for owner in (first, *stuck, last):
        owner.relieved()
    for owner in stuck:
        owner.is_stuck = True

    first.turn.end()

    assert last.taken == 1
    last.turn.end()
    whole = turns.ask("b", SIZE, lambda: None)
    assert whole.has_begun
    assert turns.ask("a", SIZE, lambda: None).has_begun


class TwoLanes(Owner):
    """A connection that has read two large requests, of different lanes, such as Metadata and Fetch."""

    def relieved(self) -> None:
        while self.taken < 2 and self.large.may_take(SIZE, is_lane_free=True):
            self.turn = self.large.take()
            self.taken += 1


async def test_the_next_large_request_of_another_lane_keeps_its_place_in_line() -> None:
    """It asked while the turn before it began, was taken for that turn, and its connection waited until it was closed."""
    turns = ClientTurns(2 * SIZE)
    busy, owner = Owner(turns), TwoLanes(turns)
    busy.relieved()
    owner.relieved()
    assert owner.taken == 0

    busy.turn.end()
    assert owner.taken == 1
    owner.turn.end()

    assert owner.taken == 2


async def test_a_turn_that_nobody_keeps_passes_to_the_next() -> None:
    """A request may be answered as soon as it is taken, without a task that ends its turn."""
    turns = ClientTurns(2 * SIZE)
    began: list[str] = []
    asked = [turns.ask("a", SIZE, lambda: began.append("first"))]
    asked += [turns.ask("a", SIZE, lambda: asked.pop(1) and began.append("dropped"))]
    asked += [turns.ask("a", SIZE, lambda: began.append("last"))]

    asked[0].end()

    assert began == ["first", "dropped", "last"]
