"""Commands by name and number, and the frames that this server sends.

The name and number of a command are those of its field in `BaseCommand`.
"""

from collections.abc import Collection

from google.protobuf.message import Message

from bearlake.protocols.pulsar import framing
from bearlake.protocols.pulsar.proto import commands_pb2
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand
from bearlake.telemetry import metrics
from bearlake.telemetry.watchdog import begin

NAMES: dict[int, str] = {
    field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}
NUMBERS = {name: number for number, name in NAMES.items()}

SERVER_REQUEST_ID = (1 << 64) - 1
"""The request id of commands that the server sends on its own."""


_REQUESTS = {number: f"pulsar {name}" for number, name in NAMES.items()}


class CommandMeters:
    """Counts the commands of clients, and names them to the watchdog of the event loop."""

    def __init__(self, served: Collection[str]) -> None:
        """Commands that are not in `served` share one counter."""
        self._by_number = {
            number: metrics.PULSAR_COMMANDS.labels(name) for number, name in NAMES.items() if name in served
        }
        self._other = metrics.PULSAR_COMMANDS.labels("other")

    def count(self, number: int, times: int = 1) -> None:
        """Count a command by its number."""
        self._by_number.get(number, self._other).inc(times)
        begin(_REQUESTS.get(number, "pulsar other"))


def frame(name: str, body: Message) -> bytes:
    """The frame of a command without a message."""
    return framing.command_frame(BaseCommand(type=NUMBERS[name], **{name: body}))  # type: ignore[arg-type]  # by name


def success(request_id: int) -> bytes:
    """The frame for a successful request."""
    return frame("success", commands_pb2.CommandSuccess(request_id=request_id))


def error(request_id: int, number: int, message: str) -> bytes:
    """The frame for a request that failed with this `ServerError`."""
    return frame("error", commands_pb2.CommandError(request_id=request_id, error=number, message=message))  # type: ignore[arg-type]


def close_producer(producer_id: int, url: str | None = None) -> bytes:
    """The frame that closes a producer; `url` is the server to connect to; without it the client looks the topic up."""
    body = commands_pb2.CommandCloseProducer(producer_id=producer_id, request_id=SERVER_REQUEST_ID)
    _assign(body, url)
    return frame("close_producer", body)


def close_consumer(consumer_id: int, url: str | None = None) -> bytes:
    """The frame that closes a consumer; `url` as in `close_producer`."""
    body = commands_pb2.CommandCloseConsumer(consumer_id=consumer_id, request_id=SERVER_REQUEST_ID)
    _assign(body, url)
    return frame("close_consumer", body)


def _assign(body: commands_pb2.CommandCloseProducer | commands_pb2.CommandCloseConsumer, url: str | None) -> None:
    if url is None:
        return
    if url.startswith("pulsar+ssl:"):
        body.assigned_broker_service_url_tls = url
    else:
        body.assigned_broker_service_url = url
