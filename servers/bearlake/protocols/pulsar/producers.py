"""One producer of a client, between its connection and the log: SEND, SEND_RECEIPT, SEND_ERROR.

`producing.py` opens and closes producers. A SEND becomes one record batch, submitted inline with a callback and without a task. SENDs
that arrive together are appended together (`sends.py`). One call of the kernel takes the common SENDs of a producer into the open buffer
while the stream's rules admit their batches (`take_arrived`). It parses common SENDs that need more checks (`take_parsed`). Other SENDs are
handled one by one (`take`). A receipt names the entry of its SEND. Receipts of a producer leave in the order of its SENDs, even if some
SENDs fail, because clients match receipts by order.

A SEND gets SEND_ERROR only if it can never be stored as it is. If the outcome is unknown, or the stream is deleted or terminated, the
server closes the producer instead. The client then opens the producer again, on any server, and sends again what has no receipt, or
learns that the topic is terminated. SENDs that still arrive for a closed producer are silently dropped, as in Pulsar; an error would make
clients close the connection.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from enum import Enum
from struct import Struct

from bearlake import kernel
from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.kernel import SendBinding, SendEntry, SendIds
from bearlake.metadata.model import BATCH_NAMED, NamedProducer, PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar import commands, entries
from bearlake.protocols.pulsar.accepting import ValidationLine, accepted, attributes_of
from bearlake.protocols.pulsar.clients import Client
from bearlake.protocols.pulsar.entries import Buffer, StoredEntry
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.framing import BadChecksum
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandProducer, CommandSend, ServerError
from bearlake.protocols.pulsar.sends import Sends, TakenSends
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.admission import Header, admit
from bearlake.streams.append import UNAVAILABLE, Append, AppendCall, Hold, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import Checked
from bearlake.streams.principal import Operation
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_BASE_TIMESTAMP = Struct(">q")
_BASE_TIMESTAMP_AT = 27
_NO_PRODUCER = (-1, -1, -1)
_NO_NAMES = (*_NO_PRODUCER, 0, -1, -1)
_SEQUENCE_MAX = (1 << 63) - 1
_PREFIX = "pulsar:"
"""The prefix of producer names in the metadata store, which other protocols use too."""


_Head = tuple[PartitionKey, bytes, Buffer, Hold | None, int, int]
"""The fields of an `Append` before `producer_id`."""


class State(Enum):
    """The life-cycle state of a producer."""

    OPENING = 0
    OPEN = 1
    LEAVING = 2
    """Accepts no more SENDs, but still answers the pending SENDs."""
    CLOSED = 3


class Producer:
    """A producer of one connection, on one partition."""

    def __init__(
        self,
        connection: "Client[Producer]",
        request: CommandProducer,
        open_when_granted: "Callable[[Producer], Coroutine[None, None, None]]",
    ) -> None:
        """`open_when_granted` opens the producer after it has waited for exclusive access."""
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
        """For an exclusive producer: the partition's epoch that gave it exclusive access."""
        self._stored: NamedProducer | None = None
        """The producer's name in the metadata store, for deduplication and fencing; None without both."""
        self.is_deduplicated = True
        """Whether messages that the client sends again are stored once."""
        self.since = datetime.now(UTC)
        self._newest_sequence_id = -1
        """The highest sequence id stored under the producer's name or appended since. A commit stores the next SEND only after that one."""
        self._line: deque[Sends | TakenSends] = deque()
        self._held: deque[tuple[Sends, AppendCall, bool]] = deque()
        """SENDs that are not submitted yet, and whether they are a chunk; all are in `_line` too."""
        self._validation = ValidationLine(self, connection.context.streams.checks, connection.start)
        self._close_request_id: int | None = None
        self._move_url: str | None = None

    @property
    def stored_name(self) -> str:
        """The producer's name in the metadata store."""
        return _PREFIX + self.name

    @property
    def fenced_name(self) -> str:
        """A name unique to this session, for an exclusive producer without deduplication: the server numbers its SENDs."""
        return f"{_PREFIX}fenced:{self.connection.context.new_producer_name()}"

    def named(self, topic: Topic, name: str) -> None:
        """Set the topic and name, and reserve the name. Raises `Refused` (ProducerBusy)."""
        self.topic, self.partition, self.name = topic, topic.partition, name
        self.connection.context.register(self)

    @property
    def receipt_names(self) -> tuple[int, int, int]:
        """As in `sends.Producer`."""
        partition = self.partition
        return self.id, stream_number(partition), partition_index(partition) if self.topic.is_partitioned else -1

    def failed(self, error: Exception) -> None:
        """Close the connection because of a bug."""
        self.connection.failed(error)

    def opened(self, stored: NamedProducer | None, topic_epoch: int | None, *, is_deduplicated: bool) -> None:
        """Start to accept SENDs."""
        self._stored, self.topic_epoch, self.is_deduplicated = stored, topic_epoch, is_deduplicated
        self._newest_sequence_id = self.last_sequence_id
        self.state = State.OPEN

    def granted(self) -> None:
        """Called when a waiting producer gets exclusive access: open it."""
        self.connection.start(self._open_when_granted(self))

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message stored under the producer's name when it was opened; -1 if none is known."""
        return self._stored.last_sequence if self._stored is not None else -1

    def is_successor_of(self, other: "Producer") -> bool:
        """Whether this is a later session of the same producer (the client counts sessions in `epoch`), or `other` is leaving."""
        return other.state in (State.LEAVING, State.CLOSED) or self.epoch > other.epoch

    # -- send ----------------------------------------------------------------------------------------------------

    def take(self, command: CommandSend, message: memoryview, prepared: entries.Prepared | None = None) -> None:
        """Handle a SEND: append its entry, or queue its error."""
        highest_id = command.highest_sequence_id if command.HasField("highest_sequence_id") else None
        send, view = self._queue([(command.sequence_id, highest_id)]), self.view()
        if view is None:
            send.fail(Verdict.NOT_FOUND)
            return
        sequence_id = max(command.sequence_id, command.highest_sequence_id)
        try:
            entry, is_partial = accepted(view, command, message, prepared, self.connection.context.settings)
            if sequence_id > _SEQUENCE_MAX and self._stored is not None and not is_partial:
                raise Refused("NotAllowedError", f"sequence id {sequence_id}: expected at most {_SEQUENCE_MAX}")
            if self._validation.takes(view):
                self._validation.add(send, view, entry, sequence_id, is_chunk=command.is_chunk)
                return
            head = self._admit(view, entry, self.connection.context.streams.clock.now_ms())
        except BadChecksum as error:
            send.refuse(error, ServerError.Value("ChecksumError"))
        except BearlakeError as error:
            send.refuse(error)
        else:
            # Only the last chunk of a message has its sequence id.
            names = _NO_NAMES if is_partial else self._names(sequence_id)
            self._hold(send, (Append(*head, *names),), command.is_chunk)

    def validated(self, send: Sends, entry: StoredEntry, sequence_id: int, error: BearlakeError | None) -> None:
        """Append the entry of a SEND whose records were validated, or answer it with the error."""
        view = self.view()
        if view is None or isinstance(error, Unavailable | Overloaded):
            send.fail(Verdict.NOT_FOUND if view is None else Verdict.UNAVAILABLE)
        elif error is not None:
            send.refuse(error)
        else:
            try:
                head = self._admit(view, entry, self.connection.context.streams.clock.now_ms())
            except BearlakeError as refusal:
                send.refuse(refusal)
            else:
                self._hold(send, (Append(*head, *self._names(sequence_id)),))

    def take_arrived(self, frames: memoryview, low: int, high: int, count_max: int) -> tuple[int, int]:
        """Append the SENDs from `low` of the receive buffer that need no further checks; returns the last one's end and their count."""
        context, count = self.connection.context, 0
        streams = context.streams
        binding = None if self.state is not State.OPEN or self._held else self._binding(streams.clock.now_ms())
        is_full = binding is not None
        while binding is not None and is_full and count < count_max and (buffer := streams.open_buffer()) is not None:
            sends = TakenSends(UNAVAILABLE)
            low, is_full, newest = kernel.take_sends(
                buffer, sends, frames, low, high, binding, count_max - count, *context.send_limits, self.connection.arrived
            )  # fmt: skip
            if sends.count:
                sends.began(self)
                binding, self._newest_sequence_id = binding._replace(newest_sequence=newest), newest
                count += sends.count
                self._line.append(sends)
                self.connection.send_count += sends.count
                streams.added(sends)
            if is_full:
                streams.close_buffer()
        return low, count

    def _binding(self, now_ms: int) -> SendBinding | None:
        """What the next SENDs have in common; None if their batches need more checks than the stream's limits."""
        view, stored = self.view(), self._stored
        rules = None if view is None or self._validation.takes(view) else view.plain_rules(now_ms)
        if rules is None:
            return None
        stream_id, _, _, bytes_max, earliest_ms, latest_ms, _ = rules
        stored_id, epoch = (-1, -1) if stored is None else (stored.producer_id, stored.partition_epoch)
        return SendBinding(
            self.id, self.partition, stream_id, bytes_max, earliest_ms, latest_ms,
            stored_id, epoch, self._newest_sequence_id, self.is_deduplicated,
        )  # fmt: skip

    def take_parsed(self, parsed: Sequence[SendEntry]) -> None:
        """Handle SENDs that the kernel has converted to batches. A rejected SEND splits the SENDs that are appended together."""
        view = self.view()
        if view is None:
            self._queue([(entry[1], entry[2]) for entry in parsed]).fail(Verdict.NOT_FOUND)
            return
        if self._validation.takes(view):
            for _, sequence_id, highest_id, _, batch, record_count, _, max_timestamp in parsed:
                send, entry = self._queue([(sequence_id, highest_id)]), StoredEntry(batch, record_count, max_timestamp)
                self._validation.add(send, view, entry, max(sequence_id, highest_id or 0))
            return
        now_ms = self.connection.context.streams.clock.now_ms()
        ids: list[SendIds] = []
        appends: list[Append] = []
        for _, sequence_id, highest_id, _, batch, record_count, _, max_timestamp in parsed:
            try:
                head = self._admit(view, StoredEntry(batch, record_count, max_timestamp), now_ms)
            except BearlakeError as error:
                self._append_all(ids, appends)
                ids, appends = [], []
                self._queue([(sequence_id, highest_id)]).refuse(error)
                continue
            ids.append((sequence_id, highest_id))
            appends.append(Append(*head, *self._names(max(sequence_id, highest_id or 0))))
        self._append_all(ids, appends)

    def _append_all(self, ids: list[SendIds], appends: Sequence[Append]) -> None:
        if ids:
            self._hold(self._queue(ids), appends)

    def _hold(self, sends: Sends, appends: Sequence[Append], is_chunk: bool = False) -> None:
        call = AppendCall(appends, sends.done, self.connection.arrived, self.connection.failed)
        self._held.append((sends, call, is_chunk))
        self._submit()

    def _queue(self, ids: list[SendIds]) -> Sends:
        """Append SENDs to the line of pending answers."""
        sends = Sends(self, ids)
        self._line.append(sends)
        self.connection.send_count += len(ids)
        return sends

    def view(self) -> StreamView | None:
        """The stream; None if it was deleted, or if the client may no longer write to it: a new producer gets the reason."""
        streams = self.connection.context.streams
        view = streams.catalog.peek_number(self.topic.view.stream.number)
        is_allowed = view is not None and streams.may(self.connection.who, Operation.WRITE, view.name)
        return view if is_allowed else None

    def _submit(self) -> None:
        """Submit held SENDs in order. The chunk with its message's sequence id waits until all earlier chunks are stored. Otherwise an
        earlier chunk could be lost, and the message would be dropped as a duplicate when the client sends it again."""
        while self._held:
            sends, call, is_chunk = self._held[0]
            if is_chunk and call.appends[0].flags & BATCH_NAMED and self._line[0] is not sends:
                return
            self._held.popleft()
            self.connection.context.streams.submit(call)

    def _admit(self, view: StreamView, entry: StoredEntry, now_ms: int) -> _Head:
        """Admit an entry whose records were validated by their schemas. Raises the error for the answer."""
        (base_timestamp,) = _BASE_TIMESTAMP.unpack_from(entry.batch, _BASE_TIMESTAMP_AT)
        header = Header(attributes_of(entry), entry.record_count, base_timestamp, entry.max_timestamp, *_NO_PRODUCER)
        admitted = admit(view, self.topic.index, entry.batch, None, header, now_ms, Checked.SCHEMAS)
        if not isinstance(admitted, Append):
            raise admitted
        return admitted[:6]

    def _names(self, sequence_id: int) -> tuple[int, int, int, int, int, int]:
        """The fields of an `Append` from `producer_id` on: the producer's stored name, if it has one."""
        stored = self._stored
        if stored is None:
            return _NO_NAMES
        before = self._newest_sequence_id
        if not self.is_deduplicated:
            sequence_id = before + 1
        if sequence_id > before:
            self._newest_sequence_id = sequence_id
        return stored.producer_id, stored.partition_epoch, sequence_id, BATCH_NAMED, -1, before

    def answer(self) -> None:
        """Send the available answers at the head of the line; then close the producer if it is leaving and the line is empty."""
        line, connection = self._line, self.connection
        count = 0
        while line and (frames := line[0].frames) is not None:
            if frames:
                connection.send(frames)
            if (failure := line[0].failure) is not None:
                self._fail(failure)
                break
            count += line.popleft().count
        self._submit()
        if not line and self.state is State.LEAVING:
            self._left()
        if count:
            connection.sent(count)

    # -- the end -------------------------------------------------------------------------------------------------

    def _fail(self, verdict: Verdict) -> None:
        """Close the producer: an outcome is unknown, or the stream is gone. The client reopens the producer and sends again."""
        metrics.PULSAR_PRODUCERS_CLOSED.labels(verdict.name).inc()
        log.info("producer closed", extra={"peer": self.connection.peer, "verdict": verdict.name})
        self.connection.send(commands.close_producer(self.id))
        self._end()

    def overtaken(self) -> None:
        """Close the producer: a later session took its name, or another producer took exclusive access."""
        if self.state is not State.CLOSED:
            self._left()

    def close(self, request_id: int) -> None:
        """The client closes the producer: answer once all pending SENDs are answered."""
        self._close_request_id = request_id
        self._leave()

    def move(self, url: str | None) -> None:
        """Drain: finish pending SENDs, then move the client to another server. A waiting producer continues to wait there."""
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
        """End the producer and tell its client."""
        connection = self.connection
        self._end()  # before the client learns of it, so that the name is free when the client reopens the producer
        if self._close_request_id is not None:
            connection.send(commands.success(self._close_request_id))
        else:
            connection.send(commands.close_producer(self.id, self._move_url))

    def abandoned(self) -> None:
        """The producer was not opened, or its connection is lost; submitted batches may still be stored. Idempotent."""
        if self.state is not State.CLOSED:
            self._end()

    def _end(self) -> None:
        self.state = State.CLOSED
        if self.name:
            self.connection.context.unregister(self)
        if self.connection.producers.get(self.id) is self:
            del self.connection.producers[self.id]
        dropped = sum(sends.count for sends in self._line)
        self._line.clear()
        self._held.clear()
        self._validation.clear()
        if dropped:
            self.connection.sent(dropped)
