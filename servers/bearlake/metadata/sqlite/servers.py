"""Servers and leases in SQLite. `metadata/liveness.py` decides who is live; a lease ends with its holder."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence

from typing_extensions import override

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Leases, Membership, liveness
from bearlake.metadata.liveness import Standing
from bearlake.metadata.model import Lease, Registration, Server, ServerRef
from bearlake.metadata.sqlite.commit import check_server
from bearlake.metadata.sqlite.database import Database

IS_LIVE = "servers.has_left = 0 AND servers.has_lapsed = 0"
"""`liveness.is_live` in SQL, for a row of `servers` in the given epoch."""


class SqliteServers(Membership):
    """`metadata.Membership`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def last_epoch(self, name: str) -> int:
        return await self._database.run_read(self._last_epoch, name)

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
        return await self._database.run(self._register, name, zone, endpoints, version, timeout_ms, after)

    @override
    async def heartbeat(self, server: ServerRef) -> int:
        """Also raises `Fenced` if the server has left."""
        return await self._database.run(self._heartbeat, server)

    @override
    async def lapse_count(self, server: ServerRef) -> int:
        return await self._database.run_read(self._lapse_count, server)

    @override
    async def lapse(self, server: ServerRef, heartbeat_count: int) -> bool:
        return await self._database.run(self._lapse, server, heartbeat_count)

    @override
    async def drain(self, server: ServerRef) -> None:
        await self._database.run(self._drain, server)

    @override
    async def leave(self, server: ServerRef) -> None:
        await self._database.run(self._leave, server)

    @override
    async def live(self) -> list[Server]:
        return await self._database.run_read(self._live)

    def _last_epoch(self, name: str) -> int:
        with self._database.reading() as connection:
            return last_epoch(connection, name)

    def _register(
        self, name: str, zone: str | None, endpoints: Mapping[str, str], version: str, timeout_ms: int, after: int
    ) -> Registration:
        with self._database.writing() as connection:
            if last_epoch(connection, name) != after:
                raise Conflict(f"server {name!r} was registered by another process concurrently")
            epoch, cluster_id = connection.execute(
                "UPDATE store SET last_epoch = last_epoch + 1 RETURNING last_epoch, cluster_id"
            ).fetchone()
            (node_id,) = connection.execute(
                "INSERT INTO servers (node_id, name, epoch, zone, endpoints, version, timeout_ms, is_draining, has_left)"
                " SELECT coalesce(max(node_id) + 1, 0), ?, ?, ?, ?, ?, ?, 0, 0 FROM servers WHERE true"
                " ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, zone = excluded.zone, endpoints = excluded.endpoints,"
                " version = excluded.version, timeout_ms = excluded.timeout_ms, heartbeat_count = 0, lapse_count = 0, has_lapsed = 0,"
                " is_draining = 0, has_left = 0 RETURNING node_id",
                (
                    name,
                    epoch,
                    zone,
                    json.dumps(dict(endpoints), sort_keys=True),
                    version,
                    timeout_ms,
                ),
            ).fetchone()
        return Registration(server=ServerRef(node_id=node_id, epoch=epoch), cluster_id=cluster_id)

    def _heartbeat(self, server: ServerRef) -> int:
        with self._database.writing() as connection:
            check_server(connection, server)
            standing = standing_of(connection, server.node_id)
            assert standing is not None
            _stand(connection, server, renewed := liveness.with_heartbeat(standing))
            return renewed.lapse_count

    def _lapse_count(self, server: ServerRef) -> int:
        with self._database.reading() as connection:
            check_server(connection, server)
            standing = standing_of(connection, server.node_id)
            assert standing is not None
            return standing.lapse_count

    def _lapse(self, server: ServerRef, heartbeat_count: int) -> bool:
        with self._database.writing() as connection:
            lapsed = liveness.lapsed(standing_of(connection, server.node_id), server.epoch, heartbeat_count)
            if lapsed is not None:
                _stand(connection, server, lapsed)
            return lapsed is not None

    def _drain(self, server: ServerRef) -> None:
        with self._database.writing() as connection:
            check_server(connection, server)
            connection.execute("UPDATE servers SET is_draining = 1 WHERE node_id = ?", (server.node_id,))

    def _leave(self, server: ServerRef) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE servers SET has_left = 1 WHERE node_id = ? AND epoch = ?", (server.node_id, server.epoch)
            )

    def _live(self) -> list[Server]:
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT node_id, epoch, name, zone, endpoints, version, is_draining, heartbeat_count, timeout_ms"
                f" FROM servers WHERE {IS_LIVE} ORDER BY node_id"
            ).fetchall()
        return [
            Server(
                ref=ServerRef(node_id=node_id, epoch=epoch),
                name=name,
                zone=zone,
                endpoints=json.loads(endpoints),
                version=version,
                is_draining=bool(is_draining),
                heartbeat_count=heartbeat_count,
                timeout_ms=timeout_ms,
            )
            for node_id, epoch, name, zone, endpoints, version, is_draining, heartbeat_count, timeout_ms in rows
        ]


def last_epoch(connection: sqlite3.Connection, name: str) -> int:
    """Return the newest epoch of the server of that name, 0 if it was never registered."""
    epoch: int
    (epoch,) = connection.execute("SELECT coalesce(max(epoch), 0) FROM servers WHERE name = ?", (name,)).fetchone()
    return epoch


class SqliteLeases(Leases):
    """`metadata.Leases`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def acquire(self, name: str, holder: ServerRef) -> Lease:
        return await self._database.run(self._acquire, name, holder)

    @override
    async def holders(self, names: Collection[str]) -> Mapping[str, Lease]:
        return await self._database.run_read(self._holders, list(names))

    @override
    async def release(self, lease: Lease) -> None:
        await self._database.run(self._release, lease)

    def _acquire(self, name: str, holder: ServerRef) -> Lease:
        with self._database.writing() as connection:
            check_live(connection, holder)
            held = lease_of(connection, name)
            if held is not None and held.holder == holder:
                return held
            if held is not None and not may_take(connection, held.holder):
                raise Conflict(f"the lease {name!r} is held by server {held.holder.node_id}")
            (epoch,) = connection.execute(
                "INSERT INTO leases (name, epoch, node_id, server_epoch) VALUES (?, 1, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET epoch = epoch + 1, node_id = excluded.node_id, server_epoch = excluded.server_epoch RETURNING epoch",
                (name, holder.node_id, holder.epoch),
            ).fetchone()
            return Lease(name=name, holder=holder, epoch=epoch)

    def _holders(self, names: Sequence[str]) -> dict[str, Lease]:
        with self._database.reading() as connection:
            leases = [lease for name in names if (lease := lease_of(connection, name)) is not None]
            return {lease.name: lease for lease in leases if not may_take(connection, lease.holder)}

    def _release(self, lease: Lease) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE leases SET node_id = NULL, server_epoch = NULL WHERE name = ? AND epoch = ? AND node_id = ? AND server_epoch = ?",
                (lease.name, lease.epoch, lease.holder.node_id, lease.holder.epoch),
            )


def standing_of(connection: sqlite3.Connection, node_id: int) -> Standing | None:
    """Return the newest registration of a node id."""
    row = connection.execute(
        "SELECT epoch, heartbeat_count, lapse_count, has_lapsed, has_left FROM servers WHERE node_id = ?", (node_id,)
    ).fetchone()
    if row is None:
        return None
    return Standing(
        epoch=row[0], heartbeat_count=row[1], lapse_count=row[2], has_lapsed=bool(row[3]), has_left=bool(row[4])
    )


def _stand(connection: sqlite3.Connection, server: ServerRef, standing: Standing) -> None:
    connection.execute(
        "UPDATE servers SET heartbeat_count = ?, lapse_count = ?, has_lapsed = ? WHERE node_id = ?",
        (standing.heartbeat_count, standing.lapse_count, standing.has_lapsed, server.node_id),
    )


def check_live(connection: sqlite3.Connection, server: ServerRef) -> None:
    """Raise `Fenced` unless the server may take leases and claims: it is its name's newest epoch and has neither left nor lapsed."""
    check_server(connection, server)
    if not liveness.is_live(standing_of(connection, server.node_id), server.epoch):
        raise Fenced(f"server {server.node_id} is not live: its heartbeats stopped")


def may_take(connection: sqlite3.Connection, holder: ServerRef) -> bool:
    """Return whether another server may take the leases and claims of this server."""
    return liveness.may_take(standing_of(connection, holder.node_id), holder.epoch)


def lease_of(connection: sqlite3.Connection, name: str) -> Lease | None:
    """Return the lease as it was last taken, unless it was released since; its holder may have gone."""
    row = connection.execute(
        "SELECT node_id, server_epoch, epoch FROM leases WHERE name = ? AND node_id IS NOT NULL", (name,)
    ).fetchone()
    return None if row is None else Lease(name=name, holder=ServerRef(node_id=row[0], epoch=row[1]), epoch=row[2])


def check_lease(connection: sqlite3.Connection, lease: Lease) -> None:
    """Raise `Fenced` if another server took the lease, the lease was released, or its holder was replaced or is gone.

    A holder that missed heartbeats may still write: no other server has taken over, and a new holder gets a larger epoch.
    """
    check_server(connection, lease.holder)
    held = (lease.name, lease.epoch, lease.holder.node_id, lease.holder.epoch)
    find = "SELECT 1 FROM leases WHERE name = ? AND epoch = ? AND node_id = ? AND server_epoch = ?"
    if not connection.execute(find, held).fetchone():
        raise Fenced(
            f"the lease {lease.name!r} of epoch {lease.epoch} is no longer held by server {lease.holder.node_id}"
        )
