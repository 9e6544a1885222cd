"""One consumer instance: a subscription or an assignment, its positions, and its group membership.

A subscribed instance is a group member (`membership.py`). Joining waits for other members, so it runs in a background task of
`consumers.py`; requests wait for it within their own limit. Positions advance with each answer. Automatic commits cover only what was
returned before the client's latest request for records, so that a lost answer is read again. When the group rebalances right after
an answer, the client gets some time to commit, or to request more, before the partitions are revoked.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from bearlake.errors import BearlakeError, NotFound, OutOfRange
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.protocols.rest import problems, reading
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.proxy.formats import Format
from bearlake.protocols.rest.proxy.membership import GroupMember
from bearlake.protocols.rest.proxy.patterns import Pattern, topics_of
from bearlake.protocols.rest.settings import RestSettings
from bearlake.records.codec import Record
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.shared import AWAY
from bearlake.streams.offsets import OffsetQuestion, OffsetSpec
from bearlake.streams.service import Streams
from bearlake.streams.turns import in_turns

_PLACED_COUNT = 1_000
"""Partitions whose positions are looked up together: about 10 ms of the event loop."""

Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The client's configuration of an instance."""

    group: str
    name: str
    format: Format
    reset: OffsetSpec | None
    """Where to start without a committed offset; None: raise an error instead."""
    is_auto_commit: bool
    wait_ms: int
    fetch_bytes_min: int


class Consumed(NamedTuple):
    """A record with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    record: Record


class Consumer:
    """A consumer instance. Requests to it run one at a time."""

    def __init__(
        self, streams: Streams, config: ConsumerConfig, member: GroupMember, settings: RestSettings, spawn: Spawn
    ) -> None:
        """`spawn` runs a background task within the server's lifetime."""
        self.config = config
        self.lock = asyncio.Lock()  # held by the current request; see `exclusive`
        self.is_ending = False
        """Set while the server drains: a waiting request is answered and may still commit; the next request for records fails (40403)."""
        self.beating: asyncio.Task[None] | None = None  # the current heartbeat, owned by `consumers.py`
        self.is_away = False  # whether the last heartbeat failed to reach the group
        self.last_used = asyncio.get_running_loop().time()
        self._streams = streams
        self._settings = settings
        self._spawn = spawn
        self._member = member
        self._topics: frozenset[str] = frozenset()
        self._pattern: Pattern | None = None
        self._assigned: dict[Partition, None] = {}  # a set in order
        self._is_manual = False
        self._needs_join = False
        self._joining: asyncio.Task[None] | None = None
        self._refusal: Exception | None = None
        self._positions: dict[Partition, int] = {}
        self._acknowledged: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._answered_at: float | None = None
        """Loop time of the last answer with records, until the client commits or requests more."""
        self._fetch_count = 0
        self.is_closed = False
        """Whether the instance has left its group and serves no more requests."""

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Run one request at a time. Raises `Problem` (40403) if the instance was closed in the meantime."""
        async with self.lock:
            if self.is_closed:
                raise problems.consumer_not_found()
            yield

    # -- subscription --------------------------------------------------------------------------------------------

    async def subscribe(self, topics: Collection[str], pattern: Pattern | None) -> None:
        """Read these topics, or topics that fully match `pattern`, as a group member. Raises `Problem` (40903)."""
        if self._is_manual:
            raise _exclusive()
        self._topics, self._pattern = frozenset(topics), pattern
        self._needs_join = True

    async def unsubscribe(self) -> None:
        """End the subscription and leave the group. Raises `GroupRefusal`."""
        await self.await_join()
        self._topics, self._pattern, self._needs_join = frozenset(), None, False
        self._assigned, self._is_manual = {}, False
        self._positions, self._acknowledged, self._committed = {}, {}, {}
        await self._member.leave()

    def assign(self, partitions: Sequence[Partition]) -> None:
        """Read these partitions without the group. Raises `Problem` (40903)."""
        if self.is_subscribed:
            raise _exclusive()
        self._is_manual = bool(partitions)
        self._keep(partitions)

    @property
    def is_subscribed(self) -> bool:
        """Whether the instance is, or will become, a group member."""
        return bool(self._topics) or self._pattern is not None

    async def topics(self) -> Sequence[str]:
        """Return the subscribed topics, sorted by name."""
        return await topics_of(self._streams.catalog, self._topics, self._pattern)

    @property
    def assigned(self) -> list[Partition]:
        """The partitions that the instance reads."""
        return list(self._assigned)

    def _keep(self, partitions: Sequence[Partition]) -> None:
        """Replace the assigned partitions; retained partitions keep their positions."""
        self._assigned = dict.fromkeys(partitions)
        for known in (self._positions, self._acknowledged, self._committed):
            for partition in known.keys() - self._assigned.keys():
                del known[partition]

    # -- membership ----------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send a heartbeat, and start a rejoin if one is due. Raises `GroupRefusal`."""
        if self.is_subscribed and self._member.id and self._joining is None:
            needs_join = await self._member.beat(await self.topics())
            if self.is_closed or not self.is_subscribed:
                return  # the subscription ended in the meantime
            self._needs_join = needs_join or self._needs_join
            if self._needs_join and self._joining is None and not self.is_held:
                self._start_join()

    @property
    def is_held(self) -> bool:
        """Whether the client may soon commit the last answer; True for `consumer_commit_ms` at most."""
        hold_s = self._settings.consumer_commit_ms / 1000
        return self._answered_at is not None and asyncio.get_running_loop().time() - self._answered_at < hold_s

    async def await_assignment(self, wait_ms: int) -> bool:
        """Wait until the partitions of a subscription are known; False if that takes longer than `wait_ms`. Raises `GroupRefusal`."""
        if self._needs_join and self._joining is None:
            self._start_join()
        if self._joining is not None:
            await asyncio.wait([self._joining], timeout=wait_ms / 1000)
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        return self._joining is None

    async def await_join(self) -> None:
        """Wait for a running join to end, with or without success."""
        if self._joining is not None:
            await asyncio.wait([self._joining])

    def _start_join(self) -> None:
        self._joining = self._spawn(self._join())

    async def _join(self) -> None:
        try:
            if self.config.is_auto_commit and self._assigned:
                await self._commit_before_join()
            self._needs_join = False
            self._keep(await self._member.join(await self.topics()))
        except (BearlakeError, GroupRefusal) as error:  # reported to the next request
            self._needs_join = True
            self._refusal = error
        finally:
            self._joining = None

    async def _commit_before_join(self) -> None:
        """Commit, so that the next owner continues after our last answer. Has no effect if the group has forgotten this member."""
        try:
            await self.commit_acknowledged()
        except GroupRefusal as refusal:
            if refusal.problem in AWAY:
                raise

    # -- records -------------------------------------------------------------------------------------------------

    async def records(self, wait_ms: int, bytes_max: int) -> list[Consumed]:
        """Return the next records, in order per partition, and advance the positions; an empty list after `wait_ms`.

        Raises:
            Problem: no subscription or assignment, or neither a committed offset nor a reset rule.
            GroupRefusal: the group's coordinator refuses this member.
        """
        if self.is_ending:
            await self.close()
            raise problems.consumer_not_found()
        self._acknowledged = dict(self._positions)
        self._answered_at = None
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        while True:
            left_ms = max(0, int((until - loop.time()) * 1000))
            slice_ms = min(left_ms, self._settings.consumer_beat_ms)
            if await self.await_assignment(slice_ms):
                ranges = await self._ranges(bytes_max)
                if ranges:
                    found = await self._fetch(ranges, slice_ms, bytes_max)
                    if found:
                        self._answered_at = loop.time()
                        return found
                elif slice_ms:
                    await asyncio.sleep(slice_ms / 1000)
            if self.is_ending or loop.time() >= until:
                return []

    async def _ranges(self, bytes_max: int) -> list[tuple[Partition, FetchRange]]:
        await self._place()
        ranges = []
        async for part in in_turns(list(self._assigned)):
            for partition in part:
                view = self._streams.catalog.peek(partition[0])
                is_there = view is not None and partition[1] < view.partition_count
                if view is not None and is_there and partition in self._positions:
                    key = view.partition(partition[1])
                    ranges.append((partition, FetchRange(key, self._positions[partition], bytes_max)))
        self._fetch_count += 1  # rotates the first partition, because an answer may be full
        first = self._fetch_count % len(ranges) if ranges else 0
        return ranges[first:] + ranges[:first]

    async def _fetch(
        self, ranges: Sequence[tuple[Partition, FetchRange]], wait_ms: int, bytes_max: int
    ) -> list[Consumed]:
        fetch_ranges, bytes_min = [range_ for _, range_ in ranges], self.config.fetch_bytes_min
        answers = await self._streams.fetch(fetch_ranges, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms=wait_ms)
        if self._joining is not None:
            return []  # a rebalance is running: another member may get the partitions, and our commit would be too late
        found, positions = list[Consumed](), dict[Partition, int]()
        room = reading.Room(self._settings.answer_record_count_max, self._settings.fetch_bytes_max)
        async for part in in_turns(list(zip(ranges, answers, strict=True))):
            for (partition, _), fetched in part:
                if partition not in self._assigned:
                    continue  # reassigned in the meantime: another member reads and commits this partition
                if isinstance(fetched.error, OutOfRange):
                    await self._reset(partition, fetched)
                    continue
                if isinstance(fetched.error, NotFound):
                    continue
                if fetched.error is not None:
                    raise fetched.error
                taken, positions[partition] = await reading.take(fetched, self._settings.batch_bytes_max, room)
                found += [Consumed(*partition, offset, record) for offset, record in taken]
        if self._joining is not None or not positions.keys() <= self._assigned.keys():
            return []  # a rebalance began meanwhile
        self.move(positions)
        return found

    # -- positions -----------------------------------------------------------------------------------------------

    async def seek(self, positions: Mapping[Partition, int]) -> None:
        """Move to these offsets. Raises `Problem` (409) for an unassigned partition."""
        await self.await_assignment(self.config.wait_ms)
        for partition in positions:
            self._require_assigned(partition)
        self._positions.update(positions)

    async def seek_to(self, partitions: Sequence[Partition], spec: OffsetSpec) -> None:
        """Move to the start or end of these partitions. Raises as `seek` does."""
        await self.await_assignment(self.config.wait_ms)
        for partition in partitions:
            self._require_assigned(partition)
        self.move(await self._ask(partitions, spec))

    async def _place(self) -> None:
        """Set missing positions from the committed offset or the reset rule."""
        fresh = [partition for partition in self._assigned if partition not in self._positions]
        async for part in in_turns(fresh, _PLACED_COUNT):
            await self._place_some(part)

    async def _place_some(self, fresh: Sequence[Partition]) -> None:
        committed = await self.committed(fresh)
        self.move({partition: value.offset for partition, value in committed.items()})
        rest = [partition for partition in fresh if partition not in committed]
        if not rest:
            return
        if self.config.reset is None:
            raise Problem(409, 409, f"no committed offset for {rest[0][0]}-{rest[0][1]}, and auto.offset.reset is none")
        self.move(await self._ask(rest, self.config.reset))

    def move(self, positions: Mapping[Partition, int]) -> None:
        """Set the positions, except for partitions revoked in the meantime."""
        self._positions.update({partition: at for partition, at in positions.items() if partition in self._assigned})

    async def _reset(self, partition: Partition, fetched: Fetched) -> None:
        if self.config.reset is None:
            raise Problem(409, 409, f"{partition[0]}-{partition[1]}: {fetched.error}, and auto.offset.reset is none")
        self.move(await self._ask([partition], self.config.reset))

    async def _ask(self, partitions: Sequence[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        keys = {partition: key for partition in partitions if (key := await self._key(partition)) is not None}
        answers = await self._streams.offsets([OffsetQuestion(key, spec) for key in keys.values()], is_committed=True)
        for answer in answers:
            if answer.error is not None and not isinstance(answer.error, NotFound):
                raise answer.error
        found = zip(keys, answers, strict=True)
        return {partition: answer.offset for partition, answer in found if answer.error is None}

    async def _key(self, partition: Partition) -> PartitionKey | None:
        try:
            view = await self._streams.catalog.find(partition[0])
            return view.partition(partition[1])
        except NotFound:
            return None

    def _require_assigned(self, partition: Partition) -> None:
        if partition not in self._assigned:
            raise Problem(409, 409, f"No current assignment for partition {partition[0]}-{partition[1]}")

    # -- commits -------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Partition, CommittedOffset] | None) -> None:
        """Commit these offsets, or (None) everything returned so far.

        Raises:
            Problem: 404 for a missing partition; 409 for a partition that the group has given to another member.
            GroupRefusal: the coordinator refuses this member.
        """
        await self.await_join()
        if offsets is None:
            offsets = {partition: CommittedOffset(offset=offset) for partition, offset in self._positions.items()}
        elif self.is_subscribed and self._member.id:
            for partition in offsets:
                self._require_assigned(partition)  # the new owner may have committed a later offset
        await self._commit(offsets, is_strict=True)
        self._answered_at = None

    async def commit_acknowledged(self) -> None:
        """Commit what the client had received when it last requested more. Raises `GroupRefusal`."""
        uncommitted = {
            partition: CommittedOffset(offset=offset)
            for partition, offset in self._acknowledged.items()
            if self._committed.get(partition) != offset
        }
        if uncommitted:
            await self._commit(uncommitted, is_strict=False)

    async def _commit(self, offsets: Mapping[Partition, CommittedOffset], *, is_strict: bool) -> None:
        """Commit in the current generation. For a missing partition, raise `Problem` if `is_strict`, else skip it."""
        member = self._member.ref()
        by_key: dict[PartitionKey, CommittedOffset] = {}
        async for part in in_turns(list(offsets.items())):
            for partition, value in part:
                key = await self._key(partition)
                if key is not None:
                    by_key[key] = value
                elif is_strict:
                    raise problems.partition_not_found(*partition)
        await self._streams.groups.commit(member, by_key)
        self._committed.update({partition: value.offset for partition, value in offsets.items()})

    async def committed(self, partitions: Collection[Partition]) -> dict[Partition, CommittedOffset]:
        """Return the group's committed offsets; omits partitions without one. Raises `GroupRefusal`."""
        keys = {partition: key for partition in partitions if (key := await self._key(partition)) is not None}
        found = await self._streams.groups.offsets(self.config.group, list(keys.values()))
        return {partition: found[key] for partition, key in keys.items() if key in found}

    async def close(self) -> None:
        """Commit if automatic commits are on, and leave the group. The caller holds the lock. Raises `GroupRefusal`."""
        if self.is_closed:
            return
        self.is_closed = True
        await self.await_join()
        if self.config.is_auto_commit:
            self._acknowledged = dict(self._positions)
            await self.commit_acknowledged()
        await self._member.leave()


def _exclusive() -> Problem:
    return Problem(409, 40903, "Subscription to topics, partitions and pattern are mutually exclusive")
