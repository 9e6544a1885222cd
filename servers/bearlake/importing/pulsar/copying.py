"""Copies topics of a Pulsar cluster: reads behind the entry with which the target ends, and appends there.

    copy = PulsarCopy(cluster, streams, target, selection, schemas, settings, limits)
    await copy.run(follow=False)            # until the last entries that the source had at the start

An import has no state of its own: the last batch of a partition says which entry it was (decision 297). So it may be killed at any time,
and started again anywhere. It reads like any reader, so messages of a transaction arrive when it is committed, and aborted ones never.

A subscription at the source keeps what is not copied yet. Its name has the stream's id: a topic without it was deleted and made anew, and
is not mixed with the former one (decision 298).
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from bearlake.errors import BearlakeError, Conflict, NotFound, Unavailable
from bearlake.importing.cluster import SourceTopic
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.pulsar.cluster import Ledgers, PulsarCluster, PulsarTopic
from bearlake.importing.pulsar.connection import Connection, Entry
from bearlake.importing.pulsar.conversion import Limits, message_of, piece_of, work_of
from bearlake.importing.pulsar.locating import Locator
from bearlake.importing.pulsar.positions import FIRST, Place, place_of
from bearlake.importing.pulsar.schemas import SourceSchemas
from bearlake.importing.pulsar.selection import PulsarSelection
from bearlake.importing.pulsar.target import PulsarTarget
from bearlake.importing.running import CopyRun, Read, of_topic
from bearlake.importing.settings import CopySettings
from bearlake.metadata.model import PartitionBounds
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata
from bearlake.streams.catalog import StreamView
from bearlake.streams.service import Streams

log = logging.getLogger(__name__)

_PERMITS_MIN = 2_000
"""Messages that the source may send ahead to a consumer; bytes are bounded by the connection."""
_PERMITS_ENTRIES = 64
"""The same in entries, of the largest one so far."""
_PERMITS_MAX = (1 << 31) - 1
"""Most permits that fit into a FLOW."""
_COUNT_MAX = 1_000_000
"""Most messages of one entry that are counted."""
_TURN_BYTES = 1 << 20
"""Bytes of entries, uncompressed, that are converted in one turn of the event loop."""


@dataclass(slots=True, kw_only=True)
class PulsarPartition(PartitionCopy[StreamView]):
    """One partition: how far the copy is. Offsets are the target's, places the source's."""

    read: Place
    """Last entry that was read and handed to the target."""
    done: Place
    """Last entry that is durable in the target."""
    ledgers: Ledgers
    is_bounded: bool
    """Whether the copy of the partition ends."""
    stop_at: Place | None = None
    """Last entry to copy, once it is known."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        return self.is_bounded and self.stop_at is not None and self.read >= self.stop_at

    @property
    def lag(self) -> int:
        """Entries that the source has and the target does not, as of the newest look."""
        return self.ledgers.count_behind(self.done)


def permits_of(metadata: MessageMetadata) -> int:
    """Return how many messages the source has counted for an entry; a count that no entry has is not taken at its word."""
    return min(max(1, metadata.num_messages_in_batch), _COUNT_MAX)


class _Consumer(NamedTuple):
    copy: PulsarPartition
    permits: list[int]
    """[messages that the source may still send, messages of the largest entry so far]"""


class PulsarCopy(CopyRun[StreamView]):
    """The copy of some topics. Use it from the event loop's thread only; run it once at a time."""

    def __init__(
        self,
        cluster: PulsarCluster,
        streams: Streams,
        target: PulsarTarget,
        selection: PulsarSelection,
        schemas: SourceSchemas,
        settings: CopySettings,
        limits: Limits,
        after_pass: Callable[[Sequence[PulsarPartition]], Awaitable[None]],
    ) -> None:
        """`after_pass`: as for `CopyRun`."""
        super().__init__(cluster.url, target, selection, settings, self._after)
        self._cluster = cluster
        self._streams = streams
        self._schemas = schemas
        self._limits = limits
        self._after_own = after_pass
        self._topics: dict[str, PulsarTopic] = {}
        self._stops: dict[tuple[str, int], Place] = {}
        self.gone: dict[str, int] = {}
        """Entries, by topic, that the source let go of before they were copied: its limits of time or size were reached."""

    @override
    async def run(self, *, follow: bool) -> None:
        try:
            await super().run(follow=follow)
        finally:
            await self._let_go()

    # -- opening -------------------------------------------------------------------------------------------------

    @override
    async def _open_topic(
        self, name: str, topic: SourceTopic | None, stops: Mapping[tuple[str, int], int] | None
    ) -> list[PartitionCopy[StreamView]]:
        if not isinstance(topic, PulsarTopic):
            raise Unavailable(f"the source has no topic of the name {name!r} now")
        self._topics[name] = topic
        configs, may_create = self._selection.configs.get(name, {}), name not in self._known
        self._known[name] = view = await self._target.ensure(topic, configs, may_create=may_create)
        here = await self._target.bounds(topic, view)
        found: list[PartitionCopy[StreamView]] = []
        try:
            for index, bounds in enumerate(here):
                assert isinstance(bounds, PartitionBounds)
                found.append(await self._partition(topic, view, index, bounds, is_bounded=stops is not None))
            await self._schemas.copy(topic)
        except NotFound as error:
            raise Unavailable(f"the source has no topic {topic.topic} now: {error}") from error
        return found

    async def _partition(
        self, topic: PulsarTopic, view: StreamView, index: int, bounds: PartitionBounds, *, is_bounded: bool
    ) -> PulsarPartition:
        place = FIRST if bounds.end == 0 else await Locator(self._streams, view, index, bounds).last()
        part = topic.partition(index)
        ledgers = await self._cluster.ledgers(part)
        hold = self.hold_of(view)
        self._check_same(f"topic {part}", place, ledgers, hold)
        if hold:
            self._note_gone(topic.name, place, ledgers, hold)
            if hold not in ledgers.cursors:
                await self._cluster.hold(part, hold, place)
        return PulsarPartition(
            topic=topic, view=view, index=index, end=bounds.end, next=bounds.end, start=bounds.start,
            source_start=0, source_stable=0, stop=None,
            read=place, done=place, ledgers=ledgers, is_bounded=is_bounded, stop_at=self._stops.get((topic.name, index)),
        )  # fmt: skip

    def hold_of(self, view: StreamView) -> str:
        """Return the name of the subscription that keeps entries for a stream; empty: there is none."""
        prefix = self._cluster.settings.subscription
        return f"{prefix}-{view.id_bytes.hex()}" if prefix else ""

    @staticmethod
    def _check_same(what: str, place: Place, ledgers: Ledgers, hold: str) -> None:
        """Raise `Conflict` unless the topic is the one of which the target has entries up to `place`."""
        if place == FIRST:
            return
        if hold and hold not in ledgers.cursors:  # another cluster may have a ledger of the same number
            raise Conflict(
                f"{what}: the source has no subscription {hold}, which the import made: the topic was deleted and made anew, or it is "
                f"another cluster's. If it is the same topic, create the subscription at message {place}"
            )
        if place.ledger in ledgers.entries:
            if place.entry >= ledgers.entries[place.ledger]:
                raise Conflict(
                    f"{what}: the source's ledger {place.ledger} ends before entry {place}, which was copied"
                )
        elif not hold:
            raise Conflict(
                f"{what}: the source has no ledger {place.ledger} any more, from which the last copied entry is"
            )
        if max(ledgers.entries, default=place.ledger) < place.ledger:
            raise Conflict(f"{what}: all ledgers of the source are older than entry {place}, which was copied")

    def _note_gone(self, name: str, place: Place, ledgers: Ledgers, hold: str) -> None:
        """Count entries that the source's limits took from the subscription before they were copied."""
        cursor = ledgers.cursors.get(hold)
        if cursor is not None and cursor.through > place:
            count = ledgers.count_behind(place) - ledgers.count_behind(cursor.through)
            if count > 0:
                self.gone[name] = self.gone.get(name, 0) + count
                log.warning(
                    "the source let go of entries before they were copied; those that it still has are copied",
                    extra={"topic": name, "count": count},
                )

    # -- copying -------------------------------------------------------------------------------------------------

    @override
    async def _lane(self, address: str, copies: list[PartitionCopy[StreamView]], ends_at: float | None) -> None:
        loop = asyncio.get_running_loop()
        parts = [copy for copy in copies if isinstance(copy, PulsarPartition)]
        appending: asyncio.Task[None] | None = None
        async with await self._cluster.connect(address) as connection, asyncio.TaskGroup() as group:
            consumers = await self._subscribe(connection, parts)
            while not all(copy.is_done for copy in parts) and (ends_at is None or loop.time() < ends_at):
                entries = await connection.take(self._cluster.settings.fetch_bytes_max)
                read = await self._take(consumers, entries)
                if appending is not None:
                    await appending
                appending = group.create_task(self._append(read)) if read.batches else None
                self._let_flow(connection, consumers)
                if not entries:
                    await self._look(connection, consumers)
                if wait_s := self._pace.wait_s(read.size, loop.time()):
                    await asyncio.sleep(wait_s)

    async def _subscribe(self, connection: Connection, parts: Sequence[PulsarPartition]) -> dict[int, _Consumer]:
        """Begin to read the partitions, each with a reader of its own. Raises `Unavailable`; a group's error for one topic."""
        consumers: dict[int, _Consumer] = {}
        for number, copy in enumerate(parts):
            assert isinstance(copy.topic, PulsarTopic)
            name = f"{self._cluster.settings.subscription or 'bearlake-import'}-reader-{uuid.uuid4().hex[:12]}"
            with of_topic(copy.topic):
                try:
                    await connection.subscribe(
                        number, str(copy.topic.partition(copy.index)), name=name, after=copy.read
                    )
                    last = await connection.last(number)
                except NotFound as error:
                    raise Unavailable(f"the source has no topic {copy.topic.topic} now: {error}") from error
            if copy.is_bounded and copy.stop_at is None:
                copy.stop_at = self._stops[copy.topic.name, copy.index] = last
            consumers[number] = _Consumer(copy, [0, 1])
        self._let_flow(connection, consumers)
        return consumers

    def _let_flow(self, connection: Connection, consumers: Mapping[int, _Consumer]) -> None:
        for number, consumer in consumers.items():
            left, largest = consumer.permits
            wanted = max(_PERMITS_MIN, _PERMITS_ENTRIES * largest)
            if left <= wanted // 2 and not consumer.copy.is_done:
                connection.flow(number, min(wanted - left, _PERMITS_MAX))
                consumer.permits[0] = wanted

    async def _take(self, consumers: Mapping[int, _Consumer], entries: Sequence[Entry]) -> Read[StreamView]:
        """Turn entries into pieces; moves `read`."""
        read: Read[StreamView] = Read()
        turn_bytes = 0
        for entry in entries:
            consumer = consumers.get(entry.consumer_id)
            if consumer is None:
                continue
            copy = consumer.copy
            message = message_of(entry)
            count = permits_of(message.metadata)
            consumer.permits[0] -= count
            consumer.permits[1] = max(consumer.permits[1], count)
            read.size += len(entry.message)
            if entry.place <= copy.read or copy.is_done:
                continue  # sent again, or later than what is asked for
            assert isinstance(copy.topic, PulsarTopic)
            with of_topic(copy.topic):
                versions = await self._schemas.versions(copy.topic, message.metadata.schema_version)
                piece = piece_of(entry, message, copy.next, versions, self._limits)
            copy.next, copy.read = piece.end, entry.place
            read.batches.append((copy.view, copy.index, piece))
            read.touched[id(copy)] = copy
            turn_bytes += work_of(entry, message, self._limits)
            if turn_bytes >= _TURN_BYTES:
                turn_bytes = 0
                await asyncio.sleep(0)
        return read

    @override
    async def _append(self, read: Read[StreamView]) -> None:
        await super()._append(read)
        places = {(view.name, index): place_of(piece.batch) for view, index, piece in read.batches}
        for copy in read.touched.values():
            assert isinstance(copy, PulsarPartition)
            copy.done = places[copy.view.name, copy.index] or copy.done

    async def _look(self, connection: Connection, consumers: Mapping[int, _Consumer]) -> None:
        """While nothing arrives: ask how far the source is. What cannot be delivered, such as a marker of a transaction, never arrives."""
        for number, consumer in consumers.items():
            copy = consumer.copy
            if copy.is_done:
                continue
            last = await connection.last(number)
            copy.ledgers = copy.ledgers.grown(last)
            if copy.is_bounded and (last <= copy.read or not copy.ledgers.count_behind(copy.read)):
                copy.stop_at = copy.read

    # -- around a pass -------------------------------------------------------------------------------------------

    async def _after(self, partitions: Sequence[PartitionCopy[StreamView]]) -> None:
        """Copy the positions of subscriptions, and let the source delete what is copied."""
        parts = [copy for copy in partitions if isinstance(copy, PulsarPartition)]
        for copy in parts:
            assert isinstance(copy.topic, PulsarTopic)
            copy.ledgers = await self._cluster.ledgers(copy.topic.partition(copy.index))
        await self._after_own(parts)
        for copy in parts:
            assert isinstance(copy.topic, PulsarTopic)
            hold = self.hold_of(copy.view)
            if hold and copy.done != FIRST:
                await self._cluster.hold(copy.topic.partition(copy.index), hold, copy.done)
        await self._let_go()

    async def _let_go(self) -> None:
        """Delete the subscriptions at the source of streams that were promoted: nobody needs what they keep."""
        for name in [name for name in self.ended if name in self._topics]:
            topic = self._topics[name]
            with suppress(BearlakeError):
                view = await self._streams.catalog.resolve(name)
                if not view.rules.is_imported and (hold := self.hold_of(view)):
                    for index in range(len(topic.leaders)):
                        await self._cluster.let_go(topic.partition(index), hold)
                    del self._topics[name]
