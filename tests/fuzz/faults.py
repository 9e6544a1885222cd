"""What a server under test reports as its own fault: a log line of level ERROR, or an exception that nobody handled."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


class Faults(logging.Handler):
    """Collects faults until they are checked."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a log line."""
        error = record.exc_info[1] if record.exc_info else None
        text = "" if error is None else "".join(traceback.format_exception(error))
        self._found.append(f"{record.name}: {record.getMessage()} {_extra(record)}\n{text}")

    def handled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Collect what the event loop reports (Any: as asyncio has it)."""
        error = context.get("exception")
        text = "" if error is None else "".join(traceback.format_exception(error))
        self._found.append(f"event loop: {context.get('message')}\n{text}")

    def check(self) -> None:
        """Raise `ServerFault` if something was collected since the last check."""
        if self._found:
            found, self._found = self._found, []
            raise ServerFault("\n".join(found)[-5000:])


class ServerFault(AssertionError):
    """The server reported a fault of its own."""


def _extra(record: logging.LogRecord) -> str:
    plain = vars(logging.makeLogRecord({}))
    return str({name: value for name, value in vars(record).items() if name not in plain})


@asynccontextmanager
async def watched() -> AsyncIterator[Callable[[], None]]:
    """Collect faults inside; yields a function that raises `ServerFault` if there were any."""
    faults = Faults()
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(faults.handled)
    logging.getLogger().addHandler(faults)
    try:
        yield faults.check
    finally:
        logging.getLogger().removeHandler(faults)
        loop.set_exception_handler(before)
