"""Dispatches share groups in the partitions that this server holds: reads, acquires, waits, and saves (KIP-932).

A member that asks for records waits for whichever comes first: new records in one of its partitions, or records that are available again.
Acknowledgements are answered when they are saved. What was acquired is saved soon after it was sent: if this server dies before, the
records are delivered again with the same delivery count.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from typing_extensions import override

from bearlake.clock import Clock
from bearlake.errors import BearlakeError, Fenced, NotFound, OutOfRange, Unavailable
from bearlake.metadata import subscriptions as cursors
from bearlake.metadata.model import PartitionKey
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.subscriptions.holding import Holdings
from bearlake.streams.subscriptions.model import EARLIEST, Closed
from bearlake.streams.subscriptions.reading import Records, entries_of
from bearlake.streams.subscriptions.saving import Saver
from bearlake.streams.subscriptions.share.in_flight import ShareAck
from bearlake.streams.subscriptions.share.partition import SharePartition
from bearlake.streams.subscriptions.share.terms import BY_DURATION, ShareAnswer, ShareAsk, ShareTerms, TermsSource

T = TypeVar("T")


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

    async def release(self, group: str, partition: PartitionKey, member: str) -> None:
        """Make what the member holds available to others."""

    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        """Let the group continue at `offset`, moved into the partition's range; creates its state if there is none."""

    async def forget(self, group: str, partition: PartitionKey) -> None:
        """Delete the group's state in the partition, if there is any."""


class LocalShares(ShareDispatch):
    """`ShareDispatch` for the partitions that this server holds. Use it from the event loop's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        saver: Saver,
        records: Records,
        clock: Clock,
        terms: TermsSource,
    ) -> None:
        self._holdings = holdings
        self._saver = saver
        self._records = records
        self._clock = clock
        self._terms = terms
        self.terms_of = terms.known

    # -- acquiring -----------------------------------------------------------------------------------------------

    @override
    async def acquire(self, ask: ShareAsk) -> list[ShareAnswer]:
        answers = {partition: ShareAnswer(partition=partition) for partition in ask.partitions}
        opened: list[SharePartition] = []
        for partition, answer in answers.items():
            try:
                opened.append(await self._open(ask.group, partition))
            except BearlakeError as error:
                answer.error = error
        await self._acquire(ask, opened, answers)
        return list(answers.values())

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
                offsets = self._offsets(opened, terms, answers)
                has_errors = any(answer.error is not None for answer in answers.values())
                wait_s = 0.0 if has_errors else max(0.0, end - loop.time())
                fetched = await self._read(offsets, ask, terms, wait_s, changed)
                if await self._trim(offsets, fetched):
                    continue
                if self._take(offsets, fetched, ask, terms, answers) or wait_s <= 0:
                    return
        finally:
            for item in opened:
                item.waiting.pop(changed, None)

    def _offsets(
        self, opened: Sequence[SharePartition], terms: ShareTerms, answers: dict[PartitionKey, ShareAnswer]
    ) -> dict[SharePartition, int]:
        """Where to read in the partitions that have room for more locks."""
        found: dict[SharePartition, int] = {}
        for item in opened:
            if item.is_closed or not self._holdings.may_deliver(item.partition):
                answers[item.partition].error = Fenced(f"this server may have lost partition {item.partition}")
                continue
            offset = item.state.next_offset(terms.count_max)
            if offset is not None:
                found[item] = offset
        return found

    async def _read(
        self,
        offsets: dict[SharePartition, int],
        ask: ShareAsk,
        terms: ShareTerms,
        wait_s: float,
        changed: asyncio.Event,
    ) -> list[Fetched]:
        """Read; waits for records, or until `changed`, for at most `wait_s` seconds."""
        if not offsets:
            await _first(changed.wait(), wait_s)
            return []
        ranges = [FetchRange(item.partition, offset, ask.bytes_max) for item, offset in offsets.items()]
        reading = self._records.fetch(
            ranges,
            bytes_min=1 if wait_s > 0 else 0,
            bytes_max=ask.bytes_max,
            wait_ms=int(wait_s * 1000),
            is_committed=terms.is_committed,
        )
        return await _unless(reading, changed) or []

    async def _trim(self, offsets: dict[SharePartition, int], fetched: Sequence[Fetched]) -> bool:
        """Move to the start of the log where records are gone from it; returns whether anything moved, which is then read again."""
        gone = {
            item: found
            for item, found in zip(offsets, fetched, strict=False)
            if isinstance(found.error, OutOfRange) or found.start > item.state.mark_delete
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
        offsets: dict[SharePartition, int],
        fetched: Sequence[Fetched],
        ask: ShareAsk,
        terms: ShareTerms,
        answers: dict[PartitionKey, ShareAnswer],
    ) -> bool:
        """Acquire from what was read; returns whether the member has something to learn."""
        left = ask.record_count_max
        has_news = any(answer.error is not None for answer in answers.values())
        for (item, offset), found in zip(offsets.items(), fetched, strict=False):
            answer = answers[item.partition]
            try:
                if found.error is not None:
                    raise found.error
                entries = entries_of(found)
            except BearlakeError as error:
                answer.error, has_news = error, True
                continue
            if left <= 0 or item.is_closed:
                continue
            # Others may have acquired what was available when the read began.
            acquired, views = item.acquire(entries, min(offset, item.state.end), ask, left, terms)
            if acquired:
                answer.acquired, answer.views, has_news = acquired, views, True
                left -= sum(run.end - run.start for run in acquired)
        return has_news

    # -- the other requests --------------------------------------------------------------------------------------

    @override
    async def acknowledge(self, group: str, partition: PartitionKey, member: str, acks: Sequence[ShareAck]) -> None:
        found = await self._open(group, partition)
        found.acknowledge(member, acks, self.terms_of(group))
        await self._saver.flushed(found.saved)

    @override
    async def release(self, group: str, partition: PartitionKey, member: str) -> None:
        held = self._holdings.get(partition)
        found = None if held is None else held.shares.get(group)
        if found is not None:
            found.release(member, self.terms_of(group))

    @override
    async def reset(self, group: str, partition: PartitionKey, offset: int) -> None:
        held = await self._holdings.open(partition)
        bounds = (await self._records.bounds([partition])).get(partition)
        if bounds is None:
            raise NotFound(f"no partition {partition}")
        offset = min(max(offset, bounds.start), bounds.end)
        found = await self._holdings.create_share(held, group, offset)
        found.reset(offset)
        await self._saver.flushed(found.saved)

    @override
    async def forget(self, group: str, partition: PartitionKey) -> None:
        held = await self._holdings.open(partition)
        found = await self._holdings.find_share(held, group)
        if found is not None:
            await self._holdings.forget(found.saved)
            found.close(Closed.UNSUBSCRIBED)

    async def _open(self, group: str, partition: PartitionKey) -> SharePartition:
        """Return the group's state in a partition; takes the partition over, and creates the state, if needed."""
        held = await self._holdings.open(partition)
        found = held.shares.get(group)
        if found is not None:
            return found
        try:
            found = await self._holdings.find_share(held, group)
            if found is None:
                found = await self._holdings.create_share(held, group, await self._first_offset(group, partition))
        except Fenced as error:
            raise Unavailable(f"this server has released partition {partition} meanwhile") from error
        return found

    async def _first_offset(self, group: str, partition: PartitionKey) -> int:
        """Where a group begins that has no state in the partition yet."""
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
