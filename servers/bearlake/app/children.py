"""Child processes of our own program: start, ask to stop, wait."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from contextlib import suppress

from bearlake.settings.document import Settings

log = logging.getLogger(__name__)

STOP_TIMEOUT_MS = 30_000
METADATA_VARIABLE = "BEARLAKE_METADATA__URL"
"""The variable that names the metadata store."""


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


def store_variables(settings: Settings) -> dict[str, str]:
    """Return the variables that name the stores to a child: all users can read a command line, and a URL may have a password."""
    named = {
        METADATA_VARIABLE: settings.metadata.url,
        "BEARLAKE_OBJECT_STORE__URL": settings.object_store.url,
        "BEARLAKE_TABLES__CATALOG_URL": settings.tables.catalog_url,
    }
    return {name: url for name, url in named.items() if url}


async def ended(name: str, process: Process) -> None:
    """Wait until a process that was asked to stop has ended; after `STOP_TIMEOUT_MS` it is killed."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT_MS / 1000):
            await process.wait()
    except TimeoutError:
        log.error("a process did not stop in time; killing it", extra={"server": name, "pid": process.pid})  # noqa: TRY400
        process.kill()
        await process.wait()
