"""SENDs of one producer that came together: appended in one call of the waist, receipted in one piece.

Each becomes one record batch. What they were answered with leaves in the order of the SENDs (`producers.py`).
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
    """The producer that sent them: `producers.Producer`."""

    id: int
    topic: Topic
    partition: PartitionKey

    def answer(self) -> None:
        """Send the answers at the head of the line."""


class Sends:
    """Waits in its producer's line until it is answered and its turn has come; at least one SEND."""

    __slots__ = ("answer", "failure", "ids", "producer")

    def __init__(self, producer: Producer, ids: list[SendIds]) -> None:
        self.producer = producer
        self.ids = ids
        self.answer: bytes | None = None
        """Frames of those that have an answer; None until there is one for each of them, or a failure."""
        self.failure: Verdict | None = None
        """Why the others will have none: the producer is closed behind the answer."""

    def done(self, call: AppendCall) -> None:
        """Callback of the waist: every entry has its outcome."""
        producer, results = self.producer, call.results
        partition = producer.partition
        index = partition_index(partition) if producer.topic.is_partitioned else -1
        answer, count = kernel.encode_receipts(producer.id, stream_number(partition), index, self.ids, results, 0)
        self.answer = answer
        if count < len(results):
            self.failure = Verdict(results[count][0])
        producer.answer()

    def fail(self, verdict: Verdict) -> None:
        """None was appended."""
        self.answer, self.failure = b"", verdict
        self.producer.answer()

    def refuse(self, error: BearlakeError, number: int | None = None) -> None:
        """The only one can never be stored; `number` is that of a `ServerError`, if not the one that goes with `error`."""
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
