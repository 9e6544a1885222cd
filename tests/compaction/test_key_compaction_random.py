"""Random histories of a stream with key compaction: everything that may happen to it, at any time.

Records with hostile keys, tombstones, transactions, batches that rows cannot represent, trims, changes of its configs, workers that die or
are overtaken while they stand still. After each turn, a consumer reads what it must, whatever was cleaned in between:

- every record that it gets was sent so, at that offset;
- the newest record of each key is there, unless it is a tombstone whose retention is over;
- once that tombstone has gone, no record of its key is left.

In the end all that is superseded has gone, and the table has no row twice.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typing_extensions import override

from bearlake.clock import ManualClock
from bearlake.compaction.settings import CompactionSettings, MergeSettings
from bearlake.compaction.stream_index import read_index
from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.codec import Record, encode
from bearlake.streams.principal import ANONYMOUS
from fixtures.cleaned_stream import PARTITION_COUNT, Life, Log, Scene, after, scene_of, settings
from fixtures.deployment import NOW_MS, append, deployment
from simulator.loop import virtual_time

SEED_COUNT = 6
TURN_COUNT = 8
CALL_COUNT = 90
KEYS = [b"", b"\0", b"\0\0", b"a", b"aa", b"b" * 3_000, b"\xff", b"k0", b"k1"]
DAY_MS = 86_400_000
Sent = tuple[bytes | None, bytes | None]


@dataclass
class Stall(Life):
    """A worker that stands still at one of its calls, before or after it, and then goes on."""

    stalls_at: int = 0
    seconds: float = 0.0

    @override
    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call."""
        self.call_count += 1
        if self.call_count == self.stalls_at and self.call_count % 2:
            await asyncio.sleep(self.seconds)
        result = await call()
        if self.call_count == self.stalls_at and not self.call_count % 2:
            await asyncio.sleep(self.seconds)
        return result


@dataclass
class Attack:
    """One history. `kept`: places of records whose batch is kept. `sent_ms`: when a record was sent; `keep_ms`: the shortest retention."""

    scene: Scene
    randomness: random.Random
    has_one_table: bool
    keep_ms: int
    policy: str = "compact"
    kept: set[tuple[int, int]] = field(default_factory=set)
    sent_ms: dict[tuple[int, int], int] = field(default_factory=dict)

    async def step(self) -> None:
        """Do something to the stream."""
        choice, scene = self.randomness, self.scene
        step = choice.random()
        if step < 0.7:
            await self._send(is_odd=step < 0.08)
        elif step < 0.76:
            scene.stores.clock.advance(choice.choice([10, 500, 2_000]))
        elif step < 0.82:
            partition = scene.view.partition(choice.randrange(PARTITION_COUNT))
            bounds = (await scene.stores.metadata.log.bounds([partition]))[partition]
            await scene.stores.metadata.log.trim(partition, choice.randint(bounds.start, bounds.last_stable))
        elif step < 0.88:
            self.policy = choice.choice(["compact", "compact,delete", "delete"])
            await self.alter(cleanup__policy=self.policy, retention__ms="-1")
        elif step < 0.92 and not self.has_one_table:
            await self.alter(table__enable=choice.choice(["true", "false"]))
        elif step < 0.96:
            keep_ms = choice.choice([0, 1_000, DAY_MS])
            self.keep_ms = min(self.keep_ms, keep_ms)
            await self.alter(delete__retention__ms=str(keep_ms))
        else:
            await self.alter(min__compaction__lag__ms=choice.choice(["0", "300"]))

    async def alter(self, **configs: str) -> None:
        """Change configs ("__" for ".")."""
        given = {name.replace("__", "."): value for name, value in configs.items()}
        self.scene.view = await self.scene.streams.change(ANONYMOUS, self.scene.view.stream, lambda _: (given, []))

    async def _send(self, *, is_odd: bool) -> None:
        choice, scene = self.randomness, self.scene
        name = None if is_odd else choice.choice([None, None, "t", "u"])
        if name in scene.open and choice.random() < 0.5:
            await scene.end(name, is_commit=choice.random() < 0.6)
            return
        records: list[Sent] = [
            (choice.choice(KEYS), choice.choice([None, b"", choice.randbytes(10)]))
            for _ in range(choice.randrange(1, 5))
        ]
        if self.policy == "delete" and choice.random() < 0.3:
            records.append((None, b"without a key"))
        before = self._places()
        if name is None:
            await self._append(choice.randrange(PARTITION_COUNT), records, is_odd=is_odd)
        else:
            keyed = [(key, value) for key, value in records if key is not None]
            await scene.send(choice.randrange(PARTITION_COUNT), *keyed, transactional_id=name)
        now_ms = scene.stores.clock.now_ms()
        self.sent_ms |= dict.fromkeys(self._places() - before, now_ms)

    async def _append(self, index: int, records: list[Sent], *, is_odd: bool) -> None:
        """Append a batch; an odd one has a header that no text can be, so it is kept beside its rows."""
        headers = (("\udcff", b"x"),) if is_odd else ()
        content = [Record(key=key, value=value, timestamp=NOW_MS, headers=headers) for key, value in records]
        ((_, base, _),) = await append(self.scene.streams, self.scene.view, encode(content), index=index)
        places = [(index, base + at) for at in range(len(records))]
        self.scene.sent |= dict(zip(places, records, strict=True))
        self.kept |= set(places if is_odd else ())

    def _places(self) -> set[tuple[int, int]]:
        return {*self.scene.sent, *(place for held in self.scene.open.values() for place in held.records)}

    async def check(self) -> Log:
        """Read as a consumer, and check what it gets; returns that."""
        scene = self.scene
        found = await scene.read()
        _, bounds = await read_index(scene.view.stream, scene.stores.metadata)
        starts = {index: bounds[scene.view.partition(index)].start for index in range(PARTITION_COUNT)}
        live = {place: record for place, record in scene.stable().items() if place[1] >= starts[place[0]]}
        found = {place: record for place, record in found.items() if place[1] >= starts[place[0]]}
        assert found.items() <= live.items()
        newest = {(place[0], record[0]): place for place, record in sorted(live.items()) if record[0] is not None}
        for (index, key), place in newest.items():
            if place in found:
                continue
            assert live[place][1] is None, f"the newest record of {key!r} is lost: {place}"
            assert scene.stores.clock.now_ms() >= self.sent_ms[place] + self.keep_ms, "a tombstone went too early"
            assert not any(at[0] == index and record[0] == key for at, record in found.items()), f"{key!r} is back"
        return found

    def superseded(self, found: Log) -> list[tuple[int, int]]:
        """Places of records that a cleaning of everything should have removed. Records of kept batches neither go nor count here."""
        newest: dict[tuple[int, bytes | None], tuple[int, int]] = {}
        for place, (key, _) in sorted(self.scene.stable().items()):
            newest[place[0], key] = place
        hidden = {(place[0], self.scene.sent[place][0]) for place in self.kept}
        return [
            place
            for place, (key, _) in found.items()
            if place not in self.kept
            and (place[0], key) not in hidden
            and (key is None or newest[place[0], key] != place)
        ]

    def worker(self) -> CompactionSettings:
        """Settings of a worker."""
        choice = self.randomness
        config = settings(
            check_ms=choice.choice([20, 100]),
            is_cleaning=choice.random() < 0.85,
            input_count_max=choice.choice([4_000, 4_000, 4]),
            item_bytes_max=choice.choice([1, 4_000, 1 << 30]),
        )
        return replace(config, merge=MergeSettings(fan_in=2)) if choice.random() < 0.4 else config

    async def work(self) -> None:
        """Let a worker run, which may die, or stand still while another one takes over."""
        choice, scene, config = self.randomness, self.scene, self.worker()
        kind = choice.random()
        if kind < 0.3:
            await scene.work(config, after(1.5), Life(dies_at=choice.randrange(1, CALL_COUNT)))
        elif kind < 0.6:
            stall = Stall(stalls_at=choice.randrange(1, CALL_COUNT), seconds=choice.choice([1.0, 3.0]))
            async with asyncio.TaskGroup() as group:
                group.create_task(scene.work(config, after(6.0), stall))
                await asyncio.sleep(choice.choice([0.05, 0.3, 0.6]))
                group.create_task(scene.work(config, after(4.0), Life()))
                for _ in range(choice.randrange(5)):
                    await self.step()
                    await asyncio.sleep(choice.choice([0.01, 0.2]))
                    await self.check()
        else:
            await scene.work(config, after(2.0), Life())


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_the_newest_records_stay_and_no_older_one_comes_back(seed: int) -> None:
    @virtual_time
    async def run() -> None:
        choice = random.Random(seed)
        async with deployment(MarkerObjectStore(MemoryObjectStore(ManualClock(NOW_MS)))) as stores:
            keep_ms, has_one_table = choice.choice([0, 0, 1_000, DAY_MS]), choice.random() < 0.7
            configs = {"delete__retention__ms": str(keep_ms), "table__enable": str(has_one_table).lower()}
            scene = await scene_of(stores, choice.choice(["latest", "history"]), **configs)
            attack = Attack(scene, choice, has_one_table, keep_ms)
            for _ in range(TURN_COUNT):
                for _ in range(choice.randrange(1, 7)):
                    await attack.step()
                await attack.work()
                await attack.check()
            for name in list(scene.open):
                await scene.end(name, is_commit=choice.random() < 0.5)
            await attack.alter(cleanup__policy="compact", min__compaction__lag__ms="0")
            for index in range(PARTITION_COUNT):
                await scene.send(index, (b"last", b"1"))
            await scene.work(settings(), after(3.0), Life())

            assert attack.superseded(await attack.check()) == []
            assert not await stores.metadata.tasks.list()
            if scene.view.stream.number in scene.tables.tables:
                rows = await scene.rows()
                assert len(rows) == len(set(rows))
                assert set(rows) <= set(scene.stable())

    run()
