"""Opens the stores at start: checks that they answer, and retries with growing pauses.

The start waits only for conditions that may end without another start (`Unavailable`: nothing listens, a name does not resolve yet, the
database is still starting, the bucket does not exist yet; a full disk), for `server.startup_wait_ms` in all. Wrong passwords, names and
URLs fail at once; so does a SQLite file that cannot be opened, but for want of room.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TypeVar

from bearlake.app.stop import Stop, Stopped
from bearlake.compaction.holds import Holds, refuse_replaced
from bearlake.errors import Denied, Invalid, NotFound, OutOfRoom, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.open import POSTGRESQL, open_metadata
from bearlake.objects import ByteRange, ObjectStore
from bearlake.objects.open import open_store
from bearlake.settings.document import MetadataSettings, Settings
from bearlake.settings.show import without_password
from bearlake.telemetry.object_calls import ObjectCalls
from bearlake.urls import split_store_url

log = logging.getLogger(__name__)

PAUSE_FIRST_MS = 250
PAUSE_MAX_MS = 5_000
METADATA_STORE = "the metadata store"
ABSENT_KEY = "startup/absent"
"""A key that is never put: reading it shows that the bucket exists and is readable."""

T = TypeVar("T")


class Startup:
    """The time limit of one start, shared by everything that it waits for. Made inside the event loop."""

    def __init__(self, stop: Stop, wait_ms: int, randomness: random.Random | None = None) -> None:
        """`wait_ms` 0: do not wait. `randomness` spreads the attempts of servers that start together."""
        self._stop = stop
        self._wait_ms = wait_ms
        self._randomness = randomness or random.Random()  # noqa: S311 (jitter)
        self._end_s = asyncio.get_running_loop().time() + wait_ms / 1000
        self.waiting_for = ""
        """The store that did not answer last, or has no room; empty if the start waits for nothing."""

    async def until_there(
        self, what: str, place: str, step: Callable[[], Awaitable[T]], failure: type[Unavailable] = Unavailable
    ) -> T:
        """Return the result of `step`, retried while it raises `failure`. `place` is shown beside `what`, without its password.

        Raises:
            Stopped: the process was asked to stop meanwhile.
            Unavailable: no answer, or no room, within the time limit of the start.
            BearlakeError: any other error of the step, at once.
        """
        shown = without_password(place)
        attempt = 0
        while True:
            try:
                result = await self._unless_stopped(step())
            except failure as error:
                pause_s = self._pause_s(attempt)
                is_over = asyncio.get_running_loop().time() + pause_s > self._end_s
                if is_over or isinstance(error.__cause__, ssl.SSLCertVerificationError):
                    has_waited = attempt > 0 or (is_over and self._wait_ms > 0)
                    raise _given_up(what, shown, has_waited, self._wait_ms, error) from error
                self._report(what, shown, error)
            else:
                if attempt:
                    log.info("the store answers", extra={"what": what, "attempt_count": attempt + 1})
                self.waiting_for = ""
                return result
            attempt += 1
            await self._unless_stopped(asyncio.sleep(pause_s))

    def _report(self, what: str, place: str, error: Unavailable) -> None:
        """Note what the start waits for, and log it once."""
        is_full = isinstance(error, OutOfRoom)
        waiting_for = f"room on the disk of {what}" if is_full else what
        level = logging.ERROR if is_full else logging.WARNING
        text = "a store is out of room; retrying" if is_full else "a store does not answer; retrying"
        extra = {"what": what, "place": place, "wait_ms": self._wait_ms, "error": str(error)}
        log.log(logging.DEBUG if self.waiting_for == waiting_for else level, text, extra=extra)
        self.waiting_for = waiting_for

    def _pause_s(self, attempt: int) -> float:
        longest_ms = min(PAUSE_MAX_MS, PAUSE_FIRST_MS << min(attempt, 30))
        return longest_ms * self._randomness.uniform(0.5, 1.0) / 1000

    async def _unless_stopped(self, work: Awaitable[T]) -> T:
        """Await `work`; it is cancelled when the process is asked to stop."""
        working, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Stopped
            return working.result()
        finally:
            for task in (working, stopped):
                task.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)


def _given_up(what: str, place: str, has_waited: bool, wait_ms: int, error: Unavailable) -> Unavailable:
    if not has_waited:
        return error
    failed = "had no room" if isinstance(error, OutOfRoom) else "did not answer"
    return type(error)(f"{what} at {place} {failed} within {wait_ms} ms of the start: {error}")


async def open_stores(
    settings: Settings, closing: AsyncExitStack, startup: Startup | None = None
) -> tuple[Metadata, ObjectStore]:
    """Open both stores of the settings, which `closing` closes; with `startup`, wait until both have answered.

    Raises:
        Invalid, Unsupported: the settings, or what they name, cannot be used.
        Denied, NotFound: a store refuses these credentials, or the database does not exist.
        Unavailable: a store does not answer.
        Stopped: see `Startup.until_there`.
        Fenced: a restore has replaced this metadata store.
    """
    metadata_url, store_url = settings.metadata.url, settings.object_store.url
    for name, url in (("metadata.url", metadata_url), ("object_store.url", store_url)):
        if not url:
            raise Invalid(
                f"{name} is not set: a cluster server needs a metadata store and an object store (bearlake up starts with local ones)"
            )
    store = open_store(store_url, settings.object_store, recorder=ObjectCalls())
    closing.push_async_callback(store.close)
    backend = backend_settings(settings.metadata)
    if startup is None:
        metadata = await open_metadata(metadata_url, backend)
    else:
        failure = Unavailable if split_store_url(metadata_url).scheme in POSTGRESQL else OutOfRoom
        metadata = await startup.until_there(
            METADATA_STORE, metadata_url, lambda: open_metadata(metadata_url, backend), failure
        )
    closing.push_async_callback(metadata.close)
    if startup is not None and split_store_url(store_url).scheme not in ("file", "memory"):
        await startup.until_there("the object store", store_url, lambda: _probe(store))
    if startup is not None:
        await startup.until_there("the object store", store_url, lambda: _refuse_replaced(metadata, store))
    return metadata, store


@asynccontextmanager
async def opened_metadata(settings: Settings) -> AsyncIterator[Metadata]:
    """Open the metadata store of the settings for the block, such as a command. Raises as `open_stores`."""
    metadata = await open_metadata(settings.metadata.url, backend_settings(settings.metadata))
    try:
        yield metadata
    finally:
        await metadata.close()


async def _refuse_replaced(metadata: Metadata, store: ObjectStore) -> None:
    """Raise `Fenced` if a restore has replaced this metadata store. Not every server may list objects."""
    with suppress(Denied):
        await refuse_replaced(metadata, await Holds(store).newest_restore())


async def _probe(store: ObjectStore) -> None:
    """Return when the store answers. Raises `Denied`, `Unavailable`."""
    try:
        await store.read(ABSENT_KEY, [ByteRange(0, 1)])
    except NotFound:
        return


def backend_settings(metadata: MetadataSettings) -> object:
    """Return the settings of the backend that the URL names."""
    return metadata.postgresql if split_store_url(metadata.url).scheme in POSTGRESQL else metadata.sqlite
