"""A producer of a client, between its connection and the log: SEND, SEND_RECEIPT, SEND_ERROR.

Producers are opened and closed in `producing.py`. A SEND becomes one record batch and goes to the waist inline, with a callback and no
task. Its receipt names the entry it became. Receipts of a producer go out in the order of its SENDs, whatever happens to single ones,
since clients match them by order.

What a producer sends is refused with SEND_ERROR only if it could never be stored as it is. When its outcome is unknown, or the stream has
gone or is terminated, the producer is closed instead: its client opens it again, here or elsewhere, and sends again what has no receipt, or
is told then that the topic is terminated. SENDs that are under way to a closed producer are dropped in silence, as Pulsar does; an error
would make clients cut the connection.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError
from bearlake.metadata.model import BATCH_NAMED, NamedProducer, PartitionKey
from bearlake.protocols.pulsar import commands, entries, framing, message_ids
from bearlake.protocols.pulsar.errors import Refused, error_of
from bearlake.protocols.pulsar.framing import BadChecksum
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandProducer,
    CommandSend,
    CommandSendError,
    CommandSendReceipt,
    MessageIdData,
    ServerError,
)
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.admission import Header, admit
from bearlake.streams.append import Append, AppendCall, Verdict
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.protocols.pulsar.connection import Connection

log = logging.getLogger(__name__)

_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_BASE_TIMESTAMP = Struct(">q")
_BASE_TIMESTAMP_AT = 27
_NO_PRODUCER = (-1, -1, -1)
_SEQUENCE_MAX = (1 << 63) - 1
_PREFIX = "pulsar:"
"""Before names of producers in the metadata store, which other protocols use too."""


class State(Enum):
    """Where a producer is in its life."""

    OPENING = 0
    OPEN = 1
    LEAVING = 2
    """No more SENDs are taken, and those that were are answered still."""
    CLOSED = 3


class Send:
    """One SEND: waits in its producer's line until it is answered and its turn has come."""

    __slots__ = ("answer", "failure", "highest_id", "producer", "sequence_id")

    def __init__(self, producer: "Producer", sequence_id: int, highest_id: int | None) -> None:
        self.producer = producer
        self.sequence_id = sequence_id
        self.highest_id = highest_id
        """`highest_sequence_id` of the command, to be echoed; None if it had none."""
        self.answer: bytes | None = None
        self.failure: Verdict | None = None
        """Why there will be no answer: the producer is closed when its turn comes."""

    def done(self, call: AppendCall) -> None:
        """Callback of the waist: the entry has its outcome."""
        verdict, base_offset, _ = call.results[0]
        producer = self.producer
        if verdict == Verdict.ACCEPTED or (verdict == Verdict.DUPLICATE and base_offset >= 0):
            self.answer = self._receipt(
                message_ids.entry_id(producer.partition, base_offset, is_partitioned=producer.topic.is_partitioned)
            )
        elif verdict == Verdict.DUPLICATE:
            self.answer = self._receipt(MessageIdData(ledger_id=message_ids.NONE, entry_id=message_ids.NONE))
        else:
            self.failure = Verdict(verdict)
        producer.answer()

    def refuse(self, error: BearlakeError, number: int | None = None) -> None:
        """It can never be stored."""
        number = error_of(error) if number is None else number
        self.producer.connection.server.count_error(number)
        body = CommandSendError(
            producer_id=self.producer.id,
            sequence_id=self.sequence_id,
            error=number,  # type: ignore[arg-type]  # its number
            message=str(error),
        )
        self.answer = commands.frame("send_error", body)
        self.producer.answer()

    def _receipt(self, message_id: MessageIdData) -> bytes:
        body = CommandSendReceipt(
            producer_id=self.producer.id,
            sequence_id=self.sequence_id,
            message_id=message_id,
            highest_sequence_id=self.highest_id,
        )
        return commands.frame("send_receipt", body)


class Producer:
    """A producer of one connection, on one partition."""

    def __init__(
        self,
        connection: "Connection",
        request: CommandProducer,
        open_when_granted: "Callable[[Producer], Coroutine[None, None, None]]",
    ) -> None:
        """`open_when_granted` opens it when it has waited for its turn."""
        self._open_when_granted = open_when_granted
        self.connection = connection
        self.id = request.producer_id
        self.epoch = request.epoch
        self.name = ""
        self.topic: Topic
        self.partition: PartitionKey
        self.state = State.OPENING
        self.request = request
        self.schema_version = b""
        self.topic_epoch: int | None = None
        """Of an exclusive producer: the partition's epoch that made it the only one."""
        self._stored: NamedProducer | None = None
        """Its name in the metadata store, by which what it sends again is known; None without deduplication."""
        self.since = datetime.now(UTC)
        self._newest_sequence_id = -1
        """Of what is stored under its name or was appended since: the next SEND is not stored without that."""
        self._line: deque[Send] = deque()
        self._held: deque[tuple[Send, Append, bool]] = deque()
        """What is not appended yet, and whether it is a chunk; all of it is in the line."""
        self._close_request_id: int | None = None
        self._move_url: str | None = None

    @property
    def stored_name(self) -> str:
        """Its name in the metadata store."""
        return _PREFIX + self.name

    def named(self, topic: Topic, name: str) -> None:
        """It is to produce to `topic` under this name. Raises `Refused` (ProducerBusy)."""
        self.topic, self.partition, self.name = topic, topic.partition, name
        self.connection.broker.register(self)

    def opened(self, stored: NamedProducer | None, topic_epoch: int | None) -> None:
        """It produces from now on."""
        self._stored, self.topic_epoch = stored, topic_epoch
        self._newest_sequence_id = self.last_sequence_id
        self.state = State.OPEN

    def granted(self) -> None:
        """It has waited, and is the only one now."""
        self.connection.start(self._open_when_granted(self))

    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the last message that is stored under its name, as of when it was opened; -1 if none is known."""
        return self._stored.last_sequence if self._stored is not None else -1

    def is_successor_of(self, other: "Producer") -> bool:
        """Whether this is a later session of the same producer, which its client counts, or the other one is on its way out."""
        return other.state in (State.LEAVING, State.CLOSED) or self.epoch > other.epoch

    # -- send ----------------------------------------------------------------------------------------------------

    def take(self, command: CommandSend, message: memoryview) -> None:
        """Take a SEND: append its entry, or put its refusal in line."""
        sequence_id = command.sequence_id
        send = Send(self, sequence_id, command.highest_sequence_id if command.HasField("highest_sequence_id") else None)
        self._line.append(send)
        self.connection.send_count += 1
        try:
            append = self._append(command, message)
        except BadChecksum as error:
            send.refuse(error, ServerError.Value("ChecksumError"))
        except BearlakeError as error:
            send.refuse(error)
        else:
            if append is None:
                send.failure = Verdict.NOT_FOUND
                self.answer()
            else:
                self._held.append((send, append, command.is_chunk))
                self._submit()

    def _submit(self) -> None:
        """Append what is held, in order. The chunk that carries its message's sequence waits until those before it are stored: otherwise
        one of them could be lost, and the message sent again would pass for a duplicate.
        """
        while self._held:
            send, append, is_chunk = self._held[0]
            if is_chunk and append.flags & BATCH_NAMED and self._line[0] is not send:
                return
            self._held.popleft()
            self.connection.broker.streams.submit(AppendCall((append,), send.done))

    def _append(self, command: CommandSend, message: memoryview) -> Append | None:
        """The entry as a batch for the waist; None when the stream is gone. Raises what it is refused with."""
        broker = self.connection.broker
        view = broker.streams.catalog.peek_number(self.topic.view.stream.number)
        if view is None:
            return None
        limit = broker.settings.message_bytes_max
        if command.txnid_least_bits or command.txnid_most_bits or command.marker:
            raise Refused("NotAllowedError", "transactions and markers are not served")
        metadata, payload = framing.read_message(message)
        if len(payload) > limit:
            raise Refused("NotAllowedError", f"a message of {len(payload)} bytes: expected at most {limit}")
        entry_limit = framing.entry_bytes_max(
            limit
        )  # else a chunk, which stays as it is, would not fit into a frame on its way out
        if len(message) > entry_limit:
            raise Refused(
                "NotAllowedError",
                f"a message of {len(message)} bytes with its metadata: expected at most {entry_limit}",
            )
        entry = entries.to_batch(metadata, payload, broker.settings.uncompressed_bytes_max)
        (attributes,) = _ATTRIBUTES.unpack_from(entry.batch, _ATTRIBUTES_AT)
        (base_timestamp,) = _BASE_TIMESTAMP.unpack_from(entry.batch, _BASE_TIMESTAMP_AT)
        header = Header(attributes, entry.record_count, base_timestamp, entry.max_timestamp, *_NO_PRODUCER)
        admitted = admit(view, self.topic.index, entry.batch, None, header, broker.streams.clock.now_ms())
        if not isinstance(admitted, Append):
            raise admitted
        stored = self._stored
        if stored is None or (command.is_chunk and metadata.chunk_id < metadata.num_chunks_from_msg - 1):
            return admitted  # of a message in chunks, the last one carries its sequence
        sequence_id = max(command.sequence_id, command.highest_sequence_id)
        if sequence_id > _SEQUENCE_MAX:
            raise Refused("NotAllowedError", f"sequence id {sequence_id}: expected at most {_SEQUENCE_MAX}")
        before, self._newest_sequence_id = self._newest_sequence_id, max(self._newest_sequence_id, sequence_id)
        return admitted._replace(
            producer_id=stored.producer_id,
            producer_epoch=stored.partition_epoch,
            base_sequence=sequence_id,
            flags=admitted.flags | BATCH_NAMED,
            after_sequence=before,
        )

    def answer(self) -> None:
        """Send the answers of those SENDs at the head of the line that have theirs; then leave, if that was to be done."""
        line, connection = self._line, self.connection
        count = 0
        while line and (answer := line[0].answer) is not None:
            line.popleft()
            connection.send(answer)
            count += 1
        self._submit()
        if line and (failure := line[0].failure) is not None:
            self._fail(failure)
        elif not line and self.state is State.LEAVING:
            self._left()
        if count:
            connection.sent(count)

    # -- the end -------------------------------------------------------------------------------------------------

    def _fail(self, verdict: Verdict) -> None:
        """The outcome of a SEND is unknown, or the stream is gone: the client shall open the producer again and send again."""
        metrics.PULSAR_PRODUCERS_CLOSED.labels(verdict.name).inc()
        log.info("producer closed", extra={"peer": self.connection.peer, "verdict": verdict.name})
        self.connection.send(commands.close_producer(self.id))
        self._end()

    def overtaken(self) -> None:
        """A later session of the same producer takes its name, or another one its place."""
        if self.state is not State.CLOSED:
            self._left()

    def close(self, request_id: int) -> None:
        """The client closes it: answered when all that was taken is."""
        self._close_request_id = request_id
        self._leave()

    def move(self, url: str | None) -> None:
        """Drain: finish what was taken, then send the client to another server; one that waits for its turn waits there."""
        if self.state in (State.OPENING, State.OPEN) and self.name:
            self._move_url = url
            self._leave()

    def _leave(self) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.LEAVING
        if not self._line:
            self._left()

    def _left(self) -> None:
        """It is over, and its client is told."""
        connection = self.connection
        self._end()  # before the client hears of it, so that the name is free when it opens the producer again
        if self._close_request_id is not None:
            connection.send(commands.success(self._close_request_id))
        else:
            connection.send(commands.close_producer(self.id, self._move_url))

    def abandoned(self) -> None:
        """It was not opened, or its connection has gone; what was appended goes its way. Safe to repeat."""
        if self.state is not State.CLOSED:
            self._end()

    def _end(self) -> None:
        self.state = State.CLOSED
        if self.name:
            self.connection.broker.unregister(self)
        if self.connection.producers.get(self.id) is self:
            del self.connection.producers[self.id]
        dropped = len(self._line)
        self._line.clear()
        self._held.clear()
        if dropped:
            self.connection.sent(dropped)
