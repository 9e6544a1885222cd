"""SENDs of one producer that arrived together: appended in one call, acknowledged in one buffer.

Each SEND becomes one record batch. The answers leave in the order of the SENDs (`producers.py`).
"""

from typing import Protocol

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.kernel import SendIds
from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar import commands
from bearlake.protocols.pulsar.errors import count_error, error_of
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandSendError
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.append import AppendCall, Verdict


class Producer(Protocol):
    """The producer of the SENDs: `producers.Producer`."""

    id: int
    topic: Topic
    partition: PartitionKey

    def answer(self) -> None:
        """Send the available answers at the head of the line."""


class Sends:
    """One or more SENDs in their producer's line, until they are answered and at the head of the line."""

    __slots__ = ("answer", "failure", "ids", "producer")

    def __init__(self, producer: Producer, ids: list[SendIds]) -> None:
        self.producer = producer
        self.ids = ids
        self.answer: bytes | None = None
        """The frames of the answered SENDs; None until all SENDs are answered or one has failed."""
        self.failure: Verdict | None = None
        """Why the remaining SENDs get no answer: the producer is closed after `answer` is sent."""

    def done(self, call: AppendCall) -> None:
        """Called when every entry has its result."""
        producer, results = self.producer, list(call)
        partition = producer.partition
        index = partition_index(partition) if producer.topic.is_partitioned else -1
        answer, count = kernel.encode_receipts(producer.id, stream_number(partition), index, self.ids, results, 0)
        self.answer = answer
        if count < len(results):
            self.failure = Verdict(results[count][0])
        producer.answer()

    def fail(self, verdict: Verdict) -> None:
        """Note that no SEND was appended."""
        self.answer, self.failure = b"", verdict
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
        self.answer = commands.frame("send_error", body)
        self.producer.answer()
