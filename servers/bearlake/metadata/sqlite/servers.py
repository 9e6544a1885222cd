"""Servers and leases in SQLite. A server is live while its heartbeat is younger than its timeout; leases live and die with it."""

import json
import sqlite3
from collections.abc import Mapping

from bearlake.clock import Clock
from bearlake.errors import Conflict, Fenced
from bearlake.metadata.model import Lease, Registration, Server, ServerRef
from bearlake.metadata.sqlite.commit import check_server
from bearlake.metadata.sqlite.database import Database

IS_LIVE = "servers.has_left = 0 AND servers.heartbeat_ms + servers.timeout_ms > ?"


class SqliteServers:
    """`metadata.Membership`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def last_epoch(self, name: str) -> int:
        """See `Membership.last_epoch`."""
        return await self._database.run_read(self._last_epoch, name)

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
        """See `Membership.register`. Epochs grow over all servers, node ids start at 0."""
        return await self._database.run(self._register, name, zone, endpoints, version, timeout_ms, after)

    async def heartbeat(self, server: ServerRef) -> None:
        """See `Membership.heartbeat`. Raises `Fenced` too when the server has left."""
        await self._database.run(self._update, server, "heartbeat_ms = ?", self._clock.now_ms())

    async def drain(self, server: ServerRef) -> None:
        """See `Membership.drain`."""
        await self._database.run(self._update, server, "is_draining = ?", 1)

    async def leave(self, server: ServerRef) -> None:
        """See `Membership.leave`."""
        await self._database.run(self._leave, server)

    async def live(self) -> list[Server]:
        """See `Membership.live`."""
        return await self._database.run_read(self._live)

    def _last_epoch(self, name: str) -> int:
        with self._database.reading() as connection:
            return last_epoch(connection, name)

    def _register(
        self, name: str, zone: str | None, endpoints: Mapping[str, str], version: str, timeout_ms: int, after: int
    ) -> Registration:
        with self._database.writing() as connection:
            if last_epoch(connection, name) != after:
                raise Conflict(f"server {name!r} was registered by another process meanwhile")
            epoch, cluster_id = connection.execute(
                "UPDATE store SET last_epoch = last_epoch + 1 RETURNING last_epoch, cluster_id"
            ).fetchone()
            (node_id,) = connection.execute(
                "INSERT INTO servers (node_id, name, epoch, zone, endpoints, version, timeout_ms, heartbeat_ms, is_draining, has_left)"
                " SELECT coalesce(max(node_id) + 1, 0), ?, ?, ?, ?, ?, ?, ?, 0, 0 FROM servers WHERE true"
                " ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, zone = excluded.zone, endpoints = excluded.endpoints,"
                " version = excluded.version, timeout_ms = excluded.timeout_ms, heartbeat_ms = excluded.heartbeat_ms, is_draining = 0,"
                " has_left = 0 RETURNING node_id",
                (
                    name,
                    epoch,
                    zone,
                    json.dumps(dict(endpoints), sort_keys=True),
                    version,
                    timeout_ms,
                    self._clock.now_ms(),
                ),
            ).fetchone()
        return Registration(server=ServerRef(node_id=node_id, epoch=epoch), cluster_id=cluster_id)

    def _update(self, server: ServerRef, assignment: str, value: int) -> None:
        with self._database.writing() as connection:
            check_server(connection, server)
            connection.execute(f"UPDATE servers SET {assignment} WHERE node_id = ?", (value, server.node_id))

    def _leave(self, server: ServerRef) -> None:
        holder = (server.node_id, server.epoch)
        with self._database.writing() as connection:
            connection.execute("UPDATE servers SET has_left = 1 WHERE node_id = ? AND epoch = ?", holder)
            connection.execute(
                "UPDATE leases SET node_id = NULL, server_epoch = NULL WHERE node_id = ? AND server_epoch = ?", holder
            )

    def _live(self) -> list[Server]:
        now_ms = self._clock.now_ms()
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT node_id, epoch, name, zone, endpoints, version, is_draining, heartbeat_ms"
                f" FROM servers WHERE {IS_LIVE} ORDER BY node_id",
                (now_ms,),
            ).fetchall()
        return [
            Server(
                ref=ServerRef(node_id=node_id, epoch=epoch),
                name=name,
                zone=zone,
                endpoints=json.loads(endpoints),
                version=version,
                is_draining=bool(is_draining),
                heartbeat_age_ms=max(0, now_ms - heartbeat_ms),
            )
            for node_id, epoch, name, zone, endpoints, version, is_draining, heartbeat_ms in rows
        ]


def last_epoch(connection: sqlite3.Connection, name: str) -> int:
    """The newest epoch of the server of that name, 0 when it was never registered."""
    epoch: int
    (epoch,) = connection.execute("SELECT coalesce(max(epoch), 0) FROM servers WHERE name = ?", (name,)).fetchone()
    return epoch


class SqliteLeases:
    """`metadata.Leases`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def acquire(self, name: str, holder: ServerRef) -> Lease:
        """See `Leases.acquire`."""
        return await self._database.run(self._acquire, name, holder)

    async def holder(self, name: str) -> Lease | None:
        """See `Leases.holder`."""
        return await self._database.run_read(self._holder, name)

    async def release(self, lease: Lease) -> None:
        """See `Leases.release`."""
        await self._database.run(self._release, lease)

    def _acquire(self, name: str, holder: ServerRef) -> Lease:
        with self._database.writing() as connection:
            check_server(connection, holder)
            now_ms = self._clock.now_ms()
            if not connection.execute(
                f"SELECT 1 FROM servers WHERE node_id = ? AND {IS_LIVE}", (holder.node_id, now_ms)
            ).fetchone():
                raise Fenced(f"server {holder.node_id} is not live: its heartbeats stopped")
            held = live_lease(connection, name, now_ms)
            if held is not None:
                if held.holder == holder:
                    return held
                raise Conflict(f"the lease {name!r} is held by server {held.holder.node_id}")
            (epoch,) = connection.execute(
                "INSERT INTO leases (name, epoch, node_id, server_epoch) VALUES (?, 1, ?, ?) ON CONFLICT (name) DO UPDATE"
                " SET epoch = epoch + 1, node_id = excluded.node_id, server_epoch = excluded.server_epoch RETURNING epoch",
                (name, holder.node_id, holder.epoch),
            ).fetchone()
            return Lease(name=name, holder=holder, epoch=epoch)

    def _holder(self, name: str) -> Lease | None:
        with self._database.reading() as connection:
            return live_lease(connection, name, self._clock.now_ms())

    def _release(self, lease: Lease) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE leases SET node_id = NULL, server_epoch = NULL WHERE name = ? AND epoch = ? AND node_id = ? AND server_epoch = ?",
                (lease.name, lease.epoch, lease.holder.node_id, lease.holder.epoch),
            )


def live_lease(connection: sqlite3.Connection, name: str, now_ms: int) -> Lease | None:
    """The lease if its holder is live in its newest epoch, else None."""
    row = connection.execute(
        "SELECT leases.node_id, server_epoch, leases.epoch FROM leases JOIN servers ON servers.node_id = leases.node_id"
        f" AND servers.epoch = server_epoch WHERE leases.name = ? AND {IS_LIVE}",
        (name, now_ms),
    ).fetchone()
    return None if row is None else Lease(name=name, holder=ServerRef(node_id=row[0], epoch=row[1]), epoch=row[2])


def check_lease(connection: sqlite3.Connection, lease: Lease) -> None:
    """Raise `Fenced` unless nobody else took the lease, it was not released, and its holder is neither replaced nor gone.

    A holder that missed heartbeats may still write: nobody took over yet, and who does gets a larger epoch.
    """
    check_server(connection, lease.holder)
    held = (lease.name, lease.epoch, lease.holder.node_id, lease.holder.epoch)
    find = "SELECT 1 FROM leases WHERE name = ? AND epoch = ? AND node_id = ? AND server_epoch = ?"
    if not connection.execute(find, held).fetchone():
        raise Fenced(
            f"the lease {lease.name!r} of epoch {lease.epoch} is not held by server {lease.holder.node_id} any more"
        )
