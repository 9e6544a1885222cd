"""The bytes of calls that are not in the write path yet: bodies of HTTP requests and messages of gRPC that were read (decision 171).

Kafka and Pulsar connections read into receive buffers that have a bound of their own (`serving/slabs.py`). A call of another protocol first
waits for room in the write path and then reads its records, so the calls that have had their turn could together exceed `bytes_max`.
A reservation counts what a call has read, until the call is answered:

    budget   bytes_max: batches that wait or are in flight | reservations, at most half
    enter    waits in line (`relief.py`), then counts SMALL_BYTES at most
    hold     counts more bytes as they arrive. What does not fit waits in a line of its own

Connections see a smaller budget (`left_bytes`), and always half of it at least: calls whose clients stall hold up other calls, but no
connection. Half of the calls' bytes could be read, and none of the calls go on. So the first in line may exceed the bound, one call at a
time: calls that have begun always end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

from bearlake.errors import Overloaded
from bearlake.streams.relief import ReliefLine

SMALL_BYTES = 64 * 1024
"""Bytes that a call counts at its turn and has without a further wait, also over the bound: as a connection has a small receive buffer."""


class Reservations:
    """The reservations of one write path. Use them from the event loop's thread only."""

    def __init__(self, relief: ReliefLine, pending_bytes: Callable[[], int], bytes_max: int) -> None:
        """`pending_bytes`: batches that wait or are in flight; `bytes_max`: the budget of them and the reservations."""
        self._relief = relief
        self._pending_bytes = pending_bytes
        self._bytes_max = bytes_max
        self._line: deque[_Wish] = deque()
        self._over: Reservation | None = None
        """The reservation that may exceed the bound."""
        self.size_bytes = 0
        """Bytes of all reservations."""
        self.left_bytes = bytes_max
        """The budget of the batches: what the reservations leave of it, at least half."""
        self._read_bytes = 0
        """Bytes that callers of `admit` who wait have read already."""

    def __len__(self) -> int:
        """The number of calls that wait to hold more."""
        return len(self._line)

    async def enter(self, wait_ms: int | None) -> "Reservation":
        """Wait in line until the write path accepts more, and count `SMALL_BYTES`. Raises `Overloaded` after `wait_ms` (None: never)."""
        reservation = Reservation(self, wait_ms)
        try:
            await self.turn(reservation)
        except BaseException:
            reservation.give_back()
            raise
        return reservation

    async def admit(self, wait_ms: int | None, read_bytes: int) -> "Reservation":
        """As `enter` and `hold`, for a caller that has read so many bytes already: gRPC reads a message before the server sees its call.

        While those who wait have read half of the budget, others are refused at once. Raises `Overloaded`.
        """
        if self._read_bytes + read_bytes > self._bytes_max // 2 and (self._line or self._relief.is_closed):
            raise _overloaded()
        self._read_bytes += read_bytes
        reservation = Reservation(self, wait_ms)
        try:
            await self.turn(reservation)
            await reservation.hold(read_bytes)
        except BaseException:
            reservation.give_back()
            raise
        finally:
            self._read_bytes -= read_bytes
        return reservation

    async def turn(self, reservation: "Reservation") -> None:
        """Wait in line as `enter`; the reservation then counts `SMALL_BYTES` at least."""
        if not self._relief.is_closed:
            self.count(reservation, max(reservation.size_bytes, SMALL_BYTES))
            return
        relieved = asyncio.Event()

        def resume() -> None:  # counts at once: the next ones in line find less left
            self.count(reservation, max(reservation.size_bytes, SMALL_BYTES))
            relieved.set()

        self._relief.join(resume)
        try:
            async with asyncio.timeout(reservation.wait_s):
                await relieved.wait()
        except TimeoutError as error:
            raise _overloaded() from error
        finally:
            self._relief.leave(resume)

    async def grow(self, reservation: "Reservation", size_bytes: int) -> None:
        """Let the reservation count so many bytes, once they fit. Raises `Overloaded`."""
        more = size_bytes - reservation.size_bytes
        if reservation is self._over or (not self._line and self._admits(reservation, more)):
            self.count(reservation, size_bytes)
            return
        wish = _Wish(reservation, size_bytes, asyncio.Event())
        self._line.append(wish)
        try:
            async with asyncio.timeout(reservation.wait_s):
                await wish.granted.wait()
        except TimeoutError as error:
            raise _overloaded() from error
        finally:
            if not wish.granted.is_set():
                self._line.remove(wish)
                self.freed()

    def move(self, source: "Reservation", target: "Reservation") -> None:
        """Let `target` count what `source` counts, and `source` nothing."""
        target.size_bytes, source.size_bytes = source.size_bytes, target.size_bytes
        if self._over is source:
            self._over = target

    def count(self, reservation: "Reservation", size_bytes: int) -> None:
        """Let the reservation count so many bytes from now on."""
        self.size_bytes += size_bytes - reservation.size_bytes
        self.left_bytes = self._bytes_max - min(self.size_bytes, self._bytes_max // 2)
        is_less = size_bytes < reservation.size_bytes
        reservation.size_bytes = size_bytes
        if is_less:
            if reservation is self._over and size_bytes <= SMALL_BYTES:
                self._over = None
            self.freed()

    def freed(self) -> None:
        """Let those in both lines continue for whom there is room. Call this whenever fewer bytes wait or are in flight."""
        while self._line:
            wish = self._line[0]
            if not self._admits(wish.reservation, wish.size_bytes - wish.reservation.size_bytes):
                break
            self._line.popleft()
            self.count(wish.reservation, wish.size_bytes)
            wish.granted.set()
        self._relief.relieve()

    def _admits(self, reservation: "Reservation", more: int) -> bool:
        reserved = self.size_bytes + more
        if reserved <= self._bytes_max // 2 and reserved + self._pending_bytes() <= self._bytes_max:
            return True
        if self._over is not None:
            return False
        self._over = reservation
        return True


class Reservation:
    """The bytes of one call. A context manager that gives them back."""

    __slots__ = ("_reservations", "size_bytes", "wait_s")

    def __init__(self, reservations: Reservations, wait_ms: int | None) -> None:
        self._reservations = reservations
        self.wait_s = None if wait_ms is None else wait_ms / 1000
        """The longest wait (s) each time; None: without a limit of its own."""
        self.size_bytes = 0
        """Bytes that count now."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.give_back()

    async def hold(self, size_bytes: int) -> None:
        """Count so many bytes; wait until they fit if they are more than before and more than `SMALL_BYTES`. Raises `Overloaded`."""
        if size_bytes <= max(self.size_bytes, SMALL_BYTES):
            self._reservations.count(self, size_bytes)
        else:
            await self._reservations.grow(self, size_bytes)

    async def next_turn(self) -> None:
        """Wait in line for room in the write path again, and keep what counts. Raises `Overloaded`."""
        await self._reservations.turn(self)

    def give_back(self) -> None:
        """Count nothing more. Safe to repeat."""
        self._reservations.count(self, 0)

    def moved(self) -> "Reservation":
        """Give the bytes to another reservation, for work that continues when the caller ends."""
        other = Reservation(self._reservations, None)
        self._reservations.move(self, other)
        return other


class _Wish(NamedTuple):
    """A place in line: the reservation counts so many bytes once `granted` is set."""

    reservation: Reservation
    size_bytes: int
    granted: asyncio.Event


def _overloaded() -> Overloaded:
    return Overloaded("too many bytes are waiting to be written; retry later")
