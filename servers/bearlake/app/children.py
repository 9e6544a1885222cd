"""Child processes of our own program: start, ask to stop, wait."""

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
    """Ask the process to stop, if it is still running."""
    with suppress(ProcessLookupError):  # it has already ended
        process.terminate()


async def spawn(arguments: list[str], environment: Mapping[str, str] | None = None, stdin: int = DEVNULL) -> Process:
    """Start `bearlake` with these arguments; `environment` adds to this process's variables."""
    # In its own session: Ctrl-C reaches only this process, which then stops its children in order.
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
    """Wait until a process that was asked to stop has ended; after `STOP_TIMEOUT_MS` it is killed."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
            await process.wait()
    except TimeoutError:
        log.error("a process did not stop in time; killing it", extra={"server": name, "pid": process.pid})  # noqa: TRY400
        process.kill()
        await process.wait()
