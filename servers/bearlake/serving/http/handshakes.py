"""The TLS handshakes of one HTTP server: counted by its gate from the start, and few at a time (`serving/handshakes.py`, decision 238)."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from bearlake.serving.addresses import address_of
from bearlake.serving.handshakes import HandshakeLine
from bearlake.serving.http.handlers import GatedHandler
from bearlake.serving.tls_transport import TlsProtocol
from bearlake.telemetry.containment import fault

log = logging.getLogger(__name__)


class HttpHandshakes:
    """Connections in a TLS handshake, each with its task. All listeners of a server share one line."""

    def __init__(self, name: str, limit_s: float) -> None:
        """`name`: the server's, for the log. `limit_s`: the time limit of one handshake, with its wait for a turn."""
        self._name = name
        self._limit_s = limit_s
        self._line = HandshakeLine()
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, tls: ssl.SSLContext, make: Callable[[], GatedHandler], accepted: socket.socket) -> None:
        """Begin with an accepted connection; it is closed at once if the gate refuses it."""
        handler = make()
        try:
            address = address_of(accepted.getpeername())
        except OSError:  # the client has gone
            accepted.close()
            return
        if not handler.enter(address):
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._shake_hands(tls, handler, accepted, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all handshakes. Safe to repeat."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _shake_hands(
        self, tls: ssl.SSLContext, handler: GatedHandler, accepted: socket.socket, address: str
    ) -> None:
        has_ended = False
        try:
            await self._line.shake_hands(accepted, address, tls, lambda: TlsProtocol(handler), self._limit_s)
            has_ended = True
        except OSError as error:
            log.info("TLS handshake failed", extra={"listener": self._name, "error": repr(error)})
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "shake hands", error)
            accepted.close()
        finally:
            if not has_ended:
                handler.leave()
