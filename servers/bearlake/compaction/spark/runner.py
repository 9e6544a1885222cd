"""`SparkRunner`: runs each list of work items as one Spark job, with one task per item.

The session starts with the first list and stays open. If the JVM dies or the context ends, the next call starts a new session; running
calls raise `Unavailable`, and the caller runs their items again. The runner itself retries nothing.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
import uuid
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from typing import IO, Any, TypeVar

from typing_extensions import override

from bearlake import errors
from bearlake.compaction.encoding import decode_item_result, encode_item
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import Runner
from bearlake.compaction.spark.executor import ItemFunction
from bearlake.compaction.spark.session import Session
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.compaction.workbench import TaskLimits
from bearlake.errors import BearlakeError, Invalid, Unavailable
from bearlake.objects.open import ObjectStoreSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

_NICE = 19
_REASON_BYTES_MAX = 500
_OWN_THREADS = 2
"""Threads for starting, cancelling and closing, besides those of jobs."""


class SparkRunner(Runner):
    """A `Runner` on Spark. Use from the event loop's thread only, and `close` it."""

    def __init__(
        self, settings: SparkSettings, store_url: str, store_settings: ObjectStoreSettings, limits: TaskLimits
    ) -> None:
        """Executors open the store themselves, by URL and settings, with the credentials in their own environment.

        Raises:
            Invalid: the store is in this process's memory, which executors cannot reach.
        """
        if store_url.startswith("memory:"):
            raise Invalid(
                "Spark's executors cannot reach an in-memory object store: use file:///folder or a cloud store"
            )
        self._settings = settings
        self._function = ItemFunction(store_url=store_url, store_settings=_plain(store_settings), limits=limits)
        self._slots = asyncio.Semaphore(settings.concurrent_job_count)
        self._threads = ThreadPoolExecutor(settings.concurrent_job_count + _OWN_THREADS, thread_name_prefix="spark")
        self._changing = asyncio.Lock()
        self._session: Session | None = None
        self._archiving: asyncio.Task[None] | None = None
        self.start_count = 0
        """Number of sessions started."""

    @property
    def jvm_pid(self) -> int | None:
        """The JVM's process id, or None if no JVM is running."""
        return self._session.pid if self._session is not None and self._session.is_alive else None

    async def start(self) -> None:
        """Start the session now, so that the first items need not wait; `run` would start it otherwise. Raises as `run` does."""
        await self._running_session()

    @override
    async def run(self, items: Sequence[WorkItem]) -> list[ItemResult]:
        """Run the items. Raises also `Unsupported` (Java or Spark is not installed), and `Invalid` (Spark failed to run an item)."""
        if not items:
            return []
        async with self._slots:
            session = await self._running_session()
            answers = await self._collect(session, [encode_item(item).decode() for item in items])
        return [_result(answer) for answer in answers]

    @override
    async def close(self) -> None:
        if self._archiving is not None:
            self._archiving.cancel()
            await asyncio.wait([self._archiving])
        async with self._changing:
            if self._session is not None:
                await self._in_thread(self._session.close)
                self._session = None
        self._threads.shutdown(wait=False)

    async def _collect(self, session: Session, payloads: Sequence[str]) -> list[str]:
        group = uuid.uuid4().hex
        job = asyncio.get_running_loop().run_in_executor(
            self._threads, session.collect, group, self._function, payloads
        )
        try:
            async with asyncio.timeout(self._settings.job_deadline_ms / 1000):
                return await asyncio.shield(job)
        except TimeoutError as error:
            raise Unavailable(f"the Spark job did not finish within {self._settings.job_deadline_ms} ms") from error
        finally:
            if not job.done():
                await self._cancel(session, group, job)

    async def _cancel(self, session: Session, group: str, job: "asyncio.Future[list[str]]") -> None:
        """Stop a job whose result is discarded, and wait until it has ended. If its tasks do not end in time, kill Spark."""
        cancelling = asyncio.get_running_loop().run_in_executor(self._threads, session.cancel, group)
        both: set[asyncio.Future[Any]] = {job, cancelling}
        await asyncio.wait(both, timeout=self._settings.cancel_deadline_ms / 1000)
        if not job.done():
            log.error("a cancelled Spark job did not stop; stopping Spark", extra={"group": group})
            session.kill()
            await asyncio.wait(both, timeout=self._settings.cancel_deadline_ms / 1000)
        with suppress(BearlakeError, asyncio.InvalidStateError):
            job.exception()

    async def _running_session(self) -> Session:
        async with self._changing:
            if self._session is not None and self._session.is_alive:
                return self._session
            if self._session is not None:
                log.error("Spark's JVM exited unexpectedly; starting a new one", extra={"pid": self._session.pid})
                dead, self._session = self._session, None
                await self._in_thread(dead.close)
            self._session = await self._start()
            return self._session

    async def _start(self) -> Session:
        started_s = asyncio.get_running_loop().time()
        session = await self._in_thread(lambda: Session(self._settings))
        try:
            async with asyncio.timeout(self._settings.start_deadline_ms / 1000):
                await self._in_thread(session.connect)
        except BaseException as error:
            session.kill()
            await self._in_thread(session.close)
            if isinstance(error, TimeoutError):
                raise Unavailable(f"Spark did not start within {self._settings.start_deadline_ms} ms") from error
            raise
        self.start_count += 1
        duration_ms = int((asyncio.get_running_loop().time() - started_s) * 1000)
        log.info(
            "Spark started",
            extra={"pid": session.pid, "duration_ms": duration_ms, "archive": session.has_archive},
        )
        if self._settings.archive and not session.has_archive and self._archiving is None:
            self._archiving = asyncio.create_task(self._build_archive(), name="build a class-data archive")
        return session

    async def _build_archive(self) -> None:
        """Build the archive in a separate process at the lowest priority; the next start uses it."""
        settings = self._settings
        arguments = [
            sys.executable,
            "-m",
            "bearlake.compaction.spark.archive",
            "--heap-bytes",
            str(settings.heap_bytes),
        ]
        for option, value in (("--folder", settings.archive_folder), ("--java-home", settings.java_home)):
            arguments += [option, value] if value else []
        with tempfile.TemporaryFile() as complaints:  # not a pipe, which the JVM would keep open after its parent
            process = await asyncio.create_subprocess_exec(
                *arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=complaints, start_new_session=True
            )
            try:
                os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()  # its JVM exits with it
                    await process.wait()
            if code == 0:
                log.info("built a class-data archive for Spark's next start")
                return
            reason = _last_line(complaints)
        log.warning(
            "no class-data archive was built: Spark works, but its next start takes as long as this one",
            extra={"code": code, "error": reason},
        )

    async def _in_thread(self, step: Callable[[], T]) -> T:
        """Run `step` to its end despite cancellation, so that no JVM is left half started or half stopped."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, step)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise


def _last_line(file: IO[bytes]) -> str:
    """Return the last line, at most `_REASON_BYTES_MAX` of it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _REASON_BYTES_MAX))
    return file.read().decode(errors="replace").strip().rpartition("\n")[2]


def _plain(settings: ObjectStoreSettings) -> ObjectStoreSettings:
    """Return only the base class's settings, so that executors need not import a whole server's settings."""
    return ObjectStoreSettings(**{part.name: getattr(settings, part.name) for part in fields(ObjectStoreSettings)})


def _result(answer: str) -> ItemResult:
    found = json.loads(answer)
    if "result" in found:
        return decode_item_result(found["result"])
    kind = getattr(errors, found["error"], Invalid)
    message = str(found["message"])
    try:
        raise kind(message)
    except TypeError:  # kinds with extra data: TooLarge, OutOfRange
        raise Invalid(message) from None
