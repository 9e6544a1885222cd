"""The Protocol for producers: their ids, names, epochs and expiry. `producers.py` has the rules for their batches."""

from typing import Protocol

from bearlake.metadata.model import Lease, NamedProducer, PartitionKey


class ProducerIds(Protocol):
    """Producer ids, which are never reused; names of producers, and the epochs of partitions that fence them."""

    async def allocate(self, count: int) -> range:
        """Return `count` (>= 1) consecutive producer ids that were never given out before."""

    async def named(self, partition: PartitionKey, name: str) -> NamedProducer:
        """Return the partition's producer of that name with what it has written, as of now; create the producer if there is none.

        Its batches carry `BATCH_NAMED`. Names are deleted with their stream. A name is forgotten together with the producer's state
        (`expire`) unless it was requested within the same time. Each protocol puts its own prefix before its names.

        Raises:
            NotFound: no such partition.
            Invalid: the name is empty, or longer than `PRODUCER_NAME_BYTES_MAX` bytes.
        """

    async def raise_epoch(self, partition: PartitionKey, lease: Lease) -> int:
        """Raise the partition's epoch (which starts at 0) and return it: from now on, named batches of an older epoch are FENCED
        (except `BATCH_IN_STEP`). `lease` is that of the partition's dispatcher. A repeat raises the epoch again: epochs may skip.

        Raises:
            NotFound: no such partition.
            Fenced: the lease was overtaken.

        Source: Apache Pulsar PIP-68 (exclusive producers, topic epoch).
        """

    async def share_epoch(self, partition: PartitionKey, lease_name: str) -> int:
        """Return the partition's epoch for a producer that shares the partition; a later raise fences that producer. The first call after
        a `raise_epoch` raises the epoch too, which fences the exclusive producer, and takes the lease from a holder that is not live.
        Raises `NotFound`: no such partition; `Conflict`: a live server holds the lease of that name, under which epochs are raised.
        """

    async def advance_clock(self, seen: int) -> int:
        """Advance the producer clock (`producers.py`) by a minute if it stands at `seen`; returns the minute at which it stands now.

        The caller has seen the clock stand at `seen` for at least a minute of its own monotonic clock, counted from the reply. -1: it only
        reads the clock.
        """

    async def expire(self, *, idle_ms: int, limit: int) -> int:
        """Forget at most `limit` producer states without a batch for `idle_ms` (from 0) of the producer clock.

        At most `limit` names that never wrote are forgotten too. Returns the larger of the two counts; if it is not 0, there may be more.
        Producers of partitions that are busy at this moment may be left for a later call.
        The clock counts whole minutes, so `expire` forgets a producer up to two minutes later than that.
        Later batches of such an idempotent producer are `UNKNOWN_PRODUCER` until it begins a new epoch at sequence 0 (I9).
        A named producer that was requested within that time is kept.
        """
