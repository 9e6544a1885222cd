"""What all copies of topics have in common: they look for topics, copy in passes, try again, and end topics that cannot be copied.

`copying.Copy` reads from a Kafka cluster, `pulsar.copying.PulsarCopy` from a Pulsar cluster.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Generic

from bearlake.errors import BearlakeError, Conflict, Denied, Invalid, NotFound, Overloaded, Unavailable
from bearlake.importing.batches import Piece
from bearlake.importing.cluster import SourceTopic
from bearlake.importing.pace import Pace
from bearlake.importing.progress import Copied, CopyTarget, PartitionCopy, Topics, ViewT
from bearlake.importing.settings import CopySettings
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_WAITING_PAUSES = 10
"""Pauses after which an import that follows looks again for topics that could not be read."""


@dataclass(slots=True)
class Read(Generic[ViewT]):
    """What was read together, in the form in which it is appended."""

    batches: list[tuple[ViewT, int, Piece]] = field(default_factory=list)
    touched: dict[int, PartitionCopy[ViewT]] = field(default_factory=dict)
    """By `id` of the partition's copy."""
    size: int = 0


class CopyRun(ABC, Generic[ViewT]):
    """The copy of some topics. Use it from the event loop's thread only; run it once at a time."""

    def __init__(
        self,
        source: str,
        target: CopyTarget[ViewT],
        selection: Topics,
        settings: CopySettings | None = None,
        after_pass: Callable[[Sequence[PartitionCopy[ViewT]]], Awaitable[None]] | None = None,
    ) -> None:
        """`source`: address of the source, for messages.

        `after_pass` is called at the end, and while following every `refresh_ms`, when no batch is under way.
        """
        self._after_pass = after_pass
        self._source = source
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
            together = list(copies)
            with self._ending(name):
                await self._target.find(together[0].topic)
                found += together
        return found

    async def _open(self, *, follow: bool, stops: Mapping[tuple[str, int], int] | None) -> dict[tuple[str, int], int]:
        """Read leaders and bounds; make streams that are missing. Returns where the copy ends (empty with `follow`)."""
        topics = {topic.name: topic for topic in await self._selection.look()}
        is_first = stops is None
        names = sorted(topics.keys() | self._known.keys() if is_first or follow else self._known.keys())
        found: list[PartitionCopy[ViewT]] = []
        self._has_waiting = False
        for name in names:
            if name in self.ended:
                continue
            try:
                with self._ending(name):
                    found += await self._open_topic(name, topics.get(name), None if follow else stops or {})
            except Unavailable as error:  # a partition without a leader, a topic that was deleted: others go on
                if not follow:
                    raise
                self._has_waiting = True
                metrics.IMPORT_FAILURES.labels(type(error).__name__).inc()
                log.warning("a topic waits", extra={"topic": name, "error": str(error)})
        self.partitions = found
        if not names:
            raise NotFound(f"the source {self._source} has no such topic")
        if len(self.ended) == len(names):
            raise next(iter(self.ended.values()))
        return {(copy.topic.name, copy.index): copy.stop for copy in found if copy.stop is not None}

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

    @abstractmethod
    async def _open_topic(
        self, name: str, topic: SourceTopic | None, stops: Mapping[tuple[str, int], int] | None
    ) -> list[PartitionCopy[ViewT]]:
        """Return the partitions of a topic, None if the source has none of this name now.

        `stops`: where partitions end that are known already; None: nowhere.
        """

    @abstractmethod
    async def _lane(self, address: str, copies: list[PartitionCopy[ViewT]], ends_at: float | None) -> None:
        """Copy partitions of one broker until they are done, or until the loop's time `ends_at`. Raises a group of errors."""

    async def _append(self, read: Read[ViewT]) -> None:
        try:
            await self._target.append(read.batches)
        except (Unavailable, NotFound, Conflict):  # another writer is the worst cause: then the stream was promoted
            for copy in read.touched.values():
                with of_topic(copy.topic):
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
            with of_topic(copy.topic):
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
def of_topic(topic: SourceTopic) -> Iterator[None]:
    """Say which topic an error of the block concerns."""
    try:
        yield
    except (Conflict, Denied, Invalid, NotFound) as error:
        raise _Ended(topic.name, error) from error


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
