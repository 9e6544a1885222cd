"""Selects the servers that coordinate groups.

Kafka clients talk to the coordinator directly, so it must be a server with a Kafka listener, as long as a live server with one is not
draining. Otherwise any server that can host members is suitable. Each server decides by its own view of the live servers. While views
differ, the lease decides, and a server that asked the wrong peer asks again.
"""

from collections.abc import Sequence

from bearlake.metadata.model import Server, ServerRef
from bearlake.serving import routing
from bearlake.serving.addresses import url_of
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups.client import GroupClient, RemoteCoordinator
from bearlake.serving.live_servers import LiveServers
from bearlake.serving.trust import PeerTrust
from bearlake.streams.groups.peers import Coordination
from bearlake.streams.groups.settings import GroupSettings

ADMIN = "admin"
KAFKA = "kafka"


class GroupPeers:
    """`streams.groups.peers.Peers` by the endpoints of the live servers."""

    def __init__(
        self, servers: LiveServers, settings: GroupSettings, token: AdminToken | None, trust: PeerTrust | None = None
    ) -> None:
        """`token` is the admin API's, which all servers of a deployment share; None: no token.

        `trust` verifies the servers whose admin API has TLS; None: by the machine's authorities.
        """
        self._servers = servers
        self._client = GroupClient(settings, token, trust=trust)

    def may_coordinate(self) -> bool:
        """Whether this server may take over groups now."""
        return any(server.ref.node_id == self._servers.node_id for server in coordinators(self._servers.live()))

    def chosen(self, group: str) -> ServerRef | None:
        """Return the server that shall take the group if no server has it: the one that FindCoordinator returns."""
        servers = coordinators(self._servers.live())
        return routing.choose(routing.key_of(group), servers).ref if servers else None

    def reach(self, server: ServerRef) -> Coordination | None:
        """Return the connection to another server; None if that server is not known to be live."""
        for live in self._servers.live():
            if live.ref == server and ADMIN in live.endpoints:
                return RemoteCoordinator(self._client, url_of(live.endpoints[ADMIN]))
        return None

    async def close(self) -> None:
        """Close connections; running requests end as unavailable."""
        await self._client.close()


def coordinators(servers: Sequence[Server]) -> list[Server]:
    """Return the servers that groups belong to. If all of them are draining, return these: better late than nowhere."""
    serving = [server for server in servers if any(name != ADMIN for name in server.endpoints)]
    staying = [server for server in serving if not server.is_draining] or serving
    with_kafka = [server for server in staying if any(name.partition(":")[0] == KAFKA for name in server.endpoints)]
    return with_kafka or staying
