"""Producers in PostgreSQL: ids from one counter, names, the partitions' epochs, and the expiry of producer states."""

from typing_extensions import override

from bearlake.errors import Invalid
from bearlake.metadata.model import PRODUCER_NAME_BYTES_MAX, Lease, NamedProducer, PartitionKey
from bearlake.metadata.names import check_name
from bearlake.metadata.postgresql.calls import call, of_lease
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.producer_ids import ProducerIds


class PostgresqlProducerIds(ProducerIds):
    """`metadata.ProducerIds`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def allocate(self, count: int) -> range:
        """Raises `Invalid` for a count below 1. A lost reply wastes ids, of which there are plenty."""
        if count < 1:
            raise Invalid(f"cannot allocate {count} producer ids")
        end: int = await self._database.value(
            "update bearlake.cluster set producer_id_next = producer_id_next + $1 returning producer_id_next", count
        )
        return range(end - count, end)

    @override
    async def named(self, partition: PartitionKey, name: str) -> NamedProducer:
        check_name("a producer's name", name, PRODUCER_NAME_BYTES_MAX)
        row = await self._database.row(
            *call(
                "find_producer",
                "producer_id, producer_epoch, last_sequence, partition_epoch, floor",
                partition=partition,
                name=name,
            )
        )
        assert row is not None
        return NamedProducer._make(row)

    @override
    async def raise_epoch(self, partition: PartitionKey, lease: Lease) -> int:
        epoch: int = await self._database.value(*call("raise_partition_epoch", **of_lease(lease), partition=partition))
        return epoch

    @override
    async def share_epoch(self, partition: PartitionKey, lease_name: str) -> int:
        epoch: int = await self._database.value(*call("share_partition_epoch", partition=partition, lease=lease_name))
        return epoch

    @override
    async def advance_clock(self, seen: int) -> int:
        minute: int = await self._database.value(*call("advance_producer_clock", seen=seen))
        return minute

    @override
    async def expire(self, *, idle_ms: int, limit: int) -> int:
        removed: int = await self._database.value(*call("expire_producers", idle_ms=idle_ms, limit=limit))
        return removed
