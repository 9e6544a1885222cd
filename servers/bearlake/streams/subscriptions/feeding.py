"""The task that reads entries for a dispatcher: asks the machine what to read, reads it, and lets the machine deliver.

flow, acknowledge, … ─> machine ── poke ─┐
                                         ├─> dispatch → want → read → offer → dispatch …
records are appended, entries are due ───┘
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from bearlake.clock import Clock
from bearlake.errors import BearlakeError, Corrupt, NotFound, OutOfRange, Overloaded, TooLarge, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.subscriptions.cleaned_batches import has_gaps
from bearlake.streams.subscriptions.consumers import AttachedConsumer, StoredEntry
from bearlake.streams.subscriptions.dispatcher import Dispatcher, Read, ReadAgain
from bearlake.streams.subscriptions.model import Closed, EntryAck
from bearlake.streams.subscriptions.reading import Records, entries_of, ranges_of
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import fault
from bearlake.telemetry.outage import Outage

if TYPE_CHECKING:
    from bearlake.streams.subscriptions import EntryReader

log = logging.getLogger(__name__)

OFFER_COUNT_MAX = 500
"""Entries offered without yielding to the event loop: about 5 ms of work."""
DUE_WAIT_S_MAX = 60.0
"""Longest time between two checks of the clock while delayed entries wait."""


class Surroundings(NamedTuple):
    """What a subscription needs from its server."""

    records: Records
    clock: Clock
    settings: SubscriptionSettings
    start: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    """Starts a task that the server owns."""
    may_deliver: Callable[[PartitionKey], bool]
    """Whether this server is sure that it dispatches the partition now; the feeder delivers nothing while it is not."""


class _Unresolved(NamedTuple):
    consumer: AttachedConsumer
    ack: EntryAck
    is_through: bool


class Feeder:
    """Reads for one machine. Use it from the event loop's thread only."""

    def __init__(
        self,
        partition: PartitionKey,
        machine: Dispatcher,
        reader: "EntryReader",
        surroundings: Surroundings,
        on_moved: Callable[[], None],
        on_failed: Callable[[Closed], None],
        on_damaged: Callable[[Corrupt, Sequence[FetchRange]], None],
    ) -> None:
        """`on_moved` is called when the cursor may have moved.

        Called last: `on_failed` when the partition can no longer be read; `on_damaged`, with the ranges read, when entries are damaged.
        """
        self._partition = partition
        self._machine = machine
        self._reader = reader
        self._around = surroundings
        self._settings = surroundings.settings
        self._on_moved = on_moved
        self._on_failed = on_failed
        self._on_damaged = on_damaged
        self._ranges: Sequence[FetchRange] = ()
        """The ranges of the last read."""
        self._mark_delete_read = 0
        """The mark-delete offset when the last read began."""
        self._unresolved: deque[_Unresolved] = deque()
        self._taken_count = 0
        """Total number of acknowledgements that had to wait for a read; the last of them are still waiting."""
        self._resolved: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._tail: asyncio.Timeout | None = None
        self._tail_offset = -1
        self._outage = Outage(log, "a subscription cannot read; retrying", "a subscription reads again")
        self._task = surroundings.start(self._run())

    def poke(self, *, is_forced: bool = False) -> None:
        """Run another step, because something changed. A read that waits for records continues unless there is other work."""
        self._wake.set()
        tail = self._tail
        if tail is None or tail.expired():
            return
        if is_forced or self._machine.want() != Read(self._tail_offset):
            tail.reschedule(asyncio.get_running_loop().time())

    def stop(self) -> None:
        """Stop reading and delivering; drop acknowledgements that wait for a read, and fail the callers that wait for them."""
        if self._task is not asyncio.current_task():
            self._task.cancel()
        dropped = len(self._unresolved)
        for item in self._unresolved:
            item.consumer.has_dropped = True
        self._unresolved.clear()
        self._answer_resolved(Unavailable(f"{dropped} acknowledgements were dropped") if dropped else None)

    def resolve(self, consumer: AttachedConsumer, ack: EntryAck, *, is_through: bool) -> None:
        """Queue the acknowledgement of an entry with an unknown extent; the task looks it up. Raises `Overloaded`: too many wait."""
        if len(self._unresolved) >= self._settings.unresolved_ack_count_max:
            metrics.SUBSCRIPTION_ACKS_DROPPED.inc()
            raise Overloaded(f"{len(self._unresolved)} acknowledgements already wait for a read of the log")
        self._unresolved.append(_Unresolved(consumer, ack, is_through))
        self._taken_count += 1
        self.poke(is_forced=True)

    async def resolved(self) -> None:
        """Return when no acknowledgement accepted so far waits for a read of the log.

        Raises `Unavailable`: some were dropped, or have waited longer than `resolve_wait_ms` (these keep waiting).
        """
        wait_ms, count = self._settings.resolve_wait_ms, self._taken_count
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._taken_count - len(self._unresolved) < count:
                    if self._resolved is None:
                        self._resolved = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._resolved)
        except TimeoutError:
            raise Unavailable(f"acknowledgements waited more than {wait_ms} ms for a read of the log") from None

    def _answer_resolved(self, error: BearlakeError | None = None) -> None:
        resolved, self._resolved = self._resolved, None
        if resolved is None or resolved.done():
            return
        if error is None:
            resolved.set_result(None)
        else:
            resolved.set_exception(error)
            resolved.exception()  # mark the error as retrieved: the callers may have been cancelled

    # -- the task ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run until cancelled, or until the partition cannot be read."""
        while True:
            self._wake.clear()
            try:
                await self._step()
                self._outage.over()
            except NotFound:
                self._on_failed(Closed.DELETED)
                return
            except Corrupt as error:
                if self._has_passed():
                    continue
                self._on_damaged(error, self._ranges)
                return
            except BearlakeError as error:
                self._outage.failed(error)
                await asyncio.sleep(self._settings.retry_pause_ms / 1000)
            except Exception as error:  # noqa: BLE001 - boundary: one subscription, whose consumers attach again
                fault(log, "feed a subscription", error, lambda _: self._on_failed(Closed.FAILED))
                return

    def _has_passed(self) -> bool:
        """Whether the cursor has moved during the last read, past the offset where that began."""
        mark_delete = self._machine.cursor.mark_delete
        return mark_delete > self._mark_delete_read and mark_delete > self._ranges[0].offset

    async def _step(self) -> None:
        machine = self._machine
        if not self._may_deliver():
            await asyncio.sleep(self._settings.retry_pause_ms / 1000)
            return
        machine.dispatch(self._around.clock.now_ms())
        if self._unresolved:
            await self._resolve()
            return
        want = machine.want()
        if isinstance(want, ReadAgain):
            await self._read_again(want)
        elif isinstance(want, Read):
            await self._read_on(want.offset)
        else:
            try:
                async with asyncio.timeout(self._wait_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass  # an entry is due

    async def _read_on(self, offset: int) -> None:
        (fetched,) = await self._fetch([FetchRange(self._partition, offset, self._settings.read_bytes_max)])
        if not self._is_trimmed(fetched) and not fetched.views:
            waited = await self._wait_at_end(offset)
            if waited is None or self._is_trimmed(waited):
                return
            fetched = waited
        await self._offer(await self._entries(fetched, offset), offset)

    async def _entries(self, fetched: Fetched, offset: int) -> list[StoredEntry]:
        """Return the entries that end above `offset`, without gaps; perhaps fewer than were read."""
        found: list[StoredEntry] = []
        for entry in entries_of(fetched):
            if entry.end <= offset:
                continue
            base, end, batch, _ = entry
            parts = [entry]
            if batch is not None and has_gaps(batch, end - base):
                with suppress(TooLarge):  # whoever delivers the entry skips it
                    parts = [StoredEntry(*part) for part in await self._reader.split(batch, base, end, offset)]
            found += parts
            if found[-1].end < entry.end:
                break
        return found

    async def _offer(self, entries: Sequence[StoredEntry], offset: int) -> None:
        """Offer entries read from `offset` on, in parts, so that other tasks can run; stops if the machine now reads elsewhere."""
        machine = self._machine
        for at in range(0, len(entries), OFFER_COUNT_MAX):
            part = await self._with_traits(entries[at : at + OFFER_COUNT_MAX])
            if machine.read_offset != (part[0].base if at else offset):
                return
            now_ms = self._around.clock.now_ms()
            machine.offer(part, now_ms)
            self._on_moved()
            if at + OFFER_COUNT_MAX < len(entries) and self._may_deliver():
                machine.dispatch(now_ms)
                await asyncio.sleep(0)

    async def _with_traits(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """Return the entries with the traits that the machine needs. Reading them may take several turns of the event loop."""
        machine, reader = self._machine, self._reader
        found = []
        for entry in entries:
            if not machine.needs_traits(entry):
                found.append(entry)
                continue
            base, end, batch, _ = entry
            assert batch is not None
            traits = reader.traits(batch)
            found.append(StoredEntry(base, end, batch, await reader.read(batch) if traits is None else traits))
        return found

    async def _wait_at_end(self, offset: int) -> Fetched | None:
        """Wait for records at `offset`; None if there is other work first."""
        if self._wake.is_set():
            return None
        ranges = [FetchRange(self._partition, offset, self._settings.read_bytes_max)]
        self._tail_offset = offset
        try:
            async with asyncio.timeout(self._wait_s()) as self._tail:
                return (await self._fetch(ranges, wait_ms=self._settings.tail_wait_ms))[0]
        except TimeoutError:
            return None
        finally:
            self._tail = None

    def _wait_s(self) -> float | None:
        """Return the seconds until the next delayed entry may be due; None if there is none."""
        due_ms = self._machine.next_due_ms()
        if due_ms is None:
            return None
        return min(max(0, due_ms - self._around.clock.now_ms()) / 1000, DUE_WAIT_S_MAX)

    async def _read_again(self, want: ReadAgain) -> None:
        settings = self._settings
        start = self._machine.cursor.mark_delete  # may be inside the first entry, whose base may be trimmed
        offsets = [max(base, start) for base in want.bases]
        ranges = ranges_of(self._partition, offsets, settings.replay_range_count_max, settings.read_bytes_max)
        found = await self._fetch(ranges)
        damaged = next((at for at, fetched in enumerate(found) if isinstance(fetched.error, Corrupt)), 0)
        found = found[: damaged or None]  # what precedes the damage is delivered first
        if any(self._is_trimmed(fetched) for fetched in found):
            return
        entries = {
            entry.base: entry for fetched in found for entry in await self._entries(fetched, fetched.range.offset)
        }
        if not entries:
            # The entries came from history, ahead of this server's follower; its tail ends before them: the read is empty.
            await asyncio.sleep(self._settings.retry_pause_ms / 1000)
        elif self._may_deliver():
            self._machine.offer_again(await self._with_traits([entries[base] for base in sorted(entries)]))
            self._on_moved()

    def _may_deliver(self) -> bool:
        return self._around.may_deliver(self._partition)

    async def _resolve(self) -> None:
        """Look up the first queued entry with an unknown extent, and acknowledge it."""
        machine = self._machine
        item = self._unresolved[0]
        consumer, ack, is_through = item
        if not machine.acknowledge(consumer, ack, is_through=is_through):
            entry = await self._entry_at(ack.base_offset)
            if entry is not None:
                machine.acknowledge_read(consumer, ack, entry.base, entry.end, is_through=is_through)
        self._on_moved()
        if self._unresolved and self._unresolved[0] is item:
            self._unresolved.popleft()
            self._answer_resolved()

    async def _entry_at(self, offset: int) -> StoredEntry | None:
        """Return the entry that holds `offset`; None if it is trimmed or does not exist. Raises `Unavailable` if the server lags."""
        at = offset
        (fetched,) = await self._fetch([FetchRange(self._partition, at, 1)])
        if isinstance(fetched.error, OutOfRange) and at < fetched.error.start:
            # A trim may have cut the entry: the rest begins at the partition's start.
            at = fetched.error.start
            (fetched,) = await self._fetch([FetchRange(self._partition, at, 1)])
        if not isinstance(fetched.error, OutOfRange):
            _raise(fetched)
            for entry in (await self._entries(fetched, offset))[:1]:
                return entry if entry.base <= offset < entry.end else None
        # Nothing was read. This server's follower may lag behind the entry; the store knows whether the entry exists.
        bounds = (await self._around.records.bounds([self._partition])).get(self._partition)
        if bounds is None:
            raise NotFound(f"no partition {self._partition}")
        if at < bounds.last_stable:
            raise Unavailable(f"offset {at} of {self._partition} cannot be read yet")
        return None

    async def _fetch(self, ranges: list[FetchRange], *, wait_ms: int = 0) -> list[Fetched]:
        self._ranges, self._mark_delete_read = ranges, self._machine.cursor.mark_delete
        bytes_max = max(self._settings.read_bytes_max, 1)
        return await self._around.records.fetch(
            ranges, bytes_min=1 if wait_ms else 0, bytes_max=bytes_max, wait_ms=wait_ms
        )

    def _is_trimmed(self, fetched: Fetched) -> bool:
        """Whether a trim moved the start beyond the requested range; moves the cursor along. Raises other errors of the range."""
        error = fetched.error
        is_trimmed = isinstance(error, OutOfRange) and fetched.range.offset < error.start
        if not is_trimmed:
            _raise(fetched)
        start = error.start if isinstance(error, OutOfRange) else fetched.start
        if self._machine.cursor.acknowledge_before(start):
            self._machine.moved()
            self._on_moved()
        return is_trimmed


def _raise(fetched: Fetched) -> None:
    if fetched.error is not None:
        raise fetched.error
