"""Processes of our own program: started, asked to stop, waited for."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from contextlib import suppress

log = logging.getLogger(__name__)

STOP_TIMEOUT_MS = 30_000


def terminate(process: Process) -> None:
    """Ask the process to stop, if it still runs."""
    with suppress(ProcessLookupError):  # it has ended already
        process.terminate()


async def spawn(arguments: list[str], environment: Mapping[str, str] | None = None, stdin: int = DEVNULL) -> Process:
    """Start `bearlake` with these arguments and, beside our own, these variables."""
    # In a session of its own: Ctrl-C reaches this process alone, which then stops the others in order.
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bearlake",
        *arguments,
        stdin=stdin,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


async def ended(name: str, process: Process) -> None:
    """Wait until a process that was asked to stop has ended; one that takes longer than `STOP_TIMEOUT_MS` is killed."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
            await process.wait()
    except TimeoutError:
        log.error("process did not stop in time, killing it", extra={"server": name, "pid": process.pid})  # noqa: TRY400
        process.kill()
        await process.wait()
