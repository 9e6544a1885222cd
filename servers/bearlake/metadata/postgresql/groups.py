"""Consumer groups in PostgreSQL: the coordinator's snapshot and the committed offsets. Every write checks the lease in its transaction."""

from collections.abc import Collection, Mapping, Sequence

import asyncpg
from typing_extensions import override

from bearlake.metadata import GroupStore
from bearlake.metadata.model import CommittedOffset, GroupListing, GroupSnapshot, Lease, PartitionKey
from bearlake.metadata.postgresql.calls import call, of_lease
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.turns import keyed


class PostgresqlGroups(GroupStore):
    """`metadata.GroupStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def load(self, group: str) -> GroupSnapshot | None:
        row = await self._database.row(
            "select protocol_type, state from bearlake.consumer_group where name = $1", group, is_read=True
        )
        return None if row is None else GroupSnapshot(group=group, protocol_type=row[0], state=row[1])

    @override
    async def save(self, snapshot: GroupSnapshot, lease: Lease) -> None:
        await self._database.rows(
            *call(
                "save_group",
                **of_lease(lease),
                group=snapshot.group,
                protocol_type=snapshot.protocol_type,
                state=snapshot.state,
            )
        )

    @override
    async def commit_offsets(self, group: str, offsets: Mapping[PartitionKey, CommittedOffset], lease: Lease) -> None:
        """`committed_ms` is the store's time of this call; the given values are ignored."""
        await self._database.rows(
            *call(
                "commit_group_offsets",
                **of_lease(lease),
                group=group,
                partitions=list(offsets),
                offsets=[committed.offset for committed in offsets.values()],
                leader_epochs=[committed.leader_epoch for committed in offsets.values()],
                metadata=[committed.metadata for committed in offsets.values()],
            )
        )

    @override
    async def offsets(
        self, group: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        rows = await self._database.rows(
            "select partition, committed_offset, leader_epoch, metadata, committed_ms from bearlake.group_offset"
            " where name = $1 and ($2::bigint[] is null or partition = any ($2))",
            group,
            None if partitions is None else list(partitions),
            is_read=True,
        )
        return await keyed(rows, _offset)

    @override
    async def delete_offsets(self, group: str, partitions: Collection[PartitionKey], lease: Lease) -> None:
        await self._database.rows(
            *call("delete_group_offsets", **of_lease(lease), group=group, partitions=list(partitions))
        )

    @override
    async def delete(self, group: str, lease: Lease) -> None:
        # Not repeatable: the second time, there is nothing to delete.
        await self._database.rows(*call("delete_group", **of_lease(lease), group=group), is_repeatable=False)

    @override
    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[GroupListing]:
        """Names sort by code point."""
        rows = await self._database.rows(*call("list_groups", after=after, limit=limit), is_read=True)
        return [GroupListing(group=name, protocol_type=protocol_type) for name, protocol_type in rows]


def _offset(row: asyncpg.Record) -> tuple[PartitionKey, CommittedOffset]:
    partition, offset, epoch, text, committed_ms = row
    return partition, CommittedOffset(offset=offset, leader_epoch=epoch, metadata=text, committed_ms=committed_ms)
