"""The invariants of subscriptions, checked at each delivery of a server:

- an entry is a batch as committed; it is delivered only while some of its offsets are not acknowledged, and not before its time;
- Shared, Key_Shared: at most one consumer of a server has an entry at a time; in Key_Shared, one consumer has all unacknowledged
  entries of a key;
- Exclusive, Failover: each consumer receives offsets in order, except for redeliveries that it asked for;
- the server that holds the partition's lease never redelivers an entry whose acknowledgement was reported as saved (a server that has
  lost the lease without knowing it may redeliver: at least once).

At the end, every subscription has received each entry that was not trimmed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import dispatch_lease
from bearlake.records import codec as record_codec
from bearlake.streams.subscriptions import EntryReader
from bearlake.streams.subscriptions.cleaned_batches import Part, split
from bearlake.streams.subscriptions.model import Delivery, EntryTraits, SubscriptionType
from simulator.nodes import Node

if TYPE_CHECKING:
    from simulator.deployment import Deployment

KEY_COUNT = 5
"""Ordering keys per producer."""
DELAYED_EVERY = 9
DELAY_MS = 400
"""Every `DELAYED_EVERY`-th batch of a producer is not delivered until this long after its timestamp."""
BATCH_BYTES_MAX = 1 << 20

Place = tuple[PartitionKey, str]
"""A subscription in one partition."""


class SimulatedEntries(EntryReader):
    """Reads the batches that simulated producers make: values are `owner lane number …`."""

    @override
    async def read(self, batch: memoryview) -> EntryTraits:
        return self.traits(batch)

    @override
    async def split(self, batch: memoryview, base: int, end: int, start: int) -> Sequence[Part]:
        return split(batch, base, end, start, BATCH_BYTES_MAX)

    @override
    def traits(self, batch: memoryview) -> EntryTraits:
        """Read the traits of a simulated entry that a dispatcher needs."""
        record = next(iter(record_codec.decode(batch, BATCH_BYTES_MAX)))
        owner, lane, number = (record.value or b"").split(b" ")[:3]
        is_delayed = int(number) % DELAYED_EVERY == 0
        return EntryTraits(
            ordering_key=b"%s %s %d" % (owner, lane, int(number) % KEY_COUNT),
            deliver_at_ms=record.timestamp + DELAY_MS if is_delayed else 0,
        )


class SubscriptionTruth:
    """The true state of all subscriptions."""

    def __init__(self, deployment: "Deployment") -> None:
        self.deployment = deployment
        self.leases: dict[str, Lease] = {}
        """The last holder of each lease, according to the store."""
        self.saved: defaultdict[Place, set[int]] = defaultdict(set)
        """Offsets whose acknowledgement was reported to a client as saved."""
        self.delivered: defaultdict[Place, set[int]] = defaultdict(set)
        """Base offsets of the entries that were delivered."""
        self.held: defaultdict[tuple[str, Place], dict[int, ConsumerTruth]] = defaultdict(dict)
        """Per server process: the consumer of each entry (base offset) that is not fully acknowledged."""

    def watch_leases(self, leases: Any) -> Any:
        """Return the store's noun `leases`, observed by this object."""
        return _Leases(leases, self)

    def check_end(self) -> None:
        """Each entry that is not trimmed was delivered to each subscription."""
        deployment = self.deployment
        settings = deployment.settings.subscribers
        assert settings is not None
        for stream in deployment.truth.active():
            for key in deployment.keys(stream):
                partition = deployment.truth.partition(key)
                there = {batch.base for batch in partition.batches if batch.end > partition.start}
                for name, _ in settings.subscriptions:
                    lost = there - self.delivered[key, name]
                    deployment.truth.expect(not lost, "every entry is delivered", partition=key, who=name, lost=lost)
        deployment.events += Counter({"offsets saved": sum(map(len, self.saved.values()))})


class _Leases:
    def __init__(self, inner: Any, subscription_truth: SubscriptionTruth) -> None:
        # Any: it stands for the noun that it wraps.
        self._inner = inner
        self._subscription_truth = subscription_truth

    async def acquire(self, *arguments: Any) -> Lease:
        lease: Lease = await self._inner.acquire(*arguments)
        self._subscription_truth.leases[lease.name] = lease
        return lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class ConsumerTruth:
    """One attached consumer, as its server sees it."""

    def __init__(
        self, subscription_truth: SubscriptionTruth, node: Node, place: Place, type_: SubscriptionType
    ) -> None:
        self.is_over = False
        self._subscription_truth = subscription_truth
        self._deployment = subscription_truth.deployment
        self._node = node
        self._place = place
        self._type = type_
        self._reader = SimulatedEntries()
        self._held = subscription_truth.held[node.process.name, place]
        self._acknowledged: set[int] = set()
        self._next_offset = -1  # Exclusive, Failover: the next delivery is at or after this offset

    def delivered(self, delivery: Delivery) -> None:
        """The server delivers an entry."""
        expect = self._deployment.truth.expect
        partition, _ = self._place
        base, end = delivery.base_offset, delivery.base_offset + delivery.record_count
        batch = self._deployment.truth.partition(partition).at(base)
        expect((batch.base, batch.end) == (base, end), "an entry is a batch", partition=partition, base=base, end=end)
        expect(not self.is_over, "nothing is delivered to a consumer that is closed", partition=partition, base=base)
        known = {offset for span in delivery.acknowledged for offset in range(*span)}
        still = set(range(base, end)) - known
        expect(bool(still), "an entry that is acknowledged is not delivered", partition=partition, base=base)
        if self._is_holder():
            again = still & self._subscription_truth.saved[self._place]
            expect(not again, "what is saved is not delivered again", partition=partition, again=again, known=known)
        if self._type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            self._check_pooled(delivery)
            self._held[base] = self
        else:
            expect(base >= self._next_offset, "entries come in order", partition=partition, base=base)
            self._next_offset = end
        self._subscription_truth.delivered[self._place].add(base)

    def _check_pooled(self, delivery: Delivery) -> None:
        expect, base = self._deployment.truth.expect, delivery.base_offset
        partition, _ = self._place
        expect(base not in self._held, "an entry is with one consumer at a time", partition=partition, base=base)
        due_ms = self._reader.traits(delivery.batch).deliver_at_ms
        expect(
            due_ms <= self._deployment.clock.now_ms(), "nothing comes before its time", partition=partition, base=base
        )
        if self._type is SubscriptionType.KEY_SHARED:
            key = self._key(base)
            start = self._deployment.truth.partition(partition).start  # trimmed offsets need no delivery
            others = [
                other
                for other, who in self._held.items()
                if who is not self and other >= start and self._key(other) == key
            ]
            expect(not others, "a key is with one consumer at a time", partition=partition, base=base, others=others)

    def _key(self, base: int) -> bytes:
        batch = self._deployment.truth.partition(self._place[0]).at(base)
        return self._reader.traits(memoryview(batch.stored)).ordering_key

    def _is_holder(self) -> bool:
        lease = self._subscription_truth.leases.get(dispatch_lease(self._place[0]))
        return lease is not None and lease.holder == self._node.server

    def acknowledged(self, spans: Iterable[tuple[int, int]]) -> None:
        """The server receives an acknowledgement of these spans."""
        for start, end in spans:
            self._acknowledged.update(range(start, end))
            self._release(start)

    def acknowledged_through(self, base: int) -> None:
        """The server receives an acknowledgement of the entry and all entries before it."""
        batch = self._deployment.truth.partition(self._place[0]).at(base)
        self._acknowledged.update(range(batch.end))

    def _release(self, offset: int) -> None:
        """Release the entry at this offset from its consumer if the whole entry is acknowledged."""
        batch = self._deployment.truth.partition(self._place[0]).at(offset)
        who = self._held.get(batch.base)
        if who is not None and set(range(batch.base, batch.end)) <= who._acknowledged | self._acknowledged:
            del self._held[batch.base]

    def refused(self, bases: Collection[int]) -> None:
        """The client asks to redeliver these, or the server may deliver them again."""
        self._next_offset = -1
        for base in bases:
            if self._held.get(base) is self:
                del self._held[base]

    def given(self) -> set[int]:
        """Return the offsets that were acknowledged so far."""
        return set(self._acknowledged)

    def saved(self, offsets: Collection[int]) -> None:
        """The server reported that these are saved."""
        self._subscription_truth.saved[self._place].update(offsets)

    def end(self) -> None:
        """The consumer is detached."""
        self.is_over = True
        for base in [base for base, who in self._held.items() if who is self]:
            del self._held[base]
