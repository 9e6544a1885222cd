"""The client for asyncio. Used from one event loop only."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

from bearlake.client.appender import Appender
from bearlake.client.connections import ClientSettings, Connections, Tls
from bearlake.client.consumer import AsyncConsumer, ConsumerOptions
from bearlake.client.producer import Sender
from bearlake.client.reader import Ends, read, read_arrow
from bearlake.client.records import ArrowRecords, Headers, Record, Start, StreamDescription, position, to_message
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.records.partitioning import partition_of


class AsyncClient:
    """`async with AsyncClient("localhost:50051") as client: …`. Every method raises `CallFailed`."""

    def __init__(self, *addresses: str, tls: Tls | None = None, settings: ClientSettings | None = None) -> None:
        """Addresses (`host:port`) of servers of one deployment; the next one is used when one fails."""
        self._connections = Connections(addresses, tls, settings or ClientSettings())
        self._appender = Appender(self._connections)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; producers are closed before."""
        await self._connections.close()

    async def create_stream(
        self, name: str, *, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> StreamDescription:
        """Create a stream (`CallFailed` with code ALREADY_EXISTS if there is one)."""
        request = pb.CreateStreamRequest(name=name, partition_count=partition_count, configs=dict(configs or {}))
        await self._connections.call(methods.CREATE_STREAM, request)
        return await self.describe_stream(name)

    async def describe_stream(self, name: str) -> StreamDescription:
        """A stream with the bounds of its partitions, as of now (`CallFailed` with code NOT_FOUND if there is none)."""
        found = await self._connections.call(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name=name))
        return StreamDescription(
            name=found.stream.name,
            partition_count=found.stream.partition_count,
            configs=dict(found.stream.configs),
            bounds=[(item.start_offset, item.end_offset) for item in found.partitions],
        )

    async def list_streams(self, prefix: str = "") -> list[str]:
        """Names of all streams that begin so, sorted."""
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
        """A producer, which is closed by its `async with` or `close`."""
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
        """Write records as one batch, all or none, once; returns the offset of the first when they are durable.

        With `expected_offset` only if that is where the partition ends: otherwise others have written, and `Refused` is raised, with reason
        UNEXPECTED_OFFSET and the `end` in its metadata. Appends to one partition come one after the other; a producer is faster.
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
        """`append` of columns: what `serialize()` of a pyarrow schema and record batch gives. `value` is needed; key, timestamp, headers
        may be there (see stream.proto)."""
        content = pb.ArrowRecords(schema=bytes(schema), record_batch=bytes(record_batch))
        request = pb.ProduceRequest(stream=stream, partition=partition, payload=pb.Payload(arrow=content))
        return await self._append(request, expected_offset)

    async def _append(self, request: pb.ProduceRequest, expected_offset: int | None) -> int:
        if expected_offset is not None:
            request.expected_offset = expected_offset
        return await self._appender.append(request)

    def consumer(self, group: str, *streams: str, options: ConsumerOptions | None = None) -> AsyncConsumer:
        """A member of a group that divides these streams among its members; it joins with its first poll."""
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
        """Records of a stream, ordered in each partition; `start` may be given by partition.

        Waits for new records at the end; with `follow=False` it ends at the records that are there now.
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
        """`read` by columns: many records at a time, at hardly a cost per record. The last ones may be newer than the call."""
        positions, ends = await self._places(name, start, partitions, follow=follow)
        async with aclosing(read_arrow(self._connections, positions, ends)) as found:
            async for piece in found:
                yield piece

    async def _places(
        self, name: str, start: Start | Mapping[int, Start], partitions: Sequence[int] | None, *, follow: bool
    ) -> tuple[list[pb.Position], Ends | None]:
        """Where to read, and where to end."""
        found = await self.describe_stream(name)
        chosen = list(range(found.partition_count) if partitions is None else partitions)
        starts = start if isinstance(start, Mapping) else dict.fromkeys(chosen, start)
        positions = [position(name, index, starts[index]) for index in chosen]
        if follow:
            return positions, None
        ends = {(name, index): found.bounds[index][1] for index in chosen}
        return [item for item in positions if _has_more(item, found.bounds[item.partition])], ends


def _has_more(item: pb.Position, bounds: tuple[int, int]) -> bool:
    start, end = bounds
    match item.WhichOneof("start"):
        case "latest":
            return False
        case "offset":
            return item.offset < end
        case _:
            return start < end


class AsyncProducer:
    """Writes records, each once. `async with client.producer() as producer: …` flushes at its end."""

    def __init__(self, connections: Connections, client: AsyncClient) -> None:
        """Use `AsyncClient.producer`."""
        self._sender = Sender(connections)
        self._client = client
        self._partition_counts: dict[str, int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}  # partition and bytes of records without keys
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
        """Take a record; the future gives its offset when it is durable. Waits while `buffer_bytes` are under way.

        Without a partition, the key chooses it as Kafka's clients do; records without a key go batch-wise to any. Without a time
        it is the server's time of arrival.
        """
        if partition is None:
            count = self._partition_counts.get(stream)
            if count is None:
                count = (await self._client.describe_stream(stream)).partition_count
                self._partition_counts[stream] = count
            partition = self._any(stream, count, len(value or b"")) if key is None else partition_of(key, count)
        return await self._sender.send(stream, partition, to_message(value, key, headers, timestamp_ms))

    async def send_and_wait(self, stream: str, value: bytes | None, *, key: bytes | None = None) -> int:
        """Write one record; returns its offset when it is durable."""
        return await (await self.send(stream, value, key=key))

    async def flush(self) -> None:
        """Wait until everything sent so far is durable or has failed (see the futures)."""
        await self._sender.flush()

    async def close(self) -> None:
        """Flush and end."""
        await self._sender.close()

    def _any(self, stream: str, count: int, size_bytes: int) -> int:
        partition, used = self._sticky.get(stream, (-1, self._batch_bytes))
        if used >= self._batch_bytes:
            partition, used = random.randrange(count), 0  # noqa: S311 - load, not secrets
        self._sticky[stream] = (partition, used + size_bytes)
        return partition
