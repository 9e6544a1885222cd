"""Servers of a simulated deployment, and their client connections.

A node runs the real stream service in its own process. A node can crash (its code stops, but calls in flight may still take effect), freeze
and resume later (perhaps with an outdated epoch), or stop gracefully. A connection delivers requests in order and stops reading while the
server is over its budget, as a protocol server does with its sockets.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bearlake import kernel
from bearlake.errors import BearlakeError, NotFound, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey, ServerRef
from bearlake.metadata.registering import register
from bearlake.objects import ObjectStore
from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.retrying import RetryingObjectStore
from bearlake.streams.admission import Header, admit
from bearlake.streams.append import Append, AppendCall, Result, Verdict
from bearlake.streams.service import Streams
from simulator.network import RemoteMetadata, RemoteObjectStore, answer, run_in
from simulator.truth import Sent

if TYPE_CHECKING:
    from simulator.deployment import Deployment

T = TypeVar("T")

START_PAUSE_S = 0.05


class Node:
    """One server process."""

    def __init__(self, deployment: "Deployment", name: str, incarnation: int) -> None:
        self.deployment = deployment
        self.name = name
        self.process = deployment.loop.process(f"{name}.{incarnation}")
        self.streams: Streams | None = None
        """The stream service; None before it is started and after it has stopped."""
        self.server: ServerRef | None = None
        self.is_gone = False
        self.connections: list[Connection] = []
        self._random = deployment.randomness(f"node {self.process.name}")
        self._metadata = RemoteMetadata(
            deployment.network, deployment.metadata, can_be_late=deployment.settings.network.can_be_late
        )
        self._run = run_in(self.process, deployment.loop, self._main())

    async def _main(self) -> None:
        deployment = self.deployment
        registration = await self._until_available(
            lambda: register(self._metadata.servers, self.name, zone=None, endpoints={}, version="1", timeout_ms=10_000)
        )
        self.server = registration.server
        store: ObjectStore = RetryingObjectStore(
            RemoteObjectStore(deployment.network, deployment.store), deployment.settings.retries, self._random
        )
        store = MarkerObjectStore(store)
        streams = deployment.settings.streams_class(
            self._metadata,
            store,
            registration.server,
            deployment.settings.streams,
            clock=deployment.clock,
            random_source=self._random,
            on_fenced=self._fenced,
        )
        await self._until_available(streams.start)
        deployment.trace("serves", server=registration.server)
        self.streams = streams
        try:
            await streams.run()
        except BearlakeError as error:
            deployment.fail(f"a server died of {error!r}")

    async def _until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except (Unavailable, Overloaded):
                await asyncio.sleep(START_PAUSE_S)

    def _fenced(self) -> None:
        self.deployment.trace("is fenced", server=self.server)
        self.deployment.fenced_count += 1
        run_in(self.process, self.deployment.loop, self.stop(is_graceful=False))

    def crash(self) -> None:
        """Stop at once; store calls in flight may still take effect. Clients see their connections reset."""
        self.is_gone = True
        self.deployment.loop.pause(self.process)
        self.deployment.trace("crashes", node=self.process.name)
        self.cut_connections()

    async def stop(self, *, is_graceful: bool = True) -> None:
        """Stop the stream service, gracefully or not (runs in this node's process)."""
        if self.is_gone:
            return
        self.is_gone = True
        streams, self.streams = self.streams, None
        if streams is not None:
            if is_graceful:
                await streams.drain()
            await streams.close()
        self._run.cancel()
        if is_graceful and self.server is not None:
            server = self.server
            await self._until_available(lambda: self._metadata.servers.leave(server))
        self.deployment.trace("stopped", node=self.process.name)
        self.cut_connections()

    def cut_connections(self) -> None:
        """Close the clients' connections; requests that arrived before are still processed."""
        for connection in self.connections:
            connection.reset()
        self.connections.clear()

    def check_left_behind(self) -> None:
        """Check that no state is left of finished calls, finished reads and deleted partitions."""
        assert self.streams is not None
        writer, tail, truth = self.streams._writer, self.streams._tail, self.deployment.truth
        truth.expect(not writer._calls and not writer.relief, "no call is left behind", calls=len(writer._calls))
        truth.expect(not self.streams._cache._loading, "no read is left behind")
        gone = [key for key in tail._tails if not truth.exists(key)]
        truth.expect(not gone, "nothing is kept of deleted streams", partitions=gone)
        waited = [key for key, found in tail._tails.items() if found.waiters]
        truth.expect(not waited, "no reader is left behind", partitions=waited)

    def check_bounds(self, request_bytes: int = 0) -> None:
        """Check that memory is bounded: queued writes, the object cache, the tail index."""
        if self.streams is None:
            return
        streams, settings, truth = self.streams, self.deployment.settings.streams, self.deployment.truth
        pending = streams._writer.pending_bytes
        truth.expect(
            pending <= settings.writer.bytes_max + max(request_bytes, self.deployment.request_bytes_max),
            "pending bytes are bounded",
            pending=pending,
        )
        cache = streams._cache
        truth.expect(
            cache.size_bytes <= settings.cache.bytes_max or len(cache._extents) <= 1,
            "the cache is bounded",
            size=cache.size_bytes,
        )
        tail = streams._tail
        truth.expect(
            tail.slice_count <= settings.tail_slice_count_max or len(tail._entries) <= 1,
            "the tail index is bounded",
            slices=tail.slice_count,
        )


class AppendFields(NamedTuple):
    """Fields of `Append` that come from the protocol instead of the batch."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    flags: int = 0
    expected_offset: int = -1
    after_sequence: int = -1
    partition: PartitionKey | None = None
    """The incarnation of the stream that the producer's session writes to; the session never writes to another incarnation."""


class BatchRequest(NamedTuple):
    """A batch that a client wants to append: stream, partition, batch, the client's view of it, and further `Append` fields."""

    name: str
    partition: int
    batch: bytes
    sent: Sent
    fields: AppendFields | None = None


class BatchAnswer(NamedTuple):
    """The answer to a client about a batch; no partition if the stream was not found, no result if the batch was refused."""

    partition: PartitionKey | None
    result: Result | None


Work = Callable[[Streams], Awaitable[Any]]


class Connection:
    """A client's connection to one node."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.is_lost = False
        self._deployment = node.deployment
        self._inbox: deque[tuple[Sequence[BatchRequest] | Work, asyncio.Future[Any], int]] = deque()
        self._is_blocked = False
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._last_arrival = 0.0
        node.connections.append(self)

    # -- the client's side ---------------------------------------------------------------------------------------

    def produce(self, requests: Sequence[BatchRequest]) -> "asyncio.Future[list[BatchAnswer]]":
        """Send batches; the future fails with `Unavailable` when the connection is lost."""
        return self._send(requests)

    def call(self, work: Work) -> "asyncio.Future[Any]":
        """Run `work` on the node; the future has its result or `BearlakeError`."""
        return self._send(work)

    def _send(self, request: Sequence[BatchRequest] | Work) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        reply = loop.create_future()
        self._waiting[reply] = None
        reply.add_done_callback(self._answered)
        self._last_arrival = max(self._last_arrival, loop.time() + self._deployment.network.delay_s())
        loop.call_at(self._last_arrival, self._arrive, request, reply, context=self.node.process.context)
        return reply

    def _answered(self, reply: "asyncio.Future[Any]") -> None:
        self._waiting.pop(reply, None)
        if not reply.cancelled():
            reply.exception()  # mark as retrieved: the client may have stopped waiting

    def reset(self) -> None:
        """Lose the connection: pending requests soon fail with `Unavailable`."""
        self.is_lost = True
        loop = self._deployment.loop
        for reply in list(self._waiting):
            context = self._deployment.wire.context
            loop.call_later(0.01, answer, reply, None, Unavailable("connection reset"), context=context)

    # -- the node's side, in its process -------------------------------------------------------------------------

    def _arrive(self, request: Sequence[BatchRequest] | Work, reply: "asyncio.Future[Any]") -> None:
        seen = 0 if self.node.streams is None else self.node.streams.seen.position
        self._inbox.append((request, reply, seen))
        self._read()

    def _read(self) -> None:
        while self._inbox and not self._is_blocked:
            streams = self.node.streams
            request, reply, seen = self._inbox[0]
            if streams is None:
                self._answer(reply, None, Unavailable("connection refused"))
            elif callable(request):
                run_in(self.node.process, self._deployment.loop, self._work(streams, request, reply))
            elif streams.is_over_budget:
                self._deployment.backpressure_count += 1
                self._is_blocked = True
                streams.on_relief(self._unblock)
                return
            elif all(streams.catalog.peek(item.name) for item in request):
                self._submit(streams, request, reply, seen)
            else:
                self._is_blocked = True
                run_in(self.node.process, self._deployment.loop, self._look_up(streams, request, reply))
                return
            self._inbox.popleft()

    def _unblock(self) -> None:
        self._is_blocked = False
        self._read()

    async def _work(self, streams: Streams, work: Work, reply: "asyncio.Future[Any]") -> None:
        try:
            self._answer(reply, await work(streams))
        except BearlakeError as error:
            self._answer(reply, None, error)

    async def _look_up(self, streams: Streams, request: Sequence[BatchRequest], reply: "asyncio.Future[Any]") -> None:
        """Look up streams that the node does not know; later requests wait, to keep the order."""
        try:
            for item in request:
                await streams.catalog.find(item.name)
            if not all(streams.catalog.peek(item.name) for item in request):
                raise NotFound("deleted meanwhile")
        except NotFound:
            self._inbox.popleft()
            self._answer(reply, [BatchAnswer(None, None)] * len(request))
        except BearlakeError as error:
            self._inbox.popleft()
            self._answer(reply, None, error)
        self._unblock()

    def _submit(
        self, streams: Streams, request: Sequence[BatchRequest], reply: "asyncio.Future[Any]", seen: int
    ) -> None:
        appends: list[Append] = []
        answers: list[BatchAnswer] = []
        for item in request:
            admitted = self._admit(streams, item)
            if admitted is not None:
                appends.append(admitted)
                self._deployment.truth.sent[bytes(admitted.batch)] = item.sent
            answers.append(BatchAnswer(admitted and admitted.partition, None))

        def done(call: AppendCall) -> None:
            results = iter(call)
            self._answer(reply, [BatchAnswer(key, None if key is None else next(results)) for key, _ in answers])

        if not appends:
            self._answer(reply, answers)
            return
        size = sum(len(item.batch) for item in appends)
        streams.submit(AppendCall(appends, done, seen))
        self.node.check_bounds(size)

    def _admit(self, streams: Streams, item: BatchRequest) -> Append | None:
        view = streams.catalog.peek(item.name)
        assert view is not None
        header = kernel.inspect(item.batch, 0, len(item.batch))
        assert not isinstance(header, int)
        if item.partition >= view.partition_count:
            return None
        rules = Header(
            header.attributes,
            header.record_count,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
        admitted = admit(view, item.partition, item.batch, None, rules, self._deployment.clock.now_ms())
        assert isinstance(admitted, Append), admitted
        fields = item.fields
        if fields is None:
            return admitted
        if fields.partition not in (None, admitted.partition):
            return None
        return admitted._replace(
            producer_id=fields.producer_id,
            producer_epoch=fields.producer_epoch,
            base_sequence=fields.base_sequence,
            flags=fields.flags,
            expected_offset=fields.expected_offset,
            after_sequence=fields.after_sequence,
        )

    def _answer(self, reply: "asyncio.Future[Any]", result: Any, error: BaseException | None = None) -> None:
        loop, wire = self._deployment.loop, self._deployment.wire
        loop.call_later(self._deployment.network.delay_s(), answer, reply, result, error, context=wire.context)


def is_stored(answer: BatchAnswer) -> bool:
    """Return whether the batch is acknowledged."""
    return answer.result is not None and answer.result[0] in (Verdict.ACCEPTED, Verdict.DUPLICATE)
