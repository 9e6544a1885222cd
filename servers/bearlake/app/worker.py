"""The compaction worker of `bearlake up`: a separate process, which is restarted when it ends.

Spark takes seconds to start and a gigabyte to run; producers and consumers do not wait for it. A worker that dies loses nothing: the
next worker takes up its tasks. A worker is restarted after a pause, which doubles while workers keep dying soon after their start.

Without Java or Spark, no worker is started: the log says so once, streams work without tables, and whoever installs what is missing within
an hour needs no restart.
"""

import asyncio
import functools
import logging
import os
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from bearlake.app.children import ended, spawn, store_variables, terminate
from bearlake.app.compaction_needs import lacking
from bearlake.app.options import UpOptions
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.owned_tasks import Tasks
from bearlake.settings.document import Settings

log = logging.getLogger(__name__)

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 60.0
LOOK_COUNT_MAX = 65
"""How often the worker looks for what is missing: 6 times in the first minute, then once a minute for an hour."""
READY_FILE = "compactor.json"


class WorkerProcess:
    """The worker's process; an asynchronous context that stops the process on exit."""

    def __init__(
        self,
        settings: Settings,
        options: UpOptions,
        *,
        look: Callable[[SparkSettings], str | None] = lacking,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`look` returns what is missing on this machine, in a thread; `pause` waits for seconds."""
        self._arguments = ["serve", "compactor", *_options(settings, options)]
        self._environment = _environment(settings)
        self._look = functools.partial(look, settings.spark)
        self._pause = pause
        self._has_looked = asyncio.Event()
        self._missing: str | None = None
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

    async def can_start(self) -> bool:
        """Return whether this machine has what a worker needs, once that is known."""
        await self._has_looked.wait()
        return self._missing is None

    async def _keep(self) -> None:
        pause_s = PAUSE_MIN_S
        while await self._has_needs():
            started = time.monotonic()
            self._process = await spawn(self._arguments, self._environment, self._lifeline)
            code = await self._process.wait()
            if time.monotonic() - started > PAUSE_MAX_S:
                pause_s = PAUSE_MIN_S
            log.error("the compaction worker exited; restarting it", extra={"code": code, "pause_s": pause_s})
            await self._pause(pause_s)
            pause_s = _next(pause_s)
        await asyncio.Event().wait()

    async def _has_needs(self) -> bool:
        """Wait until nothing is missing. Returns False after `LOOK_COUNT_MAX` looks."""
        pause_s = PAUSE_MIN_S
        for count in range(LOOK_COUNT_MAX):
            self._missing = await asyncio.to_thread(self._look)
            self._has_looked.set()
            if self._missing is None:
                if count:
                    log.warning("compaction starts: nothing is missing any more")
                return True
            if count == 0:
                log.error(
                    "compaction cannot start: streams work, but no table gets its files",
                    extra={"missing": self._missing},
                )
            await self._pause(pause_s)
            pause_s = _next(pause_s)
        log.error("compaction stays off until the next start", extra={"missing": self._missing})
        return False


def _next(pause_s: float) -> float:
    return min(PAUSE_MAX_S, 2 * pause_s)


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
