"""What the handlers of one Kafka server share: the waist, the live servers, the settings.

A handler is `async def handle(broker, context, request) -> response` with messages of the codec; it knows neither sockets nor
frames. `Context` says who asks, and on which listener.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bearlake.metadata.model import Server
from bearlake.protocols.kafka.rendered import Renderings
from bearlake.streams.principal import Principal
from bearlake.streams.producer_ids import ProducerIds
from bearlake.streams.service import Streams

EPOCH_MAX = 0
"""The latest leader epoch that a client may name: librdkafka sends 0 as its current one when it was told none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The Kafka server: limits of connections and requests, defaults of streams."""

    auto_create_streams: bool = True
    """Create a stream when a client asks for its metadata and allows it (Kafka's `auto.create.topics.enable`)."""
    default_partition_count: int = 1
    """Partitions of a stream that is created without a count (Kafka's `num.partitions`)."""
    request_bytes_max: int = 100 * 1024 * 1024
    """Largest request in bytes; a larger size field closes the connection (Kafka's `socket.request.max.bytes`)."""
    control_request_bytes_max: int = 16 * 1024 * 1024
    """Largest request in bytes that is not Produce: decoding it makes objects, which take several times its size."""
    connections_max: int = 10_000
    """Open client connections; more are closed at once."""
    idle_ms: int = 600_000
    """Connections without a request for this long (ms) are closed (Kafka's `connections.max.idle.ms`)."""
    stall_ms: int = 60_000
    """Time (ms) in which a request must arrive whole once it has begun, and in which a client must take some of its answers."""
    requests_in_flight_max: int = 64
    """Requests of one connection that run at once; its socket is not read beyond."""
    response_bytes_max: int = 16 * 1024 * 1024
    """Bytes of answers that one connection has not taken yet before its socket is not read any more."""
    receive_bytes_max: int = 256 * 1024 * 1024
    """Bytes of receive buffers of more than 64 KiB; over it, connections wait in line before they receive a larger request."""
    unsent_bytes_max: int = 256 * 1024 * 1024
    """Bytes of answers that clients have not taken, of all connections together, before fetches are answered with less at once."""
    drain_redirect_after_ms: int = 5_000
    """While draining beside other servers: time (ms) after which clients that did not leave get NOT_LEADER_OR_FOLLOWER."""
    zone_client_id_keys: list[str] = field(default_factory=lambda: ["zone_id", "diskless_az", "ws_az"])
    """Names of `key=value` tokens in a client id that say in which zone the client is."""


class Members(Protocol):
    """The deployment's live servers as this one sees them; no waiting but in `refresh`."""

    @property
    def cluster_id(self) -> str:
        """The deployment's id."""

    @property
    def node_id(self) -> int:
        """This server's node id."""

    @property
    def version(self) -> int:
        """Grows with every change; for caches of rendered answers."""

    def live(self) -> Sequence[Server]:
        """Live servers, draining ones too, by node id; always with this one."""

    async def refresh(self) -> None:
        """See who is live now. Raises `Unavailable`."""


class Broker:
    """One Kafka server's handlers' common ground."""

    def __init__(self, streams: Streams, members: Members, settings: KafkaSettings) -> None:
        self.streams = streams
        self.members = members
        self.groups = streams.coordinator
        self.settings = settings
        self.is_redirecting = False
        """Whether produce and fetch are answered with NOT_LEADER_OR_FOLLOWER, so that clients go to other servers (drain)."""
        self.producer_ids = ProducerIds(streams.metadata.producers)
        self.renderings = Renderings()
        self.unsent_bytes = 0
        """Bytes of answers that clients do not take, by their last look."""

    @property
    def node_id(self) -> int:
        """This server's node id."""
        return self.members.node_id


@dataclass(frozen=True, slots=True)
class Context:
    """Where a request came from: its API version, caller, client id, listener's name (`kafka`, `kafka:EXTERNAL`), peer address."""

    version: int
    who: Principal
    client_id: str | None
    listener: str
    peer: str
