"""Histories of SQLite's roll-up: several processes on one file whose rounds stop, end late, overlap and never end.

`python -m simulator.rounds A-B` runs seeds A to B and prints each violation; exit code 1: at least one. A seed repeats its steps.

A seed draws settings with tiny limits and a sequence of steps. Each step is one transaction (or one call) of one process, so that any
other step can come between two transactions of a round. The checks are promises to clients. They do not use the index or the ledger:

- every process knows the same bounds: those that clients received;
- every acknowledged record from the partition's start on is found once, in an object that holds it and that no sweeper has deleted;
- every call is answered, except with `NotFound` for a deleted stream;
- upkeep comes to an end, and then every object that no record needs can be swept.
"""

import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from bearlake.clock import ManualClock
from bearlake.metadata import registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectKind,
    ObjectRef,
    PartitionKey,
    Slice,
    Stream,
    StreamSpec,
    stream_number,
)
from bearlake.metadata.sqlite.rollup import Round
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import SqliteMetadata, open_sqlite

PROCESS_COUNT = 3
STREAM_COUNT_MAX = 3
ROUND_COUNT_MAX = 4
"""Rounds that are under way at once."""

UPKEEP_COUNT_MAX = 200
"""Turns of upkeep after which it must have come to an end; more than the steps of a seed leave to do."""

PLANNER = "planner"


class Broken(Exception):
    """A promise was not kept; the text begins with the promise."""


class _Partition:
    """What clients received from a partition."""

    def __init__(self) -> None:
        self.start = self.end = self.compacted = 0


class RoundScenario:
    """One seed's processes, truth and steps."""

    def __init__(self, seed: int, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._path = path
        self._clock = ManualClock()
        self._stores: list[SqliteMetadata] = []
        self._rounds: list[tuple[SqliteMetadata, Round, bool]] = []
        """Rounds that are under way, their processes, and whether they have read all their entries."""
        self._streams: list[Stream] = []
        self._known: dict[PartitionKey, _Partition] = {}
        self._objects: dict[str, set[tuple[PartitionKey, int]]] = {}
        """The records (partition and offset) whose bytes each committed object holds."""
        self._swept: set[str] = set()
        weights: dict[Callable[[], Awaitable[None]], int] = {
            self._commit: 30,
            self._delete: 6,
            self._create: 8,
            self._alter: 8,
            self._trim: 4,
            self._retain: 2,
            self._begin: 8,
            self._advance: 30,
            self._abandon: 2,
            self._clean: 8,
            self._maintain: 1,
            self._expire: 1,
            self._reload: 4,
            self._restart: 4,
            self._swap: 3,
            self._sweep: 6,
            self._check_one: 10,
        }
        self._steps = {step: weight * self._random.choice([1, 3, 9]) for step, weight in weights.items()}
        """The seed's steps and their weights: some seeds have long backlogs, others many processes that start again."""

    async def run(self, step_count: int) -> None:
        """Run the steps and check the promises; raises `Broken`."""
        try:
            for _ in range(PROCESS_COUNT):
                self._stores.append(await self._open())
            registered = await registering.register(
                self._stores[0].servers, "server", zone=None, endpoints={}, version="", timeout_ms=1_000
            )
            self._server = registered.server
            self._lease = await self._stores[0].leases.acquire(PLANNER, self._server)
            await self._create()
            steps, weights = list(self._steps), list(self._steps.values())
            for _ in range(step_count):
                await self._call(self._random.choices(steps, weights)[0])
            for store in self._stores:
                await self._call(partial(self._check, store))
            await self._call(self._end)
        finally:
            for store in self._stores:
                await store.close()

    async def _call(self, step: Callable[[], Awaitable[None]]) -> None:
        self._clock.advance(self._random.randint(0, 20))
        name = getattr(step, "__name__", "check").strip("_")
        self.counts[name] += 1
        try:
            await step()
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"every call is answered: {name} raised {error!r}") from error

    async def _open(self) -> SqliteMetadata:
        draw = self._random.choice
        settings = SqliteSettings(
            synchronous="OFF",
            poll_interval_ms=0,
            page_slice_count_max=draw([1, 2, 4, 8]),
            roll_entry_count_max=draw([1, 2, 4, 8, 20]),
            roll_slice_count_max=draw([2, 6, 100]),
            roll_partition_count_max=draw([1, 1, 2, 3]),
            unrolled_entry_count_max=draw([3, 30, 1_000]),
            sweep_page_count_max=draw([1, 3, 20]),
            partition_count_cached_max=draw([1, 3, 100]),
        )
        return await open_sqlite(self._path, settings, clock=self._clock)

    @property
    def _store(self) -> SqliteMetadata:
        return self._random.choice(self._stores)

    # Clients.

    async def _create(self) -> None:
        names = sorted({"a", "b", "c"} - {stream.name for stream in self._streams})
        if len(self._streams) < STREAM_COUNT_MAX:
            store, name = self._store, self._random.choice(names)
            after = await store.streams.newest(name)
            spec = StreamSpec(name=name, partition_count=self._random.randint(1, 3), after=after)
            stream = await store.streams.create(spec)
            self._streams.append(stream)
            for index in range(spec.partition_count):
                self._known[stream.partition(index)] = _Partition()

    async def _delete(self) -> None:
        if len(self._streams) > 1:
            stream = self._streams.pop(self._random.randrange(len(self._streams)))
            await self._store.streams.delete(stream.number)
            for key in [key for key in self._known if stream_number(key) == stream.number]:
                del self._known[key]

    async def _alter(self) -> None:
        at = self._random.randrange(len(self._streams))
        stream = self._streams[at]
        self._streams[at] = await self._store.streams.alter(
            stream.number, set_configs={"note": "changed"}, unset_configs=(), version=stream.version
        )

    async def _commit(self) -> None:
        batches = [
            BatchCommit(key, 10 * at, 10, self._random.randint(1, 3), self._clock.now_ms())
            for at, key in enumerate(
                self._random.sample(sorted(self._known), self._random.randint(1, len(self._known)))
            )
        ]
        token = f"wal/{len(self._objects):06}"
        commit = ObjectCommit(token=token, server=self._server, size=10 * len(batches), batches=batches)
        committed = await self._store.log.commit(commit)
        if len(committed.slices) != len(batches):
            raise Broken("every commit to a stream that exists is accepted")
        for batch, found in zip(batches, committed.slices, strict=True):
            known = self._known[batch.partition]
            if (found.partition, found.base_offset) != (batch.partition, known.end):
                raise Broken(f"offsets are dense: {found} after {known.end}")
            known.end += batch.record_count
        self._hold(token, committed.slices)

    def _hold(self, token: str, slices: Sequence[Slice]) -> None:
        records = self._objects.setdefault(token, set())
        for found in slices:
            records.update((found.partition, offset) for offset in range(found.base_offset, found.end_offset))

    async def _trim(self) -> None:
        key = self._random.choice(sorted(self._known))
        known = self._known[key]
        start = self._random.randint(known.start, known.end)
        known.start = (await self._store.log.trim(key, start)).start

    async def _retain(self) -> None:
        stream = self._random.choice(self._streams)
        moved = await self._store.log.retain(
            stream, range(stream.partition_count), before_ms=None, size_max=self._random.choice([0, 20, 60])
        )
        for key, bounds in moved.items():
            self._known[key].start = bounds.start

    async def _swap(self) -> None:
        """Compact some of the oldest slices of one partition to one object."""
        store = self._store
        waiting = list(await store.tasks.uncompacted(after=PartitionKey(0), limit=100))
        if not waiting:
            return
        found = self._random.choice(waiting)
        located = await store.log.locate(found.partition, found.compacted, limit=self._random.randint(1, 4))
        if not located.slices:
            return
        end = located.slices[-1].slice.end_offset
        ranges = [OffsetRange(found.partition, found.compacted, end)]
        number = stream_number(found.partition)
        offer = TaskOffer(
            kind=TaskKind.COMPACT, stream_number=number, ranges=ranges, size_bytes=1, record_count=1, age_ms=0
        )
        if not await store.tasks.offer([offer], self._lease):
            return
        for task in await store.tasks.claim(self._server, limit=1, bytes_max=1 << 40):
            claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server)
            slices = [found.slice for found in await store.log.slices(ranges)]
            base, length = slices[0].base_offset, sum(slice_.length for slice_ in slices)
            joined = slices[0]._replace(
                record_count=end - base, position=0, length=length, max_timestamp=max(at.max_timestamp for at in slices)
            )
            key = f"data/{len(self._objects):06}"
            made = SwapObject(object=ObjectRef(key, length, ObjectKind.PARQUET), slices=[joined])
            await store.tasks.prepare(claim, None, [key])
            await store.log.swap(Swap(claim=claim, objects=[made]))
            self._hold(key, [joined])

    # Processes.

    async def _begin(self) -> None:
        if len(self._rounds) < ROUND_COUNT_MAX:
            store = self._store
            self._rounds.append((store, await store._database.run_read(store._log.upkeep._begin), False))

    async def _advance(self) -> None:
        """Let a round do its next transaction."""
        if not self._rounds:
            return
        at = self._random.randrange(len(self._rounds))
        store, round_, is_read = self._rounds[at]
        upkeep = store._log.upkeep
        if not is_read:
            is_read = not await store._database.run_read(upkeep._read, round_)
            is_more = not is_read or round_.end > round_.start
        else:
            is_more = await store._database.run(upkeep._write, round_)
            if not is_more:  # as `roll_up` and `maintain` go on
                if round_.is_done:
                    await store._database.run(upkeep._clean, 0)
                self.counts["round ended" if round_.is_done else "round was overtaken"] += 1
        if is_more:
            self._rounds[at] = store, round_, is_read
        else:
            del self._rounds[at]

    async def _abandon(self) -> None:
        if self._rounds:
            del self._rounds[self._random.randrange(len(self._rounds))]

    async def _clean(self) -> None:
        store = self._store
        await store._database.run(store._log.upkeep._clean, self._random.choice([0, 0, 5, 50]))

    async def _maintain(self) -> None:
        await self._store.log.maintain(entry_count_min=self._random.choice([0, 5]))

    async def _expire(self) -> None:
        """Roll up a round in one transaction, as the expiry of producers does."""
        store = self._store
        await store._database.run(store._log.upkeep.forget_producers, 0, 10)

    async def _reload(self) -> None:
        """Let all processes load their states again, as after an expiry."""
        store = self._store

        def count() -> None:
            with store._database.writing() as connection:
                connection.execute("UPDATE store SET forgotten_count = forgotten_count + 1")

        await store._database.run(count)

    async def _restart(self) -> None:
        at = self._random.randrange(len(self._stores))
        store = self._stores[at]
        self._rounds = [found for found in self._rounds if found[0] is not store]
        await store.close()
        self._stores[at] = await self._open()

    async def _sweep(self) -> None:
        store = self._store
        for kind in (ObjectKind.WAL, ObjectKind.PARQUET):
            keys = [found.object.key for found in await store.objects.unused(kind, unused_ms=0)]
            await store.objects.deleted(keys)
            self._swept.update(keys)

    # Promises.

    async def _check_one(self) -> None:
        await self._check(self._store)

    async def _check(self, store: SqliteMetadata) -> None:
        bounds = await store.log.bounds(list(self._known))
        for key, known in self._known.items():
            if key not in bounds or (bounds[key].start, bounds[key].end) != (known.start, known.end):
                raise Broken(f"all processes know the same bounds: {key} has {bounds.get(key)}, not {vars(known)}")
            offset, limit = known.start, self._random.choice([1, 3, 1_000])
            while offset < known.end:
                located = await store.log.locate(key, offset, limit=limit)
                if not located.slices:
                    raise Broken(f"every acknowledged record is found: {key} has none at {offset}")
                for found in located.slices:
                    self._check_slice(key, offset, found.slice, found.object_key)
                    offset = found.slice.end_offset
            await self._check_usage(store, key, known)

    def _check_slice(self, key: PartitionKey, offset: int, found: Slice, token: str) -> None:
        is_first = found.base_offset < offset
        if found.base_offset > offset or found.end_offset <= offset or (is_first and offset != self._known[key].start):
            raise Broken(f"every acknowledged record is found once: {key} has {found} at {offset}")
        if token in self._swept:
            raise Broken(f"no object with records is swept: {token} at {key}, {offset}")
        missing = {(key, at) for at in range(offset, found.end_offset)} - self._objects[token]
        if missing:
            raise Broken(f"the object has the record's bytes: {token} lacks {missing}")

    async def _check_usage(self, store: SqliteMetadata, key: PartitionKey, known: _Partition) -> None:
        usage = (await store.log.usage([key]))[key]
        if usage.record_count != known.end - known.start:
            raise Broken(f"all processes know the same bounds: {key} has {usage.record_count} records")

    async def _end(self) -> None:
        """Delete all streams, and let upkeep come to an end."""
        for stream in self._streams:
            await self._store.streams.delete(stream.number)
        self._known.clear()
        for turn in range(UPKEEP_COUNT_MAX):
            await self._stores[turn % PROCESS_COUNT].log.maintain(entry_count_min=0)
            await self._sweep()
            if self._swept >= set(self._objects):
                return
        left = sorted(set(self._objects) - self._swept)
        raise Broken(f"upkeep ends, and objects without records are swept: {len(left)} are not, for instance {left[0]}")


def run_rounds(seed: int, *, step_count: int = 150) -> tuple[str | None, Counter[str]]:
    """Run one seed; returns the violation (None: every promise was kept), and what happened how often."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = RoundScenario(seed, Path(folder) / "metadata.db")
        try:
            asyncio.run(scenario.run(step_count))
        except Broken as broken:
            return str(broken), scenario.counts
    return None, scenario.counts


def main(seeds: str) -> int:
    """Run the seeds `A-B`, inclusive; returns the exit code."""
    first, _, last = seeds.partition("-")
    total, violation_count = Counter[str](), 0
    for seed in range(int(first), int(last or first) + 1):
        violation, counts = run_rounds(seed)
        total += counts
        if violation is not None:
            violation_count += 1
            sys.stdout.write(f"seed {seed}: VIOLATION: {violation}\n")
    sys.stdout.write(f"{violation_count} seeds with a violation. Steps: ")
    sys.stdout.write(", ".join(f"{name} {count:,}" for name, count in total.most_common()) + "\n")
    return int(violation_count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
