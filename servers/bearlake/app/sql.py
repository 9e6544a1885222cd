"""Runs clients' statements, each in a process of its own with bounded memory, time and output (decision 246).

The engine does not count all memory that a statement needs (one value may have gigabytes), and code of an engine that reads what clients
must not end a server. The process is a fork of a helper that has imported the engine and runs nothing (`sql_processes.py`). It gets
the settings on its standard input, because a command line is visible to others. It writes its answer to standard output, and the tail's
files to a folder that is deleted when the process has ended, however it ended.
"""

import asyncio
import json
import logging
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

from typing_extensions import override

from bearlake.app.sql_processes import StatementProcess, StatementProcesses
from bearlake.errors import Invalid, Overloaded, Unavailable
from bearlake.protocols.rest.iceberg.sql import Result, SqlRunner
from bearlake.settings.document import Settings
from bearlake.streams.schemas.confined.limits import is_memory, is_time

log = logging.getLogger(__name__)

_PIECE_BYTES = 64 * 1024
_KINDS = {"Invalid": Invalid, "Overloaded": Overloaded}


class ProcessRunner(SqlRunner):
    """Starts a process for each statement. Its owner closes it."""

    def __init__(self, settings: Settings) -> None:
        """`settings`: what each process gets."""
        self._settings = settings
        self._processes = StatementProcesses()

    @override
    async def run(self, statement: str, streams: Sequence[str], *, is_live: bool) -> Result:
        asked = pickle.dumps((self._settings, statement, list(streams), is_live))
        limits = self._settings.catalog.sql
        async with _folder() as folder, self._processes.started(folder) as process:
            try:
                async with asyncio.timeout(limits.deadline_ms / 1000):
                    octets = await _answer(process, asked, limits.answer_bytes_max)
                    code = await process.exit_code()
            except TimeoutError:
                raise Unavailable(f"the statement was stopped after {limits.deadline_ms} ms") from None
        return _result(code, octets)

    async def close(self) -> None:
        """End all statements, and what starts their processes. Idempotent."""
        await self._processes.close()


@asynccontextmanager
async def _folder() -> AsyncIterator[str]:
    """Give the block a folder, which a thread deletes at the end: the tail of a log may be large."""
    folder = TemporaryDirectory(prefix="bearlake-sql-")
    try:
        yield folder.name
    finally:
        # Shielded: a thread that has no place yet would be given up with its waiter.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, folder.cleanup))


async def _answer(process: StatementProcess, asked: bytes, bytes_max: int) -> bytes:
    """Send the request; return all that the process writes. Raises `Overloaded`: that is too much."""
    read = bytearray()
    with suppress(ConnectionError):  # it has ended: its exit code says why
        process.writer.write(asked)
        await process.writer.drain()
        process.writer.write_eof()
        while piece := await process.reader.read(_PIECE_BYTES):
            read += piece
            if len(read) > bytes_max:
                raise Overloaded(
                    f"the result has more than {bytes_max} bytes (catalog.sql.answer_bytes_max): select less"
                )
    return bytes(read)


def _result(code: int, octets: bytes) -> Result:
    if code == 0:
        found: dict[str, Any] = json.loads(octets)
        if "error" in found:
            raise _KINDS.get(found["kind"], Unavailable)(found["error"])
        return Result([(name, type_) for name, type_ in found["columns"]], found["rows"], found["is_truncated"])
    if is_memory(code) or code == -9:
        raise Overloaded("the statement needs more memory than catalog.sql.process_bytes_max")
    if is_time(code) or code == -14:
        raise Unavailable("the statement was stopped: it took too long")
    log.error("the process of a statement failed", extra={"exit": code})
    raise Unavailable("the statement's process failed; the catalog's log has its exit code")
