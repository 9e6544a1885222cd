"""Copies the partitions of topics: reads at the offset at which the target ends, and appends there.

    copy = Copy(cluster, target, selection, settings)
    await copy.run(follow=False)            # until the last stable offsets that the source had at the start
    copy.partitions                         # how far each one is, meanwhile
    copy.ended                              # topics that cannot be copied any further, and why

An import has no state of its own: it goes on where the target ends (decision 225). So it may be killed at any time, and started again
anywhere. It reads committed records only, so an open transaction of the source holds its partition up until the transaction ends.

Partitions of one leader are spread over lanes. A lane has one connection, and fetches while its previous response is being appended.
A topic that cannot be copied, such as one that was promoted, ends alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic

from bearlake.errors import BearlakeError, Conflict, Corrupt, Denied, Invalid, NotFound, Overloaded, Unavailable
from bearlake.importing.batches import Aborted, Piece, Pieces, gap
from bearlake.importing.cluster import Connections, SourceCluster, SourceTopic, check
from bearlake.importing.fetching import FETCH_NEWEST, Place, answered_key, request_of, topic_key
from bearlake.importing.pace import Pace
from bearlake.importing.progress import Copied, CopyTarget, PartitionCopy, Topics, ViewT
from bearlake.importing.settings import CopySettings
from bearlake.importing.source import Connection
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_WAITING_PAUSES = 10
"""Pauses after which an import that follows looks again for topics that could not be read."""


@dataclass(slots=True)
class _Read(Generic[ViewT]):
    """One response, in the form in which it is appended."""

    batches: list[tuple[ViewT, int, Piece]] = field(default_factory=list)
    touched: dict[int, PartitionCopy[ViewT]] = field(default_factory=dict)
    """By `id` of the partition's copy."""
    size: int = 0


class Copy(Generic[ViewT]):
    """The copy of some topics. Use it from the event loop's thread only; run it once at a time."""

    def __init__(
        self,
        cluster: SourceCluster,
        target: CopyTarget[ViewT],
        selection: Topics,
        settings: CopySettings | None = None,
        after_pass: Callable[[Sequence[PartitionCopy[ViewT]]], Awaitable[None]] | None = None,
    ) -> None:
        """`after_pass` is called at the end, and while following every `refresh_ms`, when no batch is under way."""
        self._after_pass = after_pass
        self._cluster = cluster
        self._target = target
        self._selection = selection
        self._settings = settings or CopySettings()
        self._pace = Pace(self._settings.bytes_per_s)
        self._known: dict[str, ViewT] = {}
        """Topics whose streams this copy has seen: if one is deleted now, it stays deleted."""
        self._has_waiting = False
        """Whether a topic could not be read in the newest look."""
        self.partitions: list[PartitionCopy[ViewT]] = []
        """All partitions, by topic and index."""
        self.ended: dict[str, BearlakeError] = {}
        """Topics that cannot be copied any further, with the reason."""
        self.copied = Copied()

    async def run(self, *, follow: bool) -> None:
        """Copy until the last stable offsets that the source has now; with `follow`, until cancelled, also topics that are created later.

        Raises, if all topics have ended, the error of the first one; else the topics that have ended are in `ended`:
            Conflict: its stream was promoted, or is not this import's; or the source has lost records that were copied.
            NotFound: the topic or its stream was deleted.
            Corrupt, Unsupported, Invalid: the source's bytes or the topic's properties cannot be copied.
            Denied: the source does not let this client read it.
        Raises for all topics:
            Denied, Invalid: the source does not let this client log in, or shows no configs.
            NotFound: no topic matches.
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
                    await self._after_pass(await self._imported())
            except (BearlakeError, ExceptionGroup) as error:
                if (first := self._retriable(error)) is None:
                    continue  # without the topics that have ended
                failure_count = 1 if self.copied.batches > before else failure_count + 1
                metrics.IMPORT_FAILURES.labels(type(first).__name__).inc()
                if failure_count >= self._settings.attempt_count_max and not follow:
                    raise Unavailable(f"gave up after {failure_count} failures in a row: {first}") from error
                log.warning("copy interrupted; trying again", extra={"error": str(first)})
                await asyncio.sleep(self._settings.pause_ms / 1000)
            else:
                failure_count = 0
                if not follow:
                    return

    async def _imported(self) -> list[PartitionCopy[ViewT]]:
        """Return the partitions whose streams are still being imported, as the store says now: a promoted stream's groups are its own."""
        found: list[PartitionCopy[ViewT]] = []
        for name, copies in groupby(self.partitions, key=lambda copy: copy.topic.name):
            of_topic = list(copies)
            with self._ending(name):
                await self._target.find(of_topic[0].topic)
                found += of_topic
        return found

    async def _open(self, *, follow: bool, stops: Mapping[tuple[str, int], int] | None) -> dict[tuple[str, int], int]:
        """Read leaders and bounds; make streams that are missing. Returns where the copy ends (empty with `follow`)."""
        topics = {topic.name: topic for topic in await self._selection.look()}
        is_first = stops is None
        names = sorted(topics.keys() | self._known.keys() if is_first or follow else self._known.keys())
        found: list[PartitionCopy[ViewT]] = []
        self._has_waiting = False
        async with Connections(self._cluster) as connections:
            for name in names:
                if name in self.ended:
                    continue
                opened = self._open_topic(name, topics.get(name), None if follow else stops or {}, connections)
                try:
                    with self._ending(name):
                        found += await opened
                except Unavailable as error:  # a partition without a leader, a topic that was deleted: others go on
                    if not follow:
                        raise
                    self._has_waiting = True
                    metrics.IMPORT_FAILURES.labels(type(error).__name__).inc()
                    log.warning("a topic waits", extra={"topic": name, "error": str(error)})
        self.partitions = found
        if not names:
            raise NotFound(f"the source {self._cluster.bootstrap} has no such topic")
        if len(self.ended) == len(names):
            raise next(iter(self.ended.values()))
        return {(copy.topic.name, copy.index): copy.stop for copy in found if copy.stop is not None}

    async def _open_topic(
        self,
        name: str,
        topic: SourceTopic | None,
        stops: Mapping[tuple[str, int], int] | None,
        connections: Connections,
    ) -> list[PartitionCopy[ViewT]]:
        """`stops`: where partitions end that are known already; None: nowhere."""
        if topic is None:
            raise Unavailable(f"the source has no topic {name!r} now")
        configs, may_create = self._selection.configs.get(name, {}), name not in self._known
        self._known[name] = view = await self._target.ensure(topic, configs, may_create=may_create)
        here, there = await self._target.bounds(topic, view), await self._cluster.bounds(topic, connections)
        found: list[PartitionCopy[ViewT]] = []
        for index, bounds in enumerate(there):
            end = here[index].end
            if end > bounds.stable:
                what = f"topic {name!r}, partition {index}"
                raise Conflict(
                    f"{what}: the source ends at {bounds.stable}, before offset {end} up to which it was copied"
                )
            stop = None if stops is None else stops.get((name, index), bounds.stable)
            found.append(
                PartitionCopy(
                    topic=topic, view=view, index=index, end=end, next=end, start=here[index].start,
                    source_start=bounds.start, source_stable=bounds.stable, stop=stop,
                )
            )  # fmt: skip
        return found

    @contextmanager
    def _ending(self, name: str) -> Iterator[None]:
        """Note errors of the block that no repeat cures: the topic ends."""
        try:
            yield
        except (Conflict, Denied, Invalid, NotFound) as error:
            self.ended[name] = error
            metrics.IMPORT_FAILURES.labels(type(error).__name__).inc()
            log.warning("the copy of a topic ends", extra={"topic": name, "error": str(error)})

    async def _pass(self, *, follow: bool) -> None:
        """Copy until every partition is done; with `follow`, for `refresh_ms`. Raises a group of errors."""
        lanes: dict[tuple[str, int], list[PartitionCopy[ViewT]]] = {}
        for number, copy in enumerate(self.partitions):
            address = copy.topic.leaders[copy.index]
            lanes.setdefault((address, number % self._settings.lane_count), []).append(copy)
        settings, ends_at = self._settings, None
        if follow:
            refresh_ms = settings.refresh_ms
            if self._has_waiting:
                refresh_ms = min(refresh_ms, _WAITING_PAUSES * settings.pause_ms)
            ends_at = asyncio.get_running_loop().time() + refresh_ms / 1000
            if not lanes:
                await asyncio.sleep(refresh_ms / 1000)
        async with asyncio.TaskGroup() as group:
            for (address, _), copies in lanes.items():
                group.create_task(self._lane(address, copies, ends_at))

    async def _lane(self, address: str, copies: list[PartitionCopy[ViewT]], ends_at: float | None) -> None:
        await self._skip_deleted(copies)
        loop = asyncio.get_running_loop()
        appending: asyncio.Task[None] | None = None
        async with await self._cluster.connect(address) as connection, asyncio.TaskGroup() as group:
            at = 0
            while (left := [copy for copy in copies if not copy.is_done]) and (
                ends_at is None or loop.time() < ends_at
            ):
                at = (at + 1) % len(left)  # another partition comes first each time
                read = await self._read(connection, left[at:] + left[:at])
                if appending is not None:
                    await appending
                appending = group.create_task(self._append(read)) if read.batches else None
                if wait_s := self._pace.wait_s(read.size, loop.time()):
                    await asyncio.sleep(wait_s)

    async def _skip_deleted(self, copies: Sequence[PartitionCopy[ViewT]]) -> None:
        """Give partitions of which the source has deleted all records the source's offsets."""
        for copy in copies:
            if copy.source_start == copy.source_stable > copy.end:
                with _of(copy.topic):
                    pieces = list(gap(copy.end, copy.source_start, self._cluster.settings.gap_offsets_max))
                copy.next = copy.source_start
                read = _Read([(copy.view, copy.index, piece) for piece in pieces], {id(copy): copy})
                await self._append(read)
            await self._trim(copy)

    async def _read(self, connection: Connection, copies: Sequence[PartitionCopy[ViewT]]) -> _Read[ViewT]:
        """Fetch, and turn the response into pieces; moves `next`."""
        settings = self._cluster.settings
        version = connection.version(ApiKey.FETCH, FETCH_NEWEST)
        places = [Place(copy.topic, copy.index, max(copy.next, copy.source_start)) for copy in copies]
        answer = await connection.ask(
            request_of(places, version, settings), newest=FETCH_NEWEST, wait_ms=settings.fetch_wait_ms
        )
        check(answer.error_code, "to be read")
        by_key = {(topic_key(copy.topic, version), copy.index): copy for copy in copies}
        read: _Read[ViewT] = _Read()
        for topic in answer.responses:
            for found in topic.partitions:
                copy = by_key.get((answered_key(topic, version), found.partition_index))
                if copy is None:
                    raise Corrupt(
                        f"the source answers with partition {found.partition_index} of a topic that was not asked for"
                    )
                with _of(copy.topic):
                    self._take(read, copy, found)
        return read

    def _take(self, read: _Read[ViewT], copy: PartitionCopy[ViewT], found: Any) -> None:
        what = f"topic {copy.topic.name!r}, partition {copy.index}"
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Unavailable(f"{what}: the source no longer has offset {copy.next}")
        check(found.error_code, what)
        copy.source_stable = found.last_stable_offset
        copy.source_start = max(copy.source_start, found.log_start_offset)
        if not found.records:
            return
        aborted = [Aborted(item.producer_id, item.first_offset) for item in found.aborted_transactions or ()]
        pieces = Pieces(copy.next, aborted, gap_offsets_max=self._cluster.settings.gap_offsets_max)
        made = [(copy.view, copy.index, piece) for piece in pieces.of(memoryview(found.records))]
        copy.next = pieces.end
        read.size += len(found.records)
        if made:
            read.batches += made
            read.touched[id(copy)] = copy

    async def _append(self, read: _Read[ViewT]) -> None:
        try:
            await self._target.append(read.batches)
        except (Unavailable, NotFound, Conflict):  # another writer is the worst cause: then the stream was promoted
            for copy in read.touched.values():
                with _of(copy.topic):
                    await self._target.find(copy.topic)
            raise
        for _, _, piece in read.batches:
            if not piece.is_empty:
                self.copied.batches += 1
                self.copied.bytes += len(piece.batch)
        metrics.IMPORT_BATCHES.inc(sum(not piece.is_empty for _, _, piece in read.batches))
        metrics.IMPORT_BYTES.inc(read.size)
        ends = {(view.name, index): piece.end for view, index, piece in read.batches}
        for copy in read.touched.values():
            copy.end = ends[copy.view.name, copy.index]
            await self._trim(copy)

    async def _trim(self, copy: PartitionCopy[ViewT]) -> None:
        if copy.start < copy.source_start <= copy.end:
            with _of(copy.topic):
                await self._target.trim(copy.topic, copy.view, copy.index, copy.source_start)
            copy.start = copy.source_start

    def _retriable(self, error: BearlakeError | ExceptionGroup[Exception]) -> Exception | None:
        """Return one of the errors if all of them are worth another attempt, None if they only end topics; else raise one that is not."""
        first: Exception | None = None
        for leaf in _leaves(error):
            if isinstance(leaf, _Ended):
                with self._ending(leaf.topic):
                    raise leaf.error
            elif isinstance(leaf, Unavailable | Overloaded):
                first = leaf
            else:
                raise leaf
        return first


class _Ended(Exception):
    """An error in a lane that concerns one topic and that no repeat cures."""

    def __init__(self, topic: str, error: BearlakeError) -> None:
        super().__init__(topic)
        self.topic = topic
        self.error = error


@contextmanager
def _of(topic: SourceTopic) -> Iterator[None]:
    """Say which topic an error of the block concerns."""
    try:
        yield
    except (Conflict, Denied, Invalid, NotFound) as error:
        raise _Ended(topic.name, error) from error


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
