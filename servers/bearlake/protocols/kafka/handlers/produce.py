"""Produce: the hot path. The connection submits a request's batches inline, in order; a callback answers once they are committed.

The kernel parses and answers the common request (known streams, plain rules, no errors) in one call each. A request for a stream
that this server does not know waits for a look-up in the store; later Produce requests of the connection wait behind it.
A request with acks=0 gets no response; it counts as in flight until it is submitted. A request of very many batches, or bytes, is admitted
in turns of the event loop.

Source: KIP-98, KIP-467 (record errors), KIP-516 (topic ids), Produce versions 3-13.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from bearlake import kernel
from bearlake.errors import BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.kernel import ProduceEntry
from bearlake.metadata.model import BATCH_TRANSACTIONAL
from bearlake.metadata.transactions import BATCH_BEGINS
from bearlake.protocols.kafka import apis, codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import STATUS_CODES, ErrorCode, code_of
from bearlake.protocols.kafka.handlers.produce_call import BEGINS_FROM, ProduceCall, Refusal, Requester
from bearlake.protocols.kafka.messages import ProduceRequest, ProduceResponse
from bearlake.protocols.kafka.rights import on_transaction
from bearlake.protocols.kafka.slot import Slot
from bearlake.records.batch import ATTRIBUTE_TRANSACTIONAL
from bearlake.serving.slabs import Slab
from bearlake.streams.admission import BadTimestamp, Header, admit
from bearlake.streams.append import Append, AppendCall
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import BadRecord, Checked
from bearlake.streams.configs import TimestampSource
from bearlake.streams.internal_topics import INTERNAL
from bearlake.streams.principal import Operation
from bearlake.streams.turns import AT_ONCE, Turns

AT_ONCE_COUNT_MAX = 2_000
"""Batches of a request that one turn of the event loop admits: 15 ms if each needs a check."""
AT_ONCE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of them: their records are read at 1 GB/s."""
VERSION_MIN = 3
"""Older versions use message formats 0 and 1."""


NOT_LEADER = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this server is draining: refresh the metadata")
UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
DENIED = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
NO_TRANSACTIONS = Refusal(ErrorCode.INVALID_REQUEST, "transactions are not supported: send without a transactional id")
TRANSACTION_DENIED = Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
READ_ONLY = {
    name: Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}") for name in INTERNAL
}
"""Why nothing is appended to an internal topic, by its name."""
NO_TRANSACTION = Refusal(ErrorCode.INVALID_TXN_STATE, "the producer id belongs to no transactional id")
NOT_ITS_PRODUCER = Refusal(
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the producer id does not belong to the transactional id"
)


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
    elif connection.produce_tail is not None or _is_large(call, frame) or not _submit(call, frame, slab):
        _start_later(call, frame, slab, slot)
        return
    if acks == 0:
        connection.answer(slot, ())


def _refused_at_once(call: ProduceCall, acks: int) -> Refusal | None:
    """Return why no batch of the request is appended, if that is so."""
    if acks not in (-1, 0, 1):
        return Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    if call.transactional_id is None:
        return None
    return refused_transaction(call.connection.context, call.caller, call.transactional_id)


def refused_transaction(context: KafkaContext, caller: Caller, transactional_id: str) -> Refusal | None:
    """Return why the caller may not write in transactions of this transactional id, if that is so."""
    if not apis.SERVES_TRANSACTIONS:
        return NO_TRANSACTIONS
    return None if on_transaction(context, caller, Operation.WRITE, transactional_id) else TRANSACTION_DENIED


def _is_large(call: ProduceCall, frame: memoryview) -> bool:
    """Whether admitting the batches takes more than one turn of the event loop."""
    return len(call.entries) > AT_ONCE_COUNT_MAX or len(frame) > AT_ONCE_BYTES_MAX


def _start_later(call: ProduceCall, frame: memoryview, slab: Slab, slot: Slot) -> None:
    """Submit the request later. It counts as in flight until then, even if it gets no response: it keeps its receive buffer."""
    connection = call.connection
    slab.acquire()
    task = connection.start(_later(call, frame, slab, connection.produce_tail), is_cancelled_on_close=False)
    connection.produce_tail = task

    def done(_: object) -> None:  # a callback, because a task cancelled before its first step runs no `finally`
        slab.release()
        if connection.produce_tail is task:
            connection.produce_tail = None
        if call.slot is None:
            connection.answer(slot, ())

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
    if call.transactional_id is not None:
        await _find_owners(call)
    while not await _submit_in_turns(call, frame, slab):
        await _check(call, frame)


async def _find_owners(call: ProduceCall) -> None:
    """Look up to which transactional ids the producer ids of the request belong, as far as this server does not know."""
    unknown = {
        producer_id
        for *_, status, attributes, _, _, _, producer_id, _, _ in call.entries
        if not status and attributes & ATTRIBUTE_TRANSACTIONAL and call.owner(producer_id) is None
    }
    if not unknown:
        return
    call.owners = dict.fromkeys(unknown, "")
    try:
        call.owners |= await call.connection.context.streams.transactions.find_owners(unknown)
    except (Unavailable, Overloaded) as error:
        for place, (*_, attributes, _, _, _, producer_id, _, _) in enumerate(call.entries):
            if attributes & ATTRIBUTE_TRANSACTIONAL and producer_id in unknown:
                call.outcomes[place] = Refusal(ErrorCode.LEADER_NOT_AVAILABLE, str(error))


async def _check(call: ProduceCall, frame: memoryview) -> None:
    """Check, in threads, the batches whose check takes long."""
    context = call.connection.context
    turns, since = Turns(), asyncio.get_running_loop().time()
    for place, (topic, index, start, end, status, attributes, *_) in enumerate(call.entries):
        if turns.is_over(1 + (end - start) * AT_ONCE // AT_ONCE_BYTES_MAX):
            await asyncio.sleep(0)
        if call.outcomes[place] is not None or status:
            continue
        found = resolve(context, call.caller, topic)
        if isinstance(found, Refusal) or not 0 <= index < found.partition_count:
            continue  # `_submit` rejects it
        if call.checked.get(place) == found.rules:
            continue
        if end - start <= found.rules.batch_bytes_max:
            error = await context.streams.checks.check(
                frame[start:end], attributes, found.rules, Checked.NOTHING, since
            )
            if error is not None:
                call.outcomes[place] = _refusal(error)
        call.checked[place] = found.rules


def _submit(call: ProduceCall, frame: memoryview, slab: Slab) -> bool:
    """Submit the valid batches and reject the rest, now.

    Returns False, with nothing done, if a stream or a producer id must be looked up first, or a batch's check takes long.
    """
    appends: list[Append] = []
    if not all(_admissions(call, frame, slab, appends, knows_all=False)):
        return False
    _append(call, appends)
    return True


async def _submit_in_turns(call: ProduceCall, frame: memoryview, slab: Slab) -> bool:
    """As `_submit`, in turns of the event loop, for a request whose streams were looked up."""
    appends: list[Append] = []
    for is_admitted in _admissions(call, frame, slab, appends, knows_all=True):
        if not is_admitted:
            return False
        await asyncio.sleep(0)
    _append(call, appends)
    return True


def _append(call: ProduceCall, appends: list[Append]) -> None:
    if appends:
        call.connection.context.streams.submit(AppendCall(appends, call.done, call.seen, call.connection.failed))
    else:
        call.done(AppendCall((), _ignore, call.seen))


def _admissions(
    call: ProduceCall, frame: memoryview, slab: Slab, appends: list[Append], *, knows_all: bool
) -> Iterator[bool]:
    """Admit the batches to `appends`, and reject the rest; yields True where another turn of the event loop may come in between.

    Yields False, and ends with nothing done, where a stream or a producer id must be looked up first, or a batch's check takes long.
    """
    context = call.connection.context
    entries, before = call.entries, call.outcomes
    outcomes = call.outcomes = list(before)
    call.stamped.clear()
    at, count = 0, len(entries)
    last: str | bytes | None = None
    found: StreamView | Refusal = DENIED
    rules = None
    while at < count:
        end = _turn_end(entries, at)
        part = entries if end == count else entries[:end]
        while at < end:
            if outcomes[at] is not None:
                at += 1
                continue
            topic = entries[at][0]
            if topic != last:
                last = topic
                found = resolve(context, call.caller, topic)
                if found is UNKNOWN and not knows_all:
                    call.outcomes = before
                    yield False
                    return
                rules = found.plain_rules(call.now_ms) if isinstance(found, StreamView) else None
            if rules is not None:
                at = kernel.admit_plain(part, at, frame, slab, rules, appends)
            if at < end and entries[at][0] == topic:
                if not _admit_one(call, at, found, frame, slab, appends):
                    call.outcomes = before
                    yield False
                    return
                at += 1
        if at < count:
            yield True


def _turn_end(entries: Sequence[ProduceEntry], at: int) -> int:
    """The index after the batches, from `at` on, that one turn of the event loop admits: at least one."""
    limit = entries[at][2] + AT_ONCE_BYTES_MAX
    end = min(at + AT_ONCE_COUNT_MAX, len(entries))
    if entries[end - 1][3] > limit:
        end = max(at + 1, bisect_right(entries, limit, at, end, key=itemgetter(3)))
    return end


def _admit_one(
    call: ProduceCall, place: int, found: StreamView | Refusal, frame: memoryview, slab: Slab, appends: list[Append]
) -> bool:
    """Validate one batch: append or reject it.

    Returns False, with nothing done, if its check takes long, or if the owner of its producer id must be looked up first.
    """
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
    elif header[0] & ATTRIBUTE_TRANSACTIONAL and (owner := call.owner(header[4])) != call.transactional_id:
        if owner is None:
            return False
        begins = call.caller.version >= BEGINS_FROM
        call.outcomes[place] = NOT_ITS_PRODUCER if owner or begins else NO_TRANSACTION
    else:
        fields = Header(*header)
        if call.checked.get(place) != found.rules and end - start <= found.rules.batch_bytes_max:
            checks = call.connection.context.streams.checks
            checked = checks.at_once(frame[start:end], fields.attributes, found.rules, Checked.NOTHING)
            if checked is False:
                return False
            if checked is not True:
                call.outcomes[place] = _refusal(checked)
                return True
            call.checked[place] = found.rules
        admitted = admit(found, index, frame[start:end], slab, fields, call.now_ms, Checked.ALL)
        if isinstance(admitted, Append):
            if admitted.flags & BATCH_TRANSACTIONAL and call.caller.version >= BEGINS_FROM:
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
        return streams.catalog.peek(topic) or READ_ONLY.get(topic, UNKNOWN)
    view = streams.catalog.peek_id(topic)
    if view is None:
        return _unknown_id(context, caller, topic)
    return view if streams.may(caller.who, Operation.WRITE, view.name) else DENIED


def _unknown_id(context: KafkaContext, caller: Caller, topic_id: bytes) -> Refusal:
    """The reason to reject batches for a topic that is no stream."""
    view = context.topics.peek_id(topic_id)
    if view is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    return READ_ONLY[view.name] if context.streams.may(caller.who, Operation.WRITE, view.name) else DENIED


def _refusal(error: BearlakeError) -> Refusal:
    if isinstance(error, BadRecord):
        return Refusal(ErrorCode.INVALID_RECORD, str(error), [*zip(error.indexes, error.reasons, strict=True)])
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
