"""The deployment's live servers as one server sees them; protocol servers use this view to answer and route their clients.

`serving/membership.py` keeps the view up to date.
"""

from collections.abc import Sequence
from typing import Protocol

from bearlake.metadata.model import Server, ServerRef


class LiveServers(Protocol):
    """This server's view of the live servers. Reading the view does not wait; `refresh` does."""

    @property
    def cluster_id(self) -> str:
        """The deployment's id."""

    @property
    def node_id(self) -> int:
        """This server's node id."""

    @property
    def version(self) -> int:
        """Grows with every change of `live`; for caches of rendered responses."""

    def live(self) -> Sequence[Server]:
        """Live servers by node id, draining servers too; this server is always among them."""

    def heartbeat_age_ms(self, server: ServerRef) -> int:
        """Time (ms) since this server last saw the heartbeats of `server` advance; 0 for this server."""

    async def refresh(self) -> None:
        """Read from the store which servers are live. Raises `Unavailable`."""


def own_server(servers: LiveServers) -> Server | None:
    """Return this server as its peers see it."""
    return next((server for server in servers.live() if server.ref.node_id == servers.node_id), None)


def own_zone(servers: LiveServers) -> str | None:
    """Return this server's zone, if it has one."""
    own = own_server(servers)
    return own.zone if own is not None else None


def seen_lately(servers: LiveServers, candidates: Sequence[Server]) -> list[Server]:
    """Return the candidates whose heartbeats this server has seen advance within their `timeout_ms`, and this server.

    While the store does not answer, the view stays as it was: it goes on listing servers that died meanwhile.
    """
    return [server for server in candidates if servers.heartbeat_age_ms(server.ref) < server.timeout_ms]


def other_servers(servers: LiveServers) -> list[Server]:
    """Return the live servers without this one, by node id."""
    return [server for server in servers.live() if server.ref.node_id != servers.node_id]
