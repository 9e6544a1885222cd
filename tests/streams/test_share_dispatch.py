"""Share groups on their dispatcher: what moves while a member's request reads or waits."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import Corrupt, Fenced, Invalid, Overloaded, Unavailable
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.share.acknowledgements import AckType, ShareAck
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.terms import NoState, ShareAnswer
from bearlake.streams.subscriptions.share_dispatch import LocalShares
from fixtures.deployment import append, batch_of
from fixtures.share_dispatch import TERMS, FixedTerms, WatchedRecords, ask_of
from fixtures.subscriptions import Lake, lake
from simulator.loop import virtual_time


class Scene:
    """One server that dispatches the share groups of a stream."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.terms = FixedTerms()
        self.is_live = True
        self.streams: Streams
        self.records: WatchedRecords
        self.shares: LocalShares

    def records_of(self, streams: Streams) -> WatchedRecords:
        self.records = WatchedRecords(streams)
        return self.records

    async def open(self, partition_count: int) -> None:
        self.streams, self.service = await self.lake.serve(
            is_live=lambda: self.is_live,
            share_terms=self.terms,
            records_of=self.records_of,
            partition_count=partition_count,
        )
        self.shares = self.service.shares

    def key(self, index: int = 0) -> PartitionKey:
        return self.lake.view.partition(index)

    async def write(self, *values: bytes, index: int = 0) -> None:
        """Append a batch."""
        await append(self.streams, self.lake.view, batch_of(*values), index=index)

    async def acquire(self, *indexes: int, **options: Any) -> list[ShareAnswer]:
        """Ask for records of the partitions."""
        return await self.shares.acquire(ask_of(*map(self.key, indexes or (0,)), **options))

    async def take(self, **options: Any) -> list[tuple[int, int, int]]:
        """What a member acquires in partition 0."""
        (answer,) = await self.acquire(**options)
        assert answer.error is None
        return [tuple(run) for run in answer.acquired]  # type: ignore[misc]


@asynccontextmanager
async def scene(partition_count: int = 1, **settings: Any) -> AsyncIterator[Scene]:
    async with lake(**settings) as made:
        found = Scene(made)
        await found.open(partition_count)
        yield found


def accepted(start: int, end: int) -> Sequence[ShareAck]:
    return [ShareAck(start, end, [AckType.ACCEPT])]


@virtual_time
async def test_a_reset_while_a_member_reads_skips_nothing() -> None:
    async with scene(2) as s:
        for index in (0, 1):
            for _ in range(6):
                await s.write(b"x", index=index)
        await s.shares.reset("g", s.key(0), 3)
        await s.shares.reset("g", s.key(1), 0)
        await s.streams.trim(ANONYMOUS, "orders", 1, 2)
        is_first = True

        async def reset_while_bounds_are_looked_up() -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                await s.acquire(1, member="c")  # moves to the start of the log
                await s.shares.reset("g", s.key(0), 0)

        s.records.before_bounds = reset_while_bounds_are_looked_up
        await s.acquire(0, 1)

        assert await s.take(member="b") == [(0, 6, 1)]


@virtual_time
async def test_a_server_that_becomes_unsure_while_a_member_waits_delivers_nothing() -> None:
    async with scene() as s:
        await s.write(b"x")

        async def suspended() -> None:
            s.is_live = False

        s.records.after_fetch = suspended
        (answer,) = await s.acquire(wait_ms=100)

        assert answer.acquired == ()
        assert isinstance(answer.error, Fenced)


@virtual_time
async def test_a_partition_that_is_given_up_delivers_nothing_more() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.take()
        waiting = asyncio.create_task(s.acquire(member="b", wait_ms=60_000))
        await asyncio.sleep(1)
        leases = s.lake.stores.metadata.leases
        release = leases.release

        async def slow(lease: Lease) -> None:
            """The answer to a release comes late: another server may have the lease by then."""
            await release(lease)
            await s.write(b"y")
            await asyncio.sleep(1)

        leases.release = slow  # type: ignore[method-assign]
        await s.service.drain()

        (answer,) = await waiting
        assert answer.acquired == ()
        assert isinstance(answer.error, Fenced)


@virtual_time
async def test_an_accepted_record_wakes_nobody_who_waits_for_records() -> None:
    async with scene() as s:
        await s.write(b"x", b"y")
        await s.take()
        waiting = asyncio.create_task(s.take(member="b", wait_ms=60_000))
        await asyncio.sleep(1)
        count = s.records.fetch_count

        await s.shares.acknowledge("g", s.key(), "a", accepted(1, 2))
        await asyncio.sleep(1)

        assert s.records.fetch_count == count
        await s.shares.acknowledge("g", s.key(), "a", [ShareAck(0, 1, [AckType.RELEASE])])
        assert await waiting == [(0, 1, 2)]


@virtual_time
async def test_who_waits_for_room_is_woken_by_an_accepted_record() -> None:
    async with scene() as s:
        s.terms.terms = replace(TERMS, count_max=2)
        for value in (b"x", b"y", b"z"):
            await s.write(value)
        assert await s.take() == [(0, 2, 1)]
        waiting = asyncio.create_task(s.take(member="b", wait_ms=60_000))
        await asyncio.sleep(1)

        await s.shares.acknowledge("g", s.key(), "a", accepted(0, 1))

        assert await waiting == [(2, 3, 1)]


@virtual_time
async def test_locks_expire_also_after_an_earlier_lock_was_acknowledged() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.take()
        await asyncio.sleep(10)
        await s.write(b"y")
        await s.take(member="b")
        await s.shares.acknowledge("g", s.key(), "a", accepted(0, 1))
        await asyncio.sleep(25)

        assert await s.take(member="c") == []
        await asyncio.sleep(10)
        assert await s.take(member="c") == [(1, 2, 2)]


@virtual_time
async def test_a_renewed_lock_expires_later() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.take()
        await asyncio.sleep(20)
        await s.shares.acknowledge("g", s.key(), "a", [ShareAck(0, 1, [AckType.RENEW])])
        await asyncio.sleep(20)

        assert await s.take(member="b") == []
        await asyncio.sleep(15)
        assert await s.take(member="b") == [(0, 1, 2)]


@virtual_time
async def test_what_was_not_sent_is_given_back_and_does_not_count() -> None:
    async with scene() as s:
        await s.write(b"x", b"y", b"z")
        await s.take()

        await s.shares.give_back("g", s.key(), "b", [(0, 3)])  # not this member's
        await s.shares.give_back("g", s.key(), "a", [(1, 9)])

        assert await s.take(member="b") == [(1, 3, 1)]


@virtual_time
async def test_a_group_that_does_not_exist_gets_no_state() -> None:
    async with scene() as s:
        await s.write(b"x")
        s.terms.is_allowed = False

        (answer,) = await s.acquire()

        assert isinstance(answer.error, NoState)
        with pytest.raises(Invalid):
            await s.shares.acknowledge("g", s.key(), "a", accepted(0, 1))
        with pytest.raises(NoState):
            await s.shares.reset("g", s.key(), 0)
        assert await s.lake.stores.metadata.cursors.load(s.key()) == []


@pytest.mark.parametrize("group", ["g\0", "g" * 2_000, "\ud800"])
@virtual_time
async def test_a_name_that_no_group_can_have_gets_no_state(group: str) -> None:
    async with scene() as s:
        (answer,) = await s.acquire(group=group)

        assert isinstance(answer.error, Invalid)


@virtual_time
async def test_a_group_that_is_deleted_while_its_state_is_created_gets_none() -> None:
    async with scene() as s:
        await s.write(b"x")
        check_count = 0

        async def deleted() -> None:
            nonlocal check_count
            check_count += 1
            if check_count == 2:  # the check after the count of deletions was read
                s.terms.is_allowed = False
                await s.shares.forget("g", s.key())

        s.terms.on_checked = deleted
        (answer,) = await s.acquire()

        assert isinstance(answer.error, NoState)
        assert await s.lake.stores.metadata.cursors.load(s.key()) == []


@virtual_time
async def test_a_partition_has_a_limit_of_share_groups() -> None:
    async with scene(subscription_per_partition_max=2) as s:
        await s.write(b"x")

        answers = [(await s.acquire(group=f"g{index}"))[0] for index in range(3)]

        assert [type(answer.error) for answer in answers] == [type(None), type(None), Overloaded]
        assert (await s.acquire(group="g0", member="b"))[0].error is None


@virtual_time
async def test_a_damaged_batch_does_not_hold_back_those_before_it() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.write(b"y")
        await s.write(b"z")
        real = s.records.fetch

        async def damaged(ranges: Any, **options: Any) -> Any:
            found = await real(ranges, **options)
            for item in found:
                whole = b"".join(map(bytes, item.views))
                if whole:
                    broken = bytearray(whole)
                    broken[2 * (len(whole) // 3) + 16] = 9  # the magic of the last batch
                    item.views = [
                        memoryview(bytes(broken[: len(whole) // 3])),
                        memoryview(bytes(broken[len(whole) // 3 :])),
                    ]
            return found

        s.records.fetch = damaged  # type: ignore[method-assign]

        assert await s.take(record_count_max=1) == [(0, 1, 1)]


@virtual_time
async def test_a_damaged_batch_waits_for_a_repair_or_a_reset_and_holds_back_no_other_partition() -> None:
    async with scene(2) as s:
        for index in (0, 1):
            await s.write(b"x", index=index)
            await s.write(b"y", index=index)
        real, is_damaged = s.records.fetch, True

        async def damaged(ranges: Any, **options: Any) -> Any:
            found = await real(ranges, **options)
            for item in found:
                if is_damaged and item.range.partition == s.key(0) and item.range.offset == 0:
                    item.views, item.error = [], Corrupt("damaged")
            return found

        s.records.fetch = damaged  # type: ignore[method-assign]

        for _ in range(2 * TERMS.delivery_count_max):
            held, other = await s.acquire(0, 1)
            assert (type(held.error), list(held.acquired)) == (Corrupt, [])
        await s.shares.reset("g", s.key(0), 1)
        assert await s.take() == [(1, 2, 1)]
        is_damaged = False
        await s.shares.reset("g", s.key(0), 0)
        assert await s.take() == [(0, 2, 1)]
        assert other.error is None


@virtual_time
async def test_an_acknowledgement_that_could_not_be_saved_may_be_repeated() -> None:
    async with scene() as s:
        await s.write(b"x", b"y")
        await s.take()
        await asyncio.sleep(1)
        s.lake.cursors.fail_with = Unavailable("away")
        with pytest.raises(Unavailable):
            await s.shares.acknowledge("g", s.key(), "a", accepted(1, 2))
        assert await s.take(member="b") == []

        s.lake.cursors.fail_with = None
        await s.shares.acknowledge("g", s.key(), "a", accepted(1, 2))
        await asyncio.sleep(60)

        assert await s.take(member="b") == [(0, 1, 2)]


@virtual_time
async def test_a_record_whose_acknowledgement_failed_is_delivered_again() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.take()
        await asyncio.sleep(1)
        s.lake.cursors.is_late = True
        with pytest.raises(Unavailable):
            await s.shares.acknowledge("g", s.key(), "a", accepted(0, 1))
        s.lake.cursors.is_late = False
        await asyncio.sleep(60)
        await s.lake.cursors.arrive()

        assert await s.take(member="b") == [(0, 1, 2)]
        await asyncio.sleep(1)
        (cursor,) = await s.lake.cursors.load(s.key())
        assert InFlight.unpack(cursor.mark_delete, cursor.acknowledged).next_offset(10) == 0


@virtual_time
async def test_a_member_that_leaves_while_its_acknowledgement_is_saved_has_acknowledged() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.take()
        working = asyncio.create_task(s.shares.acknowledge("g", s.key(), "a", accepted(0, 1)))
        await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await s.shares.release("g", s.key(), "a")
        await asyncio.sleep(60)

        assert await s.take(member="b") == []
        assert await s.take(member="a") == []


@virtual_time
async def test_a_reset_while_an_acknowledgement_is_saved_wins() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.take()
        working = asyncio.create_task(s.shares.acknowledge("g", s.key(), "a", accepted(0, 1)))
        await asyncio.sleep(0)
        await s.shares.reset("g", s.key(), 0)
        await working

        assert await s.take(member="b") == [(0, 1, 1)]


@virtual_time
async def test_a_member_that_leaves_one_server_keeps_what_it_acquired_through_another() -> None:
    async with scene() as s:
        await s.write(b"x")
        await s.write(b"y")
        await s.take(record_count_max=1, via="1/1")
        await s.take(record_count_max=1, via="2/1")

        await s.shares.release("g", s.key(), "a", "1/1")

        assert await s.take(member="b") == [(0, 1, 2)]
        await s.shares.acknowledge("g", s.key(), "a", accepted(1, 2))
