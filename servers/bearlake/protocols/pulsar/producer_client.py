"""What a producer needs of its client's connection, and of the server (`producers.py`)."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.streams.principal import Principal
from bearlake.streams.service import Streams

if TYPE_CHECKING:
    from bearlake.protocols.pulsar.producers import Producer


class Tasks(Protocol):
    """Runs tasks that continue after the client has disconnected."""

    def run(self, work: Coroutine[None, None, None]) -> Any:  # Any: the result is not used
        """Run a task; it is cancelled when the server closes."""


class Context(Protocol):
    """The part of `context.PulsarContext` that producers use."""

    @property
    def streams(self) -> Streams:
        """The streams."""

    @property
    def settings(self) -> PulsarSettings:
        """Limits of messages."""

    def new_producer_name(self) -> str:
        """A producer name that is unique in the deployment."""

    def register(self, producer: "Producer") -> None:
        """Reserve the producer's name in its partition. Raises `Refused` (ProducerBusy)."""

    def unregister(self, producer: "Producer") -> None:
        """Release the producer's name; idempotent."""


class Client(Protocol):
    """The client of a producer: its connection."""

    send_count: int
    arrived: int  # the log position that this server had seen before the commands in progress arrived
    producers: "dict[int, Producer]"
    who: Principal

    @property
    def context(self) -> Context:
        """State that the server's connections share."""

    @property
    def server(self) -> Tasks:
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
