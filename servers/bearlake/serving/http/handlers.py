"""Connections of HTTP servers: counted per address, and closed unless their first request arrives in time.

aiohttp alone accepts any number of connections, and waits for the first request as long as for later requests. It waits without a time
limit for a client that does not read its answer; the kernel limits that time.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from bearlake.serving.addresses import AddressCounts, address_of
from bearlake.serving.first_pause import pause_again
from bearlake.serving.hangups import has_hung_up, limit_unread_time
from bearlake.serving.slow_readers import SlowReaders
from bearlake.streams.principal import host_of
from bearlake.streams.quotas.control import QuotaControl
from bearlake.telemetry import metrics

EXTRA_CONNECTION_COUNT = 64
"""Connections beyond the maximum whose requests are answered with 503; further connections are closed at once."""


class ConnectionGate:
    """Decides which connections of one server stay open."""

    def __init__(
        self, count_max: int | None, per_address_max: int, first_request_ms: int, slow_readers: SlowReaders
    ) -> None:
        """`count_max`: most connections; None: no limit. `per_address_max`: most connections of one address; 0: no limit.

        `first_request_ms`: time in which the head of the first request must arrive. `slow_readers` bounds what clients have not read.
        """
        self.slow_readers = slow_readers
        self._count_max = count_max
        self._addresses = AddressCounts(per_address_max)
        self._first_request_s = first_request_ms / 1000
        self.quotas: QuotaControl | None = None
        """The quotas of addresses; None: they have none."""
        self._count = 0

    @property
    def first_request_s(self) -> float:
        """Time (s) in which the head of the first request must arrive."""
        return self._first_request_s

    @property
    def count(self) -> int:
        """Connections that count, also those in a TLS handshake."""
        return self._count

    def enter(self, address: str) -> bool:
        """Count a connection; returns False, without counting it, if it must be closed."""
        if self._count_max is not None and self._count >= self._count_max + EXTRA_CONNECTION_COUNT:
            return False
        if not self._addresses.enter(address):
            return False
        self._count += 1
        return True

    def wait_s(self, address: str) -> float:
        """Return how long (s) a new connection must wait before it is read."""
        usage = None if self.quotas is None else self.quotas.usage
        return 0.0 if usage is None else usage.connected(host_of(address))

    def leave(self, address: str) -> None:
        """Count a connection as closed."""
        self._count -= 1
        self._addresses.leave(address)


class GatedHandler(RequestHandler):
    """aiohttp's handler of one connection, behind a gate."""

    __slots__ = ("_address", "_connected_s", "_deadline", "_gate", "_held", "_when_lost")

    def __init__(self, gate: ConnectionGate, manager: web.Server, **options: Any) -> None:  # Any: aiohttp's options
        """`options`: as of `RequestHandler`."""
        super().__init__(manager, **options)
        self._gate = gate
        self._address: str | None = None
        self._connected_s = self._loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._held: bytes | None = None  # what has arrived before the connection is read; None: it is read
        self._when_lost: Callable[[], object] | None = None

    def tell_when_lost(self, call: Callable[[], object] | None) -> bool:
        """Call this when the connection ends (None: nothing), in place of an earlier call; return False if it has ended."""
        self._when_lost = call
        return self.transport is not None

    @property
    def age_s(self) -> float:
        """Time (s) since the connection began."""
        return self._loop.time() - self._connected_s

    @property
    def has_hung_up(self) -> bool:
        """Whether the client has closed or reset the connection."""
        sock = (
            None if self.transport is None or self.transport.is_closing() else self.transport.get_extra_info("socket")
        )
        return has_hung_up(-1 if sock is None else sock.fileno())

    def enter(self, address: str) -> bool:
        """Count the connection, also before its TLS handshake; returns False if it must be closed. No-op if it counts."""
        if self._address is None and self._gate.enter(address):
            self._address = address
        return self._address is not None

    def leave(self) -> None:
        """Count the connection as closed. Safe to repeat."""
        if self._address is not None:
            self._gate.leave(self._address)
            self._address = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        sock = transport.get_extra_info("socket")
        if sock is not None:
            limit_unread_time(sock, int(self.keepalive_timeout * 1000))
        super().connection_made(transport)
        address = address_of(transport.get_extra_info("peername"))
        if not self.enter(address):
            transport.abort()  # type: ignore[attr-defined]  # every stream transport has it
            return
        wait_s = self._gate.wait_s(address)
        if wait_s > 0:
            self._held = b""
            self._loop.call_soon(self._pause)
            self._deadline = self._loop.call_later(wait_s, self._resume)
        else:
            self._expect_request()

    def connection_lost(self, error: BaseException | None) -> None:
        """Called by the event loop."""
        self.record_request()
        self._gate.slow_readers.record(self, 0)
        self.leave()
        super().connection_lost(error)
        if self._when_lost is not None:
            self._when_lost()

    def pause_writing(self) -> None:
        """Called by the event loop: the client does not read what it is sent."""
        super().pause_writing()
        self._gate.slow_readers.record(self, self.unread_bytes)

    def resume_writing(self) -> None:
        """Called by the event loop: the client has read what it was sent."""
        super().resume_writing()
        self._gate.slow_readers.record(self, 0)

    @property
    def unread_bytes(self) -> int:
        """The bytes in the transport, for `SlowReaders`."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def read_bytes(self) -> int:
        """For `SlowReaders`: aiohttp writes nothing more while the client does not read."""
        return -self.unread_bytes

    def give_up(self) -> None:
        """Close at once, because clients left too many bytes unread; called by `SlowReaders`."""
        if self.transport is not None:
            metrics.HTTP_SLOW_READERS.inc()
            self.transport.abort()

    def log_exception(self, *arguments: Any, **options: Any) -> None:  # Any: as of a logger
        """Called by aiohttp, also for what is no error of this server: bytes that are no HTTP request, and a client that has gone."""
        error = options.get("exc_info")
        is_gone = isinstance(error, ConnectionError) and self.has_hung_up
        if is_gone or isinstance(error, HttpProcessingError | web.RequestPayloadError):
            self.log_debug(*arguments, **options)
        else:
            super().log_exception(*arguments, **options)

    def record_request(self) -> None:
        """Record that the head of a request has arrived."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._held is None:
            super().data_received(data)
        else:
            self._held += data
            self._pause()

    def _pause(self) -> None:
        if self._held is not None and self.transport is not None:
            pause_again(self.transport)

    def _resume(self) -> None:
        held, self._held = self._held, None
        if self.transport is not None:
            self.transport.resume_reading()
            if held:
                super().data_received(held)
        self._expect_request()

    def _expect_request(self) -> None:
        self._deadline = self._loop.call_later(self._gate.first_request_s, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        self.force_close()
