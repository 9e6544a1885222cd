"""Processes that `bearlake up` starts: further Kafka servers on the same stores, and the tour.

Each further server is an ordinary `bearlake serve kafka` with its own port, name and registration. It stops when its standard input
ends, so it never outlives this process, however this process ends. If a server dies on its own, all of `bearlake up` stops with a
failure code, because the user asked for the whole set of servers.
"""

import asyncio
import logging
import os
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bearlake.app import ready
from bearlake.app.children import ended, spawn, store_variables, terminate
from bearlake.app.exits import Exit
from bearlake.app.options import UpOptions
from bearlake.app.stop import Stop
from bearlake.errors import Unavailable
from bearlake.owned_tasks import Tasks
from bearlake.settings.document import Settings

log = logging.getLogger(__name__)

START_TIMEOUT_MS = 30_000
POLL_MS = 20


class ServerProcesses:
    """Further server processes; an asynchronous context that stops them all on exit."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._processes: dict[str, Process] = {}
        self._watchers = Tasks()
        # The read end is every server's standard input. Nothing is written: it ends when this process ends. (A pipe made by asyncio
        # would keep `Process.wait` from noticing that the other side is dead.)
        self._lifeline, self._held = os.pipe()

    async def __aenter__(self) -> Self:
        await self._watchers.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._watchers.__aexit__(kind, error, trace)
        finally:
            for process in self._processes.values():
                terminate(process)
            await asyncio.gather(*(ended(name, process) for name, process in self._processes.items()))
            os.close(self._held)
            os.close(self._lifeline)

    async def start(self, count: int, settings: Settings, first: Mapping[str, str], options: UpOptions) -> list[str]:
        """Start `count` servers on the ports after the first server's (free ports if that was 0); returns their addresses.

        Returns early, with fewer, if the process is asked to stop. Raises `Unavailable` if they are not ready in time.
        """
        configured_port = settings.listeners.kafka.port
        base = int(first["kafka"].rpartition(":")[2])
        folder = options.data_dir / "run"
        folder.mkdir(exist_ok=True)
        waits = []
        for index in range(1, count + 1):
            port = base + index if configured_port else 0
            ready_file = folder / f"kafka-{index}.json"
            ready_file.unlink(missing_ok=True)
            name = f"server process {index + 1}"
            arguments = _options(settings, options, port, ready_file, index)
            self._processes[name] = await spawn(["serve", "kafka", *arguments], _environment(settings), self._lifeline)
            self._watchers.own(name, self._watch(name))
            waits.append(ready_file)
        try:
            async with asyncio.timeout(START_TIMEOUT_MS / 1000):
                return [address for path in waits if (address := await self._address(path))]
        except TimeoutError as error:
            raise Unavailable(f"the additional server processes are not ready after {START_TIMEOUT_MS} ms") from error

    async def _watch(self, name: str) -> None:
        process = self._processes[name]
        code = await process.wait()
        log.error(
            "a server process exited; stopping all server processes",
            extra={"server": name, "pid": process.pid, "code": code},
        )
        self._stop.request(f"{name} exited with code {code}", Exit.FAILED)
        await asyncio.Event().wait()

    async def _address(self, ready_file: Path) -> str | None:
        while not self._stop.is_requested:
            content = ready.read_ready_file(ready_file)
            if content is not None:
                return str(content["kafka"])
            await asyncio.sleep(POLL_MS / 1000)
        return None


def _options(settings: Settings, options: UpOptions, port: int, ready_file: Path, index: int) -> list[str]:
    arguments = {
        "--kafka-port": str(port),
        "--admin-port": "0",
        "--host": settings.listeners.kafka.host,
        "--ready-file": str(ready_file),
        "--name": f"{settings.server.name}-{index + 1}" if settings.server.name else "",
        "--config": str(options.config or ""),
    }
    given = [argument for name, value in arguments.items() if value for argument in (name, value)]
    return [*given, "--stop-with-parent"]


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables for the stores, and for settings whose defaults in `bearlake up` differ from those of a cluster's server."""
    return {
        **store_variables(settings),
        "BEARLAKE_LOGS__LEVEL": settings.logs.level,
        "BEARLAKE_LOGS__FORMAT": settings.logs.format,
        "BEARLAKE_LOGS__AUDIT_CHANGES": str(settings.logs.audit_changes).lower(),
        "BEARLAKE_SERVER__DRAIN_MS": str(settings.server.drain_ms),
    }


async def run_tour(kafka: str, admin: str, stop: Stop, stores: Settings | None, ca_file: str = "") -> int:
    """Run the tour in a separate process, like any client; returns its exit code. Ends early if this process is asked to stop.

    With `stores`, the tour also checks the table. `ca_file`: the authorities of the admin API's certificate; empty: the machine's.
    """
    arguments = ["tour", "--bootstrap", kafka, "--admin", admin]
    if ca_file:
        arguments += ["--admin-ca-file", ca_file]
    if stores is not None:
        arguments.append("--table")
    process = await spawn(arguments, None if stores is None else store_variables(stores))
    try:
        async with asyncio.TaskGroup() as group:
            stopped = group.create_task(_terminate_on(stop, process))
            code = await process.wait()
            stopped.cancel()
    finally:
        terminate(process)
        await ended("tour", process)
    return code


async def _terminate_on(stop: Stop, process: Process) -> None:
    await stop.wait()
    terminate(process)
