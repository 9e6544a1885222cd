"""Dispatches share groups in the partitions that this server holds: reads, acquires, waits, and saves (KIP-932).

A member that asks for records waits for whichever comes first: new records in one of its partitions, or records that are available again.
Acknowledgements are answered when they are saved. What was acquired is saved soon after it was sent: if this server dies before, the
records are delivered again with the same delivery count.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import BearlakeError, Fenced, Invalid, NotFound, OutOfRange, Unavailable
from bearlake.metadata import subscriptions as cursors
from bearlake.metadata.model import PartitionKey
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.subscriptions.holding import Holdings
from bearlake.streams.subscriptions.model import EARLIEST
from bearlake.streams.subscriptions.reading import Records, each_entry
from bearlake.streams.subscriptions.saving import Saver
from bearlake.streams.subscriptions.share.acknowledgements import ShareAck
from bearlake.streams.subscriptions.share.partition import SharePartition
from bearlake.streams.subscriptions.share.terms import BY_DURATION, ShareAnswer, ShareAsk, ShareTerms, TermsSource
from bearlake.streams.subscriptions.share_states import ShareStates
from bearlake.telemetry.containment import noticed

log = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_COUNT = 32
"""Partitions that one request opens concurrently."""


class ShareDispatch(Protocol):
    """Dispatches share groups: on this server, or on another one.

    All methods raise `NotHolder` if another server dispatches the partition, `NotFound` if there is none, `Fenced`, `Overloaded` and
    `Unavailable`.
    """

    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        """Lock records for a member, and wait for the first one; one answer for each partition, with its error. Raises nothing.

        An answer of another server has no batches.
        """

    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        """Apply a member's acknowledgements; they are saved when this returns. Raises `Invalid`, `InvalidRecordState`."""

    async def release(self, group: str, partition: PartitionKey, member: str, via: str | None = None) -> None:
        """Make what the member has acquired available to others: `via` one server, or all."""

    async def give_back(
        self, group: str, partition: PartitionKey, member: str, ranges: Sequence[tuple[int, int]]
    ) -> None:
        """Make acquired offsets `[start, end)`, which the member was not sent, available as before: that delivery does not count."""

    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        """Let the group continue at `offset`, moved into the partition's range; creates its state if there is none."""

    async def forget(self, group: str, partition: PartitionKey) -> None:
        """Delete the group's state in the partition, if there is any. Earlier requests cannot create it any more."""

    async def seek(self, subscription: str, partition: PartitionKey, offset: int) -> None:
        """Move a subscription of the partition, as `Subscriptions.seek`: the server that dispatches share groups dispatches it, too."""


class _Position(NamedTuple):
    """Where to read: a partition, and the offset in it. A reset of the group makes it void."""

    item: SharePartition
    offset: int
    reset_count: int


async def _no_seek(partition: PartitionKey, subscription: str, offset: int) -> None:
    raise NotFound(f"partition {partition} has no subscription {subscription!r}")


class LocalShares(ShareDispatch):
    """`ShareDispatch` for the partitions that this server holds. Use it from the event loop's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        saver: Saver,
        records: Records,
        clock: Clock,
        terms: TermsSource,
        seek: Callable[[PartitionKey, str, int], Awaitable[None]] = _no_seek,
    ) -> None:
        """`seek`: that of the subscriptions."""
        self._seek = seek
        self._holdings = holdings
        self._saver = saver
        self._records = records
        self._clock = clock
        self._terms = terms
        self._states = ShareStates(holdings, terms)
        self.terms_of = terms.known

    # -- acquiring -----------------------------------------------------------------------------------------------

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        answers = {partition: ShareAnswer(partition=partition) for partition in ask.partitions}
        opened: list[SharePartition] = []
        for start in range(0, len(ask.partitions), OPEN_COUNT):
            part = ask.partitions[start : start + OPEN_COUNT]
            found = await asyncio.gather(*(self._opened(ask.group, answers[partition]) for partition in part))
            opened += [item for item in found if item is not None]
        await self._acquire(ask, opened, answers)
        return list(answers.values())

    async def _opened(self, group: str, answer: ShareAnswer) -> SharePartition | None:
        try:
            return await self._open(group, answer.partition)
        except BearlakeError as error:
            answer.error = error
            return None

    async def _acquire(
        self,
        ask: ShareAsk,
        opened: Sequence[SharePartition],
        answers: dict[PartitionKey, ShareAnswer],
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + ask.wait_ms / 1000
        changed = asyncio.Event()
        terms = self.terms_of(ask.group)
        for item in opened:
            item.waiting[changed] = None
        try:
            while opened:
                changed.clear()
                positions = self._positions(opened, terms, answers)
                has_errors = any(answer.error is not None for answer in answers.values())
                wait_ms = 0 if has_errors else max(0, math.ceil((end - loop.time()) * 1000))
                fetched = await self._read(positions, ask, terms, wait_ms, changed)
                if await self._trim(positions, fetched):
                    continue
                if self._take(positions, fetched, ask, terms, answers) or wait_ms == 0:
                    return
        finally:
            for item in opened:
                item.waiting.pop(changed, None)

    def _positions(
        self, opened: Sequence[SharePartition], terms: ShareTerms, answers: dict[PartitionKey, ShareAnswer]
    ) -> list[_Position]:
        """Where to read in the partitions that have room for more locks."""
        found: list[_Position] = []
        for item in opened:
            if not self._may_deliver(item):
                answers[item.partition].error = Fenced(f"this server may have lost partition {item.partition}")
                continue
            offset = item.state.next_offset(terms.count_max)
            if offset is not None:
                found.append(_Position(item, offset, item.state.reset_count))
        return found

    def _may_deliver(self, item: SharePartition) -> bool:
        """Whether nobody else delivers the records. A server that gives the partition up has saved it: others may go on at any time."""
        return not item.is_closed and self._holdings.may_acquire(item.partition)

    async def _read(
        self,
        positions: Sequence[_Position],
        ask: ShareAsk,
        terms: ShareTerms,
        wait_ms: int,
        changed: asyncio.Event,
    ) -> list[Fetched]:
        """Read; waits for records, or until `changed`, for at most `wait_ms`."""
        if not positions:
            await _first(changed.wait(), wait_ms / 1000)
            return []
        size = min(
            ask.bytes_max, self._holdings.settings.read_bytes_max
        )  # most of what a client allows it could not get
        ranges = [FetchRange(position.item.partition, position.offset, size) for position in positions]
        reading = self._records.fetch(
            ranges,
            bytes_min=1 if wait_ms else 0,
            bytes_max=ask.bytes_max,
            wait_ms=wait_ms,
            is_committed=terms.is_committed,
        )
        return await _unless(reading, changed) or []

    async def _trim(self, positions: Sequence[_Position], fetched: Sequence[Fetched]) -> bool:
        """Move to the start of the log where records are gone from it; returns whether anything moved, which is then read again."""
        gone = {
            position.item: found
            for position, found in zip(positions, fetched, strict=False)
            if isinstance(found.error, OutOfRange) or found.start > position.item.state.mark_delete
        }
        unknown = [item.partition for item, found in gone.items() if found.error is not None]
        try:
            bounds = await self._records.bounds(unknown) if unknown else {}
        except BearlakeError:
            return False  # the answer has the error of the read
        moved = [
            item.trim(bounds[item.partition].start if item.partition in bounds else found.start)
            for item, found in gone.items()
        ]
        return any(moved)

    def _take(
        self,
        positions: Sequence[_Position],
        fetched: Sequence[Fetched],
        ask: ShareAsk,
        terms: ShareTerms,
        answers: dict[PartitionKey, ShareAnswer],
    ) -> bool:
        """Acquire from what was read; returns whether the member has something to learn."""
        left = ask.record_count_max
        has_news = any(answer.error is not None for answer in answers.values())
        for (item, offset, reset_count), found in zip(positions, fetched, strict=False):
            answer = answers[item.partition]
            if item.state.reset_count != reset_count or not self._may_deliver(item):
                continue  # since the read began; the next round finds out
            try:
                if found.error is not None:
                    raise found.error
                if left <= 0:
                    continue
                acquired, views = item.acquire(each_entry(found), offset, ask, left, terms)
            except BearlakeError as error:
                answer.error, has_news = error, True
                continue
            if acquired:
                answer.acquired, answer.views, has_news = acquired, views, True
                left -= sum(run.end - run.start for run in acquired)
        return has_news

    # -- the other requests --------------------------------------------------------------------------------------

    @override
    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        held = await self._holdings.open(partition)
        found = await self._states.find(held, group)
        if found is None:
            raise Invalid("The last offset in the batch was never acquired.")
        finish = found.acknowledge(member, acks, self.terms_of(group))
        saving = asyncio.get_running_loop().create_task(self._saved(found, finish))
        saving.add_done_callback(noticed(log, "save acknowledgements"))
        await asyncio.shield(saving)  # a caller that gives up does not learn the result, but the records do

    async def _saved(self, item: SharePartition, finish: Callable[[bool], None]) -> None:
        try:
            await self._saver.flushed(item.saved)
        except BearlakeError:
            finish(False)
            raise
        finish(True)

    @override
    async def release(self, group: str, partition: PartitionKey, member: str, via: str | None = None) -> None:
        found = self._states.present(group, partition)
        if found is not None:
            found.release(member, self.terms_of(group), via)

    @override
    async def give_back(
        self, group: str, partition: PartitionKey, member: str, ranges: Sequence[tuple[int, int]]
    ) -> None:
        found = self._states.present(group, partition)
        if found is not None:
            found.give_back(ranges, member)

    @override
    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        held = await self._holdings.open(partition)
        bounds = (await self._records.bounds([partition])).get(partition)
        if bounds is None:
            raise NotFound(f"no partition {partition}")
        offset = min(max(offset, bounds.start), bounds.end)
        found = await self._states.create(held, group, offset)
        found.reset(offset)
        await self._saver.flushed(found.saved)

    @override
    async def seek(self, subscription: str, partition: PartitionKey, offset: int) -> None:
        await self._seek(partition, subscription, offset)

    @override
    async def forget(self, group: str, partition: PartitionKey) -> None:
        held = await self._holdings.open(partition)
        await self._states.forget(held, group)

    async def _open(self, group: str, partition: PartitionKey) -> SharePartition:
        """Return the group's state in a partition; takes the partition over, and creates the state, if needed."""
        held = await self._holdings.open(partition)
        found = held.shares.get(group)
        if found is not None:
            return found
        try:
            found = await self._states.find(held, group)
            if found is None:
                is_added = await self._states.check(group, partition)
                first_offset = cursors.EARLIEST if is_added else await self._first_offset(group, partition)
                found = await self._states.create(held, group, first_offset)
        except Fenced as error:
            raise Unavailable(f"this server has released partition {partition} meanwhile") from error
        return found

    async def _first_offset(self, group: str, partition: PartitionKey) -> int:
        """Where a group begins in a partition of a stream that is new to it."""
        terms = await self._terms.newest(group)  # a config may have been set a moment ago at another server
        if terms.reset != BY_DURATION:
            return cursors.EARLIEST if terms.reset == EARLIEST else cursors.LATEST
        since = max(0, self._clock.now_ms() - terms.reset_ms)
        (answer,) = await self._records.offsets([OffsetQuestion(partition, since)])
        if answer.error is not None:
            raise answer.error
        return answer.offset if answer.offset >= 0 else cursors.LATEST


async def _first(waiting: Awaitable[T], wait_s: float) -> T | None:
    """Await for at most `wait_s` seconds; None if they passed."""
    try:
        async with asyncio.timeout(wait_s):
            return await waiting
    except TimeoutError:
        return None


async def _unless(work: Awaitable[T], changed: asyncio.Event) -> T | None:
    """Await `work`, or give it up, and return None, when `changed` is set."""
    running = asyncio.ensure_future(work)
    noticing = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait([running, noticing], return_when=asyncio.FIRST_COMPLETED)
        return running.result() if running.done() else None
    finally:
        running.cancel()
        noticing.cancel()
        await asyncio.gather(running, noticing, return_exceptions=True)
