"""Which servers coordinate groups.

Kafka's clients talk to the coordinator themselves, so it has to be a server with a Kafka listener as long as one lives that does not
drain. Otherwise any server that members can live in will do. Each server decides by its own view of the live ones; where views differ
for a moment, the lease decides, and those who asked in the wrong place ask again.
"""

from collections.abc import Sequence

from bearlake.metadata.model import Server, ServerRef
from bearlake.serving import routing
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups.client import GroupClient, RemoteCoordinator
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.groups.peers import Coordination
from bearlake.streams.groups.settings import GroupSettings

ADMIN = "admin"
KAFKA = "kafka"


class GroupPeers:
    """`streams.groups.peers.Peers` by the endpoints of the live servers."""

    def __init__(self, servers: LiveServers, settings: GroupSettings, token: AdminToken | None) -> None:
        """`token` is the admin API's, which all servers of a deployment share; None without one."""
        self._servers = servers
        self._client = GroupClient(settings, token)

    def may_coordinate(self) -> bool:
        """Whether this server may take groups over now."""
        return any(server.ref.node_id == self._servers.node_id for server in coordinators(self._servers.live()))

    def chosen(self, group: str) -> ServerRef | None:
        """The server that shall take the group when nobody has it: the same one that FindCoordinator tells."""
        servers = coordinators(self._servers.live())
        return routing.choose(routing.key_of(group), servers).ref if servers else None

    def reach(self, server: ServerRef) -> Coordination | None:
        """The way to another server; None when it is not known to be live."""
        for live in self._servers.live():
            if live.ref == server and ADMIN in live.endpoints:
                return RemoteCoordinator(self._client, f"http://{live.endpoints[ADMIN]}")
        return None

    async def close(self) -> None:
        """Close connections; what is asked ends as unavailable."""
        await self._client.close()


def coordinators(servers: Sequence[Server]) -> list[Server]:
    """The servers that groups belong to. When all of them drain, the draining ones: better late than nowhere."""
    serving = [server for server in servers if any(name != ADMIN for name in server.endpoints)]
    staying = [server for server in serving if not server.is_draining] or serving
    with_kafka = [server for server in staying if any(name.partition(":")[0] == KAFKA for name in server.endpoints)]
    return with_kafka or staying
