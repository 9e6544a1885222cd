"""SENDs of one producer that arrived together: appended in one call, acknowledged in one buffer.

    TakenSends   SENDs that the kernel has taken into the open buffer, which are a call of the write path
    Sends        SENDs that Python has handled; their call, if any, is another object

Each SEND becomes one record batch. The answers leave in the order of the SENDs (`producers.py`).
"""

from typing import Protocol

from typing_extensions import override

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.kernel import SendIds
from bearlake.protocols.pulsar import commands
from bearlake.protocols.pulsar.errors import count_error, error_of
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandSendError
from bearlake.streams.append import AppendCall, Call, Verdict


class Producer(Protocol):
    """The producer of the SENDs: `producers.Producer`."""

    id: int

    @property
    def receipt_names(self) -> tuple[int, int, int]:
        """What its receipts name: the producer's id, and the ledger and partition (-1: none) of message ids."""

    def answer(self) -> None:
        """Send the available answers at the head of the line."""

    def failed(self, error: Exception) -> None:
        """Close the connection because of a bug."""


class TakenSends(kernel.SendResults, Call):
    """SENDs that the kernel has taken, in their producer's line, and the call that has their outcomes.

    The attributes mean the same as those of `Sends`.
    """

    __slots__ = ("failure", "frames", "producer")
    producer: Producer
    frames: bytes | None
    failure: Verdict | None

    def began(self, producer: Producer) -> None:
        """Called once, when the SENDs were taken."""
        self.producer = producer
        self.frames = self.failure = None

    @property
    def count(self) -> int:
        """Number of SENDs."""
        return len(self)

    @override
    def answer(self) -> None:
        """Encode the receipts, and send them once they are at the head of the line."""
        producer = self.producer
        self.frames, count = self.receipts(*producer.receipt_names)
        if count < len(self):
            self.failure = Verdict(self[count][0])
        producer.answer()

    @override
    def failed(self, error: Exception) -> None:
        """Close the connection."""
        self.producer.failed(error)


class Sends:
    """One or more SENDs in their producer's line, until they are answered and at the head of the line."""

    __slots__ = ("failure", "frames", "ids", "producer")

    def __init__(self, producer: Producer, ids: list[SendIds]) -> None:
        self.producer = producer
        self.ids = ids
        self.frames: bytes | None = None
        """The frames of the answered SENDs; None until all SENDs are answered or one has failed."""
        self.failure: Verdict | None = None
        """Why the remaining SENDs get no answer: the producer is closed after `frames` are sent."""

    @property
    def count(self) -> int:
        """Number of SENDs."""
        return len(self.ids)

    def done(self, call: AppendCall) -> None:
        """Called when every entry has its result."""
        producer, results = self.producer, list(call)
        self.frames, count = kernel.encode_receipts(*producer.receipt_names, self.ids, results, 0)
        if count < len(results):
            self.failure = Verdict(results[count][0])
        producer.answer()

    def fail(self, verdict: Verdict) -> None:
        """Note that no SEND was appended."""
        self.frames, self.failure = b"", verdict
        self.producer.answer()

    def refuse(self, error: BearlakeError, number: int | None = None) -> None:
        """Answer the only SEND with an error, because it can never be stored. `number` (`ServerError`) overrides that of `error`."""
        ((sequence_id, _),) = self.ids
        number = error_of(error) if number is None else number
        count_error(number)
        body = CommandSendError(
            producer_id=self.producer.id,
            sequence_id=sequence_id,
            error=number,  # type: ignore[arg-type]  # its number
            message=str(error),
        )
        self.frames = commands.frame("send_error", body)
        self.producer.answer()
