"""Transactions of several servers at once, whose requests are given up at any moment and repeated through another server.

Each producer tells what it was promised: a transaction is committed in all its partitions, with its offset of the group, or in none.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bearlake.errors import Unavailable
from bearlake.metadata.aborted import AbortedTransactions
from bearlake.metadata.model import BATCH_TRANSACTIONAL, CommittedOffset, Lease, OutcomeKind, PartitionKey
from bearlake.metadata.transactions import BATCH_BEGINS
from bearlake.streams.transactions import TransactionRefusal, TransactionService, TransactionSettings
from fixtures.waiting import WAIT_S

T = TypeVar("T")
Place = tuple[PartitionKey, int]

PARTITION_COUNT = 70
TRANSACTION_COUNT = 16
TIMEOUT_MS = 60_000


@dataclass(eq=False)
class Attempt:
    """One transaction as its producer knows it."""

    number: int
    producer_id: int
    places: list[Place] = field(default_factory=list)
    has_offset: bool = False
    is_committed: bool | None = False
    """None: the producer does not know."""


class Over(Exception):
    """The transaction cannot be committed any more."""


class Lake:
    """Servers on one store, their streams, and what to check in the end."""

    def __init__(self, scene: Any, handles: list[Any], seed: int) -> None:
        self.scene = scene
        self.handles = handles
        self.seed = seed
        self.services = [TransactionService(handle, TransactionSettings()) for handle in handles]
        self.partitions: list[PartitionKey] = []
        self.lease: Lease
        self.counts = {"given up": 0, "fenced": 0, "committed": 0}

    async def asked(self, chance: random.Random, ask: Callable[[int], Awaitable[T]]) -> T:
        """Return the answer to a request; `ask` sends it through a server. It may be given up, and is then repeated through any server."""
        async with asyncio.timeout(WAIT_S):
            return await self._asked(chance, ask)

    async def _asked(self, chance: random.Random, ask: Callable[[int], Awaitable[T]]) -> T:
        while True:
            request = asyncio.ensure_future(ask(chance.randrange(len(self.handles))))
            if chance.random() < 0.3:
                for _ in range(chance.randrange(40)):
                    await asyncio.sleep(0)
                request.cancel()
            (answer,) = await asyncio.gather(request, return_exceptions=True)
            if isinstance(answer, asyncio.CancelledError | Unavailable):
                self.counts["given up"] += 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                return answer


class Producer:
    """Runs transactions of both kinds, one after the other, as Kafka's clients do."""

    def __init__(self, lake: Lake, number: int) -> None:
        self.lake = lake
        self.name = f"producer-{number}"
        self.chance = random.Random(f"{lake.seed} {number}")
        self.group_partition = lake.partitions[number]
        self.attempts: list[Attempt] = []
        self.who = (-1, -1)
        self.sequences: dict[PartitionKey, int] = {}

    async def run(self) -> None:
        """Run all transactions; a producer that was fenced begins anew."""
        await self.initialize()
        for number in range(TRANSACTION_COUNT):
            self.attempts.append(Attempt(number, self.who[0]))
            try:
                await self.transaction(self.attempts[-1], is_v2=self.chance.random() < 0.5)
            except (TransactionRefusal, Over):
                self.lake.counts["fenced"] += 1
                await self.initialize()
        await self.initialize()

    async def initialize(self) -> None:
        services = self.lake.services
        self.who = await self.lake.asked(self.chance, lambda at: services[at].initialize(self.name, TIMEOUT_MS))
        self.sequences.clear()

    async def transaction(self, attempt: Attempt, *, is_v2: bool) -> None:
        lake, chance, who = self.lake, self.chance, self.who
        partitions = chance.sample(lake.partitions, chance.choice([1, 3, 40]))
        if not is_v2:
            await lake.asked(chance, lambda at: lake.services[at].add(self.name, who, partitions=partitions))
        for _ in range(chance.randint(1, 2)):
            await self.write(attempt, partitions, is_v2=is_v2)
        if chance.random() < 0.5:
            await self.keep_offset(attempt, is_v2=is_v2)
        if chance.random() < 0.1:  # an administrator ends it
            await lake.asked(chance, lambda at: lake.services[at].abort(self.name, who))
            raise Over
        is_commit = chance.random() < 0.7
        if is_commit:
            attempt.is_committed = None
        self.who = await lake.asked(
            chance, lambda at: lake.services[at].end(self.name, who, is_commit=is_commit, bumps=is_v2)
        )
        attempt.is_committed = is_commit
        lake.counts["committed"] += is_commit
        if is_v2:
            self.sequences.clear()
        else:
            await lake.scene.backend.advance(1)  # a server tells transactions of one epoch apart by their beginning

    async def write(self, attempt: Attempt, partitions: list[PartitionKey], *, is_v2: bool) -> None:
        lake, batches = self.lake, []
        flags = BATCH_TRANSACTIONAL | (BATCH_BEGINS if is_v2 else 0)
        for partition in partitions:
            sequence = self.sequences.get(partition, 0)
            who = {"producer": self.who[0], "epoch": self.who[1], "sequence": sequence}
            batches.append(lake.scene.batch(partition, 1, **who, flags=flags))
        commit = lake.scene.object(*batches)
        committed = await lake.asked(self.chance, lambda at: lake.handles[at].log.commit(commit))
        for partition, outcome in zip(partitions, committed.outcomes, strict=True):
            if outcome.kind is OutcomeKind.ACCEPTED:
                self.sequences[partition] = self.sequences.get(partition, 0) + 1
                attempt.places.append((partition, outcome.base_offset))
        if any(outcome.kind is not OutcomeKind.ACCEPTED for outcome in committed.outcomes):
            raise Over  # it was aborted, or a stream is gone

    async def keep_offset(self, attempt: Attempt, *, is_v2: bool) -> None:
        lake, who = self.lake, self.who
        offsets = {self.group_partition: CommittedOffset(offset=attempt.number)}
        if not is_v2:
            await lake.asked(self.chance, lambda at: lake.services[at].add(self.name, who, group="g"))
        attempt.has_offset = True
        await lake.asked(
            self.chance,
            lambda at: lake.services[at].keep_offsets(
                self.name, who, "g", offsets, lambda put: put(lake.lease), begins=is_v2
            ),
        )

    def check(self, aborted: dict[PartitionKey, AbortedTransactions], offsets: dict[PartitionKey, Any]) -> None:
        """Compare what the producer was told with what readers and the group see."""
        expected: int | None = None
        for attempt in self.attempts:
            fates = {
                aborted[partition].has(attempt.producer_id, offset)
                for partition, offset in attempt.places
                if partition in aborted
            }
            assert len(fates) < 2, "a transaction is committed in all its partitions, or in none"
            is_committed = attempt.is_committed
            if fates:
                assert is_committed in (None, not fates.pop()), "what the producer was told"
        known = [attempt for attempt in self.attempts if attempt.has_offset and self.fate(attempt, aborted) is not None]
        for attempt in known:
            expected = attempt.number if self.fate(attempt, aborted) else expected
        if len(known) == sum(attempt.has_offset for attempt in self.attempts):
            found = offsets.get(self.group_partition)
            assert (None if found is None else found.offset) == expected, "the offsets of committed transactions"

    @staticmethod
    def fate(attempt: Attempt, aborted: dict[PartitionKey, AbortedTransactions]) -> bool | None:
        """Return whether the transaction was committed; None if nothing shows it."""
        shown = [place for place in attempt.places if place[0] in aborted]
        if attempt.is_committed is not None or not shown:
            return attempt.is_committed
        partition, offset = shown[0]
        return not aborted[partition].has(attempt.producer_id, offset)


async def disturb(lake: Lake, producers: "asyncio.Future[Any]") -> None:
    """What other servers do until all producers have ended."""
    scene, chance = lake.scene, random.Random(lake.seed)
    while not producers.done():
        handle, service = chance.choice(lake.handles), chance.choice(lake.services)
        stream = await scene.stream("gone", partition_count=2)
        gone = [stream.partition(0), stream.partition(1)]
        lake.partitions += gone
        for _ in range(5):
            await scene.commit(*(scene.batch(partition) for partition in chance.sample(lake.partitions[:-2], 30)))
            await handle.log.maintain(entry_count_min=chance.choice([0, 50]))
            for row in await handle.transactions.list(is_ongoing=True):
                if chance.random() < 0.05:
                    with suppress(TransactionRefusal):  # it is over, or has a later epoch
                        await service.abort(row.transactional_id, (row.producer_id, row.epoch))
        if chance.random() < 0.3:
            await scene.backend.advance(TIMEOUT_MS + 1)
        await service.expire()
        lake.partitions[-2:] = []
        await handle.streams.delete(stream.number)


async def watch(lake: Lake, producers: "asyncio.Future[Any]") -> None:
    """A reader: what it may read only grows."""
    stable = dict.fromkeys(lake.partitions, 0)
    while not producers.done():
        for handle in lake.handles:
            bounds = await handle.log.bounds(list(stable))
            for partition, found in bounds.items():
                assert stable[partition] <= found.last_stable <= found.end
                stable[partition] = found.last_stable


async def run(scene: Any, handles: list[Any], seed: int = 1) -> Lake:
    """Run producers on several servers; check what they were told."""
    lake = Lake(scene, handles, seed)
    stream = await scene.stream(partition_count=PARTITION_COUNT)
    stable = [stream.partition(index) for index in range(PARTITION_COUNT)]
    lake.partitions = list(stable)
    lake.lease = await scene.metadata.leases.acquire("group/g", scene.server)
    producers = [Producer(lake, number) for number in range(6)]
    running = asyncio.gather(*(producer.run() for producer in producers))
    await asyncio.gather(running, disturb(lake, running), watch(lake, running))
    isolation = await scene.metadata.transactions.isolation(stable)
    aborted = {partition: AbortedTransactions(found.aborted) for partition, found in isolation.items()}
    offsets = await scene.metadata.groups.offsets("g")
    for producer in producers:
        producer.check(aborted, offsets)

    assert await scene.metadata.transactions.open_offsets() == []
    assert await scene.metadata.transactions.pending("g") == set()
    assert all(lake.counts.values()), lake.counts
    return lake


async def test_processes_on_one_file_keep_what_producers_were_told(sqlite_backend: Any, new_scene: Any) -> None:
    scene = await new_scene(sqlite_backend)
    await run(scene, [scene.metadata, await sqlite_backend.open(), await sqlite_backend.open()])


async def test_processes_that_keep_little_in_memory_keep_what_producers_were_told(
    turns_backend: Any, new_scene: Any
) -> None:
    scene = await new_scene(turns_backend)
    await run(scene, [scene.metadata, await turns_backend.open()])


async def test_servers_on_postgresql_keep_what_producers_were_told_without_a_deadlock(
    postgresql_backend: Any, new_scene: Any
) -> None:
    scene = await new_scene(postgresql_backend)
    await run(scene, [scene.metadata, await postgresql_backend.open(), await postgresql_backend.open()])
    query = "select deadlocks from pg_stat_database where datname = current_database()"

    assert [tuple(row) for row in await postgresql_backend.execute(query)] == [(0,)]
