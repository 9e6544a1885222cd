"""Shared: entries go to consumers in turn, smallest priority number first; all chunks of a message go to one consumer.

Source: Apache Pulsar, "Shared"; PIP-37 (chunks).
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from typing_extensions import override

from bearlake.streams.subscriptions.consumers import AttachedConsumer
from bearlake.streams.subscriptions.cursor import AckCursor
from bearlake.streams.subscriptions.model import EntryTraits, SubscriptionType
from bearlake.streams.subscriptions.pool import Entry, Pool
from bearlake.streams.subscriptions.settings import SubscriptionSettings

CHUNKED_COUNT_MAX = 10_000
"""Most incomplete chunked messages whose consumer is remembered; bounded because a producer may never send the last chunk."""


class Shared(Pool):
    """Round robin over consumers with permits. A consumer gets up to `burst_entry_count_max` entries in a row, fewer if few wait."""

    def __init__(self, cursor: AckCursor, settings: SubscriptionSettings) -> None:
        super().__init__(SubscriptionType.SHARED, cursor, settings)
        self._again_bases: list[int] = []
        self._current: AttachedConsumer | None = None
        self._burst_left = 0
        self._chunks: dict[bytes, AttachedConsumer] = {}

    @override
    def add(self, consumer: AttachedConsumer) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=_priority)

    @override
    def remove(self, consumer: AttachedConsumer) -> None:
        if consumer is self._current:
            self._current = None
        self._chunks = {chunk_of: owner for chunk_of, owner in self._chunks.items() if owner is not consumer}
        super().remove(consumer)

    def _slot_of(self, traits: EntryTraits, base: int) -> int:
        return -1

    def _choose(self, entry: Entry) -> AttachedConsumer | None:
        if entry.chunk_of:
            owner = self._chunks.get(entry.chunk_of)
            if owner is not None:
                return owner if owner.can_take else None
        if self._current is None or not self._burst_left or not self._current.can_take:
            self._current = self._next_consumer()
            self._burst_left = self._burst()
        self._burst_left -= 1
        return self._current

    def _next_consumer(self) -> AttachedConsumer | None:
        """Return the next consumer that can take entries, among those with the smallest priority number."""
        first: AttachedConsumer | None = None
        is_behind = False
        for consumer in self.consumers:
            if consumer.can_take and first is None:
                first = consumer
            if first is not None and consumer.spec.priority > first.spec.priority:
                break
            if is_behind and consumer.can_take:
                return consumer
            is_behind = is_behind or consumer is self._current
        return first

    def _burst(self) -> int:
        able = sum(consumer.can_take for consumer in self.consumers)
        return max(1, min(self.settings.burst_entry_count_max, len(self._ready) // max(1, able)))

    def _pass_over(self, entry: Entry) -> bool:
        if not entry.chunk_of or not any(consumer.can_take for consumer in self.consumers):
            return False
        self._again([entry])
        return True

    def _given(self, entry: Entry) -> None:
        if entry.chunk_of:
            assert entry.owner is not None
            if entry.is_last_chunk:
                self._chunks.pop(entry.chunk_of, None)
            else:
                self._chunks[entry.chunk_of] = entry.owner
                if len(self._chunks) > CHUNKED_COUNT_MAX:
                    del self._chunks[next(iter(self._chunks))]

    def _taken_back(self, entry: Entry, owner: AttachedConsumer) -> None:
        pass

    def _keep_again(self, entries: Sequence[Entry]) -> None:
        bases = self._again_bases
        if len(entries) == 1:
            insort(bases, entries[0].base)
        else:
            bases += [entry.base for entry in entries]
            bases.sort()

    def _forget_again(self, entry: Entry) -> None:
        at = bisect_left(self._again_bases, entry.base)
        assert self._again_bases[at] == entry.base
        del self._again_bases[at]

    def _pick_again(self, count_max: int) -> Sequence[int]:
        room = sum(consumer.permits for consumer in self.consumers if consumer.can_take)
        picked: list[int] = []
        for base in self._again_bases:
            if room <= 0 or len(picked) >= count_max:
                break
            entry = self._entries[base]
            owner = self._chunks.get(entry.chunk_of) if entry.chunk_of else None
            if owner is None or owner.can_take:
                picked.append(base)
                room -= entry.open
        return picked


def _priority(consumer: AttachedConsumer) -> int:
    return consumer.spec.priority
