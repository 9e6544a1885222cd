"""Fetch requests that memory can answer, such as those at the end of the log: one step of the event loop answers a request, or wakes it
and answers it.

Such a request is decoded and encoded by the kernel, and needs neither a task nor an object per batch. `fetch.py` handles all other
requests, and those that turn out to need the store, an error code or a quota.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from bearlake import kernel
from bearlake.kernel import FetchEntry
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.context import EPOCH_MAX, Caller, KafkaContext
from bearlake.protocols.kafka.handlers.fetch import READ_COMMITTED, room
from bearlake.protocols.kafka.large_requests import LARGE_BYTES
from bearlake.protocols.kafka.slot import Place, Slot
from bearlake.streams.fetched import Fetched, FetchRange, has_enough
from bearlake.streams.principal import Operation
from bearlake.streams.tail_reads import Poll
from bearlake.telemetry import metrics

PARTITIONS_MAX = 100
"""Partitions of a request that is answered in one step, which takes 0.5 ms then."""


_ISOLATION_AT = (16, 12)
"""Position of the isolation level in a request's body, with and without a replica id."""
_WITHOUT_REPLICA_FROM = 15


class Fetcher(Protocol):
    """The connection that sent the request."""

    @property
    def context(self) -> KafkaContext:
        """State that the server's connections share."""

    def answer(self, place: Place, chunks: Sequence[codec.Buffer]) -> None:
        """Complete a place."""

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run the work of a request."""

    def failed(self, error: BaseException) -> None:
        """Close the connection because of a bug."""


class TailFetch:
    """One Fetch request in progress."""

    __slots__ = ("_caller", "_connection", "_correlation_id", "_entries", "_names", "_poll", "_slot", "_work")

    def __init__(
        self,
        connection: Fetcher,
        slot: Slot,
        caller: Caller,
        correlation_id: int,
        work: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        """`work` decodes and answers a request that needs `fetch.py`."""
        self._connection = connection
        self._slot = slot
        self._caller = caller
        self._correlation_id = correlation_id
        self._work = work
        self._entries: list[FetchEntry] = []
        self._names: list[str] = []
        self._poll: Poll | None = None

    def begin(self, body: bytes) -> None:
        """Answer the request now, or when there are records, or when it has waited long enough."""
        streams = self._connection.context.streams
        parsed = None if len(body) > LARGE_BYTES else kernel.parse_fetch(body, self._caller.version, PARTITIONS_MAX)
        if parsed is None:
            self._connection.start(self._work())
            return
        wait_ms, bytes_min, bytes_max, self._entries = parsed
        is_committed = body[_ISOLATION_AT[self._caller.version >= _WITHOUT_REPLICA_FROM]] == READ_COMMITTED
        ranges = self._ranges()
        if ranges is None or not self._is_plain():
            self._connection.start(self._work())
            return
        bytes_max = min(bytes_max, room(self._connection.context))
        bytes_min = streams.at_tail.bytes_min(bytes_min, bytes_max)
        is_immediate = wait_ms <= 0 or bytes_min <= 0
        if is_immediate and streams.own_writes.are_hidden:
            self._connection.start(self._work())
            return
        results = streams.at_tail.read(ranges, bytes_max, bytes_min=bytes_min, is_committed=is_committed)
        if results is None or is_immediate or has_enough(results, bytes_min):
            self._done(results)
            return
        self._poll = Poll(
            streams.at_tail,
            ranges,
            bytes_min=bytes_min,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            done=self._woken,
            failed=self._connection.failed,
            found_bytes=sum(result.size_bytes for result in results),
            is_committed=is_committed,
        )

    def cancel(self) -> None:
        """The client has gone: wait no longer."""
        if self._poll is not None:
            self._poll.cancel()

    def _ranges(self) -> list[FetchRange] | None:
        """The partitions to read; None if one has an error or is repeated."""
        catalog = self._connection.context.streams.catalog
        ranges: list[FetchRange] = []
        last, view = None, None
        for topic, index, epoch, offset, bytes_max in self._entries:
            if topic is not last:
                view = catalog.peek(topic) if isinstance(topic, str) else catalog.peek_id(topic)
                if view is None:
                    return None
                last = topic
                self._names.append(view.name)
            assert view is not None
            if not 0 <= index < view.partition_count or epoch > EPOCH_MAX:
                return None
            ranges.append(FetchRange(PartitionKey(view.first_key | index), offset, bytes_max))
        is_repeated = len(ranges) > 1 and len({item.partition for item in ranges}) < len(ranges)
        return None if is_repeated else ranges

    def _is_plain(self) -> bool:
        """Whether the caller may still read the streams, here, without a quota; `fetch.py` notes a denial in the audit log."""
        context, who = self._connection.context, self._caller.who
        streams = context.streams
        if context.is_redirecting or streams.quotas.usage is not None:
            return False
        for name in self._names:  # noqa: SIM110 - a generator costs as much as the question
            if not streams.sees(who, Operation.READ, name):
                return False
        return True

    def _woken(self, results: list[Fetched] | None) -> None:
        """Called by the poll. If the request needs `fetch.py` by now, it may wait once more."""
        self._poll = None
        self._done(results if self._is_plain() else None)

    def _done(self, results: list[Fetched] | None) -> None:
        if results is None:
            self._connection.start(self._work())
            return
        for result in results:
            metrics.FETCH_BYTES.value += result.size_bytes
        answers = [(result.start, result.end, result.last_stable, result.views) for result in results]
        frame = kernel.encode_fetch(self._caller.version, self._correlation_id, self._entries, answers)
        self._connection.answer(self._slot, frame)
