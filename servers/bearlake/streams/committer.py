"""Commits objects until their outcome is known (I1, I8), and knows whether this server may still write.

A lost reply is neither success nor failure: the commit is retried with the same token until its outcome is known or this server is fenced.
After `commit_unknown_ms_max` the server stops, so that clients move to other servers; the store decides each token once, even if late.

A store without room stops no server: the attempts are known to have stored nothing, and until there is room the server serves readers.
After the same time the object is given up and the next one waits. So no object is older than the grace period of the orphan sweep when
there is room again: a sweep that forbids an object fences the server that still commits it.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from bearlake.errors import BearlakeError, Fenced, OutOfRoom, Overloaded, Unavailable
from bearlake.metadata import CommitLog
from bearlake.metadata.model import ObjectCommit, ObjectCommitted
from bearlake.metadata.tokens import surely_not_stored
from bearlake.streams.writer_settings import WriterSettings
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)


class Committer:
    """The commits of one writer. Use it from the event loop's thread only."""

    def __init__(
        self,
        commit_log: CommitLog,
        settings: WriterSettings,
        random_source: random.Random,
        on_fenced: Callable[[], None],
        on_unknown: Callable[[], None],
    ) -> None:
        """`on_fenced` runs once when this server is fenced.

        `on_unknown` runs instead when the store has not answered a commit for `commit_unknown_ms_max`, or a bug ended a write.
        """
        self._loop = asyncio.get_running_loop()
        self._commit_log = commit_log
        self._settings = settings
        self._random = random_source
        self._on_fenced = on_fenced
        self._on_unknown = on_unknown
        self.is_fenced = False
        """Whether this server accepts no batches any more."""
        self.problem = ""
        """Why a commit waits: what its last attempt raised. Empty: none waits."""

    async def commit(self, commit: ObjectCommit, *, is_unknown: bool = False) -> ObjectCommitted | None:
        """Retry the commit until the outcome is known; None if this server is fenced and nothing was stored.

        `is_unknown`: an attempt was made before, and its outcome is unknown.

        Raises:
            Conflict: the store decided the token, but has forgotten the result.
            OutOfRoom: there was no room for `commit_unknown_ms_max`, and nothing was stored.
            Unavailable: the outcome is unknown, and the writer does not retry: this server is stopping, or was fenced after an unanswered
                attempt, or the store has forgotten whether it decided the token (I8).
        """
        try:
            return await self._until_known(commit, is_unknown=is_unknown)
        finally:
            self.problem = ""

    async def _until_known(self, commit: ObjectCommit, *, is_unknown: bool) -> ObjectCommitted | None:
        loop = self._loop
        started = waits_since = loop.time()
        is_out_of_room = False
        pause_ms = self._settings.retry_pause_ms
        while not self.is_fenced:
            try:
                result = await self._commit_log.commit(commit)
            except Fenced as error:
                is_unknown = is_unknown or not surely_not_stored(error)
                log.warning("commit refused; stopping this server", extra={"key": commit.token, "error": repr(error)})
                self._end(self._on_fenced)
            except (Unavailable, Overloaded) as error:
                # I1: neither success nor failure. Retry with the same token; later objects wait behind this one (I3).
                fields = {"key": commit.token, "error": repr(error)}
                if isinstance(error, OutOfRoom):
                    if not is_out_of_room:
                        log.error("the metadata store is out of room; commits wait", extra=fields)  # noqa: TRY400
                    is_out_of_room = True
                elif not is_unknown:
                    log.warning("commit outcome unknown; retrying", extra=fields)
                    is_unknown, waits_since = True, loop.time()
                metrics.LOG_COMMIT_ERRORS.labels(type(error).__name__).inc()
                self.problem = str(error) or type(error).__name__
                await asyncio.sleep(pause_ms * (0.5 + self._random.random()) / 1000)
                pause_ms = min(pause_ms * 2, self._settings.retry_pause_max_ms)
                waited_ms = round((loop.time() - waits_since) * 1000)  # the wall clock may step
                if waited_ms >= self._settings.commit_unknown_ms_max:
                    if not is_unknown:
                        raise
                    log.error(  # noqa: TRY400
                        "commit outcome unknown for too long; stopping this server",
                        extra={"key": commit.token, "unknown_ms": waited_ms, "error": repr(error)},
                    )
                    self._end(self._on_unknown)
            else:
                if is_unknown or is_out_of_room:
                    log.info("commit outcome known", extra={"key": commit.token})
                self.observe(loop.time() - started)
                return result
        if is_unknown:
            raise Unavailable(f"commit outcome unknown: {commit.token}")
        return None

    async def commit_again(self, commit: ObjectCommit, error: BearlakeError) -> ObjectCommitted | None:
        """As `commit`, after an attempt that raised `error`."""
        is_unknown = not (isinstance(error, OutOfRoom) or (isinstance(error, Fenced) and surely_not_stored(error)))
        if not isinstance(error, OutOfRoom):  # the next attempt logs it
            log.warning("the commit after the put failed; retrying", extra={"key": commit.token, "error": repr(error)})
        return await self.commit(commit, is_unknown=is_unknown)

    @staticmethod
    def observe(seconds: float) -> None:
        """Count a commit whose outcome is known."""
        metrics.LOG_COMMITS.inc()
        metrics.LOG_COMMIT_SECONDS.observe(seconds)

    def fail(self, error: BaseException) -> None:
        """Stop this server after a bug in the write path: no later batch may be stored (I3)."""
        log.error("the write path failed; stopping this server", exc_info=error)
        self._end(self._on_unknown)

    def _end(self, notify: Callable[[], None]) -> None:
        """Stop accepting batches and retrying commits; call `notify` the first time."""
        if not self.is_fenced:
            self.is_fenced = True
            notify()
