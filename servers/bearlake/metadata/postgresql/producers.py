"""Producer ids in PostgreSQL: one counter, and the expiry of the producers' states."""

from bearlake.errors import Invalid
from bearlake.metadata.postgresql.database import Database


class PostgresqlProducerIds:
    """`metadata.ProducerIds`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def allocate(self, count: int) -> range:
        """See `ProducerIds.allocate`. Raises `Invalid` for a count below 1. A lost reply loses ids, which are plenty."""
        if count < 1:
            raise Invalid(f"cannot allocate {count} producer ids")
        end: int = await self._database.value(
            "update bearlake.cluster set producer_id_next = producer_id_next + $1 returning producer_id_next", count
        )
        return range(end - count, end)

    async def expire(self, *, idle_ms: int, limit: int) -> int:
        """See `ProducerIds.expire`."""
        removed: int = await self._database.value("select bearlake.expire_producers($1, $2)", idle_ms, limit)
        return removed
