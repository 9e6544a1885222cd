"""What the connections of one Pulsar server share: streams, the live servers, topics, the names of producers.

Any server takes producers and readers of any topic. Durable subscriptions of a partition are dispatched by one server at a time, which
look-ups name; for a partition that nobody dispatches they name one by rendezvous hashing, so that clients meet there.
"""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bearlake.metadata.model import PartitionKey, Server, ServerRef
from bearlake.protocols.pulsar.access import Access
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.framing import PADDING_BYTES, entry_bytes_max
from bearlake.protocols.pulsar.producers import Producer
from bearlake.protocols.pulsar.schemas import Schemas
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.protocols.pulsar.topics import Topics
from bearlake.protocols.pulsar.traits import EntryReader
from bearlake.protocols.pulsar.watchers import Watchers
from bearlake.serving import routing
from bearlake.serving.live_servers import LiveServers, other_servers, own_zone
from bearlake.streams.service import Streams

if TYPE_CHECKING:
    from bearlake.streams.schemas.service import Schemas as Registry


PROTOCOL = "pulsar"
"""What the names of this protocol's endpoints begin with."""
_RECORDS_RATIO = 8
"""Largest size of records, in that of the payload they came in: a message of few bytes can become a record with a reserved header."""


class PulsarContext:
    """What the connections of one Pulsar server share."""

    def __init__(
        self,
        streams: Streams,
        registry: "Registry",
        servers: LiveServers,
        settings: PulsarSettings,
        schemes: Mapping[str, str],
    ) -> None:
        """`schemes` are the URL schemes (`pulsar`, `pulsar+ssl`) by endpoint."""
        self.streams = streams
        self.subscriptions = streams.subscriptions
        self.servers = servers
        self.settings = settings
        self.schemes = schemes
        self.frame_bytes_max = settings.message_bytes_max + PADDING_BYTES
        self.send_limits = (
            min(settings.message_bytes_max, settings.uncompressed_bytes_max // _RECORDS_RATIO),
            entry_bytes_max(settings.message_bytes_max),
        )
        """Largest payload, and largest message with its metadata (bytes), of a SEND that the kernel may take by itself."""
        self.entry_reader = EntryReader(settings.uncompressed_bytes_max)
        self.topics = Topics(streams, settings)
        self.access = Access(streams.metadata, streams.tenure)
        self.schemas = Schemas(registry, self.topics)
        self.watchers = Watchers(self.topics, streams.catalog)
        self.is_draining = False
        """Whether producers and consumers are sent to other servers."""
        self._producers: dict[tuple[PartitionKey, str], Producer] = {}
        self._numbers = itertools.count()

    # -- servers -------------------------------------------------------------------------------------------------

    def server_for(self, key: str, endpoint: str, holder: int | None) -> Server | None:
        """Where clients of a topic go: to the live server `holder` (node id), else to one of this server's zone, by hash of `key`."""
        live = self.servers.live()
        if holder is not None:
            for server in live:
                if server.ref.node_id == holder and endpoint in server.endpoints and not server.is_draining:
                    return server
        found = routing.candidates(live, endpoint, own_zone(self.servers))
        return routing.choose(routing.key_of(key), found) if found else None

    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        """The live server that dispatches a partition, else the one whose producer is alone on it, else None. Raises `Unavailable`."""
        return await self.subscriptions.holder(partition) or await self.access.holder(partition)

    def http_address_of(self, server: ServerRef | None) -> str | None:
        """`host:port` of another live server's HTTP API; None if there is none."""
        for other in other_servers(self.servers):
            if server is not None and other.ref.node_id == server.node_id:
                return other.endpoints.get("pulsar_http")
        return None

    def elsewhere(self, key: str, endpoint: str) -> str | None:
        """`host:port` of the server that takes over clients of a topic when this one drains; None when there is no other."""
        staying = [server for server in other_servers(self.servers) if not server.is_draining]
        found = routing.candidates(staying, endpoint, own_zone(self.servers))
        return routing.choose(routing.key_of(key), found).endpoints[endpoint] if found else None

    # -- names of producers --------------------------------------------------------------------------------------

    def new_producer_name(self) -> str:
        """A name that no producer of the deployment has had."""
        server = self.streams.server
        return f"{self.servers.cluster_id}-{server.node_id}-{server.epoch}-{next(self._numbers)}"

    def register(self, producer: Producer) -> None:
        """Take the producer's name in its partition; a later session of the same producer takes it from the earlier one.

        Raises:
            Refused: ProducerBusy, the name is another producer's.
        """
        key = (producer.partition, producer.name)
        before = self._producers.get(key)
        if before is not None:
            if not producer.is_successor_of(before):
                raise Refused(
                    "ProducerBusy", f"producer {producer.name!r} is already connected to {producer.topic.name}"
                )
            before.overtaken()
        self._producers[key] = producer

    def unregister(self, producer: Producer) -> None:
        """Give the producer's name up, and its place to whoever waits for it; safe to repeat."""
        key = (producer.partition, producer.name)
        if self._producers.get(key) is producer:
            del self._producers[key]
            if self.access.is_claimed(producer.partition):
                self.access.left(producer, self.others(producer))

    def others(self, producer: Producer) -> list[Producer]:
        """This server's other producers of the partition, those that wait for their turn too."""
        return [other for other in self.producers_of(producer.partition) if other is not producer]

    def producers_of(self, partition: PartitionKey) -> list[Producer]:
        """This server's producers of the partition, those that wait for their turn too."""
        return [producer for (key, _), producer in self._producers.items() if key == partition]

    @property
    def producer_count(self) -> int:
        """Producers on this server."""
        return len(self._producers)
