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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from bearlake.errors import Conflict, Corrupt, Unavailable
from bearlake.importing.batches import Aborted, Pieces, gap
from bearlake.importing.cluster import Connections, SourceCluster, SourceTopic, check
from bearlake.importing.fetching import FETCH_NEWEST, Place, answered_key, request_of, topic_key
from bearlake.importing.progress import CopyTarget, PartitionCopy, Topics, ViewT
from bearlake.importing.running import CopyRun, Read, of_topic
from bearlake.importing.settings import CopySettings
from bearlake.importing.source import Connection
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode


class Copy(CopyRun[ViewT]):
    """The copy of some topics. Use it from the event loop's thread only; run it once at a time."""

    def __init__(
        self,
        cluster: SourceCluster,
        target: CopyTarget[ViewT],
        selection: Topics,
        settings: CopySettings | None = None,
        after_pass: Callable[[Sequence[PartitionCopy[ViewT]]], Awaitable[None]] | None = None,
    ) -> None:
        """As `CopyRun`."""
        super().__init__(cluster.bootstrap, target, selection, settings, after_pass)
        self._cluster = cluster
        self._connections = Connections(cluster)
        """Those of the newest look for topics."""

    @override
    async def _open(self, *, follow: bool, stops: Mapping[tuple[str, int], int] | None) -> dict[tuple[str, int], int]:
        async with Connections(self._cluster) as self._connections:
            return await super()._open(follow=follow, stops=stops)

    @override
    async def _open_topic(
        self, name: str, topic: SourceTopic | None, stops: Mapping[tuple[str, int], int] | None
    ) -> list[PartitionCopy[ViewT]]:
        if topic is None:
            raise Unavailable(f"the source has no topic {name!r} now")
        configs, may_create = self._selection.configs.get(name, {}), name not in self._known
        self._known[name] = view = await self._target.ensure(topic, configs, may_create=may_create)
        here, there = await self._target.bounds(topic, view), await self._cluster.bounds(topic, self._connections)
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

    @override
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
                with of_topic(copy.topic):
                    pieces = list(gap(copy.end, copy.source_start, self._cluster.settings.gap_offsets_max))
                copy.next = copy.source_start
                read = Read([(copy.view, copy.index, piece) for piece in pieces], {id(copy): copy})
                await self._append(read)
            await self._trim(copy)

    async def _read(self, connection: Connection, copies: Sequence[PartitionCopy[ViewT]]) -> Read[ViewT]:
        """Fetch, and turn the response into pieces; moves `next`."""
        settings = self._cluster.settings
        version = connection.version(ApiKey.FETCH, FETCH_NEWEST)
        places = [Place(copy.topic, copy.index, max(copy.next, copy.source_start)) for copy in copies]
        answer = await connection.ask(
            request_of(places, version, settings), newest=FETCH_NEWEST, wait_ms=settings.fetch_wait_ms
        )
        check(answer.error_code, "to be read")
        by_key = {(topic_key(copy.topic, version), copy.index): copy for copy in copies}
        read: Read[ViewT] = Read()
        for topic in answer.responses:
            for found in topic.partitions:
                copy = by_key.get((answered_key(topic, version), found.partition_index))
                if copy is None:
                    raise Corrupt(
                        f"the source answers with partition {found.partition_index} of a topic that was not asked for"
                    )
                with of_topic(copy.topic):
                    self._take(read, copy, found)
        return read

    def _take(self, read: Read[ViewT], copy: PartitionCopy[ViewT], found: Any) -> None:
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
