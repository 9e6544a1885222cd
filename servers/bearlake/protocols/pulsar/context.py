"""State that the connections of one Pulsar server share: streams, live servers, topics, producer names.

Any server accepts producers and readers of any topic. One server at a time dispatches the durable subscriptions of a partition, and
look-ups return that server. For a partition without a dispatching server, look-ups choose a server by rendezvous hashing, so that all
clients get the same one.
"""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bearlake.metadata.model import PartitionKey, Server, ServerRef
from bearlake.protocols.pulsar.access import Access
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.framing import PADDING_BYTES, entry_bytes_max
from bearlake.protocols.pulsar.last_messages import LastMessages
from bearlake.protocols.pulsar.opening import Opener
from bearlake.protocols.pulsar.preparing import Preparer
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
"""The prefix of this protocol's endpoint names."""
_RECORDS_RATIO = 8
"""Largest ratio of the records' size to the size of their payload: a message of few bytes can become a record with a reserved header."""


class PulsarContext:
    """State that the connections of one Pulsar server share."""

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
        """Largest payload, and largest message with its metadata (bytes), of a SEND that the kernel may process alone."""
        self.opener = Opener(streams.checks, settings.uncompressed_bytes_max)
        self.entry_reader = EntryReader(self.opener)
        self.last_messages = LastMessages(streams, self.opener)
        self.preparer = Preparer(settings.uncompressed_bytes_max)
        self.topics = Topics(streams, settings)
        self.access = Access(streams.metadata, streams.tenure)
        self.schemas = Schemas(registry, self.topics)
        self.watchers = Watchers(self.topics, streams.catalog, settings.watched_names_max)
        self.is_draining = False
        """Whether producers and consumers are moved to other servers."""
        self._producers: dict[tuple[PartitionKey, str], Producer] = {}
        self._numbers = itertools.count()

    # -- servers -------------------------------------------------------------------------------------------------

    def server_for(self, key: str, endpoint: str, holder: int | None) -> Server | None:
        """The server for clients of a topic: the live server `holder` (node id), else a server of this zone, by the hash of `key`."""
        live = self.servers.live()
        if holder is not None:
            for server in live:
                if server.ref.node_id == holder and endpoint in server.endpoints and not server.is_draining:
                    return server
        found = routing.candidates(live, endpoint, own_zone(self.servers))
        return routing.choose(routing.key_of(key), found) if found else None

    async def holder(self, partition: PartitionKey) -> ServerRef | None:
        """The live server that dispatches a partition, else the server of its exclusive producer, else None. Raises `Unavailable`."""
        return await self.subscriptions.holder(partition) or await self.access.holder(partition)

    def http_address_of(self, server: ServerRef | None) -> str | None:
        """`host:port` of another live server's HTTP API; None if the server is not live or has no HTTP API."""
        for other in other_servers(self.servers):
            if server is not None and other.ref.node_id == server.node_id:
                return other.endpoints.get("pulsar_http")
        return None

    def elsewhere(self, key: str, endpoint: str) -> str | None:
        """`host:port` of the server that takes over a topic's clients when this server drains; None without another server."""
        staying = [server for server in other_servers(self.servers) if not server.is_draining]
        found = routing.candidates(staying, endpoint, own_zone(self.servers))
        return routing.choose(routing.key_of(key), found).endpoints[endpoint] if found else None

    # -- names of producers --------------------------------------------------------------------------------------

    def new_producer_name(self) -> str:
        """A producer name that is unique in the deployment."""
        server = self.streams.server
        return f"{self.servers.cluster_id}-{server.node_id}-{server.epoch}-{next(self._numbers)}"

    def register(self, producer: Producer) -> None:
        """Reserve the producer's name in its partition; a later session of the same producer replaces the earlier session.

        Raises:
            Refused: ProducerBusy, another producer has the name.
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
        """Release the producer's name, and its exclusive access to the next waiting producer; idempotent."""
        key = (producer.partition, producer.name)
        if self._producers.get(key) is producer:
            del self._producers[key]
            if self.access.is_claimed(producer.partition):
                self.access.left(producer, self.others(producer))

    def others(self, producer: Producer) -> list[Producer]:
        """This server's other producers of the partition, including waiting producers."""
        return [other for other in self.producers_of(producer.partition) if other is not producer]

    def producers_of(self, partition: PartitionKey) -> list[Producer]:
        """This server's producers of the partition, including waiting producers."""
        return [producer for (key, _), producer in self._producers.items() if key == partition]

    @property
    def producer_count(self) -> int:
        """Number of producers on this server."""
        return len(self._producers)
