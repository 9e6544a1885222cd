"""Servers and leases in PostgreSQL. `functions/is_live.sql` decides who is live; a lease ends with its holder."""

import json
from collections.abc import Collection, Mapping

from typing_extensions import override

from bearlake.errors import Fenced
from bearlake.metadata import Leases, Membership
from bearlake.metadata.model import Lease, Registration, Server, ServerRef
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database


class PostgresqlServers(Membership):
    """`metadata.Membership`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def last_epoch(self, name: str) -> int:
        epoch: int = await self._database.value(
            "select coalesce(max(epoch), 0) from bearlake.server where name = $1", name, is_read=True
        )
        return epoch

    @override
    async def register(
        self,
        name: str,
        *,
        zone: str | None,
        endpoints: Mapping[str, str],
        version: str,
        timeout_ms: int,
        after: int = 0,
    ) -> Registration:
        """Epochs grow over all servers; node ids start at 0."""
        # Not repeatable: the second time, the first registration is the last epoch.
        row = await self._database.row(
            *call(
                "register_server_after",
                "node_id, epoch, (select c.id from bearlake.cluster c)",
                name=name,
                after=after,
                zone=zone,
                endpoints=json.dumps(dict(endpoints), ensure_ascii=False),
                version=version,
                timeout_ms=timeout_ms,
            ),
            is_repeatable=False,
        )
        assert row is not None
        return Registration(server=ServerRef(node_id=row[0], epoch=row[1]), cluster_id=row[2])

    @override
    async def heartbeat(self, server: ServerRef) -> int:
        """Also raises `Fenced` if the server has left."""
        count: int = await self._database.value(*call("beat_server", node_id=server.node_id, epoch=server.epoch))
        return count

    @override
    async def lapse_count(self, server: ServerRef) -> int:
        row = await self._database.row(
            "select lapse_count from bearlake.server where node_id = $1 and epoch = $2 and not has_left",
            server.node_id,
            server.epoch,
            is_read=True,
        )
        if row is None:
            raise _fenced(server)
        count: int = row[0]
        return count

    @override
    async def lapse(self, server: ServerRef, heartbeat_count: int) -> bool:
        has_lapsed: bool = await self._database.value(
            *call("lapse_server", node_id=server.node_id, epoch=server.epoch, heartbeat_count=heartbeat_count)
        )
        return has_lapsed

    @override
    async def drain(self, server: ServerRef) -> None:
        rows = await self._database.rows(
            "update bearlake.server set is_draining = true where node_id = $1 and epoch = $2 and not has_left returning 1",
            server.node_id,
            server.epoch,
        )
        if not rows:
            raise _fenced(server)

    @override
    async def leave(self, server: ServerRef) -> None:
        await self._database.rows(*call("leave_server", node_id=server.node_id, epoch=server.epoch))

    @override
    async def live(self) -> list[Server]:
        rows = await self._database.rows(
            "select * from bearlake.server where not has_left and not has_lapsed order by node_id", is_read=True
        )
        return [
            Server(
                ref=ServerRef(node_id=row["node_id"], epoch=row["epoch"]),
                name=row["name"],
                zone=row["zone"],
                endpoints=json.loads(row["endpoints"]),
                version=row["version"],
                is_draining=row["is_draining"],
                heartbeat_count=row["heartbeat_count"],
                timeout_ms=row["timeout_ms"],
            )
            for row in rows
        ]


def _fenced(server: ServerRef) -> Fenced:
    return Fenced(f"epoch {server.epoch} of server {server.node_id} is not its newest, or it has left")


class PostgresqlLeases(Leases):
    """`metadata.Leases`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def acquire(self, name: str, holder: ServerRef) -> Lease:
        epoch = await self._database.value(
            *call("acquire_lease", name=name, node_id=holder.node_id, epoch=holder.epoch)
        )
        return Lease(name=name, holder=holder, epoch=epoch)

    @override
    async def holders(self, names: Collection[str]) -> Mapping[str, Lease]:
        rows = await self._database.rows(
            "select name, node_id, server_epoch, epoch from bearlake.lease"
            " where name = any($1::text[]) and node_id is not null and bearlake.is_live(node_id, server_epoch)",
            list(names),
            is_read=True,
        )
        return {
            name: Lease(name=name, holder=ServerRef(node_id=node_id, epoch=server_epoch), epoch=epoch)
            for name, node_id, server_epoch, epoch in rows
        }

    @override
    async def release(self, lease: Lease) -> None:
        await self._database.rows(
            "update bearlake.lease set node_id = null, server_epoch = null"
            " where name = $1 and epoch = $2 and node_id = $3 and server_epoch = $4",
            lease.name,
            lease.epoch,
            lease.holder.node_id,
            lease.holder.epoch,
        )
