"""State that the handlers of one Kafka server share: streams, groups, live servers, settings.

A handler is `async def handle(context, caller, request) -> response`. Requests and responses are messages of the codec; handlers see
neither sockets nor frames. `Caller` says who sent the request, and through which listener.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bearlake import kernel
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.large_requests import LARGE_BYTES
from bearlake.protocols.kafka.rendered import Renderings
from bearlake.protocols.kafka.rounds import SendRounds
from bearlake.protocols.kafka.sasl import SaslSession
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.protocols.kafka.share_sessions import ShareSessions
from bearlake.serving.live_servers import LiveServers
from bearlake.serving.slow_readers import SlowReaders
from bearlake.streams.client_turns import ClientTurns
from bearlake.streams.principal import Principal
from bearlake.streams.producer_ids import ProducerIds
from bearlake.streams.service import Streams

if TYPE_CHECKING:
    from bearlake.streams.groups.consumer.patterns import Patterns
    from bearlake.streams.groups.coordinator import Coordinator
    from bearlake.streams.groups.shares import ShareCoordinator
    from bearlake.streams.groups.streams_groups import StreamsCoordinator
    from bearlake.streams.shares import ShareReach, Shares

EPOCH_MAX = 0
"""The largest leader epoch that a client may send: librdkafka sends 0 if the server never returned a leader epoch."""


class KafkaContext:
    """State that the handlers of one Kafka server share."""

    def __init__(
        self, streams: Streams, servers: LiveServers, settings: KafkaSettings, share_reach: "ShareReach | None" = None
    ) -> None:
        """`share_reach`: the servers that dispatch share groups; None: only this server does."""
        self.streams = streams
        self.servers = servers
        self.topics = streams.topics
        """The streams, and Kafka's internal topics."""
        self._share_reach = share_reach
        self.share_sessions = ShareSessions(streams.settings.groups.share)
        self.settings = settings
        self._is_redirecting = False
        self.producer_ids = ProducerIds(streams.metadata.producers)
        self.renderings = Renderings()
        self.workers = ThreadPoolExecutor(1, thread_name_prefix="kafka-codec")
        """Decodes large requests and encodes large responses, so that the event loop is not blocked."""
        self.large_requests = ClientTurns(settings.large_requests_bytes_max)
        """The large requests that are under way, of all connections."""
        self.slow_readers = SlowReaders(2 * settings.unsent_bytes_max)
        """The connections whose clients do not read their responses."""
        self.send_rounds = SendRounds()
        """The connections that have answers to send."""
        self.turn_world: kernel.TurnWorld | None = None
        """What the turns of all connections share; the first one makes it."""

    # What only the families of `dispatch.py` use; they load it.

    @cached_property
    def groups(self) -> "Coordinator":
        """The consumer groups that this server coordinates."""
        return self.streams.coordinator

    @cached_property
    def share_groups(self) -> "ShareCoordinator":
        """The share groups that this server coordinates."""
        from bearlake.streams.groups.shares import ShareCoordinator

        return ShareCoordinator(self.streams.metadata, self.groups.ownership)

    @cached_property
    def streams_groups(self) -> "StreamsCoordinator":
        """The streams groups that this server coordinates."""
        from bearlake.streams.groups.streams_groups import StreamsCoordinator

        return StreamsCoordinator(self.groups.ownership)

    @cached_property
    def shares(self) -> "Shares":
        """The records of all share groups."""
        from bearlake.streams.shares import NoReach, Shares

        streams = self.streams
        return Shares(streams.local_shares, streams.metadata.cursors, streams, self._share_reach or NoReach())

    @cached_property
    def patterns(self) -> "Patterns":
        """The topics that match the patterns of consumer groups' members."""
        from bearlake.streams.groups.consumer.patterns import Patterns

        streams = self.streams
        return Patterns(self.topics, streams.sees, streams.settings.groups.consumer, streams.checks.off_loop)

    async def decode(self, key: int, version: int, body: bytes) -> Any:  # Any: the class depends on the API
        """Decode a request; a large one in a thread, so that the event loop is not blocked. Raises error kinds."""
        decoder = codec.request(key, version)
        if len(body) <= LARGE_BYTES:
            return decoder.decode(memoryview(body), 0)
        return await asyncio.get_running_loop().run_in_executor(self.workers, decoder.decode, memoryview(body), 0)

    async def encode(
        self, key: int, version: int, correlation_id: int, response: codec.Message, request_bytes: int
    ) -> Sequence[codec.Buffer]:
        """Return the frame of a response; that of a large request is encoded in a thread, because it may be as large."""
        encoder = codec.response(key, version)
        if request_bytes <= LARGE_BYTES:
            return encoder.frame(correlation_id, response)
        return await asyncio.get_running_loop().run_in_executor(self.workers, encoder.frame, correlation_id, response)

    @property
    def is_redirecting(self) -> bool:
        """Draining: Produce and Fetch are answered with NOT_LEADER_OR_FOLLOWER, so that clients switch to other servers."""
        return self._is_redirecting

    def redirect(self) -> None:
        """Send clients to other servers from now on."""
        self._is_redirecting = True
        self.streams.generation.advance()

    @property
    def node_id(self) -> int:
        """This server's node id."""
        return self.servers.node_id


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: principal, client id, listener (`kafka`, `kafka:EXTERNAL`), peer address; and the API version.

    `session` is the connection's SASL session, None on a listener without SASL.
    """

    version: int
    who: Principal
    client_id: str | None
    listener: str
    peer: str
    session: SaslSession | None = None
