"""The producer: groups records into batches, and sends and resends batches over ProduceStream calls, one call at a time.

Exactly once: every batch has a sequence number. After a failure, the producer resends unacknowledged batches in the same order and
with the same numbers to the next server; servers store each sequence once. When a server rejects a batch finally, its records fail
and later batches of the partition move down to close the gap (the server cannot have stored them without the rejected batch).
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from bearlake.client.connections import Connections, Pauses
from bearlake.client.errors import UNKNOWN_PRODUCER, CallFailed, call_failed
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb

_SEQUENCE_END = 1 << 31
_OVERHEAD_BYTES = 32
BATCH_INDEX = "batch_index"


@dataclass(slots=True)
class _Batch:
    stream: str
    partition: int
    since: float
    records: list[pb.Record] = field(default_factory=list)
    futures: list[asyncio.Future[int]] = field(default_factory=list)
    size_bytes: int = 0
    base_sequence: int = 0

    def fail(self, error: CallFailed) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark as retrieved, so that asyncio does not log futures that the caller ignores

    def done(self, base_offset: int) -> None:
        for at, future in enumerate(self.futures):
            if not future.done():
                future.set_result(base_offset + at)


class Sender:
    """Batches and sends records; keeps the order of `send` calls per partition. Use from a single event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._settings = connections.settings
        self._open: dict[tuple[str, int], _Batch] = {}
        self._sealed: deque[_Batch] = deque()
        """Full or expired batches, numbered; the first `_sent_count` are sent but not acknowledged."""
        self._sent_count = 0
        self._sequences: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        """Epochs that this producer has started per partition: one each time the servers had forgotten the producer there."""
        self._bytes = 0
        self._work = asyncio.Event()
        self._less = asyncio.Event()
        self._producer: pb.InitProducerResponse | None = None
        self._failure: CallFailed | None = None
        self._is_closing = False
        self._is_leaving = False
        self._task = asyncio.create_task(self._run())

    async def send(self, stream: str, partition: int, record: pb.Record) -> asyncio.Future[int]:
        """Buffer a record; the future gives its offset once it is durable. Waits while the buffer is full. Raises `CallFailed`."""
        size = len(record.key) + len(record.value) + _OVERHEAD_BYTES
        while self._bytes + size > self._settings.buffer_bytes and self._bytes and self._failure is None:
            self._less.clear()
            await self._less.wait()
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        place = (stream, partition)
        batch = self._open.get(place)
        if batch is None:
            batch = self._open[place] = _Batch(stream, partition, loop.time())
            loop.call_later(self._settings.linger_ms / 1000, self._seal, batch)
        future: asyncio.Future[int] = loop.create_future()
        batch.records.append(record)
        batch.futures.append(future)
        batch.size_bytes += size
        self._bytes += size
        if batch.size_bytes >= self._settings.batch_bytes:
            self._seal(batch)
        return future

    def _seal(self, batch: _Batch) -> None:
        place = (batch.stream, batch.partition)
        if self._open.get(place) is not batch:
            return
        del self._open[place]
        batch.base_sequence = self._sequences.get(place, 0)
        self._sequences[place] = (batch.base_sequence + len(batch.records)) % _SEQUENCE_END
        self._sealed.append(batch)
        self._work.set()

    async def flush(self) -> None:
        """Wait until every record sent so far is durable or has failed."""
        for batch in list(self._open.values()):
            self._seal(batch)
        waiting = [future for batch in self._sealed for future in batch.futures]
        if waiting:
            await asyncio.wait(waiting)

    async def close(self) -> None:
        """Flush and stop."""
        await self.flush()
        self._is_closing = True
        self._work.set()
        await asyncio.gather(self._task, return_exceptions=True)

    # -- sending ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pauses = Pauses(self._settings, self._settings.delivery_timeout_s)
        while not self._is_closing:
            if not self._sealed:
                self._work.clear()
                await self._work.wait()
                continue
            channel = self._connections.channel()
            before = self._sealed[0]
            try:
                if self._producer is None:
                    self._producer = await self._connections.call(methods.INIT_PRODUCER, pb.InitProducerRequest())
                await self._one_call(channel)
                self._connections.move_on(channel)
                pauses.reset()
            except (grpc.aio.AioRpcError, CallFailed) as error:
                failure = error if isinstance(error, CallFailed) else call_failed(error)
                if not self._sealed or self._sealed[0] is not before:
                    pauses.reset()
                try:
                    await self._after(failure, channel, pauses)
                except CallFailed as final:
                    self._fail_all(final)
                    return

    async def _after(self, failure: CallFailed, channel: grpc.aio.Channel, pauses: Pauses) -> None:
        """Continue after a failed call, on the next server or without the rejected batch. Raises `CallFailed` if neither can help."""
        if failure.is_retriable:
            self._connections.move_on(channel)
            await pauses.wait(failure)
        elif failure.reason == UNKNOWN_PRODUCER and self._sealed:
            self._start_epoch(self._sealed[0])
        elif BATCH_INDEX in failure.metadata and self._sealed:
            self._drop(self._sealed.popleft(), failure)
        else:
            raise failure

    def _start_epoch(self, refused: _Batch) -> None:
        """Renumber the waiting batches of the rejected batch's partition from 0, in a new epoch. None of them was stored."""
        place = (refused.stream, refused.partition)
        self._epochs[place] = self._epochs.get(place, 0) + 1
        sequence = 0
        for batch in self._sealed:
            if (batch.stream, batch.partition) == place:
                batch.base_sequence = sequence
                sequence += len(batch.records)
        self._sequences[place] = sequence

    def _drop(self, batch: _Batch, failure: CallFailed) -> None:
        place = (batch.stream, batch.partition)
        count = len(batch.records)
        for other in self._sealed:
            if (other.stream, other.partition) == place:
                other.base_sequence = (other.base_sequence - count) % _SEQUENCE_END
        self._sequences[place] = (self._sequences[place] - count) % _SEQUENCE_END
        self._bytes -= batch.size_bytes
        self._less.set()
        batch.fail(failure)

    def _fail_all(self, failure: CallFailed) -> None:
        self._failure = failure
        for batch in (*self._sealed, *self._open.values()):
            batch.fail(failure)
        self._sealed.clear()
        self._open.clear()
        self._less.set()

    async def _one_call(self, channel: grpc.aio.Channel) -> None:
        """Run one ProduceStream call, until the server drains or this producer closes."""
        call = self._connections.open(channel, methods.PRODUCE_STREAM)
        self._sent_count = 0
        self._is_leaving = False
        writer = asyncio.create_task(self._write(call))
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                for base_offset in answer.base_offsets:
                    self._acknowledge(base_offset)
                if answer.HasField("drain"):
                    # Let the call finish: a cancel during a write would cancel the whole call.
                    self._is_leaving = True
                    self._work.set()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            call.cancel()

    async def _write(self, call: Any) -> None:  # grpc's calls are not typed by message
        assert self._producer is not None
        while True:
            while self._sent_count < len(self._sealed) and not self._is_leaving:
                batch = self._sealed[self._sent_count]
                self._sent_count += 1
                await call.write(self._message(batch, self._producer))
            if self._is_leaving or (self._is_closing and not self._sealed):
                await call.done_writing()
                return
            self._work.clear()
            await self._work.wait()

    def _message(self, batch: _Batch, producer: pb.InitProducerResponse) -> pb.ProduceStreamRequest:
        epoch = producer.producer_epoch + self._epochs.get((batch.stream, batch.partition), 0)
        return pb.ProduceStreamRequest(
            stream=batch.stream,
            partition=batch.partition,
            payload=pb.Payload(records=pb.Records(records=batch.records)),
            sequence=pb.ProducerSequence(
                producer_id=producer.producer_id,
                producer_epoch=epoch,
                base_sequence=batch.base_sequence,
            ),
        )

    def _acknowledge(self, base_offset: int) -> None:
        batch = self._sealed.popleft()
        self._sent_count -= 1
        self._bytes -= batch.size_bytes
        self._less.set()
        batch.done(base_offset)
