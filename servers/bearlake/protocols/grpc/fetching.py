"""The Fetch call: one task reads the client's requests (positions, credits), another task reads the log and sends.

Backpressure is the client's credit: without credit, and while the client owes bytes of its quota, the server does not read the log. At
most `fetch_bytes_max` (or one batch) is read but not sent, and held by reference to the cache. A message is sent only after the previous
message has left.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from bearlake.errors import BearlakeError, Denied, NotFound
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.grpc import arrow
from bearlake.protocols.grpc.call import Node, Writer
from bearlake.protocols.grpc.errors import BadField, Failure, draining, failure_of
from bearlake.protocols.grpc.payloads import Answer, answers, arrow_schema, is_light
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.offsets import OffsetQuestion, OffsetSpec
from bearlake.streams.principal import Operation, Principal
from bearlake.telemetry import metrics

T = TypeVar("T")


@dataclass(slots=True)
class Assigned:
    """One partition being read. A seek replaces the whole object."""

    key: PartitionKey
    stream: str
    partition: int
    offset: int
    tag: int
    has_schema: bool = False
    """Whether the client has received the schema of Arrow payloads."""


class Changed(Exception):
    """The client's request changed while the log was being read."""


async def fetch(node: Node, who: Principal, requests: AsyncIterator[pb.FetchRequest], writer: Writer) -> None:
    """Serve the client's requests until the client closes its side. Raises error kinds, `Failure`."""
    feed = Feed(node, who, writer)
    client = asyncio.create_task(_listen(feed, node, who, requests))
    notice = asyncio.create_task(node.drain_notice())
    sender = asyncio.create_task(feed.run())
    tasks: set[asyncio.Task[Any]] = {client, notice, sender}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if notice.done() and not client.done() and not sender.done():
            await feed.send(pb.FetchResponse(drain=pb.Drain(deadline_ms=notice.result())))
            await asyncio.wait({client, sender}, timeout=notice.result() / 1000, return_when=asyncio.FIRST_COMPLETED)
            if not client.done() and not sender.done():
                raise draining()
        for task in (client, sender):
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(feed: "Feed", node: Node, who: Principal, requests: AsyncIterator[pb.FetchRequest]) -> None:
    is_first = True
    async for request in requests:
        if is_first:
            feed.form = request.form or pb.FORM_RECORDS
            is_first = False
        most = 3 * node.settings.partitions_max
        if len(request.unassign) + len(request.assign) + len(request.seek) > most:
            raise BadField("assign", f"expected at most {most} partitions in one message")
        for item in request.unassign:
            feed.unassign(item.stream, item.partition)
        for position in request.assign:
            await put(feed, node, who, position)
        for position in request.seek:
            if not feed.has(position.stream, position.partition):
                raise BadField("seek", f"partition {position.partition} of {position.stream!r} is not assigned")
            await put(feed, node, who, position)
        if request.credit.bytes < 0 or request.credit.messages < 0:
            raise BadField("credit", "expected numbers of at least 0")
        feed.add_credit(request.credit.bytes, request.credit.messages)


async def put(feed: "Feed", node: Node, who: Principal, position: pb.Position) -> None:
    """Start reading at `position`, or report the failure to the client; no-op if all partitions are revoked meanwhile.

    Raises `Unavailable`, `BadField` over `partitions_max`.
    """
    clear_count = feed.clear_count
    assigned = await locate(node, who, position)
    if feed.clear_count != clear_count:
        return
    if isinstance(assigned, Failure):
        await feed.refuse(position, assigned)
    else:
        feed.assign(assigned)


async def locate(node: Node, who: Principal, position: pb.Position) -> Assigned | Failure:
    """Resolve a position, or return why it cannot be read. Raises `Unavailable`."""
    try:
        if not node.streams.may(who, Operation.READ, position.stream):
            raise Denied(f"{who} may not read stream {position.stream!r}")
        view = node.streams.catalog.peek(position.stream) or await node.streams.catalog.find(position.stream)
        key = view.partition(position.partition)
        offset = await _offset(node, key, position)
    except (NotFound, Denied, BadField) as error:
        return failure_of(error)
    return Assigned(key, position.stream, position.partition, offset, position.tag)


async def _offset(node: Node, key: PartitionKey, position: pb.Position) -> int:
    match position.WhichOneof("start"):
        case "offset":
            if position.offset < 0:
                raise BadField("offset", "expected at least 0")
            return position.offset
        case "earliest":
            timestamp = int(OffsetSpec.EARLIEST)
        case "latest":
            timestamp = int(OffsetSpec.LATEST)
        case "timestamp_ms":
            if position.timestamp_ms < 0:
                raise BadField("timestamp_ms", "expected ms since 1970")
            timestamp = position.timestamp_ms
        case _:
            raise BadField("start", "expected an offset, a time, earliest or latest")
    # The end as of before the look-up by time: a later record may be at or after that time.
    questions = [OffsetQuestion(key, timestamp), OffsetQuestion(key, int(OffsetSpec.LATEST))]
    # Latest: what open transactions have written is yet to come. By time: it has its place in the log already.
    answer, latest = await node.streams.offsets(questions, is_committed=timestamp == OffsetSpec.LATEST)
    if answer.error is None and answer.offset < 0:  # no record at or after that time
        answer = latest
    if answer.error is not None:
        raise answer.error
    return answer.offset


async def _at_once(work: Callable[..., T], *arguments: Any) -> T:
    """Do work on the event loop (Any: its arguments)."""
    return work(*arguments)


class Feed:
    """Reads the assigned partitions in turn and sends payloads, within the client's credit."""

    def __init__(self, node: Node, who: Principal, writer: Writer) -> None:
        self._node = node
        self._who = who
        self._writer = writer
        self.form: pb.Form = pb.FORM_RECORDS
        self.clear_count = 0
        """How often all partitions have been revoked."""
        self._assigned: dict[tuple[str, int], Assigned] = {}
        self._bytes = 0
        self._messages = 0
        self._changed = asyncio.Event()
        self._credited = asyncio.Event()
        self._writing = asyncio.Lock()

    # -- requests of the client ----------------------------------------------------------------------------------

    def has(self, stream: str, partition: int) -> bool:
        """Return whether the partition is assigned."""
        return (stream, partition) in self._assigned

    def reads(self, assigned: Assigned) -> bool:
        """Return whether the partition is assigned, and no seek has replaced `assigned`."""
        return self._assigned.get((assigned.stream, assigned.partition)) is assigned

    def assign(self, assigned: Assigned) -> None:
        """Start reading a partition, or move it if it is already assigned. Raises `BadField` over `partitions_max`."""
        self._assigned[assigned.stream, assigned.partition] = assigned
        if len(self._assigned) > self._node.settings.partitions_max:
            raise BadField("assign", f"expected at most {self._node.settings.partitions_max} partitions")
        self._changed.set()

    def unassign(self, stream: str, partition: int) -> None:
        """Stop reading a partition; no-op if it is not assigned."""
        if self._assigned.pop((stream, partition), None) is not None:
            self._changed.set()

    def clear(self) -> None:
        """Unassign all partitions."""
        self.clear_count += 1
        self._assigned.clear()
        self._changed.set()

    def add_credit(self, size_bytes: int, messages: int) -> None:
        """Add to the client's credit."""
        self._bytes += size_bytes
        self._messages += messages
        if self._has_credit:
            self._credited.set()

    async def refuse(self, position: pb.Position, failure: Failure) -> None:
        """Report to the client that a position cannot be read."""
        self.unassign(position.stream, position.partition)
        await self.send(
            pb.FetchResponse(
                stream=position.stream, partition=position.partition, tag=position.tag, error=failure.status()
            )
        )

    # -- sending -------------------------------------------------------------------------------------------------

    @property
    def _has_credit(self) -> bool:
        return self._bytes > 0 and self._messages > 0

    async def run(self) -> None:
        """Send until the call ends. Raises `Unavailable`, `Corrupt`."""
        while True:
            await self._await_credit()
            await self._node.streams.quotas.pace(self._who, QuotaKey.CONSUMER_BYTE_RATE)
            self._changed.clear()
            if not self._assigned:
                await self._changed.wait()
                continue
            try:
                for assigned, fetched in await self._read():
                    await self._deliver(assigned, fetched)
            except Changed:
                continue

    async def send(self, message: pb.FetchResponse) -> None:
        """Send one message after the previous message has left."""
        async with self._writing:
            await self._writer.write(message)

    async def _await_credit(self) -> None:
        while not self._has_credit:
            self._credited.clear()
            await self._credited.wait()

    async def _read(self) -> list[tuple[Assigned, Fetched]]:
        """Read the partitions that have waited longest. Raises `Changed`."""
        settings = self._node.settings
        assigned = list(self._assigned.values())
        bytes_max = max(min(self._bytes, settings.fetch_bytes_max), 1)
        ranges = [FetchRange(item.key, item.offset, min(bytes_max, settings.payload_bytes)) for item in assigned]
        found = await self._unless_changed(
            self._node.streams.fetch(ranges, bytes_min=1, bytes_max=bytes_max, wait_ms=settings.fetch_wait_ms)
        )
        return list(zip(assigned, found, strict=True))

    async def _unless_changed(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Changed
        finally:
            changed.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _deliver(self, assigned: Assigned, fetched: Fetched) -> None:
        place = (assigned.stream, assigned.partition)
        if not self.reads(assigned):  # not even its error concerns the client any more
            raise Changed
        if not self._node.streams.may(self._who, Operation.READ, assigned.stream):  # the access rules changed
            denied = Denied(f"{self._who} may not read stream {assigned.stream!r}")
            position = pb.Position(stream=assigned.stream, partition=assigned.partition, tag=assigned.tag)
            await self.refuse(position, failure_of(denied))
            return
        if fetched.error is not None:
            await self.deliver_error(assigned, fetched.error)
        if not fetched.views:
            return
        if self.form == pb.FORM_ARROW:
            await arrow.load()
        found = answers(self.form, fetched.views, assigned.offset, self._node.settings.payload_bytes)
        run = _at_once if is_light(self.form, fetched.views) else self._node.streams.checks.off_loop
        while (answer := await run(next, found, None)) is not None:
            if answer.message is None:
                await self._skip(assigned, fetched, answer.end)
            else:
                await self._deliver_one(assigned, fetched, answer, answer.message)
        if self.reads(assigned):  # move to the end of the queue, so that every partition gets its turn
            self._assigned[place] = self._assigned.pop(place)

    async def _skip(self, assigned: Assigned, fetched: Fetched, end: int) -> None:
        """Pass over markers and aborted records. At the end of the partition, tell the client, which may wait for that offset.

        Raises `Changed` as `_deliver_one`.
        """
        assigned.offset = end
        if end < fetched.end:
            return
        await self._await_credit()
        if not self.reads(assigned):
            raise Changed
        self._messages -= 1
        message = pb.FetchResponse(stream=assigned.stream, partition=assigned.partition, tag=assigned.tag)
        message.start_offset, message.end_offset, message.next_offset = max(fetched.start, 0), end, end
        await self.send(message)

    async def _deliver_one(
        self, assigned: Assigned, fetched: Fetched, answer: Answer, message: pb.FetchResponse
    ) -> None:
        """Send one payload once there is credit and the client owes nothing. Raises `Changed` if its partitions or rights have changed by
        then."""
        await self._await_credit()
        await self._node.streams.quotas.pace(
            self._who, QuotaKey.CONSUMER_BYTE_RATE
        )  # other calls may have used it up meanwhile
        if not self.reads(assigned):
            raise Changed
        if not self._node.streams.may(self._who, Operation.READ, assigned.stream):
            raise Changed  # `_deliver` refuses the partition
        if self.form == pb.FORM_ARROW and not assigned.has_schema:
            message.payload.arrow.schema = arrow_schema()
            assigned.has_schema = True
        self._bytes -= answer.size_bytes
        self._messages -= 1
        assigned.offset = answer.end
        metrics.FETCH_BYTES.inc(answer.size_bytes)
        self._node.streams.quotas.charge(self._who, QuotaKey.CONSUMER_BYTE_RATE, answer.size_bytes)
        message.stream = assigned.stream
        message.partition = assigned.partition
        message.tag = assigned.tag
        message.start_offset = max(fetched.start, 0)
        message.end_offset = max(fetched.end, answer.end)
        message.next_offset = answer.end
        message.credit_bytes = answer.size_bytes
        await self.send(message)

    async def deliver_error(self, assigned: Assigned, error: BearlakeError) -> None:
        """Report that a partition is no longer read. Raises a `Failure` if a retry can succeed."""
        failure = failure_of(error)
        if failure.is_retriable:
            raise failure
        self._assigned.pop((assigned.stream, assigned.partition), None)
        await self.send(
            pb.FetchResponse(
                stream=assigned.stream, partition=assigned.partition, tag=assigned.tag, error=failure.status()
            )
        )
