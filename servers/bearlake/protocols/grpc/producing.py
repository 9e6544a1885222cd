"""The Producer service: submits batches in their order of arrival and acknowledges them once they are durable.

A ProduceStream call has two concurrent tasks. The reader takes a message, submits its batch, and continues while the write path has
room and the call is below its limit of pending batches. The other task acknowledges, in batch order, all batches that have become
durable since its last message, with one message. While the client owes bytes of its quota, the reader takes no message.

gRPC delivers whole messages only, so a message that arrives while the write path has no room waits in memory. Such messages have a bound
(`Reservations.admit`); a call that exceeds it ends with RESOURCE_EXHAUSTED.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from bearlake.errors import BearlakeError, Denied, NotFound
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.grpc.batches import Batch, PayloadReader
from bearlake.protocols.grpc.call import Node, Writer
from bearlake.protocols.grpc.errors import BadField, Failure, draining, failure_of, failure_of_result
from bearlake.protocols.grpc.framing import Incoming
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.streams.admission import admit
from bearlake.streams.append import Append, AppendCall, Result, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import Checked
from bearlake.streams.principal import Operation, Principal, Resource
from bearlake.streams.reservations import Reservation
from bearlake.streams.value_rules import declared

_STORED = (Verdict.ACCEPTED, Verdict.DUPLICATE)


async def init_producer(node: Node, who: Principal, request: pb.InitProducerRequest) -> pb.InitProducerResponse:
    """Return a new producer id, if the caller may write to some stream. Raises `Denied`, `Unavailable`."""
    if not node.streams.authorizer.allows_any(who, Operation.WRITE, Resource.STREAM):
        raise Denied(f"{who} may not write to any stream")
    return pb.InitProducerResponse(producer_id=await node.producer_ids.take(), producer_epoch=0)


async def produce(
    node: Node, who: Principal, message: Incoming[pb.ProduceRequest], room: Reservation, seen: int
) -> pb.ProduceResponse:
    """Append one batch; `room` counts the message until the answer. `seen`: as in `AppendCall`. Raises error kinds, `Failure`."""
    request = message.request
    view = await writable(node, who, request.stream)
    await room.read(message.size_bytes)
    reader = PayloadReader(node.streams.checks.off_loop, node.streams.checks.uncompressed_bytes_max)
    batch = await reader.batch(message, node.streams.clock.now_ms(), declared(view.stream.configs))
    append = await _append(node, view, request.partition, batch, _expected(request))
    node.streams.quotas.require(who, QuotaKey.PRODUCER_BYTE_RATE)  # other calls may have used it up meanwhile
    node.streams.quotas.charge(who, QuotaKey.PRODUCER_BYTE_RATE, len(append.batch))
    (result,) = await node.streams.append([append], seen)
    if result[0] not in _STORED:
        raise failure_of_result(result)
    return pb.ProduceResponse(base_offset=result[1], record_count=append.record_count)


async def produce_stream(
    node: Node, who: Principal, requests: AsyncIterator[Incoming[pb.ProduceStreamRequest]], writer: Writer
) -> None:
    """Append batches until the client closes its side. Raises error kinds, `Failure`."""
    call = _Call(node, who, writer)
    reader = asyncio.create_task(call.read(requests))
    notice = asyncio.create_task(node.drain_notice())
    for task in (reader, notice):
        task.add_done_callback(call.wake)
    try:
        await call.acknowledge(reader, notice)
    finally:
        for task in (reader, notice):
            task.cancel()
        await asyncio.gather(reader, notice, return_exceptions=True)


async def writable(node: Node, who: Principal, name: str) -> StreamView:
    """Return the stream if the caller may write to it. Raises `Denied`, `NotFound`, `Unavailable`, `BadField`."""
    if not name:
        raise BadField("stream", "expected a name")
    if not node.streams.may(who, Operation.WRITE, name):
        raise Denied(f"{who} may not write to stream {name!r}")
    return node.streams.catalog.peek(name) or await node.streams.catalog.find(name)


def _expected(request: pb.ProduceRequest | pb.ProduceStreamRequest) -> int:
    if not request.HasField("expected_offset"):
        return -1
    if request.expected_offset < 0:
        raise BadField("expected_offset", "expected at least 0")
    return request.expected_offset


async def _append(node: Node, view: StreamView, partition: int, batch: Batch, expected_offset: int) -> Append:
    if not 0 <= partition < view.partition_count:
        raise NotFound(f"stream {view.name!r} has partitions 0 to {view.partition_count - 1}, not {partition}")
    bad = await node.streams.checks.check(batch.buffer, batch.header.attributes, view.rules, batch.known)
    if bad is not None:
        raise bad
    now_ms = node.streams.clock.now_ms()
    admitted = admit(view, partition, batch.buffer, None, batch.header, now_ms, Checked.ALL)
    if isinstance(admitted, BearlakeError):
        raise admitted
    return admitted if expected_offset < 0 else admitted._replace(expected_offset=expected_offset)


class _Entry:
    """One pending batch."""

    __slots__ = ("result", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.result: Result | Failure | None = None


class _Call:
    """One ProduceStream call.

    Messages may wait in gRPC's buffers, so all messages count as arrived when the call began (`AppendCall.seen`). After OUTCOME_UNKNOWN the
    client starts a new call.
    """

    def __init__(self, node: Node, who: Principal, writer: Writer) -> None:
        self._node = node
        self._who = who
        self._writer = writer
        self._seen = node.streams.seen.position
        self._payloads = PayloadReader(node.streams.checks.off_loop, node.streams.checks.uncompressed_bytes_max)
        self._entries: deque[_Entry] = deque()
        self._bytes = 0
        self._acknowledged_count = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def wake(self, _: object = None) -> None:
        """Wake the acknowledging task."""
        self._changed.set()

    async def read(self, requests: AsyncIterator[Incoming[pb.ProduceStreamRequest]]) -> None:
        """Submit batches until the client closes its side or a batch cannot be submitted."""
        view: StreamView | None = None
        name, partition = "", 0
        try:
            while True:
                await self._turn()
                try:
                    message = await anext(requests)
                except StopAsyncIteration:
                    return
                request = message.request
                try:
                    with await self._node.streams.room_for(self._who, message.size_bytes):
                        if request.stream:
                            name, partition = request.stream, request.partition
                        streams = self._node.streams
                        if view is None or view.name != name or streams.catalog.peek(name) is not view:
                            view = await writable(self._node, self._who, name)
                        self._check_right(name)
                        columns = declared(view.stream.configs)
                        batch = await self._payloads.batch(message, streams.clock.now_ms(), columns)
                        append = await _append(self._node, view, partition, batch, _expected(request))
                        await self._wait_for_quota()  # other calls may have used it up meanwhile
                        self._check_right(name)
                        self._submit(append)
                except (BearlakeError, Failure) as error:
                    entry = _Entry(0)
                    entry.result = error if isinstance(error, Failure) else failure_of(error)
                    self._entries.append(entry)
                    return
        finally:
            self.wake()

    def _check_right(self, name: str) -> None:
        """Raise `Denied` if the access rules changed meanwhile."""
        if not self._node.streams.may(self._who, Operation.WRITE, name):
            raise Denied(f"{self._who} may not write to stream {name!r}")

    def _submit(self, append: Append) -> None:
        entry = _Entry(len(append.batch))
        self._entries.append(entry)
        self._bytes += entry.size_bytes
        self._node.streams.quotas.charge(self._who, QuotaKey.PRODUCER_BYTE_RATE, entry.size_bytes)

        def done(call: AppendCall) -> None:
            entry.result = call[0]
            if self._entries and self._entries[0] is entry:
                self.wake()

        self._node.streams.submit(AppendCall([append], done, self._seen))

    async def _turn(self) -> None:
        """Wait until the next message may be read."""
        settings = self._node.settings
        while self._bytes > settings.in_flight_bytes_max or len(self._entries) >= settings.in_flight_batches_max:
            self._room.clear()
            await self._room.wait()
        await self._wait_for_quota()
        if self._node.streams.is_over_budget:  # holds nothing: the message may come much later
            (await self._node.streams.room(self._who)).give_back()

    async def _wait_for_quota(self) -> None:
        await self._node.streams.quotas.pace(self._who, QuotaKey.PRODUCER_BYTE_RATE)

    async def acknowledge(self, reader: asyncio.Task[None], notice: asyncio.Task[int]) -> None:
        """Acknowledge until every batch read is acknowledged. Raises the `Failure` of the first failed batch."""
        is_drain_sent = False
        while self._entries or not reader.done():
            await self._changed.wait()
            self._changed.clear()
            answer, failure = self._take()
            if notice.done() and not is_drain_sent:
                is_drain_sent = True
                answer.drain.deadline_ms = notice.result()
                asyncio.get_running_loop().call_later(notice.result() / 1000, self._end_reading, reader)
            if answer.base_offsets or answer.HasField("drain"):
                await self._writer.write(answer)
            if failure is not None:
                raise failure
        if reader.cancelled():
            raise draining()
        reader.result()

    def _end_reading(self, reader: asyncio.Task[None]) -> None:
        reader.cancel()

    def _take(self) -> tuple[pb.ProduceStreamResponse, Failure | None]:
        """Take the finished batches at the head of the queue, up to the first failure."""
        offsets: list[int] = []
        failure = None
        while self._entries and (result := self._entries[0].result) is not None:
            if not isinstance(result, Failure) and result[0] in _STORED:
                offsets.append(result[1])
                self._bytes -= self._entries.popleft().size_bytes
                continue
            failure = result if isinstance(result, Failure) else failure_of_result(result)
            failure.metadata["batch_index"] = str(self._acknowledged_count + len(offsets))
            break
        self._acknowledged_count += len(offsets)
        self._room.set()
        return pb.ProduceStreamResponse(acknowledged_count=self._acknowledged_count, base_offsets=offsets), failure
