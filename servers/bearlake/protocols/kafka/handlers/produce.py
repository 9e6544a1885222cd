"""Produce: the hot path. The connection submits a request's batches inline, in order; a callback answers once they are committed.

The kernel parses and answers the common request (known streams, plain rules, no errors) in one call each. A request for a stream
that this server does not know waits for a look-up in the store; later Produce requests of the connection wait behind it.
A request with acks=0 gets no response.

Source: KIP-98, KIP-467 (record errors), KIP-516 (topic ids), Produce versions 3-13.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

from bearlake import kernel
from bearlake.errors import BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.kernel import ProduceEntry, ProducePlace, ProduceResult
from bearlake.metadata.model import BATCH_TRANSACTIONAL
from bearlake.metadata.transactions import BATCH_BEGINS
from bearlake.protocols.kafka import apis, codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import STATUS_CODES, VERDICT_CODES, ErrorCode, code_of
from bearlake.protocols.kafka.messages import ProduceRequest, ProduceResponse
from bearlake.protocols.kafka.rights import on_transaction
from bearlake.protocols.kafka.slot import Slot
from bearlake.records.batch import ATTRIBUTE_TRANSACTIONAL
from bearlake.serving.slabs import Slab
from bearlake.streams.admission import BadTimestamp, Header, admit
from bearlake.streams.append import Append, AppendCall, Result, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import BadRecord, Checked
from bearlake.streams.configs import TimestampSource
from bearlake.streams.principal import Operation
from bearlake.telemetry import metrics

MESSAGES_MAX = 1_000
"""Partitions of a response that has messages for people: objects per partition take ten times as long as error codes alone."""
VERSION_MIN = 3
"""Older versions use message formats 0 and 1."""


class Requester(Protocol):
    """The connection that sent Produce requests: `connection.Connection`."""

    produce_tail: asyncio.Task[None] | None
    arrived: int
    """The log position that this server had seen before the requests in progress arrived."""

    @property
    def context(self) -> KafkaContext:
        """State that the server's connections share."""

    def add(self, slot: Slot) -> None:
        """Queue the requests of `slot` for their answer."""

    def answer(self, slot: Slot, chunks: Sequence[codec.Buffer]) -> None:
        """Complete a slot; without chunks its requests get no response."""

    def close(self, why: str, reason: str) -> None:
        """Close the connection at once; `reason` is a metric label."""

    def failed(self, error: Exception) -> None:
        """Close the connection because of a bug."""

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool) -> asyncio.Task[None]:
        """Run a request's coroutine as a task."""


class Refusal:
    """Why one partition's batch is not appended."""

    __slots__ = ("code", "message", "record_indexes")

    def __init__(self, code: ErrorCode, message: str | None = None, record_indexes: Sequence[int] = ()) -> None:
        self.code = code
        self.message = message
        self.record_indexes = record_indexes


NOT_LEADER = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this server is draining: refresh the metadata")
UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
DENIED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NO_TRANSACTIONS = Refusal(ErrorCode.INVALID_REQUEST, "transactions are not supported: send without a transactional id")
TRANSACTION_DENIED = Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_BEGINS_FROM = 12
"""From this version on, a batch adds its partition to the transaction (KIP-890)."""


class ProduceCall:
    """One Produce request in progress: its entries, those rejected at once, and the append of the rest."""

    __slots__ = (
        "caller",
        "checked",
        "connection",
        "correlation_id",
        "entries",
        "now_ms",
        "outcomes",
        "seen",
        "slot",
        "stamped",
        "transactional_id",
    )

    def __init__(
        self,
        connection: Requester,
        slot: Slot | None,
        caller: Caller,
        correlation_id: int,
        entries: list[ProduceEntry],
    ) -> None:
        self.connection = connection
        self.slot = slot
        """The slot of the response; None for acks=0."""
        self.caller = caller
        self.correlation_id = correlation_id
        self.entries = entries
        self.now_ms = connection.context.streams.clock.now_ms()
        self.seen = connection.arrived
        self.transactional_id: str | None = None
        self.outcomes: list[Refusal | None] = [None] * len(entries)
        self.checked: set[int] = set()
        """Indexes in `entries` of the batches whose records are known to be good."""
        self.stamped: set[int] = set()
        """Indexes in `entries` of the batches that got the log append time `now_ms`."""

    def done(self, call: AppendCall) -> None:
        """Called when every submitted batch has its result."""
        chunks = self.frames(list(call))
        if self.slot is not None:
            self.connection.answer(self.slot, chunks)

    def frames(self, outcomes: Sequence[Result]) -> Sequence[codec.Buffer]:
        """The response frame for these append results. For acks=0 there is none; an error closes the connection instead."""
        throttle_ms = 0 if self.slot is None or self.slot.owed_ms is None else self.slot.owed_ms()
        results: list[ProduceResult] = []
        has_errors = has_messages = False
        appended = iter(outcomes)
        for place, (entry, refusal) in enumerate(zip(self.entries, self.outcomes, strict=True)):
            topic, index = entry[0], entry[1]
            if refusal is not None:
                has_errors = True
                has_messages = has_messages or (refusal.message is not None and len(self.entries) <= MESSAGES_MAX)
                results.append((topic, index, refusal.code, -1, -1, -1))
                metrics.KAFKA_ERRORS.labels("PRODUCE", refusal.code.name).inc()
                continue
            result = result_of((topic, index), next(appended), self.now_ms if place in self.stamped else -1)
            has_errors = has_errors or result[2] != ErrorCode.NONE
            results.append(result)
        if self.slot is None:
            # As in Kafka: closing is the only error signal for acks=0; the client then refreshes its metadata.
            if has_errors:
                self.connection.close("a Produce request with acks=0 failed", "acks_0_error")
            return ()
        version = self.caller.version
        if has_messages:
            return codec.response(ApiKey.PRODUCE, version).frame(
                self.correlation_id, self._with_messages(results, throttle_ms)
            )
        return [kernel.encode_produce_response(version, self.correlation_id, results, throttle_ms)]

    def _with_messages(self, results: Sequence[ProduceResult], throttle_ms: int) -> ProduceResponse:
        topics: list[ProduceResponse.Topic] = []
        last: str | bytes | None = None
        for (topic, index, code, base_offset, stamp, start_offset), refusal in zip(results, self.outcomes, strict=True):
            if topic != last:
                last = topic
                named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
                topics.append(ProduceResponse.Topic(**named, partition_responses=[]))
            partition = ProduceResponse.Partition(
                index=index,
                error_code=code,
                base_offset=base_offset,
                log_append_time_ms=stamp,
                log_start_offset=start_offset,
            )
            if refusal is not None:
                partition.error_message = refusal.message
                partition.record_errors = [
                    ProduceResponse.RecordError(batch_index=index, batch_index_error_message=refusal.message)
                    for index in refusal.record_indexes
                ]
            topics[-1].partition_responses.append(partition)
        return ProduceResponse(responses=topics, throttle_time_ms=throttle_ms)


def result_of(place: ProducePlace, outcome: Result, stamp_ms: int) -> ProduceResult:
    """Return what a response says of a batch that was submitted; `stamp_ms`: its log append time, or -1."""
    topic, index = place
    verdict, base_offset, start_offset = outcome
    code = VERDICT_CODES[verdict]
    if not code:
        return topic, index, code, base_offset, stamp_ms, start_offset
    if verdict == Verdict.NOT_FOUND and not isinstance(topic, str):
        code = ErrorCode.UNKNOWN_TOPIC_ID
    metrics.KAFKA_ERRORS.labels("PRODUCE", code.name).inc()
    return topic, index, code, base_offset, -1, start_offset


def receive(
    connection: Requester,
    slot: Slot,
    caller: Caller,
    correlation_id: int,
    frame: memoryview,
    position: int,
    slab: Slab,
) -> None:
    """Handle a Produce request whose bytes are in `slab`; responds through `connection.answer`. Raises `Corrupt`."""
    if caller.version < VERSION_MIN:
        connection.answer(slot, _reject_old_version(caller, correlation_id, frame, position))
        return
    transactional_id, acks, _, entries = kernel.parse_produce(frame, position, caller.version)
    call = ProduceCall(connection, slot if acks else None, caller, correlation_id, entries)
    call.transactional_id = transactional_id
    refusal = _refused_at_once(call, acks)
    if refusal is not None:
        call.outcomes = [refusal] * len(entries)
        call.done(AppendCall((), _ignore, call.seen))
    elif connection.produce_tail is not None or not _submit(call, frame, slab, knows_all=False):
        _start_later(call, frame, slab)
    if acks == 0:
        connection.answer(slot, ())


def _refused_at_once(call: ProduceCall, acks: int) -> Refusal | None:
    """Return why no batch of the request is appended, if that is so."""
    if acks not in (-1, 0, 1):
        return Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    if call.transactional_id is None:
        return None
    if not apis.SERVES_TRANSACTIONS:
        return NO_TRANSACTIONS
    may_write = on_transaction(call.connection.context, call.caller, Operation.WRITE, call.transactional_id)
    return None if may_write else TRANSACTION_DENIED


def _start_later(call: ProduceCall, frame: memoryview, slab: Slab) -> None:
    connection = call.connection
    slab.acquire()
    task = connection.start(_later(call, frame, slab, connection.produce_tail), is_cancelled_on_close=False)
    connection.produce_tail = task

    def done(_: object) -> None:  # a callback, because a task cancelled before its first step runs no `finally`
        slab.release()
        if connection.produce_tail is task:
            connection.produce_tail = None

    task.add_done_callback(done)


async def _later(call: ProduceCall, frame: memoryview, slab: Slab, before: asyncio.Task[None] | None) -> None:
    """Submit the request after the Produce requests before it, and after looking up its unknown streams."""
    if before is not None:
        await asyncio.wait([before])
    context = call.connection.context
    catalog = context.streams.catalog
    for name in {entry[0] for entry in call.entries}:
        if isinstance(name, str) and resolve(context, call.caller, name) is UNKNOWN:
            try:
                await catalog.find(name)
            except NotFound:
                pass  # `_submit` answers UNKNOWN_TOPIC_OR_PARTITION for each partition
            except (Unavailable, Overloaded) as error:
                for place, entry in enumerate(call.entries):
                    if entry[0] == name:
                        call.outcomes[place] = Refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(error))
    while not _submit(call, frame, slab, knows_all=True):
        await _check(call, frame)


async def _check(call: ProduceCall, frame: memoryview) -> None:
    """Check, in threads, the batches whose check takes long."""
    context = call.connection.context
    for place, (topic, index, start, end, status, attributes, *_) in enumerate(call.entries):
        if call.outcomes[place] is not None or place in call.checked or status:
            continue
        found = resolve(context, call.caller, topic)
        if isinstance(found, Refusal) or not 0 <= index < found.partition_count:
            continue  # `_submit` rejects it
        if end - start <= found.rules.batch_bytes_max:
            error = await context.streams.checks.check(frame[start:end], attributes, found.rules, Checked.NOTHING)
            if error is not None:
                call.outcomes[place] = _refusal(error)
        call.checked.add(place)


def _submit(call: ProduceCall, frame: memoryview, slab: Slab, *, knows_all: bool) -> bool:
    """Submit the valid batches and reject the rest.

    Returns False, with nothing done, if a stream must be looked up first, or a batch's check takes long.
    """
    context = call.connection.context
    entries, before = call.entries, call.outcomes
    outcomes = call.outcomes = list(before)
    call.stamped.clear()
    appends: list[Append] = []
    at, count = 0, len(entries)
    last: str | bytes | None = None
    found: StreamView | Refusal = DENIED
    rules = None
    while at < count:
        if outcomes[at] is not None:
            at += 1
            continue
        topic = entries[at][0]
        if topic != last:
            last = topic
            found = resolve(context, call.caller, topic)
            if found is UNKNOWN and not knows_all:
                call.outcomes = before
                return False
            rules = found.plain_rules(call.now_ms) if isinstance(found, StreamView) else None
        if rules is not None:
            at = kernel.admit_plain(entries, at, frame, slab, rules, appends)
        if at < count and entries[at][0] == topic:
            if not _admit_one(call, at, found, frame, slab, appends):
                call.outcomes = before
                return False
            at += 1
    if appends:
        is_transactional = call.transactional_id is not None
        context.streams.submit(
            AppendCall(appends, call.done, call.seen, call.connection.failed, is_transactional=is_transactional)
        )
    else:
        call.done(AppendCall((), _ignore, call.seen))
    return True


def _admit_one(
    call: ProduceCall, place: int, found: StreamView | Refusal, frame: memoryview, slab: Slab, appends: list[Append]
) -> bool:
    """Validate one batch: append or reject it. Returns False, with nothing done, if its check takes long."""
    _, index, start, end, status, *header = call.entries[place]
    if isinstance(found, Refusal):
        call.outcomes[place] = found
    elif not 0 <= index < found.partition_count:
        call.outcomes[place] = Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"stream {found.name} has {found.partition_count} partitions"
        )
    elif status:
        call.outcomes[place] = Refusal(*STATUS_CODES[status])
    elif header[0] & ATTRIBUTE_TRANSACTIONAL and call.transactional_id is None:
        call.outcomes[place] = TRANSACTION_DENIED
    else:
        fields = Header(*header)
        if place not in call.checked and end - start <= found.rules.batch_bytes_max:
            checks = call.connection.context.streams.checks
            checked = checks.at_once(frame[start:end], fields.attributes, found.rules, Checked.NOTHING)
            if checked is False:
                return False
            if checked is not True:
                call.outcomes[place] = _refusal(checked)
                return True
            call.checked.add(place)
        admitted = admit(found, index, frame[start:end], slab, fields, call.now_ms, Checked.ALL)
        if isinstance(admitted, Append):
            if admitted.flags & BATCH_TRANSACTIONAL and call.caller.version >= _BEGINS_FROM:
                admitted = admitted._replace(flags=admitted.flags | BATCH_BEGINS)
            appends.append(admitted)
            if found.rules.timestamp_source is TimestampSource.LOG_APPEND:
                call.stamped.add(place)
        else:
            call.outcomes[place] = _refusal(admitted)
    return True


def resolve(context: KafkaContext, caller: Caller, topic: str | bytes) -> StreamView | Refusal:
    """The stream of a topic, or the reason to reject its batches; `UNKNOWN` if it must be looked up in the store first.

    The right is checked before the look-up, so that a refusal does not reveal whether the topic exists.
    """
    streams = context.streams
    if context.is_redirecting:
        return NOT_LEADER
    if isinstance(topic, str):
        if not streams.may(caller.who, Operation.WRITE, topic):
            return DENIED
        return streams.catalog.peek(topic) or UNKNOWN
    view = streams.catalog.peek_id(topic)
    if view is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    return view if streams.may(caller.who, Operation.WRITE, view.name) else DENIED


def _refusal(error: BearlakeError) -> Refusal:
    if isinstance(error, BadRecord):
        return Refusal(ErrorCode.INVALID_RECORD, str(error), error.indexes)
    if isinstance(error, BadTimestamp):
        return Refusal(ErrorCode.INVALID_TIMESTAMP, str(error))
    return Refusal(code_of(error), str(error))


def _reject_old_version(caller: Caller, correlation_id: int, frame: memoryview, position: int) -> list[codec.Buffer]:
    """Reject versions 0-2: they are advertised (KAFKA-18659), but their message formats are not supported."""
    request: ProduceRequest = codec.request(ApiKey.PRODUCE, caller.version).decode(frame, position)
    topics = [
        ProduceResponse.Topic(
            name=topic.name,
            partition_responses=[
                ProduceResponse.Partition(
                    index=partition.index, error_code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, base_offset=-1
                )
                for partition in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        return []
    return codec.response(ApiKey.PRODUCE, caller.version).frame(correlation_id, ProduceResponse(responses=topics))


def _ignore(call: AppendCall) -> None:
    """Never called: the callback of an empty `AppendCall`."""


async def handle(context: KafkaContext, caller: Caller, request: ProduceRequest) -> ProduceResponse:
    """Never called: the connection passes Produce requests to `receive` before decoding."""
    raise AssertionError("Produce is taken inline by the connection")
