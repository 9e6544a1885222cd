"""A share group in one partition, on the server that dispatches it: its records in flight, their locks, and who waits for them."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from bearlake.errors import Corrupt
from bearlake.metadata.model import PartitionKey
from bearlake.streams.subscriptions.consumers import StoredEntry
from bearlake.streams.subscriptions.model import Closed
from bearlake.streams.subscriptions.saving import SavedCursor
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired, Batch
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.terms import ShareAsk, ShareTerms

log = logging.getLogger(__name__)

BATCH_COUNT_MAX = 4_000
"""Batches that one acquisition looks at, some 10 us each; the next one goes on behind them."""


class SharePartition:
    """Use it from the event loop's thread only. Every change is saved soon; who must know that it is saved waits for the saver."""

    def __init__(
        self,
        partition: PartitionKey,
        group: str,
        state: InFlight,
        saved: SavedCursor,
        on_moved: Callable[["SharePartition"], None],
    ) -> None:
        """`on_moved` is called after each change."""
        self.partition = partition
        self.group = group
        self.state = state
        self.saved = saved
        self.is_closed = False
        self._on_moved = on_moved
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._delivery_count_max = 0
        """That of the last request, for locks that expire."""
        self.waiting: dict[asyncio.Event, None] = {}
        """Set when records may have become available."""

    @property
    def has_locks(self) -> bool:
        """Whether members hold locks."""
        return self.state.has_acquired

    def acquire(
        self, entries: Iterable[StoredEntry], offset: int, ask: ShareAsk, record_count_max: int, terms: ShareTerms
    ) -> tuple[list[Acquired], list[memoryview]]:
        """Lock what is available in the entries, which were read from `offset` on; returns it with the batches that have it.

        Raises `Corrupt` if the first entry is damaged; behind entries that are not, the next read begins at the damage.
        """
        self._delivery_count_max = terms.delivery_count_max
        seen: list[StoredEntry] = []
        deadline = self._loop.time() + terms.lock_ms / 1000
        acquired = self.state.acquire(
            _batches(entries, seen),
            offset,
            ask.member,
            deadline,
            record_count_max=record_count_max,
            is_strict=ask.is_strict,
            count_max=terms.count_max,
            delivery_count_max=terms.delivery_count_max,
            via=ask.via,
        )
        self._on_moved(self)
        if acquired:
            self._expire_at(deadline)
        return joined(acquired), batches_of(acquired, seen)

    def acknowledge(self, member: str, acks: Sequence[ShareAck], terms: ShareTerms) -> Callable[[bool], None]:
        """Apply acknowledgements. The caller calls what this returns when they are saved, or when that has failed.

        Raises `Invalid`, `InvalidRecordState`.
        """
        self._delivery_count_max = terms.delivery_count_max
        before = self.state.next_offset(terms.count_max)
        deadline = self._loop.time() + terms.lock_ms / 1000
        ending = self.state.acknowledge(
            acks,
            member,
            delivery_count_max=terms.delivery_count_max,
            renewed_until=deadline if terms.may_renew else None,
            awaits_save=True,
        )
        self._on_moved(self)
        if terms.may_renew:
            self._expire_at(deadline)
        if self.state.next_offset(terms.count_max) != before:
            self.wake()
        return partial(self._finish, ending, self.state.reset_count, terms.count_max)

    def _finish(self, ending: Sequence[tuple[int, int]], reset_count: int, count_max: int, is_saved: bool) -> None:
        before = self.state.next_offset(count_max)
        self.state.finish(ending, reset_count, is_saved=is_saved)
        if not is_saved:
            self._on_moved(self)
            self._expire_first()
        if self.state.next_offset(count_max) != before:
            self.wake()

    def give_back(self, ranges: Sequence[tuple[int, int]], member: str) -> None:
        """Make what the member acquired but was not sent available, as `InFlight.give_back`."""
        if self.state.give_back(ranges, member):
            self._moved()

    def release(self, member: str, terms: ShareTerms, via: str | None) -> None:
        """Release what the member has acquired, as `InFlight.release`."""
        if self.state.release(member, delivery_count_max=terms.delivery_count_max, via=via):
            self._moved()

    def trim(self, start: int) -> bool:
        """The log begins at `start` now; returns whether that is news."""
        if not self.state.trim(start):
            return False
        self._moved()
        return True

    def reset(self, offset: int) -> None:
        """Continue at `offset`; all locks end."""
        self.state.reset(offset)
        self._moved()

    def close(self, reason: Closed) -> None:
        """Stop: another server goes on, or the group is deleted."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def wake(self) -> None:
        """Let those who wait for records look again."""
        for event in self.waiting:
            event.set()

    def _moved(self) -> None:
        """Records may have become available."""
        self._on_moved(self)
        self.wake()

    def _expire_at(self, deadline: float) -> None:
        """Expire locks at this time, or earlier. A timer whose locks are gone does nothing when it is due."""
        if self.is_closed or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.state.expire(self._loop.time(), delivery_count_max=self._delivery_count_max):
            self._moved()
        self._expire_first()

    def _expire_first(self) -> None:
        deadline = self.state.first_deadline()
        if deadline is not None:
            self._expire_at(deadline)


def _batches(entries: Iterable[StoredEntry], seen: list[StoredEntry]) -> Iterator[Batch]:
    """Return the first entries as batches, and note them as `seen`. Raises `Corrupt` if the first one is damaged."""
    try:
        for entry in islice(entries, BATCH_COUNT_MAX):
            seen.append(entry)
            yield Batch(entry.base, entry.end, entry.batch is None)
    except Corrupt:
        if not seen:
            raise


def joined(acquired: Sequence[Acquired]) -> list[Acquired]:
    """Join neighbours with equal delivery counts."""
    found: list[Acquired] = []
    for item in acquired:
        if found and found[-1].end == item.start and found[-1].delivery_count == item.delivery_count:
            found[-1] = found[-1]._replace(end=item.end)
        else:
            found.append(item)
    return found


def batches_of(acquired: Sequence[Acquired], entries: Sequence[StoredEntry]) -> list[memoryview]:
    """Return the batches that have acquired offsets, in order."""
    found: list[memoryview] = []
    index = 0
    for entry in entries:
        while index < len(acquired) and acquired[index].end <= entry.base:
            index += 1
        if index == len(acquired):
            break
        if entry.batch is not None and acquired[index].start < entry.end:
            found.append(entry.batch)
    return found
