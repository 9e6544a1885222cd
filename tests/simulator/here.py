"""Stores on the machine of their server: its threads put objects and commit them in the order of the steps (`objects.BlockingPut`).

    start ──(delay)──► put ──(steps before are over)──(delay)──► commit ──(delay)──► ended, on the event loop of the server, in order

Each half may be refused, or happen and lose its reply. A thread may be slow: its step takes place even if its server has crashed meanwhile,
and the effects of a step that was begun are those of another process's zombie. The event loop of a crashed server hears nothing.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError, Unavailable
from bearlake.metadata import BlockingCommit
from bearlake.metadata.model import ObjectCommit, ObjectCommitted
from bearlake.objects import BlockingPut, Buffer

if TYPE_CHECKING:
    from simulator.network import Network


class Line:
    """The second parts of steps, one at a time, in the order of the steps."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """`soon(part)` runs a part whose turn it is, now or later."""
        self._soon = soon
        self._parts: deque[Callable[[], None]] = deque()
        self._ready: set[Callable[[], None]] = set()
        self._is_busy = False

    def join(self, part: Callable[[], None]) -> Callable[[], None]:
        """Queue `part`; returns what the end of the step's first part calls."""
        self._parts.append(part)

        def ready() -> None:
            self._ready.add(part)
            self._advance()

        return ready

    def _advance(self) -> None:
        if self._parts and self._parts[0] in self._ready and not self._is_busy:
            self._is_busy = True
            self._soon(self._run)

    def _run(self) -> None:
        part = self._parts.popleft()
        self._ready.discard(part)
        part()
        self._is_busy = False
        self._advance()


def blocking_put(network: "Network", put: Callable[[str, bytes], Coroutine[Any, Any, None]]) -> BlockingPut:
    """Steps of a store whose `put` waits for nothing."""

    def later(part: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(network.delay_s(), part, context=network.context.copy())

    line = Line(later)
    told_s = 0.0

    def start(
        first: Callable[[], None], second: Callable[[], None], ended: Callable[[BaseException | None], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        mine = contextvars.copy_context()  # of the server's process

        def run(part: Callable[[], None], following: Callable[[], None]) -> None:
            try:
                part()
            except Exception as bug:  # noqa: BLE001 - the boundary of the thread: it catches what a store may raise
                network.on_bug(bug)
                return
            following()

        def tell() -> None:
            nonlocal told_s
            told_s = max(told_s, loop.time() + network.delay_s())
            loop.call_at(told_s, ended, None, context=mine)

        network.call_count += 1
        ready = line.join(lambda: run(second, tell))
        later(lambda: run(first, ready))

    def attempt(key: str, parts: Sequence[Buffer]) -> None:
        sent = b"".join(parts)
        _now(network, f"put {key}", lambda: put(key, sent))

    async def again(key: str, parts: Sequence[Buffer], error: BearlakeError) -> None:
        raise error  # `RetryingObjectStore` tries again

    return BlockingPut(start=start, attempt=attempt, attempted=lambda seconds, size, error: None, again=again)


class CommitHere(BlockingCommit):
    """The commit of such a step."""

    def __init__(
        self,
        network: "Network",
        commit: Callable[[ObjectCommit], Coroutine[Any, Any, ObjectCommitted]],
        given_up: list[asyncio.TimerHandle] | None,
    ) -> None:
        self._network = network
        self._commit = commit
        self._given_up = given_up

    def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        """Commit now; as any write, it ends the time in which writes that were given up may take effect (I12)."""
        for late in self._given_up or ():
            late.cancel()
        result: ObjectCommitted = _now(self._network, "commit", lambda: self._commit(commit))
        return result

    def announce(self, position: int, *, is_applied: bool) -> None:
        """Nothing: the store has told its callers of `wait`."""


def _now(network: "Network", what: str, effect: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    settings = network.settings
    if network.happens(settings.refused_rate, "refused here"):
        raise Unavailable(f"{what}: refused")
    work = effect()
    try:
        while True:
            assert work.send(None) is None, "the store waits for more than a turn of the event loop"
    except StopIteration as ended:
        result = ended.value
    if network.happens(settings.lost_reply_rate, "lost reply here"):
        raise Unavailable(f"{what}: the reply was lost")
    return result
