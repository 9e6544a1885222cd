"""Access modes of producers: which producers may share a partition.

    Shared                 together with others; refused while a producer has or waits for exclusive access
    Exclusive              alone; refused if this server has other producers of the partition
    WaitForExclusive       alone; waits until the other producers have left
    ExclusiveWithFencing   alone; closes the other producers

A server grants exclusive access while it holds the lease `produce/<partition>`. It keeps the lease as long as one of its producers has or
waits for exclusive access. The grant raises the partition's epoch in the metadata store, so the commit rejects what other producers send
afterwards, through any server. The next shared producer raises the epoch again. A server that stalled and lost its lease therefore cannot
continue to write for its exclusive producer. A producer that reconnects with its epoch continues, unless the epoch was raised since.

A server verifies its leases after a lapse, and before it answers a producer on a claimed partition (I14).

A server does not know the producers of other servers. It does not refuse an Exclusive producer because of them; the new producer fences
them. Shared producers without deduplication have no name in the store, so nothing fences them.

Source: PIP-68 (exclusive producers), PIP-79 (reduced number of connections), PIP-119 (ExclusiveWithFencing).
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError, Conflict, Fenced, Overloaded, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.model import Lease, PartitionKey, ServerRef
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import Exclusive, ExclusiveWithFencing
from bearlake.streams.tenure import HeldLease, Tenure
from bearlake.telemetry.containment import fault

if TYPE_CHECKING:
    from bearlake.protocols.pulsar.producers import Producer

log = logging.getLogger(__name__)


class Claim:
    """A partition with an exclusive producer on this server, and the producers that wait for exclusive access."""

    __slots__ = ("held", "holder", "waiting")

    def __init__(self) -> None:
        self.held: HeldLease | None = None
        """The lease; None until the server has acquired it for the first producer."""
        self.holder: Producer | None = None
        self.waiting: deque[Producer] = deque()


class Access:
    """The claims of one server. The deciding methods are not `async`, so that no other task can interleave."""

    def __init__(self, metadata: Metadata, tenure: Tenure) -> None:
        self._leases = metadata.leases
        self._producers = metadata.producers
        self._tenure = tenure
        self._server = tenure.server
        self._claims: dict[PartitionKey, Claim] = {}
        self._lock = asyncio.Lock()
        """Serializes acquiring and releasing leases, so that a release cannot affect a lease that was just acquired again."""

    async def share_elsewhere(self, partition: PartitionKey) -> int:
        """The epoch for a shared producer. Raises `Refused` (ProducerBusy): a producer has exclusive access; `NotFound`, `Unavailable`."""
        await self.confirm(partition)
        try:
            return await self._producers.share_epoch(partition, lease_name(partition))
        except Conflict as error:
            raise Refused("ProducerBusy", "the topic has an exclusive producer") from error

    async def confirm(self, partition: PartitionKey) -> None:
        """Verify that this server still holds its claim on the partition, if any; drops a lost claim. Raises `Unavailable`."""
        claim = self._claims.get(partition)
        if claim is None or claim.held is None:
            return
        try:
            await claim.held.confirm()
        except Fenced:
            self._lost(partition, claim)

    async def verify(self) -> None:
        """After a lapse, verify all leases; leases that cannot be read now are verified at the next call."""
        for partition, claim in list(self._claims.items()):
            if claim.held is not None and claim.held.is_unverified:
                try:
                    await self.confirm(partition)
                except BearlakeError as error:
                    log.info("cannot look up a lease", extra={"lease": lease_name(partition), "error": repr(error)})
                    if isinstance(error, Unavailable | Overloaded):
                        return
                except Exception as error:  # noqa: BLE001 - boundary: one partition
                    fault(log, "verify an exclusive producer", error)

    def _lost(self, partition: PartitionKey, claim: Claim) -> None:
        """Another server took the lease: close the exclusive and waiting producers, so that their clients reopen them."""
        if self._claims.get(partition) is not claim:
            return
        del self._claims[partition]
        log.warning("another server took over a partition with an exclusive producer", extra={"partition": partition})
        for producer in [producer for producer in (claim.holder, *claim.waiting) if producer is not None]:
            producer.overtaken()

    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        """The live server of the producer that has or waits for exclusive access. Raises `Unavailable`."""
        lease = await self._leases.holder(lease_name(partition))
        return lease.holder if lease is not None else None

    def is_claimed(self, partition: PartitionKey) -> bool:
        """Whether a producer of this server has or waits for exclusive access."""
        return partition in self._claims

    def share(self, partition: PartitionKey) -> None:
        """Raise `Refused` (ProducerBusy) if a producer of this server has or waits for exclusive access."""
        if partition in self._claims:
            raise Refused("ProducerBusy", "the topic has an exclusive producer")

    def claim(self, producer: "Producer", mode: int, others: "list[Producer]") -> bool:
        """Give the producer exclusive access. Returns False if it must wait: `Producer.granted` is called when it gets access.

        `others` are this server's other producers of the partition. Raises `Refused` (ProducerFenced, which is final for clients).
        """
        claim = self._claims.get(producer.partition)
        if mode == ExclusiveWithFencing:
            for other in [*others, *(claim.waiting if claim is not None else ())]:
                other.overtaken()
        elif claim is not None or others:
            if mode == Exclusive:
                raise Refused("ProducerFenced", "the topic has other producers")
            claim = self._claims.setdefault(producer.partition, Claim())
            claim.waiting.append(producer)
            return False
        self._claims.setdefault(producer.partition, Claim()).holder = producer
        return True

    async def enter(self, producer: "Producer", known_epoch: int | None) -> int:
        """The epoch of a producer with exclusive access; `known_epoch` is its epoch from before it reconnected.

        Raises:
            Refused: ProducerFenced, another producer had exclusive access since; ProducerBusy, another server has the lease.
            Fenced: the lease is lost, or this server's registration has lapsed.
            NotFound: no such partition.
            Unavailable: the store did not answer.
        """
        partition = producer.partition
        lease = await self._acquire(producer)
        if known_epoch is not None:
            now = (await self._producers.named(partition, producer.stored_name)).partition_epoch
            if now > known_epoch:
                raise Refused("ProducerFenced", "another producer has since become the exclusive producer")
            return known_epoch
        return await self._producers.raise_epoch(partition, lease)

    def left(self, producer: "Producer", remaining: "list[Producer]") -> None:
        """A producer of this server has left: grant access to the next waiting producer. `remaining` are the partition's others."""
        partition = producer.partition
        claim = self._claims.get(partition)
        if claim is None:
            return
        if claim.holder is producer:
            claim.holder = None
        elif producer in claim.waiting:
            claim.waiting.remove(producer)
        if claim.holder is not None or any(other not in claim.waiting for other in remaining):
            return
        if claim.waiting:
            claim.holder = claim.waiting.popleft()
            claim.holder.granted()
        else:
            del self._claims[partition]
            producer.connection.server.run(self._release(partition))

    async def _acquire(self, producer: "Producer") -> Lease:
        partition = producer.partition
        try:
            async with self._lock:
                held = await HeldLease.take(self._tenure, self._leases, lease_name(partition))
                claim = self._claims.get(partition)
                if claim is not None and claim.holder is producer:
                    claim.held = held
                return held.lease
        except Conflict as error:
            raise Refused("ProducerBusy", "the topic has an exclusive producer") from error

    async def _release(self, partition: PartitionKey) -> None:
        """Release the lease, unless a producer claimed the partition again."""
        try:
            async with self._lock:
                lease = await self._leases.holder(lease_name(partition))
                if partition not in self._claims and lease is not None and lease.holder == self._server:
                    await self._leases.release(lease)
        except BearlakeError as error:  # the lease ends with this server's registration
            log.warning("cannot release a lease", extra={"lease": lease_name(partition), "error": repr(error)})


def lease_name(partition: PartitionKey) -> str:
    """The name of the lease that a server holds for its exclusive producer."""
    return f"produce/{partition}"
