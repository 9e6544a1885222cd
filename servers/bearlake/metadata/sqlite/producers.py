"""Producer ids in SQLite: one counter."""

from bearlake.errors import Invalid
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.sqlite.log import SqliteLog


class SqliteProducerIds:
    """`metadata.ProducerIds`."""

    def __init__(self, database: Database, log: SqliteLog) -> None:
        self._database = database
        self._log = log

    async def allocate(self, count: int) -> range:
        """See `ProducerIds.allocate`. Raises `Invalid` for a count below 1."""
        if count < 1:
            raise Invalid(f"cannot allocate {count} producer ids")
        return await self._database.run(self._allocate, count)

    async def expire(self, *, idle_ms: int, limit: int) -> int:
        """See `ProducerIds.expire`. States of partitions whose newest entries are not rolled up yet are left for a later call."""
        return await self._database.run(self._log.upkeep.forget_producers, idle_ms, limit)

    def _allocate(self, count: int) -> range:
        with self._database.writing() as connection:
            (end,) = connection.execute(
                "UPDATE store SET next_producer_id = next_producer_id + ? RETURNING next_producer_id", (count,)
            ).fetchone()
        return range(end - count, end)
