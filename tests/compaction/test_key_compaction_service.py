"""Key compaction with the real planner, worker and sweeper in virtual time: workers die at each call, and consumers read on."""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake import kernel
from bearlake.compaction.cleaned_files import is_cleaned, is_only_in_log
from bearlake.compaction.commit import Committer
from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.settings import (
    CompactionSettings,
    KeyCompactionSettings,
    MergeSettings,
    PlannerSettings,
    SweepSettings,
    WorkerSettings,
)
from bearlake.compaction.stream_index import read_index
from bearlake.compaction.workbench import Workbench
from bearlake.metadata import registering
from bearlake.metadata.model import NO_ROW, ObjectKind, ObjectRef
from bearlake.records.codec import Record, decode, encode
from bearlake.streams.catalog import StreamView
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from bearlake.table import Unmergeable
from fixtures.compaction_items import read_whole
from fixtures.deployment import NOW_MS, Deployment, append, deployment, fetch
from fixtures.history import COLD
from simulator.loop import virtual_time
from simulator.tables import MemoryTables

Log = dict[tuple[int, int], tuple[bytes | None, bytes | None]]
"""(key, value) by (partition index, offset)."""
PARTITION_COUNT = 2
CALL_COUNT = 60
CALLS_PER_TEST = 10
WAIT_S = 120.0


def settings(*, is_cleaning: bool = True, **named: Any) -> CompactionSettings:
    return CompactionSettings(
        planner=PlannerSettings(pause_ms=5, wait_ms=50, retry_pause_ms=20, reconcile_ms=100),
        worker=WorkerSettings(claim_pause_ms=20, retry_first_ms=20, retry_max_ms=100, unavailable_pause_ms=20),
        merge=MergeSettings(is_enabled=False),
        key_compaction=KeyCompactionSettings(
            is_enabled=is_cleaning, **{"check_ms": 100, "history_pause_ms": 0, **named}
        ),
        sweep=SweepSettings(grace_ms=0, pause_ms=100, file_pause_ms=100, retry_pause_ms=20),
    )


@dataclass
class Life:
    """Counts the calls of a worker, which dies at the call of number `dies_at`: before it, if the number is odd, else after it."""

    dies_at: int = 0
    call_count: int = 0
    death: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call, unless the worker dies."""
        self.call_count += 1
        is_last = self.call_count == self.dies_at
        if is_last and self.dies_at % 2:
            self.death.set()
        await self._stop_if_dead()
        result = await call()
        if is_last:
            self.death.set()
        await self._stop_if_dead()
        return result

    async def _stop_if_dead(self) -> None:
        if self.death.is_set():
            await asyncio.Event().wait()


class Mortal:
    """A store as a worker sees it."""

    def __init__(self, inner: Any, life: Life) -> None:
        self._inner = inner
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(found):
            return lambda *arguments, **named: self._life.run(lambda: found(*arguments, **named))
        if type(found).__module__.startswith("bearlake.metadata"):
            return Mortal(found, self._life)
        return found


@dataclass
class Scene:
    """A stream with key compaction, a server, and workers."""

    stores: Deployment
    tables: MemoryTables
    streams: Streams
    view: StreamView
    sent: Log = field(default_factory=dict)

    async def produce(self, seed: int, *, key_count: int = 5, batch_count: int = 4) -> None:
        """Append random batches."""
        randomness = random.Random(seed)
        for _ in range(batch_count):
            for index in range(PARTITION_COUNT):
                records = [
                    (b"k%d" % randomness.randrange(key_count), randomness.choice([None, randomness.randbytes(20)]))
                    for _ in range(randomness.randrange(1, 6))
                ]
                batch = encode([Record(key=key, value=value, timestamp=NOW_MS) for key, value in records])
                ((_, base, _),) = await append(self.streams, self.view, batch, index=index)
                self.sent |= {(index, base + at): record for at, record in enumerate(records)}

    def newest(self) -> Log:
        """What a cleaning leaves of everything: the newest record of each key."""
        last = {(index, record[0]): (index, offset) for (index, offset), record in sorted(self.sent.items())}
        return {place: self.sent[place] for place in last.values()}

    async def read(self) -> Log:
        """Read all partitions from the beginning to the end as a consumer does."""
        found: Log = {}
        for index in range(PARTITION_COUNT):
            offset = 0
            while True:
                fetched = await fetch(self.streams, self.view, offset, index=index, bytes_max=700)
                assert fetched.error is None, fetched.error
                if offset == fetched.end:
                    break
                last = -1
                for part in fetched.views:
                    for position, base, header in kernel.batches(part, 0, len(part)):
                        batch = bytes(part[position : position + header.length])
                        last = base + header.last_offset_delta
                        for record in decode(batch, 1 << 30) if header.record_count else []:
                            at = base + (record.offset_delta or 0)
                            if at >= offset:
                                found[index, at] = record.key, record.value
                assert last >= offset, "a fetch that does not get on"
                offset = last + 1
        return found

    async def rows(self) -> list[tuple[int, int]]:
        """Partition and offset of each row of the table."""
        found = []
        for file in self.tables.tables[self.view.stream.number].files.values():
            content = await read_whole(self.stores.store, ObjectRef(file.key, file.size, ObjectKind.PARQUET))
            rows = pq.read_table(pa.BufferReader(content), columns=["_partition_id", "_offset"]).to_pylist()
            found += [(row["_partition_id"], row["_offset"]) for row in rows]
        return sorted(found)

    async def work(self, config: CompactionSettings, until: Callable[[], Awaitable[bool]], life: Life) -> bool:
        """Run a worker until the condition holds, or until it dies; return whether it lives."""
        registration = await registering.register(
            self.stores.metadata.servers, "worker", zone=None, endpoints={}, version="1", timeout_ms=600_000
        )
        store: Any = Mortal(self.stores.store, life)
        metadata: Any = Mortal(self.stores.metadata, life)
        tables: Any = Mortal(self.tables, life)
        workbench = Workbench(clock=self.stores.clock, random_bits=random.Random(registration.server.epoch).getrandbits)
        compactor = Compactor(
            metadata,
            store,
            tables,
            InProcess(store, workbench),
            registration.server,
            config,
            clock=self.stores.clock,
            random_source=random.Random(1),
        )
        run = asyncio.create_task(compactor.run())
        async with asyncio.timeout(WAIT_S):
            while not await until() and not life.death.is_set():
                assert not run.done(), run.exception()
                await asyncio.sleep(0.02)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        return not life.death.is_set()

    async def is_compacted(self) -> bool:
        """Whether everything is in data files and no task is open."""
        located, bounds = await read_index(self.view.stream, self.stores.metadata)
        size = sum(found.slice.record_count for found in located)
        is_whole = size == sum(found.end - found.start for found in bounds.values())
        return is_whole and not await self.stores.metadata.tasks.list()

    async def is_cleaned(self) -> bool:
        """Whether everything is in cleaned files."""
        located, _ = await read_index(self.view.stream, self.stores.metadata)
        return await self.is_compacted() and all(is_cleaned(found.object_key) for found in located)


async def scene_of(stores: Deployment, on_compaction: str, **configs: str) -> Scene:
    streams = await stores.serve(COLD)
    given = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "table.freshness_ms": "100",
        "table.on_compaction": on_compaction,
        **{name.replace("__", "."): value for name, value in configs.items()},
    }
    view = await streams.create(ANONYMOUS, "orders", PARTITION_COUNT, given)
    return Scene(stores, MemoryTables(stores.clock), streams, view)


@pytest.mark.parametrize("on_compaction", ["latest", "history"])
def test_a_consumer_gets_the_newest_records_and_the_table_what_its_stream_says(on_compaction: str) -> None:
    @virtual_time
    async def run() -> None:
        async with deployment() as stores:
            scene = await scene_of(stores, on_compaction)
            for turn in range(3):
                await scene.produce(turn)
                assert await scene.work(settings(), scene.is_cleaned, Life())

            assert await scene.read() == scene.newest()
            assert await scene.rows() == sorted(scene.newest() if on_compaction == "latest" else scene.sent)
            located, _ = await read_index(scene.view.stream, stores.metadata)
            assert {is_only_in_log(found.object_key) for found in located} == {on_compaction == "history"}

    run()


@pytest.mark.parametrize("first", range(1, CALL_COUNT, CALLS_PER_TEST))
def test_a_worker_that_cleans_may_die_at_any_of_its_calls_from(first: int) -> None:
    @virtual_time
    async def run(dies_at: int) -> None:
        async with deployment() as stores:
            on_compaction = "latest" if dies_at % 4 < 2 else "history"
            scene = await scene_of(stores, on_compaction)
            await scene.produce(dies_at)
            await scene.work(settings(), scene.is_cleaned, Life())
            await scene.produce(dies_at + 1)
            await scene.work(settings(is_cleaning=False), scene.is_compacted, Life())

            await scene.work(settings(), scene.is_cleaned, Life(dies_at=dies_at))
            await scene.work(settings(), scene.is_cleaned, Life())

            assert await scene.read() == scene.newest()
            assert await scene.rows() == sorted(scene.newest() if on_compaction == "latest" else scene.sent)

    for dies_at in range(first, first + CALLS_PER_TEST):
        run(dies_at)


@virtual_time
async def test_consumers_read_on_while_their_files_are_cleaned_and_swept() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest")
        await scene.produce(1, batch_count=10)
        is_over = asyncio.Event()
        read_count = 0

        async def consume() -> None:
            nonlocal read_count
            while not is_over.is_set():
                newest, sent = scene.newest(), len(scene.sent)
                found = await scene.read()
                read_count += 1
                assert found.items() <= scene.sent.items()
                if sent == len(scene.sent):
                    assert newest.items() <= found.items()
                await asyncio.sleep(0.003)

        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            for turn in range(3):
                await scene.work(settings(), scene.is_cleaned, Life())
                await scene.produce(turn, batch_count=3)
            await scene.work(settings(), scene.is_cleaned, Life())
            is_over.set()

        assert read_count > 10
        assert await scene.read() == scene.newest()


@virtual_time
async def test_a_partition_of_which_no_record_is_left_is_read_to_its_end() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest", delete__retention__ms="0")
        await append(scene.streams, scene.view, encode([Record(key=b"a", timestamp=NOW_MS)] * 3), index=0)
        for value in (b"1", b"2"):
            batch = encode([Record(key=b"b", value=value, timestamp=NOW_MS)])
            await append(scene.streams, scene.view, batch, index=1)
            await scene.work(settings(), scene.is_cleaned, Life())
        located, bounds = await read_index(scene.view.stream, stores.metadata)

        assert await scene.read() == {(1, 1): (b"b", b"2")}
        assert [(found.slice.base_offset, found.slice.end_offset, found.slice.position) for found in located] == [
            (0, 3, NO_ROW),
            (0, 2, 0),
        ]
        question = OffsetQuestion(scene.view.partition(0), NOW_MS)
        assert (await scene.streams.offsets([question]))[0].offset == -1
        assert [found.end for found in bounds.values()] == [3, 2]


@virtual_time
async def test_a_stream_whose_records_have_no_key_at_all_is_left_as_it_is() -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest", cleanup__policy="delete")
        for index in range(PARTITION_COUNT):
            await append(scene.streams, scene.view, encode([Record(value=b"v", timestamp=NOW_MS)]), index=index)
        scene.view = await scene.streams.change(
            ANONYMOUS, scene.view.stream, lambda present: ({"cleanup.policy": "compact"}, [])
        )

        await scene.work(settings(), scene.is_compacted, Life())
        await scene.work(settings(check_ms=20), _after(2.0), Life())

        assert sorted(await scene.read()) == [(0, 0), (1, 0)]
        assert not await stores.metadata.tasks.list()


@virtual_time
async def test_a_table_that_lost_a_file_stops_neither_the_log_nor_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with deployment() as stores:
        scene = await scene_of(stores, "latest")
        await scene.produce(1)
        attempts = 0

        async def refuse(self: Committer, stream: Any, works: Any) -> None:
            nonlocal attempts
            if any(work.cleaning is not None for work in works):
                attempts += 1
                raise Unmergeable("a file is gone")
            await apply(self, stream, works)

        apply = Committer._apply  # noqa: SLF001 - the step that a foreign change of the table makes fail
        monkeypatch.setattr(Committer, "_apply", refuse)

        await scene.work(settings(check_ms=20), scene.is_compacted, Life())
        await scene.work(settings(check_ms=20), _after(3.0), Life())

        assert await scene.read() == scene.sent
        assert 0 < attempts <= 12  # three times the same files, alone and together, by each of two planners
        assert not await stores.metadata.tasks.list()


def _after(seconds: float) -> Callable[[], Awaitable[bool]]:
    start_s = asyncio.get_running_loop().time()

    async def is_over() -> bool:
        return asyncio.get_running_loop().time() > start_s + seconds

    return is_over
