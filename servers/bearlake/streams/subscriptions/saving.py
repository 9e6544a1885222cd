"""Saving cursors: all that moved on this server, in one transaction, as often as somebody waits and at least every `save_ms`.

While a save is under way the next one gathers. A save carries the leases of its partitions; where another server has taken over,
nothing is changed, and the partition's owner is told. The owner is told too when the store has not kept a cursor's update, because
the cursor is not there any more: whoever waits for it gets an error.
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
"""Cursors in one transaction."""


@dataclass(slots=True)
class Revisions:
    """The revisions of all saves of one partition under one lease: each larger than all before, whatever became of those, so that the
    store tells them apart."""

    last: int = 0

    def seen(self, revision: int) -> None:
        """The store has this one already."""
        self.last = max(self.last, revision)

    def next(self) -> int:
        """For the next save."""
        self.last += 1
        return self.last


@dataclass(slots=True, kw_only=True, eq=False)
class SavedCursor:
    """A durable cursor, and what of it is saved."""

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
    """Nothing is saved any more: the partition was given up or taken over, or the subscription deleted."""
    waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    @property
    def is_dirty(self) -> bool:
        """Whether something is not saved."""
        return not self.is_over and self.cursor.version > self.saved_version

    def end(self, error: BearlakeError) -> None:
        """Save nothing any more; who waits gets the error."""
        self.is_over = True
        self.answer(error)

    def answer(self, error: BearlakeError | None = None) -> None:
        """Answer those who wait for what is saved now, or with `error` all."""
        left = []
        for version, future in self.waiters:
            if error is None and version > self.saved_version:
                left.append((version, future))
            elif future.done():
                continue
            elif error is not None:
                future.set_exception(error)
            elif not self.is_whole:
                future.set_exception(Overloaded(f"the cursor {self.name!r} has too many holes to be saved whole"))
            else:
                future.set_result(None)
        self.waiters = left


class Saver:
    """Saves the cursors of one server. `run` is owned by the service's task group."""

    def __init__(
        self,
        store: CursorStore,
        on_overtaken: Callable[[PartitionKey, Lease], None],
        on_unsaved: Callable[[SavedCursor], None],
        *,
        save_ms: int,
        retry_pause_ms: int,
    ) -> None:
        """`on_overtaken` is called for a partition whose lease is lost; `on_unsaved` for a cursor that the store does not have any more,
        and must end it.
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
        """The cursor may have moved: save it soon, or now."""
        if saved.is_dirty:
            self._moved[saved] = None
            self._any.set()
            if is_urgent:
                self._urgent.set()

    async def flushed(self, saved: SavedCursor) -> None:
        """Return when the cursor is saved as it is now. Raises `Fenced`, `Overloaded`, `Unavailable`."""
        if saved.is_over:
            raise Fenced(f"the cursor {saved.name!r} is not this server's any more")
        if saved.is_dirty:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            saved.waiters.append((saved.cursor.version, waiter))
            self.moved(saved, is_urgent=True)
            await waiter
        elif not saved.is_whole:
            raise Overloaded(f"the cursor {saved.name!r} has too many holes to be saved whole")

    async def run(self) -> None:
        """Save for ever; ends only by cancellation."""
        outage = Outage(log, "cursors not saved, trying again", "cursors are saved again")
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
        """Save what has moved. Who waits for that gets the same error as is raised: `Unavailable`, `Overloaded`, `Fenced`."""
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
