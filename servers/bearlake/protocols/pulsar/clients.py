"""What a producer knows of its client's connection and of the server."""

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.serving.pacing import Register
from bearlake.streams.principal import Principal
from bearlake.streams.service import Streams

P = TypeVar("P")
"""The producer: `producers.Producer`."""
P_contra = TypeVar("P_contra", contravariant=True)


class Context(Protocol[P_contra]):
    """The part of `context.PulsarContext` that producers use."""

    @property
    def streams(self) -> Streams:
        """The streams."""

    @property
    def settings(self) -> PulsarSettings:
        """Limits of messages."""

    @property
    def send_limits(self) -> tuple[int, int]:
        """As in `context.PulsarContext`."""

    def new_producer_name(self) -> str:
        """A producer name that is unique in the deployment."""

    def register(self, producer: P_contra) -> None:
        """Reserve the producer's name in its partition. Raises `Refused` (ProducerBusy)."""

    def unregister(self, producer: P_contra) -> None:
        """Release the producer's name; idempotent."""


class Client(Protocol[P]):
    """The client of a producer: its connection."""

    send_count: int
    arrived: int  # the log position that this server had seen before the commands in progress arrived
    producers: dict[int, P]
    who: Principal

    @property
    def context(self) -> Context[P]:
        """State that the server's connections share."""

    @property
    def server(self) -> Register[Any]:
        """The server's tasks."""

    @property
    def peer(self) -> str:
        """`host:port` of the client."""

    @property
    def client_version(self) -> str:
        """`client_version` of the client's CONNECT."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def sent(self, count: int) -> None:
        """Note that `count` messages or batches have been answered."""

    def start(self, work: Coroutine[None, None, None]) -> Any:  # Any: the result is not used
        """Run a request's coroutine; it is cancelled when the client disconnects."""

    def failed(self, error: Exception) -> None:
        """Close the connection because of a bug."""
