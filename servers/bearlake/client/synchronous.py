"""The client for programs without asyncio: the same calls, run on an event loop in a background thread. Thread-safe."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from bearlake.client.asynchronous import AsyncClient, AsyncProducer
from bearlake.client.connections import ClientSettings, Tls
from bearlake.client.consumer import AsyncConsumer, ConsumerOptions
from bearlake.client.login import Login
from bearlake.client.records import ArrowRecords, Headers, Record, Start, StreamDescription

T = TypeVar("T")


class Client:
    """Blocking client: `with Client("localhost:50051") as client: …`. See `AsyncClient`; every method may raise `CallFailed`."""

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
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bearlake client", daemon=True)
        self._thread.start()
        self._client = self._run(_make(addresses, tls, login, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the background thread. Close all producers first."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def create_stream(
        self, name: str, *, partition_count: int = 1, configs: Mapping[str, str] | None = None
    ) -> StreamDescription:
        """Create a stream, as `AsyncClient.create_stream` does; returns when it exists."""
        return self._run(self._client.create_stream(name, partition_count=partition_count, configs=configs))

    def describe_stream(self, name: str) -> StreamDescription:
        """Describe a stream, as `AsyncClient.describe_stream` does."""
        return self._run(self._client.describe_stream(name))

    def list_streams(self, prefix: str = "") -> list[str]:
        """List stream names, as `AsyncClient.list_streams` does."""
        return self._run(self._client.list_streams(prefix))

    def delete_stream(self, name: str) -> None:
        """Delete a stream, as `AsyncClient.delete_stream` does; returns when it is gone."""
        self._run(self._client.delete_stream(name))

    def producer(self) -> "Producer":
        """Return a new producer. End it with `with` or `close`."""

        async def make() -> AsyncProducer:
            return self._client.producer()

        return Producer(self._loop, self._run(make()))

    def append(
        self,
        stream: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
        expected_offset: int | None = None,
    ) -> int:
        """Append records, as `AsyncClient.append` does; returns when they are stored."""
        return self._run(
            self._client.append(
                stream, values, partition=partition, key=key, headers=headers, expected_offset=expected_offset
            )
        )

    def append_arrow(
        self,
        stream: str,
        schema: bytes,
        record_batch: bytes,
        *,
        partition: int = 0,
        expected_offset: int | None = None,
    ) -> int:
        """Append Arrow records, as `AsyncClient.append_arrow` does; returns when they are stored."""
        return self._run(
            self._client.append_arrow(
                stream, schema, record_batch, partition=partition, expected_offset=expected_offset
            )
        )

    def consumer(self, group: str, *streams: str, options: ConsumerOptions | None = None) -> "Consumer":
        """Return a consumer of a group, as `AsyncClient.consumer` does."""

        async def make() -> AsyncConsumer:
            return self._client.consumer(group, *streams, options=options)

        return Consumer(self._loop, self._run(make()))

    def read(
        self,
        name: str,
        *,
        start: Start | Mapping[int, Start] = "earliest",
        partitions: Sequence[int] | None = None,
        follow: bool = True,
    ) -> Iterator[Record]:
        """Read records in order within each partition, as `AsyncClient.read` does."""
        return self._iterate(self._client.read(name, start=start, partitions=partitions, follow=follow))

    def read_arrow(
        self,
        name: str,
        *,
        start: Start | Mapping[int, Start] = "earliest",
        partitions: Sequence[int] | None = None,
        follow: bool = True,
    ) -> Iterator[ArrowRecords]:
        """Read Arrow records in order within each partition, as `AsyncClient.read_arrow` does."""
        return self._iterate(self._client.read_arrow(name, start=start, partitions=partitions, follow=follow))

    def _iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        async def following() -> T | None:
            return await anext(items, None)

        async def close() -> None:
            await items.aclose()

        try:
            while (item := self._run(following())) is not None:
                yield item
        finally:
            if not self._loop.is_closed():
                self._run(close())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return _run(self._loop, work)


class Producer:
    """Writes each record exactly once. `with client.producer() as producer: …` flushes on exit. See `AsyncProducer`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, producer: AsyncProducer) -> None:
        """Do not call directly; use `Client.producer`."""
        self._loop = loop
        self._producer = producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        stream: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Future[int]:
        """Buffer a record, as `AsyncProducer.send` does; the future gives its offset once it is durable."""
        result: Future[int] = Future()

        async def take() -> None:
            future = await self._producer.send(
                stream, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
            )
            future.add_done_callback(lambda done: _copy(done, result))

        _run(self._loop, take())
        return result

    def send_and_wait(self, stream: str, value: bytes | None, *, key: bytes | None = None) -> int:
        """Write one record; return its offset once the record is durable."""
        return self.send(stream, value, key=key).result()

    def flush(self) -> None:
        """Wait until every record sent so far is durable or has failed; the futures report which."""
        _run(self._loop, self._producer.flush())

    def close(self) -> None:
        """Flush and stop the producer."""
        _run(self._loop, self._producer.close())


class Consumer:
    """`with client.consumer("group", "stream") as consumer: for record in consumer: …`. See `AsyncConsumer`.

    Use from one thread at a time: iteration takes buffered records directly from the asyncio consumer, without a call to the
    event loop. This is safe because the loop touches the consumer only during a call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, consumer: AsyncConsumer) -> None:
        """Do not call directly; use `Client.consumer`."""
        self._loop = loop
        self._consumer = consumer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=error is None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while (record := self._consumer.take()) is None:
            self._run(self._consumer.more(None))
        return record

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """Return the (stream, partition) pairs assigned to this member; empty before the first poll."""
        return self._consumer.assignment

    def position(self, stream: str, partition: int) -> int | None:
        """Return the next offset that the consumer will return, or None if unknown."""
        return self._consumer.position(stream, partition)

    def poll(self, timeout_s: float | None = None, records_max: int = 500) -> list[Record]:
        """Return the next records, as `AsyncConsumer.poll` does."""
        return self._run(self._consumer.poll(timeout_s, records_max))

    def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commit offsets, as `AsyncConsumer.commit` does; returns when they are stored."""
        self._run(self._consumer.commit(offsets))

    def seek(self, stream: str, partition: int, start: Start) -> None:
        """Move the position of a partition, as `AsyncConsumer.seek` does."""
        self._run(self._consumer.seek(stream, partition, start))

    def close(self, *, commit: bool = True) -> None:
        """Leave the group, as `AsyncConsumer.close` does."""
        self._run(self._consumer.close(commit=commit))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return _run(self._loop, work)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the loop and return its result; an interrupt of the wait (Ctrl-C) cancels `work`."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _make(
    addresses: Sequence[str], tls: Tls | None, login: Login | None, settings: ClientSettings | None
) -> AsyncClient:
    return AsyncClient(*addresses, tls=tls, login=login, settings=settings)


def _copy(done: asyncio.Future[int], result: Future[int]) -> None:
    error = done.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(done.result())
