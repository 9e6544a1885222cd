"""A share group in one partition, on the server that dispatches it: its records in flight, their locks, and who waits for them."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from bearlake.metadata.model import PartitionKey
from bearlake.streams.subscriptions.consumers import StoredEntry
from bearlake.streams.subscriptions.model import Closed
from bearlake.streams.subscriptions.saving import SavedCursor
from bearlake.streams.subscriptions.share.in_flight import Acquired, Batch, InFlight, ShareAck
from bearlake.streams.subscriptions.share.terms import ShareAsk, ShareTerms

log = logging.getLogger(__name__)


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
        self, entries: Sequence[StoredEntry], offset: int, ask: ShareAsk, record_count_max: int, terms: ShareTerms
    ) -> tuple[list[Acquired], list[memoryview]]:
        """Lock what is available in the entries, which were read from `offset` on; returns it with the batches that have it."""
        self._delivery_count_max = terms.delivery_count_max
        acquired = self.state.acquire(
            [Batch(entry.base, entry.end, entry.batch is None) for entry in entries],
            offset,
            ask.member,
            self._loop.time() + terms.lock_ms / 1000,
            record_count_max=record_count_max,
            is_strict=ask.is_strict,
            count_max=terms.count_max,
        )
        self._moved()
        return joined(acquired), batches_of(acquired, entries)

    def acknowledge(self, member: str, acks: Sequence[ShareAck], terms: ShareTerms) -> None:
        """Apply acknowledgements. Raises `Invalid`, `InvalidRecordState`."""
        self._delivery_count_max = terms.delivery_count_max
        self.state.acknowledge(
            acks,
            member,
            delivery_count_max=terms.delivery_count_max,
            renewed_until=self._loop.time() + terms.lock_ms / 1000 if terms.may_renew else None,
        )
        self._moved()
        self._wake()

    def release(self, member: str, terms: ShareTerms) -> None:
        """Release what the member holds."""
        if self.state.release(member, delivery_count_max=terms.delivery_count_max):
            self._moved()
            self._wake()

    def trim(self, start: int) -> bool:
        """The log begins at `start` now; returns whether that is news."""
        if not self.state.trim(start):
            return False
        self._moved()
        self._wake()
        return True

    def reset(self, offset: int) -> None:
        """Continue at `offset`; all locks end."""
        self.state.reset(offset)
        self._moved()
        self._wake()

    def close(self, reason: Closed) -> None:
        """Stop: another server goes on, or the group is deleted."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def _moved(self) -> None:
        self._on_moved(self)
        self._set_timer()

    def _wake(self) -> None:
        for event in self.waiting:
            event.set()

    def _set_timer(self) -> None:
        deadline = self.state.first_deadline()
        if self._timer is not None and (deadline is None or deadline < self._timer_at):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline is not None and not self.is_closed:
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.state.expire(self._loop.time(), delivery_count_max=self._delivery_count_max):
            self._on_moved(self)
            self._wake()
        self._set_timer()


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
