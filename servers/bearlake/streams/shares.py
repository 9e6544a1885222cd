"""Share groups of the deployment (KIP-932), as protocol servers see them: members' requests for records, and the groups' offsets.

    a member's request → the server that dispatches the partition: this one, or, through `ShareReach`, another one
                       → the records' bytes: always from this server, which can read every partition

So clients need not find a partition's dispatcher, and nobody is redirected.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from typing_extensions import override

from bearlake.errors import BearlakeError, Fenced, Unavailable
from bearlake.metadata import GroupStore
from bearlake.metadata.model import PartitionBounds, PartitionKey, ServerRef, partition_index, stream_number
from bearlake.metadata.subscriptions import Cursor, CursorStore
from bearlake.streams.fetched import FetchRange
from bearlake.streams.groups.configs import GroupConfigs
from bearlake.streams.groups.share import snapshot
from bearlake.streams.groups.share.configs import parse_reset
from bearlake.streams.groups.share.model import ShareGroup
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.subscriptions.consumers import StoredEntry
from bearlake.streams.subscriptions.model import EARLIEST, LATEST, NotHolder
from bearlake.streams.subscriptions.reading import Records, entries_of
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.partition import batches_of
from bearlake.streams.subscriptions.share.terms import (
    BY_DURATION,
    NoState,
    ShareAnswer,
    ShareAsk,
    ShareTerms,
    TermsSource,
    cursor_name,
)
from bearlake.streams.subscriptions.share_dispatch import LocalShares, ShareDispatch

log = logging.getLogger(__name__)

T = TypeVar("T")

SPLIT_WAIT_MS = 250
"""Longest wait (ms) for records while a member's partitions are dispatched by several servers; then all are asked again."""
BEHIND_MS = 1_000
"""Longest wait (ms) until this server knows records that another one has acquired."""
KNOWN_COUNT_MAX = 50_000
"""Partitions whose dispatcher on another server is remembered."""
LOAD_COUNT = 32
"""Partitions whose state is read concurrently for a description."""
ATTEMPTS_MAX = 3
"""Servers asked for one partition before the client must try again: the dispatcher may move meanwhile."""


class ShareReach(Protocol):
    """Finds the dispatchers of other servers."""

    def reach_shares(self, server: ServerRef) -> ShareDispatch | None:
        """Return the dispatcher of another server; None if the server is not known to be live."""


class NoReach:
    """`ShareReach` of a single server."""

    def reach_shares(self, server: ServerRef) -> ShareDispatch | None:
        """Always None."""
        return None


class SharePosition:
    """Where a share group is in a partition: `start` is the first offset that is not done; `lag` counts those that are not."""

    __slots__ = ("lag", "start")

    def __init__(self, start: int, lag: int) -> None:
        self.start = start
        self.lag = lag

    @classmethod
    def of(cls, stored: Cursor, bounds: PartitionBounds) -> "SharePosition":
        """Return the position that a stored cursor shows."""
        state = InFlight.unpack(stored.mark_delete, stored.acknowledged)
        state.trim(bounds.start)
        return cls(state.mark_delete, max(0, bounds.end - state.mark_delete - state.done_count))


class Shares:
    """All share groups of the deployment. The caller checks rights first. Use it from the event loop's thread only."""

    def __init__(self, local: LocalShares, cursors: CursorStore, records: Records, reach: ShareReach) -> None:
        self._local = local
        self._cursors = cursors
        self._records = records
        self._reach = reach
        self._known: dict[PartitionKey, ServerRef] = {}
        """Dispatchers on other servers, as far as known; bounded by `KNOWN_COUNT_MAX`."""

    def terms_of(self, group: str) -> ShareTerms:
        """Return the terms of a group now."""
        return self._local.terms_of(group)

    # -- members -------------------------------------------------------------------------------------------------

    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        """Lock records for a member, with their batches; waits up to `ask.wait_ms` for the first one.

        Returns one answer for each partition, in order; errors are in the answers.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + ask.wait_ms / 1000
        attempts = round_count = 0
        while True:
            wait_ms = max(0, math.ceil((end - loop.time()) * 1000))
            answers = await self._acquire_once(replace(ask, wait_ms=wait_ms), round_count)
            round_count += 1
            found = {answer.partition: answer for answer in answers}
            attempts += 1
            has_moved = self._learn(answers) and attempts < ATTEMPTS_MAX
            has_news = any(answer.acquired or answer.error is not None for answer in answers)
            if (has_news and not has_moved) or (not has_news and wait_ms == 0):
                return [found[partition] for partition in ask.partitions]
            if any(answer.acquired for answer in answers):  # what is acquired must not wait for others
                return [_without_move(found[partition]) for partition in ask.partitions]

    def _learn(self, answers: Sequence[ShareAnswer]) -> bool:
        """Note which servers dispatch the partitions; returns whether a partition's dispatcher is another one than was asked."""
        has_moved = False
        for answer in answers:
            before = self._known.get(answer.partition)
            if isinstance(answer.error, NotHolder):
                self._note(answer.partition, answer.error.holder)
                has_moved = has_moved or answer.error.holder not in (None, before)
            elif isinstance(answer.error, Fenced | Unavailable) and before is not None:
                del self._known[answer.partition]
                has_moved = True  # perhaps nobody dispatches the partition now
        return has_moved

    def _note(self, partition: PartitionKey, holder: ServerRef | None) -> None:
        self._known.pop(partition, None)
        if len(self._known) >= KNOWN_COUNT_MAX:
            self._known.clear()
        if holder is not None:
            self._known[partition] = holder

    async def _acquire_once(self, ask: ShareAsk, round_count: int) -> list[ShareAnswer]:
        """Ask all dispatchers of the partitions, or, if the member wants fewer records than there are, some of them in turn."""
        by_server: dict[ServerRef | None, list[PartitionKey]] = {}
        for partition in ask.partitions:
            by_server.setdefault(self._known.get(partition), []).append(partition)
        servers = list(by_server)
        count = len(servers)
        if count > 1:
            first = round_count % count
            servers = (servers[first:] + servers[:first])[: ask.record_count_max]
            ask = replace(
                ask,
                wait_ms=min(ask.wait_ms, SPLIT_WAIT_MS),
                record_count_max=ask.record_count_max // len(servers),
                bytes_max=ask.bytes_max // len(servers),
            )
        asked = [self._ask(server, replace(ask, partitions=by_server[server])) for server in servers]
        answers = [answer for answers in await asyncio.gather(*asked) for answer in answers]
        for server in by_server.keys() - servers:
            answers += [ShareAnswer(partition=partition) for partition in by_server[server]]
        return answers

    async def _ask(self, server: ServerRef | None, ask: ShareAsk) -> list[ShareAnswer]:
        if server is None:
            return await self._local.acquire(ask)
        dispatch = self._reach.reach_shares(server)
        if dispatch is None:
            error = Unavailable("the server that dispatches the partition is not known to be live")
            return [ShareAnswer(partition=partition, error=error) for partition in ask.partitions]
        answers = await dispatch.acquire(ask)
        await asyncio.gather(*(self._fill(dispatch, answer, ask) for answer in answers if answer.acquired))
        return answers

    async def _fill(self, dispatch: ShareDispatch, answer: ShareAnswer, ask: ShareAsk) -> None:
        """Read the batches of what another server acquired. What cannot be read is given back: nobody was sent it."""
        acquired = answer.acquired
        entries, end, answer.error = await self._read(answer, ask)
        answer.acquired = [run._replace(end=min(run.end, end)) for run in acquired if run.start < end]
        answer.views = batches_of(answer.acquired, entries)
        unread = [(max(run.start, end), run.end) for run in acquired if run.end > end]
        if unread:
            log.info(
                "a server is behind: it gives records of a share group back",
                extra={"partition": answer.partition, "error": repr(answer.error)},
            )
            try:
                await dispatch.give_back(ask.group, answer.partition, ask.member, unread)
            except BearlakeError as error:  # then it is available again when its lock has expired
                log.info("cannot give back records of a share group", extra={"error": repr(error)})

    async def _read(self, answer: ShareAnswer, ask: ShareAsk) -> tuple[list[StoredEntry], int, BearlakeError | None]:
        """Read all that was acquired; returns the entries, the offset behind what was read, and why that is not all.

        This server may not have heard of the newest records yet, and waits for them.
        """
        offset, last = answer.acquired[0].start, answer.acquired[-1].end
        is_committed = self.terms_of(ask.group).is_committed
        entries: list[StoredEntry] = []
        while offset < last:
            ranges = [FetchRange(answer.partition, offset, max(ask.bytes_max, 1))]
            (found,) = await self._records.fetch(
                ranges, bytes_min=1, bytes_max=ask.bytes_max, wait_ms=BEHIND_MS, is_committed=is_committed
            )
            try:
                read = [] if found.error is not None else entries_of(found)
            except BearlakeError as error:
                return entries, offset, error
            if not read:
                return entries, offset, found.error
            entries += read
            offset = read[-1].end
        return entries, last, None

    async def give_back(self, ask: ShareAsk, answers: Sequence[ShareAnswer]) -> None:
        """Make what `acquire` returned available as before, because the member does not get it. Raises nothing."""
        await asyncio.gather(*(self._give_back(ask, answer) for answer in answers if answer.acquired))

    async def _give_back(self, ask: ShareAsk, answer: ShareAnswer) -> None:
        ranges = [(run.start, run.end) for run in answer.acquired]
        try:
            await self._at_dispatcher(
                answer.partition, lambda dispatch: dispatch.give_back(ask.group, answer.partition, ask.member, ranges)
            )
        except BearlakeError as error:  # then it is available again when its lock has expired
            log.info("cannot give back records of a share group", extra={"error": repr(error)})

    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        """Apply a member's acknowledgements; they are saved when this returns.

        Raises `Invalid`, `InvalidRecordState`, `NotFound`, `NotHolder`, `Fenced`, `Overloaded`, `Unavailable`.
        """
        await self._at_dispatcher(partition, lambda dispatch: dispatch.acknowledge(group, partition, member, acks))

    async def release(self, group: str, partition: PartitionKey, member: str, via: str) -> None:
        """Make what the member has acquired `via` a server available to others. Raises as `acknowledge`."""
        await self._at_dispatcher(partition, lambda dispatch: dispatch.release(group, partition, member, via))

    # -- administration ------------------------------------------------------------------------------------------

    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        """Let the group continue at `offset`, moved into the partition's range. Raises as `acknowledge`."""
        await self._at_dispatcher(partition, lambda dispatch: dispatch.reset(group, partition, offset))

    async def forget(self, group: str, partition: PartitionKey) -> None:
        """Delete the group's state in the partition, if there is any. Raises as `acknowledge`."""
        await self._at_dispatcher(partition, lambda dispatch: dispatch.forget(group, partition))

    async def seek(self, subscription: str, partition: PartitionKey, offset: int) -> None:
        """Move a subscription to `offset`, inside of the partition's range; its consumers go on there. Raises `NotFound`, as `reset`."""
        await self._at_dispatcher(partition, lambda dispatch: dispatch.seek(subscription, partition, offset))

    async def positions(self, group: str, partitions: Sequence[PartitionKey]) -> dict[PartitionKey, SharePosition]:
        """Return where the group is in these partitions, as saved; partitions without state are left out. Raises `Unavailable`."""
        bounds = await self._records.bounds(partitions)
        found: dict[PartitionKey, SharePosition] = {}
        for start in range(0, len(partitions), LOAD_COUNT):
            part = partitions[start : start + LOAD_COUNT]
            cursors = await asyncio.gather(*(self._stored(group, partition) for partition in part))
            for partition, stored in zip(part, cursors, strict=True):
                if stored is not None and partition in bounds:
                    found[partition] = SharePosition.of(stored, bounds[partition])
        return found

    async def _stored(self, group: str, partition: PartitionKey) -> Cursor | None:
        name = cursor_name(group)
        return next((cursor for cursor in await self._cursors.load(partition) if cursor.name == name), None)

    # -- dispatchers ---------------------------------------------------------------------------------------------

    async def _at_dispatcher(self, partition: PartitionKey, work: Callable[[ShareDispatch], Awaitable[T]]) -> T:
        """Run `work` at the partition's dispatcher; this server takes the partition over if there is none."""
        for _ in range(ATTEMPTS_MAX):
            known = self._known.get(partition)
            dispatch = self._local if known is None else self._reach.reach_shares(known)
            if dispatch is None:
                self._known.pop(partition, None)
                continue
            try:
                return await work(dispatch)
            except NotHolder as error:
                self._known.pop(partition, None)
                if error.holder is None:
                    raise
                self._note(partition, error.holder)
        raise Unavailable(f"the dispatcher of partition {partition} moves")


class ConfiguredTerms(TermsSource):
    """The terms that the configs of groups set."""

    def __init__(self, configs: GroupConfigs, groups: GroupStore) -> None:
        self._configs = configs
        self._groups = groups

    @override
    def known(self, group: str) -> ShareTerms:
        return terms_of(self._configs.share_of(group))

    @override
    async def newest(self, group: str) -> ShareTerms:
        await self._configs.get(group)
        return self.known(group)

    @override
    async def check_state(self, group: str, partition: PartitionKey) -> bool:
        stored = await self._groups.load(group)
        is_share = stored is not None and stored.protocol_type == ShareGroup.protocol_type
        known = snapshot.known_in(group, stored.state) if stored is not None and is_share else {}
        partition_count = known.get(stream_number(partition))
        if partition_count is None:
            raise NoState(
                f"share group {group!r} has no state in partition {partition}: no member has subscribed to it"
            )
        return partition_index(partition) >= partition_count


def terms_of(settings: ShareGroupSettings) -> ShareTerms:
    """Return the terms of a group with these settings."""
    reset = parse_reset(settings.auto_offset_reset)
    return ShareTerms(
        lock_ms=settings.record_lock_duration_ms,
        delivery_count_max=settings.delivery_count_limit,
        count_max=settings.partition_record_locks,
        is_committed=settings.isolation_level == "read_committed",
        may_renew=settings.renew_acknowledge_enable,
        reset=BY_DURATION if reset.age_ms is not None else LATEST if reset.is_latest else EARLIEST,
        reset_ms=reset.age_ms or 0,
    )


def _without_move(answer: ShareAnswer) -> ShareAnswer:
    """The partition's dispatcher is on another server, which the next request asks: that is no error for the member."""
    return replace(answer, error=None) if isinstance(answer.error, NotHolder) else answer
