"""Saves all cursors that moved on this server, in one transaction, whenever a caller waits and at least every `save_ms`.

While a save runs, the next one collects cursors. A save carries the leases of its partitions. If another server has taken a partition
over, the store skips its cursors, and the saver calls `on_overtaken`. If a cursor no longer exists in the store, the saver calls
`on_unsaved`, and callers that wait for the cursor get an error.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from bearlake.errors import BearlakeError, Fenced, Overloaded
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import CursorId, CursorSave, CursorStore, CursorUpdate
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.telemetry import metrics
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

SAVE_COUNT_MAX = 1_000
"""Most cursors in one transaction."""


@dataclass(slots=True)
class Revisions:
    """Revisions of the saves of one partition under one lease.

    Each revision is larger than all earlier ones, whatever their outcome, so that the store can order the saves.
    """

    last: int = 0

    def seen(self, revision: int) -> None:
        """Note a revision that the store already has."""
        self.last = max(self.last, revision)

    def next(self) -> int:
        """Return the revision for the next save."""
        self.last += 1
        return self.last


@dataclass(slots=True, kw_only=True, eq=False)
class SavedCursor:
    """A durable cursor and the state of its saves."""

    partition: PartitionKey
    name: str
    cursor: AckCursor
    lease: Lease
    generation: int
    revisions: Revisions
    saved_version: int = 0
    is_whole: bool = True
    """Whether the last save had room for all ranges."""
    is_over: bool = False
    """Saving has ended: the partition was released or taken over, or the subscription was deleted."""
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    @property
    def is_dirty(self) -> bool:
        """Whether the cursor has unsaved changes."""
        return not self.is_over and self.cursor.version > self.saved_version

    def end(self, error: BearlakeError) -> None:
        """Stop saving; waiting callers get the error."""
        self.is_over = True
        self.answer(error)

    def answer(self, error: BearlakeError | None = None) -> None:
        """Answer the callers whose changes are saved now, or, with `error`, all waiting callers."""
        left = []
        for version, future in self.waiters:
            if error is None and version > self.saved_version:
                left.append((version, future))
            elif future.done():
                continue
            elif error is not None:
                future.set_exception(error)
            elif not self.is_whole:
                future.set_exception(
                    Overloaded(f"the cursor {self.name!r} has too many acknowledged ranges to store them all")
                )
            else:
                future.set_result(None)
        self.waiters = left


class Saver:
    """Saves the cursors of one server. The service's task group owns `run`."""

    def __init__(
        self,
        store: CursorStore,
        on_overtaken: Callable[[PartitionKey, Lease], None],
        on_unsaved: Callable[[SavedCursor], None],
        *,
        save_ms: int,
        retry_pause_ms: int,
    ) -> None:
        """`on_overtaken` is called for a partition whose lease is lost.

        `on_unsaved` is called for a cursor that no longer exists in the store, and must call its `end`.
        """
        self._store = store
        self._on_overtaken = on_overtaken
        self._on_unsaved = on_unsaved
        self._save_s = save_ms / 1000
        self._retry_pause_s = retry_pause_ms / 1000
        self._moved: dict[SavedCursor, None] = {}
        self._any = asyncio.Event()
        self._urgent = asyncio.Event()

    def moved(self, saved: SavedCursor, *, is_urgent: bool = False) -> None:
        """Schedule a save of a cursor that may have moved; at once if `is_urgent`."""
        if saved.is_dirty:
            self._moved[saved] = None
            self._any.set()
            if is_urgent:
                self._urgent.set()

    async def flushed(self, saved: SavedCursor) -> None:
        """Return when the cursor's current state is saved. Raises `Fenced`, `Overloaded`, `Unavailable`."""
        if saved.is_over:
            raise Fenced(f"the cursor {saved.name!r} is no longer held by this server")
        if saved.is_dirty:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            saved.waiters.append((saved.cursor.version, waiter))
            self.moved(saved, is_urgent=True)
            await waiter
        elif not saved.is_whole:
            raise Overloaded(f"the cursor {saved.name!r} has too many acknowledged ranges to store them all")

    async def run(self) -> None:
        """Save until cancelled."""
        outage = Outage(log, "cannot save cursors; retrying", "saving cursors works again")
        while True:
            await self._any.wait()
            try:
                async with asyncio.timeout(self._save_s):
                    await self._urgent.wait()
            except TimeoutError:
                pass
            try:
                await self.save()
                outage.over()
            except BearlakeError as error:
                outage.failed(error)
                await asyncio.sleep(self._retry_pause_s)

    async def save(self) -> None:
        """Save all moved cursors. Callers that wait for them get the error that this raises: `Unavailable`, `Overloaded`, `Fenced`."""
        chosen = [saved for saved in list(self._moved)[:SAVE_COUNT_MAX] if saved.is_dirty]
        for saved in list(self._moved)[:SAVE_COUNT_MAX]:
            del self._moved[saved]
        if not self._moved:
            self._any.clear()
            self._urgent.clear()
        if chosen:
            await self._save(chosen)

    async def _save(self, chosen: Collection[SavedCursor]) -> None:
        versions = []
        updates: dict[PartitionKey, tuple[Lease, list[CursorUpdate]]] = {}
        for saved in chosen:
            packed, is_whole = saved.cursor.pack()
            versions.append((saved, saved.cursor.version, is_whole))
            update = CursorUpdate(
                saved.name, saved.cursor.mark_delete, packed, saved.revisions.next(), generation=saved.generation
            )
            updates.setdefault(saved.partition, (saved.lease, []))[1].append(update)
        saves = [CursorSave(partition, items, lease) for partition, (lease, items) in updates.items()]
        try:
            overtaken, unsaved = await self._store.save(saves)
        except BearlakeError as error:
            metrics.CURSOR_SAVES.labels("failed").inc()
            for saved in chosen:
                saved.answer(error)
                self.moved(saved)
            raise
        metrics.CURSOR_SAVES.labels("saved").inc()
        for saved, version, is_whole in versions:
            if CursorId(saved.partition, saved.name) in unsaved:
                self._on_unsaved(saved)
            elif saved.partition not in overtaken:
                saved.saved_version, saved.is_whole = version, is_whole
                saved.answer()
        for partition in overtaken:
            self._on_overtaken(partition, updates[partition][0])
