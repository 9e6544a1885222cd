"""Access modes of producers: who may produce to a partition beside whom.

    Shared                 beside others, unless somebody is or waits to be alone
    Exclusive              alone, or refused
    WaitForExclusive       alone, once the others have gone
    ExclusiveWithFencing   alone, the others are closed

Whoever is alone has it from the server that holds the lease `produce/<partition>`, which it keeps as long as somebody is or waits to
be alone. Becoming the only one raises the partition's epoch in the metadata store, so that whatever others send from then on, through any
server, is refused by the commit. The first producer beside others that comes afterwards raises it once more, so a server that stood still
and lost its lease cannot write on for its exclusive producer. A producer that comes back with the epoch that it was given goes on, unless
that was raised since.

A server looks its leases up when it has lapsed, and before it answers a producer that wants to be on a claimed partition (I14).

What cannot be known here: producers on other servers. An Exclusive producer is not refused because of them; it fences them. Without
deduplication producers beside others have no name in the store, so that nothing fences them.

Source: PIP-68 (exclusive producers), PIP-79 (reduced number of connections), PIP-119 (ExclusiveWithFencing).
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError, Conflict, Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.model import Lease, PartitionKey, ServerRef
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import Exclusive, ExclusiveWithFencing
from bearlake.streams.tenure import HeldLease, Tenure

if TYPE_CHECKING:
    from bearlake.protocols.pulsar.producers import Producer

log = logging.getLogger(__name__)


class Claim:
    """A partition that one producer of this server has for itself, and those that wait for it."""

    __slots__ = ("held", "holder", "waiting")

    def __init__(self) -> None:
        self.held: HeldLease | None = None
        """The lease; None until the first producer has it."""
        self.holder: Producer | None = None
        self.waiting: deque[Producer] = deque()


class Access:
    """Claims of one server. What decides is not `async`, so nobody comes in between."""

    def __init__(self, metadata: Metadata, tenure: Tenure) -> None:
        self._leases = metadata.leases
        self._producers = metadata.producers
        self._tenure = tenure
        self._server = tenure.server
        self._claims: dict[PartitionKey, Claim] = {}
        self._lock = asyncio.Lock()
        """Of taking and giving up leases, so that none is given up that was just taken again."""

    async def share_elsewhere(self, partition: PartitionKey) -> int:
        """The epoch for a producer beside others. Raises `Refused` (ProducerBusy): one is alone; `NotFound`, `Unavailable`."""
        await self.confirm(partition)
        try:
            return await self._producers.share_epoch(partition, lease_name(partition))
        except Conflict as error:
            raise Refused("ProducerBusy", "the topic has an exclusive producer") from error

    async def confirm(self, partition: PartitionKey) -> None:
        """Return when it is sure that a claim on the partition, if there is one, is this server's still. Raises `Unavailable`."""
        claim = self._claims.get(partition)
        if claim is None or claim.held is None:
            return
        try:
            await claim.held.confirm()
        except Fenced:
            self._lost(partition, claim)

    async def verify(self) -> None:
        """After a lapse: look all leases up without being asked; those that the store does not show are looked up at the next call."""
        for partition, claim in list(self._claims.items()):
            if claim.held is not None and claim.held.is_doubted:
                try:
                    await self.confirm(partition)
                except BearlakeError as error:
                    log.info("lease not looked up", extra={"lease": lease_name(partition), "error": repr(error)})
                    return

    def _lost(self, partition: PartitionKey, claim: Claim) -> None:
        """Somebody else produces to the partition: whoever is or waits to be alone here opens its producer again."""
        if self._claims.get(partition) is not claim:
            return
        del self._claims[partition]
        log.warning("another server has taken an exclusive partition over", extra={"partition": partition})
        for producer in [one for one in (claim.holder, *claim.waiting) if one is not None]:
            producer.overtaken()

    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        """The live server whose producer is, or waits to be, alone. Raises `Unavailable`."""
        lease = await self._leases.holder(lease_name(partition))
        return lease.holder if lease is not None else None

    def is_claimed(self, partition: PartitionKey) -> bool:
        """Whether somebody here is, or waits to be, alone."""
        return partition in self._claims

    def share(self, partition: PartitionKey) -> None:
        """Raise `Refused` (ProducerBusy) when somebody here is, or waits to be, alone."""
        if partition in self._claims:
            raise Refused("ProducerBusy", "the topic has an exclusive producer")

    def claim(self, producer: "Producer", mode: int, others: "list[Producer]") -> bool:
        """Make the producer the only one; False: it waits, and `Producer.granted` is called when its turn comes.

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
        """The epoch of a producer that was made the only one; `known_epoch` is the one it had before it came back.

        Raises:
            Refused: ProducerFenced, somebody else was alone since; ServiceNotReady, another server's producer is alone.
            Unavailable: the store did not answer.
        """
        partition = producer.partition
        lease = await self._acquire(producer)
        if known_epoch is not None:
            now = (await self._producers.named(partition, producer.stored_name)).partition_epoch
            if now > known_epoch:
                raise Refused("ProducerFenced", "another producer has become the only one since")
            return known_epoch
        return await self._producers.raise_epoch(partition, lease)

    def left(self, producer: "Producer", remaining: "list[Producer]") -> None:
        """A producer of this server has gone; whose turn has come is granted it. `remaining` are the others of its partition."""
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
        """Give the lease up, unless somebody wants it again."""
        try:
            async with self._lock:
                lease = await self._leases.holder(lease_name(partition))
                if partition not in self._claims and lease is not None and lease.holder == self._server:
                    await self._leases.release(lease)
        except BearlakeError as error:  # it ends with this server
            log.warning("lease not released", extra={"lease": lease_name(partition), "error": repr(error)})


def lease_name(partition: PartitionKey) -> str:
    """Name of the lease of the server whose producer is alone."""
    return f"produce/{partition}"
