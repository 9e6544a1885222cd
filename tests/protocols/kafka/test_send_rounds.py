"""Rounds of the connections that have answers to send."""

import asyncio
from functools import partial

from bearlake.protocols.kafka.rounds import SendRounds


async def test_all_that_wait_send_in_one_callback_of_the_next_turn_in_order() -> None:
    loop, rounds, told = asyncio.get_running_loop(), SendRounds(), list[str]()
    for name in ("first", "second"):
        rounds.add(loop, partial(told.append, name))
    loop.call_soon(told.append, "what came later")
    assert told == []
    await asyncio.sleep(0)
    assert told == ["first", "second", "what came later"]


async def test_what_is_added_while_a_round_sends_waits_for_the_next_turn() -> None:
    loop, rounds, told = asyncio.get_running_loop(), SendRounds(), list[str]()
    rounds.add(loop, partial(rounds.add, loop, partial(told.append, "later")))
    await asyncio.sleep(0)
    assert told == []
    await asyncio.sleep(0)
    assert told == ["later"]
