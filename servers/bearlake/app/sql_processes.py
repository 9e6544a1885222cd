"""The processes of clients' statements, from the server's side: a helper forks each (`sql_helper.py`, decision 307).

The helper starts with the first statement, because its libraries take a second and 150 MB. If it has ended, the next statement starts
another. Statements that run then have no exit code, so they fail; nothing else does.
"""

import asyncio
import logging
import os
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bearlake.app.sql_exits import EXIT
from bearlake.errors import Unavailable

log = logging.getLogger(__name__)

HELPER = "bearlake.app.sql_helper"
"""The helper's module; the server does not import it, to keep the engine out of its process."""
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # a process that forks must have no other threads
    "OPENBLAS_NUM_THREADS": "1",  # the same
}


class StatementProcess:
    """The process of one statement."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, control: StreamReader) -> None:
        """`reader`, `writer`: to the process. `control`: of the helper."""
        self.reader, self.writer = reader, writer
        self._control = control

    async def exit_code(self) -> int:
        """Wait until the process has ended; return its exit code, negative for a signal. Raises `Unavailable`: the helper has ended."""
        try:
            (code,) = EXIT.unpack(await self._control.readexactly(EXIT.size))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unavailable("the helper of statements has ended: try again") from None
        return int(code)


class StatementProcesses:
    """Starts processes of statements. Use it from one event loop."""

    def __init__(self) -> None:
        self._helper: _Helper | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    @asynccontextmanager
    async def started(self, folder: str) -> AsyncIterator[StatementProcess]:
        """Start a process for the block, with `folder` for temporary files; at the end, kill it and all that it has started.

        Raises `Unavailable`: the helper does not start, or has too much to do.
        """
        async with _ends() as (reader, writer, talk), _ends() as (controlled, controls, control):
            helper = await self._send(folder, talk, control)
            talk.close()
            control.close()
            try:
                yield StatementProcess(reader, writer, controlled)
            finally:
                writer.close()
                controls.write_eof()
                # Shielded: the caller deletes the folder next.
                await asyncio.shield(_ended(controlled, helper))

    async def close(self) -> None:
        """Kill all processes and end the helper. Idempotent."""
        self._is_closed = True
        async with self._lock:
            if self._helper is not None:
                await self._helper.close()
                self._helper = None

    async def _send(self, folder: str, *ends: socket.socket) -> "_Helper":
        """Let a helper start a process; return the helper. Once the process is asked for, this does not wait any more."""
        async with self._lock:
            if self._is_closed:
                raise Unavailable("the catalog is closing")
            if self._helper is None or not self._helper.send(folder, ends):
                if self._helper is not None:
                    extra = {"exit_code": self._helper.exit_code}
                    log.error("the helper of statements has ended; starting another", extra=extra)
                    await self._helper.close()
                self._helper = await _Helper.started()
                if not self._helper.send(folder, ends):
                    raise Unavailable("the helper of statements does not start; try again")
            return self._helper


@asynccontextmanager
async def _ends() -> AsyncIterator[tuple[StreamReader, StreamWriter, socket.socket]]:
    """Yield our end of a new connection, and its other end; close both at the end."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        try:
            yield reader, writer, theirs
        finally:
            writer.close()


class _Helper:
    def __init__(self, process: Process, channel: socket.socket) -> None:
        self._process, self._channel = process, channel
        self._is_killed = False

    @classmethod
    async def started(cls) -> "_Helper":
        channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                HELPER,
                stdin=its.fileno(),
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd="/",
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # signals of a terminal reach only the server
            )
        except BaseException:
            channel.close()
            raise
        finally:
            its.close()
        return cls(process, channel)

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None: it has not ended, or the process has not noticed yet."""
        return self._process.returncode

    def send(self, folder: str, ends: tuple[socket.socket, ...]) -> bool:
        """Ask for a process; return False if the helper has ended. Raises `Unavailable`: it does not read."""
        if self._is_killed or self._process.returncode is not None:
            return False
        try:
            socket.send_fds(self._channel, [os.fsencode(folder)], [end.fileno() for end in ends])
        except BlockingIOError:
            raise Unavailable("the helper of statements has too much to do: try again") from None
        except ConnectionError:
            return False
        return True

    async def close(self) -> None:
        self._channel.close()  # the helper kills its processes and ends
        try:
            async with asyncio.timeout(WAIT_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """Kill the helper; the kernel kills its processes. From now on, `send` asks it for none: it takes requests until it is gone."""
        self._is_killed = True
        with suppress(ProcessLookupError):
            self._process.kill()


WAIT_S = 30
"""Time (s) for the helper to end, or to end a process; it may still import libraries."""


async def _ended(control: StreamReader, helper: _Helper) -> None:
    """Return when the process has ended. Kills a helper that does not say so."""
    try:
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionError):
                while await control.read(EXIT.size):
                    pass
    except TimeoutError:
        log.warning("the helper of statements does not end a process; killing the helper", extra={"wait_s": WAIT_S})
        helper.kill()
