"""Histories of a store's upkeep: several processes on one store whose roll-up, sweeps and clients' calls come in any order.

A seed draws settings with tiny limits and a sequence of steps. Each step is one transaction (or one call) of one process, so that any
other step can come between two of them. `rounds.py` has the steps of SQLite's upkeep, `roll_ups.py` those of PostgreSQL's. The checks are
promises to clients. They do not use the index or the ledger:

- every process knows the same bounds: those that clients received;
- every acknowledged record from the partition's start on is found once, in an object that holds it and that no sweeper has deleted;
- a batch that a producer repeats is stored once, and its answer has the first offset;
- every call is answered, except with `NotFound` for a deleted stream;
- upkeep comes to an end, and then every object that no record needs can be swept.
"""

import random
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from bearlake.clock import ManualClock
from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import (
    BatchCommit,
    ObjectCommit,
    ObjectKind,
    ObjectRef,
    OutcomeKind,
    PartitionKey,
    Slice,
    Stream,
    StreamSpec,
    stream_number,
)

PROCESS_COUNT = 3
STREAM_COUNT_MAX = 3
UPKEEP_COUNT_MAX = 200
"""Turns of upkeep after which it must have come to an end; more than the steps of a seed leave to do."""

PLANNER = "planner"


class Broken(Exception):
    """A promise was not kept; the text begins with the promise."""


Step = Callable[[], Awaitable[None]]
Store = TypeVar("Store", bound=Metadata)


class _Partition:
    """What clients received from a partition, and the acknowledged batches of its producer: sequence, records and offset."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.sequence = 0
        self.produced: list[tuple[int, int, int]] = []


class UpkeepScenario(ABC, Generic[Store]):
    """One seed's processes, truth and steps."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._clock = ManualClock()
        self._stores: list[Store] = []
        self._streams: list[Stream] = []
        self._known: dict[PartitionKey, _Partition] = {}
        self._objects: dict[str, set[tuple[PartitionKey, int]]] = {}
        """The records (partition and offset) whose bytes each committed object holds."""
        self._swept: set[str] = set()
        self._key_count = 0
        self._weights: dict[Step, int] = {
            self._commit: 30,
            self._delete: 6,
            self._create: 8,
            self._alter: 8,
            self._trim: 4,
            self._retain: 2,
            self._maintain: 1,
            self._restart: 4,
            self._compact: 8,
            self._merge: 6,
            self._sweep: 6,
            self._check_one: 10,
        }
        """The steps and their usual weights; a store adds those of its upkeep."""

    @abstractmethod
    async def _open(self) -> Store:
        """Start a process."""

    def _stopped(self, store: Store) -> None:
        """Forget what the process had under way."""

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
            # Some seeds have long backlogs, others many processes that start again.
            steps = list(self._weights)
            weights = [weight * self._random.choice([1, 3, 9]) for weight in self._weights.values()]
            for _ in range(step_count):
                await self._call(self._random.choices(steps, weights)[0])
            for store in self._stores:
                await self._call(partial(self._check, store))
            await self._call(self._end)
        finally:
            for store in self._stores:
                await store.close()

    async def _call(self, step: Step) -> None:
        self._clock.advance(self._random.randint(0, 20))
        name = getattr(step, "__name__", "check").strip("_")
        self.counts[name] += 1
        try:
            await step()
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"every call is answered: {name} raised {error!r}") from error

    @property
    def _store(self) -> Store:
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
        """Commit a batch to each of some partitions: of no producer, the next of its producer, or one that the producer repeats."""
        keys = self._random.sample(sorted(self._known), self._random.randint(1, len(self._known)))
        batches = [self._batch(key, 10 * at) for at, key in enumerate(keys)]
        token = self._new_key("wal")
        commit = ObjectCommit(token=token, server=self._server, size=10 * len(batches), batches=batches)
        committed = await self._store.log.commit(commit)
        for batch, outcome in zip(batches, committed.outcomes, strict=True):
            self._acknowledge(batch, outcome.kind, outcome.base_offset)
        if committed.slices:  # otherwise it is not in the store
            self._hold(token, committed.slices)

    def _batch(self, key: PartitionKey, position: int) -> BatchCommit:
        known, count = self._known[key], self._random.randint(1, 3)
        batch = BatchCommit(key, position, 10, count, self._clock.now_ms())
        choice = self._random.random()
        if choice < 0.3:
            return batch
        if choice < 0.6 and known.produced:
            sequence, count, _ = self._random.choice(known.produced)
        else:
            sequence = known.sequence
        return batch._replace(record_count=count, producer_id=1, producer_epoch=0, base_sequence=sequence)

    def _acknowledge(self, batch: BatchCommit, kind: OutcomeKind, offset: int) -> None:
        known = self._known[batch.partition]
        is_repeated = 0 <= batch.base_sequence < known.sequence
        if is_repeated:
            self.counts["repeated batch"] += 1
            first = next(found for at, _, found in known.produced if at == batch.base_sequence)
            if (kind, offset) != (OutcomeKind.DUPLICATE, first):
                raise Broken(f"a repeated batch is stored once: {batch} is {kind.name} at {offset}, first at {first}")
            return
        if kind is not OutcomeKind.ACCEPTED:
            raise Broken(f"every commit to a stream that exists is accepted: {batch} is {kind.name}")
        if offset != known.end:
            raise Broken(f"offsets are dense: {batch} has {offset} after {known.end}")
        known.end += batch.record_count
        if batch.base_sequence >= 0:
            known.sequence += batch.record_count
            known.produced = [*known.produced, (batch.base_sequence, batch.record_count, offset)][-5:]

    def _new_key(self, folder: str) -> str:
        self._key_count += 1
        return f"{folder}/{self._key_count:06}"

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

    async def _compact(self) -> None:
        """Compact some of the oldest slices of one partition to one object."""
        store = self._store
        waiting = list(await store.tasks.uncompacted(after=PartitionKey(0), limit=100))
        if not waiting:
            return
        found = self._random.choice(waiting)
        located = await store.log.locate(found.partition, found.compacted, limit=self._random.randint(1, 4))
        if not located.slices:
            return
        ranges = [OffsetRange(found.partition, found.compacted, located.slices[-1].slice.end_offset)]
        await self._replace(store, ranges, self._offer(TaskKind.COMPACT, stream_number(found.partition), ranges=ranges))

    async def _merge(self) -> None:
        """Merge two data files of a stream that the index still names."""
        store = self._store
        number = self._random.choice(self._streams).number
        files = list(await store.objects.data_files(number))
        segments = {
            file.object.key: [OffsetRange(at.partition, at.base_offset, at.end_offset) for at in file.segments]
            for file in files
        }
        named = {
            found.object_key for found in await store.log.slices([at for ranges in segments.values() for at in ranges])
        }
        keys = sorted(named & set(segments))
        if len(keys) >= 2:
            chosen = self._random.sample(keys, 2)
            ranges = sorted(at for key in chosen for at in segments[key])
            await self._replace(store, ranges, self._offer(TaskKind.MERGE, number, inputs=chosen))

    @staticmethod
    def _offer(
        kind: TaskKind, number: int, *, ranges: Sequence[OffsetRange] = (), inputs: Sequence[str] = ()
    ) -> TaskOffer:
        return TaskOffer(
            kind=kind, stream_number=number, ranges=ranges, inputs=inputs, size_bytes=1, record_count=1, age_ms=0
        )

    async def _replace(self, store: Store, ranges: Sequence[OffsetRange], offer: TaskOffer) -> None:
        """Do the offered task: replace the ranges by one object with one slice per range."""
        if not await store.tasks.offer([offer], self._lease):
            return
        for task in await store.tasks.claim(self._server, limit=1, bytes_max=1 << 40):
            claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=self._server)
            located = [found.slice for found in await store.log.slices(ranges)]
            slices = [self._joined(at, located) for at in ranges]
            key = self._new_key("data")
            made = SwapObject(object=ObjectRef(key, 10, ObjectKind.PARQUET), slices=slices)
            await store.tasks.prepare(claim, None, [key])
            await store.log.swap(Swap(claim=claim, objects=[made]))
            self._hold(key, slices)
            self.counts[f"{task.kind.name.lower()} done"] += 1

    @staticmethod
    def _joined(range_: OffsetRange, located: Sequence[Slice]) -> Slice:
        """One slice instead of those of the range; the first may begin before it, since a range begins at the partition's start."""
        key, start, end = range_
        parts = [at for at in located if at.partition == key and at.base_offset < end and at.end_offset > start]
        base = min([start, *(at.base_offset for at in parts)])
        newest = max((at.max_timestamp for at in parts), default=0)
        return Slice(key, base, end - base, 0, sum(at.length for at in parts), newest)

    # Processes.

    async def _maintain(self) -> None:
        await self._store.log.maintain(entry_count_min=self._random.choice([0, 5]))

    async def _restart(self) -> None:
        at = self._random.randrange(len(self._stores))
        store = self._stores[at]
        self._stopped(store)
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

    async def _check(self, store: Store) -> None:
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

    async def _check_usage(self, store: Store, key: PartitionKey, known: _Partition) -> None:
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


Run = tuple[str | None, Counter[str]]
"""The violation of a seed (None: every promise was kept), and what happened how often."""


def run_seeds(run: Callable[[int], Run], seeds: str) -> int:
    """Run the seeds `A-B`, inclusive, and print each violation; returns the exit code, 1 if there was one."""
    first, _, last = seeds.partition("-")
    total, violation_count = Counter[str](), 0
    for seed in range(int(first), int(last or first) + 1):
        violation, counts = run(seed)
        total += counts
        if violation is not None:
            violation_count += 1
            sys.stdout.write(f"seed {seed}: VIOLATION: {violation}\n")
    sys.stdout.write(f"{violation_count} seeds with a violation. Steps: ")
    sys.stdout.write(", ".join(f"{name} {count:,}" for name, count in total.most_common()) + "\n")
    return int(violation_count > 0)
