"""Rounds of the connections that have answers to send: one callback of the event loop runs all of them.

A WAL flush answers many connections in one turn of the event loop. A callback for each would cost as much as its answer.
"""

import asyncio
from collections.abc import Callable


class SendRounds:
    """Collects what the next turn of the event loop runs. Use it from that loop's thread only."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def add(self, loop: asyncio.AbstractEventLoop, send: Callable[[], None]) -> None:
        """Call `send` in the next turn, after what was added before. If it raises, the event loop reports that, and the others send."""
        if not self._waiting:
            loop.call_soon(self._run, loop)
        self._waiting.append(send)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = iter(self._waiting), []
        try:
            for send in waiting:
                send()
        finally:
            for send in waiting:  # after an error that the connection did not contain, such as `CancelledError`
                loop.call_soon(send)
