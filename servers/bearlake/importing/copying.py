"""Copies the partitions of topics: reads at the offset at which the target ends, and appends there.

    copy = Copy(cluster, target, topics, settings)
    await copy.run(follow=False)            # until the last stable offsets that the source had at the start
    copy.partitions                         # how far each one is, meanwhile

An import has no state of its own: it goes on where the target ends (decision 225). So it may be killed at any time, and started again
anywhere. It reads committed records only, so an open transaction of the source holds its partition up until the transaction ends.

Partitions of one leader are spread over lanes. A lane has one connection, and fetches while its previous response is being appended.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bearlake.errors import BearlakeError, Conflict, Overloaded, Unavailable
from bearlake.importing.batches import Aborted, Piece, Pieces, gap
from bearlake.importing.cluster import READ_COMMITTED, SourceCluster, SourceTopic, check
from bearlake.importing.source import Connection
from bearlake.importing.target import Target
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.catalog import StreamView

log = logging.getLogger(__name__)

_WITH_TOPIC_IDS = 13
_FETCH_NEWEST = 16
"""Of the versions after it, none has anything for a consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How fast an import reads, and how it behaves if something does not answer."""

    lane_count: int = 2
    """Connections to each broker. Each holds up to two responses in memory."""
    bytes_per_s: int = 0
    """Most bytes per second that are read from the source; 0: no limit."""
    attempt_count_max: int = 10
    """Failures in a row without a copied batch, after which the import ends. An import that follows tries on without end."""
    pause_ms: int = 1_000
    """Pause (ms) after such a failure."""
    refresh_ms: int = 60_000
    """Time (ms) after which an import that follows asks for new partitions and new leaders."""


@dataclass(slots=True, kw_only=True)
class PartitionCopy:
    """One partition: how far the copy is. Offsets."""

    topic: SourceTopic
    view: StreamView
    index: int
    end: int
    """End of the target: everything below it is durable."""
    next: int
    """End of what was read and handed to the target."""
    source_start: int
    source_stable: int
    """The source's last stable offset, as of the newest response."""
    stop: int | None
    """Where the copy ends; None: nowhere."""
    start: int = 0
    """Start of the target."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        return self.stop is not None and self.next >= self.stop

    @property
    def lag(self) -> int:
        """Offsets that the source has and the target does not, as of the newest response."""
        return max(0, self.source_stable - self.end)


@dataclass(slots=True)
class Copied:
    """What this run has copied."""

    bytes: int = 0
    batches: int = 0
    """Batches, those in place of offsets without records not counted."""


@dataclass(slots=True)
class _Read:
    """One response, in the form in which it is appended."""

    batches: list[tuple[StreamView, int, Piece]] = field(default_factory=list)
    touched: dict[int, PartitionCopy] = field(default_factory=dict)
    """By `id` of the partition's copy."""
    size: int = 0


class Copy:
    """The copy of some topics. Use it from the event loop's thread only; run it once at a time."""

    def __init__(
        self,
        cluster: SourceCluster,
        target: Target,
        topics: Sequence[str],
        configs: Mapping[str, Mapping[str, str]],
        settings: CopySettings | None = None,
        after_pass: Callable[[Sequence[PartitionCopy]], Awaitable[None]] | None = None,
    ) -> None:
        """`topics`: names, without patterns. `configs`: those of new streams, by topic.

        `after_pass` is called at the end, and while following every `refresh_ms`, when no batch is under way.
        """
        self._after_pass = after_pass
        self._cluster = cluster
        self._target = target
        self._names = topics
        self._configs = configs
        self._settings = settings or CopySettings()
        self._free_at = 0.0
        self._known: set[str] = set()
        """Topics whose streams this copy has seen: if one is deleted now, it stays deleted."""
        self.partitions: list[PartitionCopy] = []
        """All partitions, by topic and index."""
        self.copied = Copied()

    async def run(self, *, follow: bool) -> None:
        """Copy until the last stable offsets that the source has now; with `follow`, until cancelled.

        Raises:
            Conflict: a stream was promoted, or is not this import's; or the source has lost records that were copied.
            NotFound: a topic or a stream was deleted.
            Corrupt, Unsupported: the source's bytes cannot be copied.
            Denied: the source does not let this client read.
            Fenced: a newer import of the same name has begun.
            Unavailable: the source or a store did not answer, for `attempt_count_max` times in a row (never with `follow`).
        """
        stops: dict[tuple[str, int], int] | None = None
        failure_count = 0
        while True:
            before = self.copied.batches
            try:
                stops = await self._open(follow=follow, stops=stops)
                await self._pass(follow=follow)
                if self._after_pass is not None:
                    await self._after_pass(self.partitions)
            except (BearlakeError, ExceptionGroup) as error:
                first = _retriable(error)
                failure_count = 1 if self.copied.batches > before else failure_count + 1
                if failure_count >= self._settings.attempt_count_max and not follow:
                    raise Unavailable(f"gave up after {failure_count} failures in a row: {first}") from error
                log.warning("import interrupted; trying again", extra={"error": str(first)})
                await asyncio.sleep(self._settings.pause_ms / 1000)
            else:
                failure_count = 0
                if not follow:
                    return

    async def _open(self, *, follow: bool, stops: Mapping[tuple[str, int], int] | None) -> dict[tuple[str, int], int]:
        """Read leaders and bounds; make streams that are missing. Returns where the copy ends (empty with `follow`)."""
        patterns = [re.escape(name) for name in self._names]
        by_name = {topic.name: topic for topic in await self._cluster.topics(patterns)}
        found: list[PartitionCopy] = []
        for name in self._names:
            topic = by_name.get(name)
            if topic is None:
                raise Unavailable(f"the source has no topic {name!r} now")
            may_create = name not in self._known
            view = await self._target.ensure(topic, self._configs.get(name, {}), may_create=may_create)
            self._known.add(name)
            here, there = await self._target.bounds(view), await self._cluster.bounds(topic)
            for index, bounds in enumerate(there):
                end = here[index].end
                if end > bounds.stable:
                    what = f"topic {name!r}, partition {index}"
                    raise Conflict(
                        f"{what}: the source ends at {bounds.stable}, before offset {end} up to which it was copied"
                    )
                stop = None if follow else (stops or {}).get((name, index), bounds.stable)
                found.append(
                    PartitionCopy(
                        topic=topic, view=view, index=index, end=end, next=end, start=here[index].start,
                        source_start=bounds.start, source_stable=bounds.stable, stop=stop,
                    )
                )  # fmt: skip
        self.partitions = found
        return {(copy.topic.name, copy.index): copy.stop for copy in found if copy.stop is not None}

    async def _pass(self, *, follow: bool) -> None:
        """Copy until every partition is done; with `follow`, for `refresh_ms`. Raises a group of errors."""
        lanes: dict[tuple[str, int], list[PartitionCopy]] = {}
        for number, copy in enumerate(self.partitions):
            address = copy.topic.leaders[copy.index]
            lanes.setdefault((address, number % self._settings.lane_count), []).append(copy)
        ends_at = asyncio.get_running_loop().time() + self._settings.refresh_ms / 1000 if follow else None
        async with asyncio.TaskGroup() as group:
            for (address, _), copies in lanes.items():
                group.create_task(self._lane(address, copies, ends_at))

    async def _lane(self, address: str, copies: list[PartitionCopy], ends_at: float | None) -> None:
        await self._skip_deleted(copies)
        loop = asyncio.get_running_loop()
        appending: asyncio.Task[None] | None = None
        async with await Connection.open(address, self._cluster.settings) as connection, asyncio.TaskGroup() as group:
            at = 0
            while (left := [copy for copy in copies if not copy.is_done]) and (
                ends_at is None or loop.time() < ends_at
            ):
                at = (at + 1) % len(left)  # another partition comes first each time
                read = await self._read(connection, left[at:] + left[:at])
                if appending is not None:
                    await appending
                appending = group.create_task(self._append(read)) if read.batches else None
                await self._throttle(read.size)

    async def _skip_deleted(self, copies: Sequence[PartitionCopy]) -> None:
        """Give partitions of which the source has deleted all records the source's offsets."""
        for copy in copies:
            if copy.source_start == copy.source_stable > copy.end:
                pieces = list(gap(copy.end, copy.source_start))
                copy.next = copy.source_start
                read = _Read([(copy.view, copy.index, piece) for piece in pieces], {id(copy): copy})
                await self._append(read)
            await self._trim(copy)

    async def _read(self, connection: Connection, copies: Sequence[PartitionCopy]) -> _Read:
        """Fetch, and turn the response into pieces; moves `next`."""
        settings = self._cluster.settings
        version = connection.version(ApiKey.FETCH, _FETCH_NEWEST)
        answer = await connection.ask(
            _request(copies, version, self._cluster), newest=_FETCH_NEWEST, wait_ms=settings.fetch_wait_ms
        )
        check(answer.error_code, "to be read")
        by_key = {(_topic_key(copy.topic, version), copy.index): copy for copy in copies}
        read = _Read()
        for topic in answer.responses:
            key = bytes(topic.topic_id) if version >= _WITH_TOPIC_IDS else topic.topic
            for found in topic.partitions:
                self._take(read, by_key[key, found.partition_index], found)
        return read

    def _take(self, read: _Read, copy: PartitionCopy, found: Any) -> None:
        what = f"topic {copy.topic.name!r}, partition {copy.index}"
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Unavailable(f"{what}: the source no longer has offset {copy.next}")
        check(found.error_code, what)
        copy.source_stable = found.last_stable_offset
        copy.source_start = max(copy.source_start, found.log_start_offset)
        if not found.records:
            return
        aborted = [Aborted(item.producer_id, item.first_offset) for item in found.aborted_transactions or ()]
        pieces = Pieces(copy.next, aborted)
        made = [(copy.view, copy.index, piece) for piece in pieces.of(memoryview(found.records))]
        copy.next = pieces.end
        read.size += len(found.records)
        if made:
            read.batches += made
            read.touched[id(copy)] = copy

    async def _append(self, read: _Read) -> None:
        try:
            await self._target.append(read.batches)
        except Unavailable:
            for copy in read.touched.values():  # another writer is the worst cause: then the stream was promoted
                await self._target.check(copy.topic)
            raise
        for _, _, piece in read.batches:
            if not piece.is_empty:
                self.copied.batches += 1
                self.copied.bytes += len(piece.batch)
        ends = {(view.name, index): piece.end for view, index, piece in read.batches}
        for copy in read.touched.values():
            copy.end = ends[copy.view.name, copy.index]
            await self._trim(copy)

    async def _trim(self, copy: PartitionCopy) -> None:
        if copy.start < copy.source_start <= copy.end:
            await self._target.trim(copy.view, copy.index, copy.source_start)
            copy.start = copy.source_start

    async def _throttle(self, size: int) -> None:
        """Wait until the bytes that were read fit the limit; all lanes share the limit."""
        if not self._settings.bytes_per_s:
            return
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + size / self._settings.bytes_per_s
        await asyncio.sleep(self._free_at - now)


def _retriable(error: BearlakeError | ExceptionGroup[Exception]) -> Exception:
    """Return one of the errors if all of them are worth another attempt; else raise one that is not."""
    leaves = _leaves(error)
    for leaf in leaves:
        if not isinstance(leaf, Unavailable | Overloaded):
            raise leaf
    return leaves[0]


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _topic_key(topic: SourceTopic, version: int) -> bytes | str:
    return topic.id.bytes if version >= _WITH_TOPIC_IDS else topic.name


def _request(copies: Sequence[PartitionCopy], version: int, cluster: SourceCluster) -> Any:
    """Return a Fetch request. From version 13 on, it names topics by id, so a topic that was deleted and created again is an error."""
    kind, settings = messages.FetchRequest, cluster.settings
    topics: dict[bytes | str, Any] = {}
    for copy in copies:
        key = _topic_key(copy.topic, version)
        named: dict[str, Any] = {"topic_id": key} if version >= _WITH_TOPIC_IDS else {"topic": key}
        topic = topics.setdefault(key, kind.Topic(**named, partitions=[]))
        topic.partitions.append(
            kind.Partition(
                partition=copy.index,
                fetch_offset=max(copy.next, copy.source_start),
                partition_max_bytes=settings.partition_bytes_max,
            )
        )
    return kind(
        replica_id=-1,
        max_wait_ms=settings.fetch_wait_ms,
        min_bytes=1,
        max_bytes=settings.fetch_bytes_max,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=list(topics.values()),
    )
