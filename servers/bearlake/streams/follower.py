"""Following the commit log: every server applies every entry, in order, to its tail index and its catalog.

The server's own commits are applied directly when they are the next entry, so that a reader on the same server is woken without
a look into the store; otherwise, and for everybody else's, the log is read. When this server was away for so long that entries were
truncated, it starts over at the head: what is older is looked up in the store.
"""

import asyncio
import logging
from dataclasses import dataclass

from bearlake.errors import OutOfRange, Unavailable
from bearlake.index.tail import TailIndex
from bearlake.metadata import CommitLog
from bearlake.metadata.model import Entry, EntryKind, ObjectCommitted, ObjectRef, PartitionKey
from bearlake.streams.catalog import Catalog
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """How the commit log is followed."""

    page_entry_count: int = 500
    """Entries read from the store at once."""
    wait_ms: int = 1_000
    """Longest wait (ms) for a hint before the log is looked at anyway."""
    retry_pause_ms: int = 200
    """Pause (ms) before the log is read again after the store did not answer."""


class Follower:
    """Keeps a `TailIndex` and a `Catalog` up to date. `run` is owned by the service's task group."""

    def __init__(self, commit_log: CommitLog, tail: TailIndex, catalog: Catalog, settings: FollowerSettings) -> None:
        self._log = commit_log
        self._tail = tail
        self._catalog = catalog
        self._settings = settings
        self.head = 0
        """Newest position that this server has heard of."""

    async def start(self) -> None:
        """Take the head as the starting point and load the catalog, in this order: later changes are followed."""
        self.head = await self._log.head()
        self._tail.reset(self.head)
        await self._catalog.load()

    async def run(self) -> None:
        """Follow for ever; ends only by cancellation."""
        while True:
            try:
                await self._step()
            except OutOfRange:
                log.warning("fell behind the truncated log, starting over", extra={"position": self._tail.position})
                await self.start()
            except Unavailable as error:
                metrics.LOG_FOLLOW_ERRORS.labels("Unavailable").inc()
                log.warning("log not readable, trying again", extra={"error": repr(error)})
                await asyncio.sleep(self._settings.retry_pause_ms / 1000)

    async def _step(self) -> None:
        position = self._tail.position
        await self._log.wait(position, wait_ms=self._settings.wait_ms)
        if self._tail.position != position and self.head <= self._tail.position:
            return  # the hint was our own commit, applied already
        page = await self._log.follow(self._tail.position, limit=self._settings.page_entry_count)
        self.head = max(self.head, page.head)
        changed = []
        for entry in page.entries:
            if entry.position <= self._tail.position:
                continue
            self._tail.apply(entry)
            if entry.kind is EntryKind.STREAM:
                changed.append(entry.stream_number)
        if changed:
            await self._refresh(changed)
        metrics.LOG_FOLLOWED_POSITION.set(self._tail.position)
        metrics.LOG_FOLLOW_LAG.set(self.head - self._tail.position)

    async def _refresh(self, numbers: list[int]) -> None:
        known = {number: view for number in numbers if (view := self._catalog.peek_number(number)) is not None}
        for stream in await self._catalog.refresh(set(numbers)):
            if stream.is_deleted and stream.number in known:
                for partition in known[stream.number].partitions():
                    self._tail.forget(PartitionKey(partition))

    def committed(self, ref: ObjectRef, result: ObjectCommitted) -> None:
        """Apply this server's own commit at once if it is the next entry; otherwise the log will bring it."""
        self.head = max(self.head, result.position)
        if result.position == self._tail.position + 1:
            entry = Entry(
                position=result.position,
                kind=EntryKind.COMMIT,
                object_key=ref.key,
                object_size=ref.size,
                slices=result.slices,
            )
            self._tail.apply(entry)
