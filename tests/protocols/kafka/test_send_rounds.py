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


async def test_an_error_in_a_round_stops_only_its_connection() -> None:
    loop, rounds, told = asyncio.get_running_loop(), SendRounds(), list[object]()
    loop.set_exception_handler(lambda _, context: told.append(type(context["exception"])))

    def fail() -> None:
        raise asyncio.CancelledError

    for send in (
        partial(told.append, "first"),
        fail,
        partial(told.append, "third"),
        fail,
        partial(told.append, "fifth"),
    ):
        rounds.add(loop, send)
    for _ in range(2):
        await asyncio.sleep(0)
    loop.set_exception_handler(None)

    assert told == ["first", asyncio.CancelledError, "third", asyncio.CancelledError, "fifth"]
