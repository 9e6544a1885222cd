"""The asyncio client. Use each client from a single event loop."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

from bearlake.client.appender import Appender
from bearlake.client.connections import ClientSettings, Connections, Tls
from bearlake.client.consumer import AsyncConsumer, ConsumerOptions
from bearlake.client.login import Login
from bearlake.client.producer import Sender
from bearlake.client.reader import Ends, read, read_arrow
from bearlake.client.records import ArrowRecords, Headers, Record, Start, StreamDescription, position, to_message
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records.partitioning import partition_of


class AsyncClient:
    """Client for asyncio: `async with AsyncClient("localhost:50051") as client: …`. Every method may raise `CallFailed`."""

    def __init__(
        self,
        *addresses: str,
        tls: Tls | None = None,
        login: Login | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        """`addresses` (`host:port`) name servers of one deployment; when a server fails, the client moves to the next address.

        Raises `ValueError` for a login that would travel to another machine without TLS.
        """
        self._connections = Connections(addresses, tls, login, settings or ClientSettings())
        self._appender = Appender(self._connections)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Close all producers first."""
        await self._connections.close()

    async def create_stream(
        self, name: str, *, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> StreamDescription:
        """Create a stream and return its description. Raises `AlreadyExists` if the name is taken."""
        request = pb.CreateStreamRequest(name=name, partition_count=partition_count, configs=dict(configs or {}))
        await self._connections.call(methods.CREATE_STREAM, request)
        return await self.describe_stream(name)

    async def describe_stream(self, name: str) -> StreamDescription:
        """Return a stream's description with the current bounds of its partitions. Raises `NotFound` if there is no such stream."""
        found = await self._connections.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name=name))
        return StreamDescription(
            name=found.stream.name,
            partition_count=found.stream.partition_count,
            configs=dict(found.stream.configs),
            bounds=[(item.start_offset, item.end_offset) for item in found.partitions],
            readable_ends=[
                item.stable_end_offset if item.HasField("stable_end_offset") else item.end_offset
                for item in found.partitions
            ],
        )

    async def list_streams(self, prefix: str = "") -> list[str]:
        """Return the names of all streams that start with `prefix`, sorted."""
        names: list[str] = []
        token = ""
        while True:
            request = pb.ListStreamsRequest(prefix=prefix, page_token=token)
            page = await self._connections.call(methods.LIST_STREAMS, request)
            names += [stream.name for stream in page.streams]
            token = page.next_page_token
            if not token:
                return names

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and its records."""
        await self._connections.call(methods.DELETE_STREAM, pb.DeleteStreamRequest(name=name))

    def producer(self) -> "AsyncProducer":
        """Return a new producer. End it with `async with` or `close`."""
        return AsyncProducer(self._connections, self)

    async def append(
        self,
        stream: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
        expected_offset: int | None = None,
    ) -> int:
        """Append `values` as one atomic batch, exactly once; return the offset of the first record once the batch is durable.

        With `expected_offset`, append only if the partition ends at that offset. If another writer has appended in the meantime, raise
        `Refused` with reason UNEXPECTED_OFFSET and the current `end` in `metadata`. Appends to one partition run one at a time; use a
        producer for higher throughput.
        """
        records = pb.Records(records=[to_message(value, key, headers, None) for value in values])
        request = pb.ProduceRequest(stream=stream, partition=partition, payload=pb.Payload(records=records))
        return await self._append(request, expected_offset)

    async def append_arrow(
        self,
        stream: str,
        schema: bytes,
        record_batch: bytes,
        *,
        partition: int = 0,
        expected_offset: int | None = None,
    ) -> int:
        """Append columns, as `append` does. `schema` and `record_batch` are the results of pyarrow's `serialize()`.

        The column `value` is required; key, timestamp and headers are optional (see stream.proto).
        """
        content = pb.ArrowRecords(schema=bytes(schema), record_batch=bytes(record_batch))
        request = pb.ProduceRequest(stream=stream, partition=partition, payload=pb.Payload(arrow=content))
        return await self._append(request, expected_offset)

    async def _append(self, request: pb.ProduceRequest, expected_offset: int | None) -> int:
        if expected_offset is not None:
            request.expected_offset = expected_offset
        return await self._appender.append(request)

    def consumer(self, group: str, *streams: str, options: ConsumerOptions | None = None) -> AsyncConsumer:
        """Return a consumer in `group`, which divides `streams` among its members. The consumer joins the group on its first poll."""
        if not streams:
            raise ValueError("expected at least one stream")
        return AsyncConsumer(self._connections, group, streams, options or ConsumerOptions())

    async def read(
        self,
        name: str,
        *,
        start: Start | Mapping[int, Start] = "earliest",
        partitions: Sequence[int] | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[Record, None]:
        """Yield the records of a stream, in order within each partition. `start` may be a mapping from partition to start.

        At the end of a partition, wait for new records; with `follow=False`, stop at the readable ends seen when reading began.
        """
        positions, ends = await self._places(name, start, partitions, follow=follow)
        async with aclosing(read(self._connections, positions, ends)) as found:
            async for record in found:
                yield record

    async def read_arrow(
        self,
        name: str,
        *,
        start: Start | Mapping[int, Start] = "earliest",
        partitions: Sequence[int] | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[ArrowRecords, None]:
        """Read as `read` does, but yield batches of columns, which cost far less per record.

        With `follow=False`, the last batches may include records newer than the call.
        """
        positions, ends = await self._places(name, start, partitions, follow=follow)
        async with aclosing(read_arrow(self._connections, positions, ends)) as found:
            async for piece in found:
                yield piece

    async def _places(
        self, name: str, start: Start | Mapping[int, Start], partitions: Sequence[int] | None, *, follow: bool
    ) -> tuple[list[pb.Position], Ends | None]:
        """Return the positions to start at and, unless following, the offsets to end at."""
        found = await self.describe_stream(name)
        chosen = list(range(found.partition_count) if partitions is None else partitions)
        starts = start if isinstance(start, Mapping) else dict.fromkeys(chosen, start)
        positions = [position(name, index, starts[index]) for index in chosen]
        if follow:
            return positions, None
        ends = {(name, index): found.readable_ends[index] for index in chosen}
        return [item for item in positions if _has_more(item, found)], ends


def _has_more(item: pb.Position, found: StreamDescription) -> bool:
    start, end = found.bounds[item.partition][0], found.readable_ends[item.partition]
    match item.WhichOneof("start"):
        case "latest":
            return False
        case "offset":
            return item.offset < end
        case _:
            return start < end


class AsyncProducer:
    """Writes each record exactly once. `async with client.producer() as producer: …` flushes on exit."""

    def __init__(self, connections: Connections, client: AsyncClient) -> None:
        """Do not call directly; use `AsyncClient.producer`."""
        self._sender = Sender(connections)
        self._client = client
        self._partition_counts: dict[str, int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}  # current partition for records without keys, and its byte count
        self._batch_bytes = connections.settings.batch_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        stream: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[int]:
        """Buffer a record and return a future of its offset, which resolves once the record is durable.

        Waits while `buffer_bytes` are unacknowledged. Without `partition`, the key selects the partition with Kafka's default
        partitioner; records without a key go to a random partition, a batch at a time. Without `timestamp_ms`, the server uses
        the time of arrival.
        """
        if partition is None:
            count = self._partition_counts.get(stream)
            if count is None:
                count = (await self._client.describe_stream(stream)).partition_count
                self._partition_counts[stream] = count
            partition = self._any(stream, count, len(value or b"")) if key is None else partition_of(key, count)
        return await self._sender.send(stream, partition, to_message(value, key, headers, timestamp_ms))

    async def send_and_wait(self, stream: str, value: bytes | None, *, key: bytes | None = None) -> int:
        """Write one record; return its offset once the record is durable."""
        return await (await self.send(stream, value, key=key))

    async def flush(self) -> None:
        """Wait until every record sent so far is durable or has failed; the futures report which."""
        await self._sender.flush()

    async def close(self) -> None:
        """Flush and stop the producer."""
        await self._sender.close()

    def _any(self, stream: str, count: int, size_bytes: int) -> int:
        partition, used = self._sticky.get(stream, (-1, self._batch_bytes))
        if used >= self._batch_bytes:
            partition, used = random.randrange(count), 0  # noqa: S311 - load, not secrets
        self._sticky[stream] = (partition, used + size_bytes)
        return partition
