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
