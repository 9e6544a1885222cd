"""Writes records: builds batches from a request's records, submits them after admission, and reports the outcome of each record.

The records of one request for one partition form one batch, or several if they exceed the stream's limit; their order is kept.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from bearlake import kernel
from bearlake.errors import (
    BearlakeError,
    Conflict,
    Denied,
    Fenced,
    Invalid,
    NotFound,
    TooLarge,
    Unavailable,
)
from bearlake.metadata.quotas import QuotaKey
from bearlake.records import codec as record_codec
from bearlake.records import partitioning
from bearlake.records.codec import Record
from bearlake.streams.admission import Header, admit
from bearlake.streams.append import Append, Result, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import BadRecord, Checked
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.reservations import Reservation
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE_RECORD_COUNT = 1_000
"""Records that are handled on the event loop: about 10 ms."""
_RECORD_OVERHEAD_BYTES = 40
"""Upper bound for the lengths, deltas and attributes of one record."""
_BATCH_OVERHEAD_BYTES = 64


class Written(NamedTuple):
    """The outcome of one record: its offset, or an error (offset -1)."""

    partition: int
    offset: int
    error: BearlakeError | None


class _Prepared(NamedTuple):
    """Encoded records: the appends, each with its partition and the places of its records, and results of refused records."""

    appends: list[Append]
    members: list[tuple[int, Sequence[int]]]
    results: list[Written | None]

    def completed(self, outcomes: Sequence[Result]) -> list[Written]:
        """Return the results of all records, given those of the appends."""
        for (partition, chunk), (verdict, base_offset, _) in zip(self.members, outcomes, strict=True):
            error = error_of(verdict)
            for delta, at in enumerate(chunk):
                self.results[at] = Written(partition, -1 if error else base_offset + delta, error)
        done = [result for result in self.results if result is not None]
        assert len(done) == len(self.results)
        return done


class Writing:
    """Appends records for the handlers of one server."""

    def __init__(self, streams: Streams, wait_ms: int, random_source: random.Random | None = None) -> None:
        """`wait_ms` is the longest wait for room in the write path."""
        self._streams = streams
        self._wait_ms = wait_ms
        self._random = random_source or random.SystemRandom()

    def choose(self, view: StreamView, key: bytes | None) -> int | None:
        """Return the partition for a key, or None for a record without a key."""
        return None if key is None else partitioning.partition_of(key, view.partition_count)

    def any_partition(self, view: StreamView) -> int:
        """Choose the partition for all records without a key in one request, so that they form one batch."""
        return self._random.randrange(view.partition_count)

    @property
    def seen(self) -> int:
        """The newest log position known to this server. Read it before the first await of a request."""
        return self._streams.seen.position

    def advance(self, position: int) -> None:
        """Note that the log has reached `position`; requests from now on have at least that position."""
        self._streams.seen.advance(position)

    def now_ms(self) -> int:
        """Return the timestamp for records without one."""
        return self._streams.clock.now_ms()

    async def room(self, who: Principal) -> Reservation:
        """Wait until the write path accepts more; call before reading a body. Raises `Throttled`, `Overloaded`.

        The reservation counts the body, until the request is answered.
        """
        self._streams.quotas.require(who, QuotaKey.PRODUCER_BYTE_RATE)
        return await self._streams.room(who, self._wait_ms)

    def check_quota(self, who: Principal) -> None:
        """Call after reading a body: other requests may have used the client's quota meanwhile. Raises `Throttled`."""
        self._streams.quotas.require(who, QuotaKey.PRODUCER_BYTE_RATE)

    async def next_room(self, who: Principal, room: Reservation, size_bytes: int) -> None:
        """As `room`, for the next piece of a body whose answer has begun: wait until the client may send more. Raises `Overloaded`.

        `size_bytes`: what the request holds with this piece.
        """
        await self._streams.quotas.pace(who, QuotaKey.PRODUCER_BYTE_RATE)
        await room.next_turn()
        await room.hold(size_bytes)

    def require(self, who: Principal, name: str) -> None:
        """Raise `Denied` unless `who` may write to the stream `name`, which need not exist."""
        if not self._streams.may(who, Operation.WRITE, name):
            raise Denied(f"{who} may not write to {name[:249]!r}")

    async def write(
        self,
        who: Principal,
        view: StreamView,
        placed: Sequence[tuple[int, Record]],
        *,
        is_all: bool = False,
        is_whole: bool = False,
    ) -> list[Written]:
        """Append records, each with its partition; return one result per record, in order. Records without an error are durable.

        `is_all`: nothing of the request was done before, so it can be refused if other requests have used up the client's quota.
        `is_whole`: if a record does not have the schema that the stream requires, no record is stored.

        Raises:
            Invalid: with `is_whole`; nothing was stored.
            Throttled: with `is_all`; nothing was stored.
            Denied: `who` may not write to the stream.
            Unavailable: the schema registry, by which the records must be validated, did not answer in time; nothing was stored.
        """
        self.require(who, view.name)
        refused = await self._refused(view, [record for _, record in placed])
        if refused and is_whole:
            raise _bad(refused)
        prepared = await self.worked(len(placed), _prepared, view, placed, refused, self.now_ms())
        if is_all:
            self.check_quota(who)
        self._charge(who, prepared.appends)
        outcomes = await self._streams.append(prepared.appends, self.seen)  # without a producer, `seen` has no effect
        done = await self.worked(len(placed), prepared.completed, outcomes)
        metrics.REST_RECORDS.labels("in").inc(len(done))
        return done

    async def write_once(
        self,
        who: Principal,
        view: StreamView,
        partition: int,
        records: Sequence[Record],
        sign: Callable[[Append], Append],
        seen: int,
    ) -> Result:
        """Append records as one batch and return its outcome. `sign` adds the batch's producer and condition.

        `seen` is a log position that this server knew before it received the records (`AppendCall`).

        Raises:
            Denied: `who` may not write to the stream.
            TooLarge: the records exceed the stream's batch limit.
            Invalid: the records cannot be encoded, or the stream does not accept one of them.
            Unavailable: the schema registry, by which the records must be validated, did not answer in time.
        """
        self.require(who, view.name)
        if refused := await self._refused(view, records):
            raise _bad(refused)
        admitted = await self.worked(len(records), _admitted, view, partition, records, self.now_ms())
        if not isinstance(admitted, Append):
            raise admitted
        self._charge(who, [admitted])
        (result,) = await self._streams.append([sign(admitted)], seen)
        metrics.REST_RECORDS.labels("in").inc(len(records))
        return result

    async def _refused(self, view: StreamView, records: Sequence[Record]) -> Mapping[int, str]:
        """Validate records by their schemas, if the stream asks for it; returns what is wrong with which, by index.

        Raises `Invalid`, `Unavailable`, `Overloaded`.
        """
        schemas = view.rules.schemas
        if schemas is None:
            return {}
        keys, values = [record.key for record in records], [record.value for record in records]
        return await self._streams.checks.problems(schemas, keys, values)

    async def worked(self, count: int, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Do work on this many records, in a thread if they are many; it must not use the event loop. Raises what `work` raises."""
        if count <= AT_ONCE_RECORD_COUNT:
            return work(*arguments, **options)
        return await self._streams.checks.off_loop(work, *arguments, **options)

    def _charge(self, who: Principal, appends: Sequence[Append]) -> None:
        self._streams.quotas.charge(who, QuotaKey.PRODUCER_BYTE_RATE, sum(len(append.batch) for append in appends))


def _bad(refused: Mapping[int, str]) -> BadRecord:
    """Return the error for records of which some do not have their schema."""
    index, reason = next(iter(refused.items()))
    return BadRecord([*refused], f"record {index}: {reason}", [*refused.values()])


def error_of(verdict: int) -> BearlakeError | None:
    """Return the error for a verdict of the stream layer, if any."""
    if verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE):
        return None
    made = _ERRORS.get(verdict)
    return made() if made else Unavailable("the stores did not answer in time; the records may or may not be stored")


_ERRORS: dict[int, Callable[[], BearlakeError]] = {
    Verdict.NOT_FOUND: lambda: NotFound("the stream was deleted"),
    Verdict.FENCED: lambda: Fenced("a newer epoch of this producer exists"),
    Verdict.TERMINATED: lambda: Conflict("the stream is terminated and accepts no more records"),
    Verdict.OUT_OF_ORDER: lambda: Conflict("a record before this one is missing"),
    Verdict.UNKNOWN_PRODUCER: lambda: Conflict("the producer has expired: it must start a new epoch"),
    Verdict.NOT_STORED: lambda: Unavailable("the object store did not store the records; nothing was stored"),
    Verdict.SERVER_FENCED: lambda: Unavailable("this server is stopping; nothing was stored: retry at another server"),
}


def _prepared(
    view: StreamView, placed: Sequence[tuple[int, Record]], refused: Mapping[int, str], now_ms: int
) -> _Prepared:
    """Encode records, each with its partition, without the `refused` ones."""
    by_partition: dict[int, list[int]] = {}
    prepared = _Prepared([], [], [None] * len(placed))
    for at, (partition, _) in enumerate(placed):
        if at in refused:
            prepared.results[at] = Written(partition, -1, BadRecord([at], refused[at]))
        else:
            by_partition.setdefault(partition, []).append(at)
    for partition, places in by_partition.items():
        for chunk in _chunks(places, placed, view.rules.batch_bytes_max):
            admitted = _admitted(view, partition, [placed[at][1] for at in chunk], now_ms)
            if isinstance(admitted, Append):
                prepared.appends.append(admitted)
                prepared.members.append((partition, chunk))
            else:
                for at in chunk:
                    prepared.results[at] = Written(partition, -1, admitted)
    return prepared


def _chunks(places: Sequence[int], placed: Sequence[tuple[int, Record]], bytes_max: int) -> list[Sequence[int]]:
    """Split a partition's records where a batch would exceed the stream's limit."""
    chunks: list[Sequence[int]] = []
    start, size = 0, _BATCH_OVERHEAD_BYTES
    for position, at in enumerate(places):
        record = _size(placed[at][1])
        if position > start and (size + record > bytes_max or position - start == kernel.RECORDS_MAX):
            chunks.append(places[start:position])
            start, size = position, _BATCH_OVERHEAD_BYTES
        size += record
    chunks.append(places[start:])
    return chunks


def _size(record: Record) -> int:
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(10 + 3 * len(name) + len(value or b"") for name, value in record.headers)


def _admitted(view: StreamView, partition: int, records: Sequence[Record], now_ms: int) -> Append | BearlakeError:
    """Encode records that have been validated by their schemas."""
    try:
        batch = record_codec.encode(records)
    except (Invalid, TooLarge) as error:
        return error
    header = kernel.inspect(batch, 0, len(batch))
    assert not isinstance(header, int), header
    fields = Header(
        header.attributes,
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
    return admit(view, partition, batch, None, fields, now_ms, Checked.SCHEMAS)
