"""Why and how the process is asked to stop: by a signal, by fencing, or by the end of the tour."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from bearlake.app.exits import Exit

log = logging.getLogger(__name__)


def _nothing() -> None:
    pass


class Stopped(Exception):
    """The process was asked to stop before it had started."""


class Stop:
    """A request to stop; only the first request counts."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._on_interrupt: Callable[[], None] = _nothing
        self.exit = Exit.OK
        self.is_graceful = True
        """Whether to finish requests in progress first."""

    def request(self, why: str, exit_code: Exit = Exit.OK, *, is_graceful: bool = True) -> None:
        """Ask the process to stop; later requests change nothing."""
        if self._event.is_set():
            return
        log.info("stopping", extra={"why": why})
        self.exit = exit_code
        self.is_graceful = is_graceful
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return when a stop is requested."""
        await self._event.wait()

    def on_signals(self, on_interrupt: Callable[[], None] | None = None) -> None:
        """Stop gracefully on SIGTERM and SIGINT; a second signal ends the process at once. `on_interrupt` is called at the first SIGINT."""
        self._on_interrupt = on_interrupt or _nothing
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self.is_requested:
            os._exit(Exit.INTERRUPTED)
        if number is signal.SIGINT:
            self._on_interrupt()
        self.request(number.name)

    def on_end_of(self, descriptor: int) -> None:
        """Stop gracefully when the pipe `descriptor` ends: the parent process has gone."""
        asyncio.get_running_loop().add_reader(descriptor, self._on_readable, descriptor)

    def _on_readable(self, descriptor: int) -> None:
        if not os.read(descriptor, 4096):
            asyncio.get_running_loop().remove_reader(descriptor)
            self.request("the parent process ended")
