"""The bytes of calls that are not in the write path yet: bodies of HTTP requests and messages of gRPC that were read (decisions 171, 193).

Kafka and Pulsar connections read into receive buffers that have a bound of their own (`serving/slabs.py`). A call of another protocol first
waits for room in the write path and then reads its records, so the calls that have had their turn could together exceed `bytes_max`.
A reservation counts what a call has read, until the call is answered:

    budget   bytes_max: batches that wait or are in flight | reservations, at most half
    share    of one client: a part of the reservations' half
    enter    waits in line (`relief.py`), then counts SMALL_BYTES at most
    hold     counts more bytes as they arrive. What does not fit waits in a line of its client's; clients continue by turns

Connections see a smaller budget (`left_bytes`), and always half of it at least: calls whose clients stall hold up other calls, but no
connection. A client's calls that stall hold up no other client's, because the client has a share.

Half of the calls' bytes could be read, and none of the calls go on. So one call at a time may exceed the bound, and one of each client
its share: calls that have begun always end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from bearlake.errors import Overloaded
from bearlake.streams.relief import ReliefLine

SMALL_BYTES = 64 * 1024
"""Bytes that a call counts at its turn and has without a further wait, also over the bound: as a connection has a small receive buffer."""


class Reservations:
    """The reservations of one write path. Use them from the event loop's thread only."""

    def __init__(
        self, relief: ReliefLine, pending_bytes: Callable[[], int], bytes_max: int, client_share: float
    ) -> None:
        """`pending_bytes`: batches that wait or are in flight; `bytes_max`: the budget of them and the reservations.

        `client_share`: what one client may have of the bytes that all reservations may have; more than 0, and 1.0 is all of them.
        """
        self._relief = relief
        self._pending_bytes = pending_bytes
        self._bytes_max = bytes_max
        self._client_share = client_share
        self._clients: dict[str, _Client] = {}
        """Clients that have bytes or wait, by name."""
        self._rotation: dict[_Client, None] = {}
        """Clients that wait for the common bound; those that only wait for their own share are not here."""
        self._over: Reservation | None = None
        """The reservation that may exceed the bound."""
        self.size_bytes = 0
        """Bytes of all reservations."""
        self.left_bytes = bytes_max
        """The budget of the batches: what the reservations leave of it, at least half."""
        self._read_bytes = 0
        """Bytes of messages that wait and have been read already."""

    def __len__(self) -> int:
        """The number of calls that wait to hold more."""
        return sum(len(client.line) for client in self._clients.values())

    async def enter(self, name: str, wait_ms: int | None) -> "Reservation":
        """Wait in line until the write path accepts more, and count `SMALL_BYTES` for the client of that name.

        Raises `Overloaded` after `wait_ms` (None: never).
        """
        reservation = Reservation(self, name, wait_ms)
        try:
            await self.turn(reservation)
        except BaseException:
            reservation.give_back()
            raise
        return reservation

    async def admit(self, name: str, wait_ms: int | None, read_bytes: int) -> "Reservation":
        """As `enter`, for a caller that has read a message already: the next one of a stream. Raises `Overloaded`.

        Messages that wait here may have as much as the whole budget, and those of one client its share; others are refused at once.
        """
        reservation = Reservation(self, name, wait_ms)
        try:
            with self._waiting(name, read_bytes, self._bytes_max):
                await self.turn(reservation)
                await reservation.hold(read_bytes)
        except BaseException:
            reservation.give_back()
            raise
        return reservation

    async def read(self, reservation: "Reservation", read_bytes: int) -> None:
        """As `hold`, for a caller that has read a whole message already: gRPC does not tell how much of it has arrived.

        Messages that wait here may have half of the budget, and those of one client its share; others are refused at once.
        """
        with self._waiting(reservation.client, read_bytes, self._bytes_max // 2):
            await reservation.hold(read_bytes)

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
        client = self._client(reservation.client)
        is_next = not client.line and not self._rotation
        if reservation is self._over or (is_next and self._admits(client, reservation, size_bytes)):
            self.count(reservation, size_bytes)
            return
        wish = _Wish(reservation, size_bytes, asyncio.Event())
        if reservation is client.over:  # those in its client's line wait until it ends
            client.line.appendleft(wish)
        else:
            client.line.append(wish)
        try:
            self._rotation.setdefault(client)
            self.freed()
            async with asyncio.timeout(reservation.wait_s):
                await wish.granted.wait()
        except TimeoutError as error:
            raise _overloaded() from error
        finally:
            if not wish.granted.is_set():
                client.line.remove(wish)
                self._resume(client)
                self.freed()

    def move(self, source: "Reservation", target: "Reservation") -> None:
        """Let `target`, of the same client, count what `source` counts, and `source` nothing."""
        target.size_bytes, source.size_bytes = source.size_bytes, target.size_bytes
        client = self._client(source.client)
        if self._over is source:
            self._over = target
        if client.over is source:
            client.over = target

    def count(self, reservation: "Reservation", size_bytes: int) -> None:
        """Let the reservation count so many bytes from now on."""
        client = self._client(reservation.client)
        more = size_bytes - reservation.size_bytes
        self.size_bytes += more
        client.size_bytes += more
        self.left_bytes = self._bytes_max - min(self.size_bytes, self._bytes_max // 2)
        reservation.size_bytes = size_bytes
        if more < 0:
            if size_bytes <= SMALL_BYTES:
                self._over = None if self._over is reservation else self._over
                client.over = None if client.over is reservation else client.over
            self._resume(client)
            self.freed()
        self._forget(client)

    def freed(self) -> None:
        """Let those in all lines continue for whom there is room, one of each client in turn.

        Call this whenever fewer bytes wait or are in flight.
        """
        while self._rotation:
            client = next(iter(self._rotation))
            if not client.line or not self._has_share(client, *client.line[0][:2]):
                del self._rotation[client]  # until it gives something back
                continue
            reservation, size_bytes, granted = client.line[0]
            if not self._admits(client, reservation, size_bytes):
                break
            client.line.popleft()
            del self._rotation[client]
            self.count(reservation, size_bytes)
            granted.set()
            self._resume(client)
        self._relief.relieve()

    def _client(self, name: str) -> "_Client":
        found = self._clients.get(name)
        if found is None:
            found = self._clients[name] = _Client(name)
        return found

    def _forget(self, client: "_Client") -> None:
        """Drop a client that has nothing and waits for nothing."""
        if not (client.size_bytes or client.line or client.read_bytes):
            self._clients.pop(client.name, None)
            self._rotation.pop(client, None)

    def _resume(self, client: "_Client") -> None:
        """Let a client take part in the rotation again if it waits: it may have its share now."""
        if client.line:
            self._rotation.setdefault(client)

    def _has_share(self, client: "_Client", reservation: "Reservation", size_bytes: int) -> bool:
        return not self._exceeds_share(client, reservation, size_bytes) or client.over in (None, reservation)

    def _exceeds_share(self, client: "_Client", reservation: "Reservation", size_bytes: int) -> bool:
        share = self._bytes_max // 2 * self._client_share
        return client.size_bytes + size_bytes - reservation.size_bytes > share

    def _admits(self, client: "_Client", reservation: "Reservation", size_bytes: int) -> bool:
        """Whether the reservation may count so many bytes now; notes which bounds it then exceeds."""
        if not self._has_share(client, reservation, size_bytes):
            return False
        reserved = self.size_bytes + size_bytes - reservation.size_bytes
        if reserved > self._bytes_max // 2 or reserved + self._pending_bytes() > self._bytes_max:
            if self._over is not None:
                return False
            self._over = reservation
        if self._exceeds_share(client, reservation, size_bytes):
            client.over = reservation
        return True

    @contextmanager
    def _waiting(self, name: str, read_bytes: int, read_bytes_max: int) -> Iterator[None]:
        """While the block runs, count a message that has been read. `read_bytes_max`: of all messages that wait. Raises `Overloaded`."""
        client = self._client(name)
        most = min(read_bytes_max - self._read_bytes, read_bytes_max * self._client_share - client.read_bytes)
        if read_bytes > most and (self._rotation or client.line or self._relief.is_closed):
            self._forget(client)
            raise _overloaded()
        self._read_bytes += read_bytes
        client.read_bytes += read_bytes
        try:
            yield
        finally:
            self._read_bytes -= read_bytes
            client.read_bytes -= read_bytes
            self._forget(client)


class Reservation:
    """The bytes of one call. A context manager that gives them back."""

    __slots__ = ("_reservations", "client", "size_bytes", "wait_s")

    def __init__(self, reservations: Reservations, client: str, wait_ms: int | None) -> None:
        self._reservations = reservations
        self.client = client
        """The client's name."""
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

    async def read(self, size_bytes: int) -> None:
        """As `hold`, for a message that has been read whole; may also be refused at once. Raises `Overloaded`."""
        await self._reservations.read(self, size_bytes)

    async def next_turn(self) -> None:
        """Wait in line for room in the write path again, and keep what counts. Raises `Overloaded`."""
        await self._reservations.turn(self)

    def give_back(self) -> None:
        """Count nothing more. Safe to repeat."""
        self._reservations.count(self, 0)

    def moved(self) -> "Reservation":
        """Give the bytes to another reservation, for work that continues when the caller ends."""
        other = Reservation(self._reservations, self.client, None)
        self._reservations.move(self, other)
        return other


class _Client:
    """What the calls of one client have and wait for."""

    __slots__ = ("line", "name", "over", "read_bytes", "size_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        """Bytes of its reservations."""
        self.read_bytes = 0
        """Bytes of its messages that wait."""
        self.line: deque[_Wish] = deque()
        self.over: Reservation | None = None
        """Its reservation that may exceed its share."""


class _Wish(NamedTuple):
    """A place in line: the reservation counts so many bytes once `granted` is set."""

    reservation: Reservation
    size_bytes: int
    granted: asyncio.Event


def _overloaded() -> Overloaded:
    return Overloaded("too many bytes are waiting to be written; retry later")
