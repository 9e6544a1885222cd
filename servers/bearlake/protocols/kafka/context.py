"""What the handlers of one Kafka server share: streams, groups, the live servers, the settings.

A handler is `async def handle(context, caller, request) -> response` with messages of the codec; it knows neither sockets nor
frames. `Caller` says who sent the request, and through which listener.
"""

from dataclasses import dataclass

from bearlake.protocols.kafka.rendered import Renderings
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.principal import Principal
from bearlake.streams.producer_ids import ProducerIds
from bearlake.streams.service import Streams

EPOCH_MAX = 0
"""The latest leader epoch that a client may name: librdkafka sends 0 as its current one when it was told none."""


class KafkaContext:
    """What the handlers of one Kafka server share."""

    def __init__(self, streams: Streams, servers: LiveServers, settings: KafkaSettings) -> None:
        self.streams = streams
        self.servers = servers
        self.groups = streams.coordinator
        self.settings = settings
        self.is_redirecting = False
        """Whether produce and fetch are answered with NOT_LEADER_OR_FOLLOWER, so that clients go to other servers (drain)."""
        self.producer_ids = ProducerIds(streams.metadata.producers)
        self.renderings = Renderings()
        self.unsent_bytes = 0
        """Bytes of answers that clients have not taken, as of each connection's last check."""

    @property
    def node_id(self) -> int:
        """This server's node id."""
        return self.servers.node_id


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: principal, client id, listener (`kafka`, `kafka:EXTERNAL`), peer address; and the request's API version."""

    version: int
    who: Principal
    client_id: str | None
    listener: str
    peer: str
