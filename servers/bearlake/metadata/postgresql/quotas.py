"""Quotas in PostgreSQL."""

from collections.abc import Sequence

from typing_extensions import override

from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.watch import Watch
from bearlake.metadata.quotas import (
    QUOTA_COUNT_MAX,
    QuotaChange,
    Quotas,
    QuotaSet,
    check_quota_changes,
    quota_row,
    quotas_of,
)

READ = """
select s.revision, q.user_name, q.client_id, q.address, q.key, q.value
  from bearlake.quota_state s left join bearlake.quota q on true"""
"""The revision with all quotas, in one snapshot; without any quota, one row of nulls."""


class PostgresqlQuotas(Quotas):
    """`metadata.quotas.Quotas`."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    @override
    async def revision(self) -> int:
        revision: int = await self._database.value("select revision from bearlake.quota_state", is_read=True)
        return revision

    @override
    async def read(self) -> QuotaSet:
        rows = await self._database.rows(READ, is_read=True)
        return QuotaSet(rows[0][0], quotas_of(tuple(row)[1:] for row in rows if row[1] is not None))

    @override
    async def change(self, changes: Sequence[QuotaChange], *, revision: int) -> int:
        check_quota_changes(changes)
        rows = [quota_row(change.entity, change.key) for change in changes]
        users, client_ids, addresses, keys = ([row[at] for row in rows] for at in range(4))
        # Repeatable: the second time, the revision is a newer one.
        position: int = await self._database.value(
            *call(
                "change_quotas",
                revision=revision,
                count_max=QUOTA_COUNT_MAX,
                users=users,
                client_ids=client_ids,
                addresses=addresses,
                keys=keys,
                values=[None if change.value is None else float(change.value) for change in changes],
            )
        )
        self._watch.saw(position)
        return revision + 1
