"""The compaction worker of `bearlake up`: a separate process, which is restarted when it ends.

Spark takes seconds to start and a gigabyte to run; producers and consumers do not wait for it. A worker that dies loses nothing: the
next worker takes up its tasks. A worker is restarted after a pause, which doubles while workers keep dying soon after their start.
"""

import asyncio
import logging
import os
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from bearlake.app.children import ended, spawn, store_variables, terminate
from bearlake.app.options import UpOptions
from bearlake.owned_tasks import Tasks
from bearlake.settings.document import Settings

log = logging.getLogger(__name__)

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 60.0
READY_FILE = "compactor.json"


class WorkerProcess:
    """The worker's process; an asynchronous context that stops the process on exit."""

    def __init__(self, settings: Settings, options: UpOptions) -> None:
        self._arguments = ["serve", "compactor", *_options(settings, options)]
        self._environment = _environment(settings)
        self._process: Process | None = None
        self._watchers = Tasks()
        self._lifeline, self._held = (
            os.pipe()
        )  # the read end is its standard input: the worker stops when this process ends

    async def __aenter__(self) -> Self:
        await self._watchers.__aenter__()
        self._watchers.own("compaction worker", self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._watchers.__aexit__(kind, error, trace)
        finally:
            if self._process is not None:
                terminate(self._process)
                await ended("compaction worker", self._process)
            os.close(self._held)
            os.close(self._lifeline)

    async def _keep(self) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            started = time.monotonic()
            self._process = await spawn(self._arguments, self._environment, self._lifeline)
            code = await self._process.wait()
            if time.monotonic() - started > PAUSE_MAX_S:
                pause_s = PAUSE_MIN_S
            log.error("the compaction worker exited; restarting it", extra={"code": code, "pause_s": pause_s})
            await asyncio.sleep(pause_s)
            pause_s = min(PAUSE_MAX_S, 2 * pause_s)


def _options(settings: Settings, options: UpOptions) -> list[str]:
    folder = options.data_dir / "run"
    folder.mkdir(exist_ok=True)
    arguments = {
        "--admin-port": "0",
        "--ready-file": str(folder / READY_FILE),
        "--name": f"{settings.server.name or 'up'}-compactor",
        "--config": str(options.config or ""),
    }
    given = [argument for name, value in arguments.items() if value for argument in (name, value)]
    return [*given, "--stop-with-parent"]


def _environment(settings: Settings) -> Mapping[str, str]:
    return {
        **store_variables(settings),
        "BEARLAKE_LOGS__LEVEL": settings.logs.level,
        "BEARLAKE_LOGS__FORMAT": settings.logs.format,
        "BEARLAKE_LOGS__AUDIT_CHANGES": str(settings.logs.audit_changes).lower(),
        "BEARLAKE_SERVER__DRAIN_MS": str(settings.server.drain_ms),
    }
