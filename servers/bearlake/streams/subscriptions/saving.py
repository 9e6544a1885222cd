"""Saves all cursors that moved on this server, in one transaction, whenever a caller waits and at least every `save_ms`.

While a save runs, the next one collects cursors. A save carries the leases of its partitions. If another server has taken a partition
over, the store skips its cursors, and the saver calls `on_overtaken`. If a cursor no longer exists in the store, the saver calls
`on_unsaved`, and callers that wait for the cursor get an error. A cursor that cannot be saved because of a bug ends alone.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from bearlake.errors import BearlakeError, Fenced, Overloaded, Unavailable
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import CursorId, CursorSave, CursorStore, CursorUpdate
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained, fault
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


class Saveable(Protocol):
    """What a cursor's owner keeps in memory: a subscription's `AckCursor`, or what a share group has in flight."""

    mark_delete: int
    """All smaller offsets are acknowledged."""
    version: int
    """Grows with every change."""

    def pack(self) -> tuple[bytes, bool]:
        """Return what the store keeps beside `mark_delete`, and whether it is complete."""


@dataclass(slots=True, kw_only=True, eq=False)
class SavedCursor:
    """A durable cursor and the state of its saves."""

    partition: PartitionKey
    name: str
    cursor: Saveable
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

    def too_large(self) -> Overloaded:
        """Return the error for callers that wait for a cursor of which not all was saved."""
        return Overloaded(f"the cursor {self.name!r} has too many acknowledged ranges to store them all")

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
                future.set_exception(self.too_large())
            else:
                future.set_result(None)
        self.waiters = left


class Saver:
    """Saves the cursors of one server. The service's task group owns `run`."""

    def __init__(
        self,
        store: CursorStore,
        on_overtaken: Callable[[PartitionKey, Lease], None],
        on_unsaved: Callable[[SavedCursor, BearlakeError], None],
        *,
        save_ms: int,
        retry_pause_ms: int,
    ) -> None:
        """`on_overtaken` is called for a partition whose lease is lost.

        `on_unsaved` is called for a cursor that no longer exists in the store, or cannot be saved because of a bug; it must call the
        cursor's `end` with the error.
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
            raise saved.too_large()

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
        """Save all moved cursors. Callers that wait for them get the error that this raises: `Unavailable`, `Overloaded`."""
        chosen = [saved for saved in list(self._moved)[:SAVE_COUNT_MAX] if saved.is_dirty]
        for saved in list(self._moved)[:SAVE_COUNT_MAX]:
            del self._moved[saved]
        if not self._moved:
            self._any.clear()
            self._urgent.clear()
        if chosen:
            await self._save(chosen)

    async def _save(self, chosen: Sequence[SavedCursor]) -> None:
        packed = [cursor for cursor in map(self._packed, chosen) if cursor is not None]
        updates: dict[PartitionKey, tuple[Lease, list[CursorUpdate]]] = {}
        for cursor in packed:
            updates.setdefault(cursor.saved.partition, (cursor.saved.lease, []))[1].append(cursor.update)
        saves = [CursorSave(partition, items, lease) for partition, (lease, items) in updates.items()]
        if not saves:
            return
        try:
            overtaken, unsaved = await self._store.save(saves)
        except (Unavailable, Overloaded) as error:
            metrics.CURSOR_SAVES.labels("failed").inc()
            for saved in chosen:
                saved.answer(error)
                self.moved(saved)
            raise
        except Exception as error:  # noqa: BLE001 - boundary: one cursor, which is found by saving each alone
            metrics.CURSOR_SAVES.labels("failed").inc()
            await self._save_each([cursor.saved for cursor in packed], error)
            return
        metrics.CURSOR_SAVES.labels("saved").inc()
        for cursor in packed:
            contained(
                log,
                "record a saved cursor",
                partial(self._record_saved, cursor, overtaken, unsaved),
                partial(self._give_up, cursor.saved),
            )
        for partition in overtaken:
            contained(log, "record a lost lease", partial(self._on_overtaken, partition, updates[partition][0]))

    def _packed(self, saved: SavedCursor) -> "_Packed | None":
        """Return the cursor's update; None if a bug prevents it, and then the cursor is given up."""
        try:
            ranges, is_whole = saved.cursor.pack()
            update = CursorUpdate(
                saved.name, saved.cursor.mark_delete, ranges, saved.revisions.next(), generation=saved.generation
            )
        except Exception as error:  # noqa: BLE001 - boundary: one cursor
            fault(log, "pack a cursor", error, partial(self._give_up, saved))
            return None
        return _Packed(saved, saved.cursor.version, is_whole, update)

    async def _save_each(self, chosen: Sequence[SavedCursor], error: Exception) -> None:
        """Save each cursor alone after the store refused them together; give up a cursor that the store refuses alone."""
        if len(chosen) == 1:
            fault(log, "save a cursor", error, partial(self._give_up, chosen[0]))
            return
        for index, saved in enumerate(chosen):
            try:
                await self._save([saved])
            except (Unavailable, Overloaded):
                for later in chosen[index + 1 :]:
                    self.moved(later)
                raise

    def _record_saved(
        self, packed: "_Packed", overtaken: Collection[PartitionKey], unsaved: Collection[CursorId]
    ) -> None:
        saved = packed.saved
        if CursorId(saved.partition, saved.name) in unsaved:
            self._on_unsaved(saved, Unavailable(f"the cursor {saved.name!r} is no longer stored"))
        elif saved.partition not in overtaken:
            saved.saved_version, saved.is_whole = packed.version, packed.is_whole
            saved.answer()

    def _give_up(self, saved: SavedCursor, error: Exception) -> None:
        self._on_unsaved(saved, Unavailable(f"the cursor {saved.name!r} cannot be saved: {error!r}"))


class _Packed(NamedTuple):
    """A cursor's state that is being saved."""

    saved: SavedCursor
    version: int
    is_whole: bool
    update: CursorUpdate
