"""The invariants of share groups (KIP-932), checked where a dispatcher acquires records, and where a member gets them:

- acquired offsets are records as committed, and the answer has their batches;
- a dispatcher gives a record to one member at a time: until the lock expires, or its member acknowledges or releases the record;
- a record is delivered at most as often as the limit says, and each delivery of one dispatcher counts one more than the one before;
- the server that holds the partition's lease never delivers a record again whose acceptance or rejection was answered (a server that has
  lost the lease without knowing it may: at least once).

At the end, each record that was not trimmed was accepted or rejected by a member, or was delivered as often as the limit says.

Locks are not stored, so they end with the tenure of their dispatcher. Deliveries of the last `save_ms` before its end may not count.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bearlake import kernel
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.subscriptions import dispatch_lease
from bearlake.streams.subscriptions.share.acknowledgements import AckType, ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired
from simulator.batch_comparison import is_same_batch
from simulator.nodes import Node

if TYPE_CHECKING:
    from simulator.deployment import Deployment

Place = tuple[PartitionKey, str]
"""A share group in one partition."""

FINAL = frozenset({AckType.GAP, AckType.ACCEPT, AckType.REJECT})
"""Acknowledgements after which a record is never delivered again."""


@dataclass(slots=True)
class Lock:
    """A member has acquired a record until `deadline_s`, at the latest."""

    member: str
    deadline_s: float
    delivery_count: int
    is_firm: bool
    """False: its member may have given it up, or may do so with acknowledgements that have arrived."""
    may_not_count: bool = False
    """The records were given back: the next delivery may have the same number."""


@dataclass(slots=True, kw_only=True)
class Arrival:
    """Acknowledgements that have arrived at a dispatcher."""

    since_s: float
    renewed: Sequence[Lock]
    """The locks that they renew."""
    is_done: bool = False
    """Whether they were applied and saved."""


class ShareTruth:
    """The true state of all share groups, as far as clients can rely on it."""

    def __init__(self, deployment: "Deployment", *, lock_s: float, delivery_count_max: int) -> None:
        self.deployment = deployment
        self.leases: dict[str, Lease] = {}
        """The last holder of each lease, according to the store."""
        self.finished: defaultdict[Place, set[int]] = defaultdict(set)
        """Offsets whose acceptance or rejection was answered."""
        self.wanted: defaultdict[Place, set[int]] = defaultdict(set)
        """Offsets that a member has ever accepted or rejected, answered or not."""
        self.delivery_counts: defaultdict[Place, Counter[int]] = defaultdict(Counter)
        """How often each offset was delivered, answered or not."""
        self._locks: defaultdict[tuple[str, int, Place], dict[int, Lock]] = defaultdict(dict)
        """Per dispatcher: its process, and the epoch of its lease."""
        self._given: Counter[tuple[str, Place, str, int]] = Counter()
        """Acknowledgements under way at a dispatcher's process: place, member and offset."""
        self._lock_s = lock_s
        self._delivery_count_max = delivery_count_max

    # -- at the dispatcher ---------------------------------------------------------------------------------------

    def acquired(self, node: Node, epoch: int, place: Place, member: str, runs: Sequence[Acquired]) -> None:
        """A dispatcher, with a lease of this epoch, has acquired records for a member, at this moment."""
        truth, now = self.deployment.truth, self.deployment.loop.time()
        locks = self._locks[node.process.name, epoch, place]
        is_holder = self._is_holder(node, place[0])
        for run in runs:
            details = {"partition": place[0], "group": place[1], "member": member, "run": run}
            truth.expect(
                run.start < run.end <= truth.partition(place[0]).end, "what is acquired is committed", **details
            )
            truth.expect(1 <= run.delivery_count <= self._delivery_count_max, "deliveries are limited", **details)
            for offset in range(run.start, run.end):
                before = locks.get(offset)
                is_free = before is None or not before.is_firm or before.deadline_s <= now
                truth.expect(is_free, "a record is with one member at a time", offset=offset, before=before, **details)
                truth.expect(
                    before is None or 0 <= before.delivery_count + 1 - run.delivery_count <= before.may_not_count,
                    "each delivery counts",
                    offset=offset,
                    before=before,
                    **details,
                )
                truth.expect(
                    not is_holder or offset not in self.finished[place],
                    "what is accepted is not delivered again",
                    offset=offset,
                    **details,
                )
                is_firm = not self._given[node.process.name, place, member, offset]
                locks[offset] = Lock(member, now + self._lock_s, run.delivery_count, is_firm)
                self.delivery_counts[place][offset] += 1
            self.deployment.events["records acquired"] += run.end - run.start
            self.deployment.events["records delivered again"] += (run.end - run.start) * (run.delivery_count > 1)

    def _is_holder(self, node: Node, partition: PartitionKey) -> bool:
        lease = self.leases.get(dispatch_lease(partition))
        return lease is not None and lease.holder == node.server

    @contextmanager
    def arriving(
        self, node: Node, epoch: int, place: Place, member: str, acks: Sequence[ShareAck]
    ) -> "Iterator[Arrival]":
        """A member's acknowledgements arrive. They may take effect at any time until the end of the context, even in a later tenure.

        From now on the member may not hold these records any more, unless it renews their locks.
        """
        process = node.process.name
        locks = self._locks[process, epoch, place]
        kinds = kinds_of(acks)
        arrival = Arrival(
            since_s=self.deployment.loop.time(),
            renewed=[
                lock
                for offset, kind in kinds
                if kind is AckType.RENEW and (lock := locks.get(offset)) is not None and lock.member == member
            ],
        )
        given = Counter((process, place, member, offset) for offset, kind in kinds if kind is not AckType.RENEW)
        self._soften(given)
        self._given.update(given)
        try:
            yield arrival
        finally:
            self._given.subtract(given)
            self._given += Counter()  # without those that have arrived
            self._soften(given)
        if arrival.is_done:
            for lock in arrival.renewed:
                lock.deadline_s = max(lock.deadline_s, arrival.since_s + self._lock_s)

    def _soften(self, given: Iterable[tuple[str, Place, str, int]]) -> None:
        for process, place, member, offset in given:
            for (other, _, there), locks in self._locks.items():
                lock = locks.get(offset) if (other, there) == (process, place) else None
                if lock is not None and lock.member == member:
                    lock.is_firm = False

    def leaves(self, node: Node, epoch: int, place: Place, member: str) -> None:
        """A request to release all that a member holds arrives."""
        for lock in self._locks[node.process.name, epoch, place].values():
            lock.is_firm = lock.is_firm and lock.member != member

    def gives_back(self, node: Node, epoch: int, place: Place, member: str, ranges: Sequence[tuple[int, int]]) -> None:
        """The member's server could not read these offsets, and gives them back: if they are still locked, that delivery does not count."""
        for start, end in ranges:
            for offset in range(start, end):
                lock = self._locks[node.process.name, epoch, place].get(offset)
                if lock is not None and lock.member == member:
                    lock.is_firm, lock.may_not_count = False, True

    # -- at the member -------------------------------------------------------------------------------------------

    def received(self, partition: PartitionKey, runs: Sequence[Acquired], views: Sequence[memoryview]) -> None:
        """A member has received acquired records with their batches."""
        truth = self.deployment.truth
        there: set[int] = set()
        for view in views:
            for position, base, header in kernel.batches(view, 0, len(view)):
                batch = truth.partition(partition).at(base)
                whole = view[position : position + header.length]
                is_same = batch.base == base and is_same_batch(whole, batch.stored)
                truth.expect(is_same, "I6: a batch is as it was sent", partition=partition, base=base)
                there.update(range(batch.base, batch.end))
        missing = [run for run in runs if not there.issuperset(range(run.start, run.end))]
        truth.expect(not missing, "acquired records have their batches", partition=partition, missing=missing)

    def asked(self, place: Place, acks: Sequence[ShareAck]) -> None:
        """A member sends acknowledgements."""
        self.wanted[place].update(_final(acks))

    def answered(self, place: Place, acks: Sequence[ShareAck]) -> None:
        """A member learns that its acknowledgements are saved."""
        self.finished[place].update(_final(acks))

    # -- at the end ----------------------------------------------------------------------------------------------

    def check_end(self, groups: Collection[str]) -> None:
        """No record was lost to a group."""
        deployment = self.deployment
        for stream in deployment.truth.active():
            for key in deployment.keys(stream):
                partition = deployment.truth.partition(key)
                for group in groups:
                    place = key, group
                    counts = self.delivery_counts[place]
                    lost = [
                        offset
                        for offset in range(partition.start, partition.end)
                        if offset not in self.wanted[place] and counts[offset] < self._delivery_count_max
                    ]
                    deployment.truth.expect(
                        not lost, "no record is lost to a group", partition=key, group=group, lost=lost
                    )
        deployment.events["records finished"] += sum(map(len, self.finished.values()))


def kinds_of(acks: Sequence[ShareAck]) -> list[tuple[int, AckType]]:
    """Return each acknowledged offset with its type."""
    return [
        (offset, AckType(ack.types[0] if len(ack.types) == 1 else ack.types[offset - ack.start]))
        for ack in acks
        for offset in range(ack.start, ack.end)
    ]


def _final(acks: Sequence[ShareAck]) -> set[int]:
    return {offset for offset, kind in kinds_of(acks) if kind in FINAL}
