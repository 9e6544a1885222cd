"""Follows the commit log: every server applies every entry, in order, to its slice indexes, catalog, access rules and quotas.

The server applies its own commit directly if the commit is the next log entry, so that it wakes local readers without reading the store.
It reads all other entries from the log: at once while somebody reads here or waits for an entry, else several at a time (decision 310). If
the store has truncated entries that this server has not read, the server starts over at the head; readers then look older offsets up in the
store.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from bearlake.errors import OutOfRange, Overloaded, Unavailable
from bearlake.index.isolation import IsolationIndex
from bearlake.index.segments import SegmentIndex
from bearlake.index.tail import TailIndex
from bearlake.metadata import CommitLog
from bearlake.metadata.model import EntryKind, ObjectCommitted, ObjectRef
from bearlake.streams.catalog import Catalog
from bearlake.streams.turns import in_turns
from bearlake.telemetry import metrics
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """How servers follow the commit log."""

    page_entry_count: int = 500
    """Entries read from the store at once."""
    wait_ms: int = 1_000
    """Longest wait (ms) for a hint before the log is read anyway."""
    retry_pause_ms: int = 200
    """Pause (ms) before the log is read again after the store did not answer."""
    pause_ms: float = 10
    """Shortest time (ms) between two reads of the log while no client reads here: with many servers, a read then gets several commits."""


class Policy(Protocol):
    """The access rules, or the quotas, that this server applies."""

    async def refresh(self) -> None:
        """Read them again. Raises `Unavailable`."""


class Follower:
    """Keeps a `TailIndex`, a `SegmentIndex`, a `Catalog`, the access rules and the quotas up to date. The service owns the task `run`."""

    def __init__(
        self,
        commit_log: CommitLog,
        tail: TailIndex,
        segments: SegmentIndex,
        catalog: Catalog,
        policies: Sequence[Policy],
        settings: FollowerSettings,
        on_position: Callable[[int], None],
        isolation: IsolationIndex | None = None,
        has_readers: Callable[[], bool] = lambda: True,
    ) -> None:
        """`policies`: the access rules and the quotas. `on_position` is called with each newer log position that this server learns of.

        `has_readers`: whether clients read here, which wait for new entries.
        """
        self._log = commit_log
        self._tail = tail
        self._segments = segments
        self._catalog = catalog
        self._policies = policies
        self._settings = settings
        self._is_lost = False
        self._changed: dict[int, None] = {}
        """Streams that changed according to the log, and that this server has not read again yet."""
        self._is_policy_changed = False
        """Whether access rules or quotas changed according to the log, and this server has not read them again yet."""
        self._head = 0
        self._on_position = on_position
        self._transactions = isolation or IsolationIndex()
        self._has_readers = has_readers
        self._loop = asyncio.get_running_loop()
        self._next_read = 0.0  # loop time before which the log is not read, unless somebody is in a hurry
        self._hurry = asyncio.Event()
        catalog.catching_up.on_wait = self._hurry.set

    async def start(self) -> None:
        """Start at the log's head, then load the policies and the catalog; this order ensures that later changes are followed."""
        head = await self._log.head()
        await self._refresh_policies()
        self._advance_head(head)
        self._transactions.reset(head)
        self._tail.reset(head)
        self._segments.reset(head)
        self._changed.clear()
        await self._catalog.load(head)

    async def run(self) -> None:
        """Follow the log until cancelled."""
        outage = Outage(log, "cannot read the log; retrying", "the log is readable again")
        while True:
            try:
                if self._is_lost:
                    log.warning(
                        "the log was truncated past this server's position; reloading",
                        extra={"position": self._tail.position},
                    )
                    await self.start()
                    self._is_lost = False
                await self._step()
                outage.over()
            except OutOfRange:
                self._is_lost = True
            except (Unavailable, Overloaded) as error:
                metrics.LOG_FOLLOW_ERRORS.labels(type(error).__name__).inc()
                outage.failed(error)
                await asyncio.sleep(self._settings.retry_pause_ms / 1000)

    async def _step(self) -> None:
        # The last refresh may have failed, with its changes' log entries applied; `start` leaves out own commits during its load.
        await self._refresh()
        position = self._tail.position
        await self._log.wait(position, wait_ms=self._settings.wait_ms)
        await self._pause()
        if self._tail.position != position and self._head <= self._tail.position:
            return  # the hint was our own commit, which is applied already
        began, limit = self._loop.time(), self._settings.page_entry_count
        page = await self._log.follow(self._tail.position, limit=limit)
        has_more = len(page.entries) == limit
        self._next_read = began if has_more else began + self._settings.pause_ms / 1000
        self._advance_head(page.head)
        if any(entry.kind is EntryKind.POLICY for entry in page.entries):
            self._is_policy_changed = True
            await self._refresh()  # before the entries: no client may see later records under the former policies
        for entry in page.entries:
            if entry.position <= self._tail.position:
                continue
            self._transactions.apply(entry)
            self._tail.apply(entry)
            self._segments.apply(entry)
            if entry.kind is EntryKind.STREAM:
                self._changed[entry.stream_number] = None
        await self._refresh()
        metrics.LOG_FOLLOWED_POSITION.set(self._tail.position)
        metrics.LOG_FOLLOW_LAG.set(self._head - self._tail.position)

    async def _pause(self) -> None:
        """Let more entries arrive, unless somebody waits for them, or the last read was long ago or did not get all."""
        pause_s = self._next_read - self._loop.time()
        if pause_s > 0 and not self._has_readers() and not self._catalog.catching_up.has_waiters:
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()

    def _advance_head(self, position: int) -> None:
        if position > self._head:
            self._head = position
            self._on_position(position)

    async def _refresh(self) -> None:
        """Read the changed policies and streams again; they stay marked until the store answers."""
        if self._is_policy_changed:
            await self._refresh_policies()
        changed = list(self._changed)
        if changed:
            deleted = [stream for stream in await self._catalog.refresh(changed) if stream.is_deleted]
            async for streams in in_turns(deleted):
                for stream in streams:
                    for index in range(stream.partition_count):
                        self._tail.forget(stream.partition(index))
                        self._segments.forget(stream.partition(index))
                        self._transactions.forget(stream.partition(index))
            for number in changed:
                self._changed.pop(number, None)
        self._catalog.reached(self._tail.position)

    async def _refresh_policies(self) -> None:
        for policy in self._policies:
            await policy.refresh()
        self._is_policy_changed = False

    def committed(self, ref: ObjectRef, result: ObjectCommitted) -> bool:
        """Apply this server's own commit at once if it is the next entry, and return whether it is applied.

        Otherwise the log delivers it later. So it does if the entry may have transaction changes, which a commit's result does not have.
        """
        self._advance_head(result.position)
        if result.position == self._tail.position + 1 and not result.is_transactional:
            self._tail.committed(result.position, ref, result.slices)
            if self._catalog.position == result.position - 1:
                self._catalog.reached(result.position)  # this entry changes no stream
        return self._tail.position >= result.position
