"""Random histories of a stream: what a view shows is what was promised, whatever happened before.

The truth is kept by the test: which values were acknowledged, which transactions ended how, and what was trimmed.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import ANONYMOUS
from fixtures.live_lake import LiveLake, live_lake
from fixtures.transactional import TransactionalWriter

STEP_COUNT = 40


@dataclass
class Truth:
    """What happened. `values` of a partition, by offset; None: a marker, or a record that was aborted."""

    values: list[bytes | None] = field(default_factory=list)
    start: int = 0
    open_from: int | None = None

    @property
    def stable(self) -> int:
        """The offset below which everything is decided."""
        return len(self.values) if self.open_from is None else self.open_from

    def check(self, rows: list[tuple[int, bytes | None]]) -> None:
        """Every decided record from the start on is there once; trimmed ones may be; nothing else is."""
        found = dict(rows)
        assert len(found) == len(rows), "an offset twice"
        decided = {offset: value for offset, value in enumerate(self.values[: self.stable]) if value is not None}
        assert {offset: value for offset, value in decided.items() if offset >= self.start}.items() <= found.items()
        assert found.items() <= decided.items()


class History:
    """Does random things to a stream, and keeps the truth."""

    def __init__(self, lake: LiveLake, view: StreamView, rng: random.Random) -> None:
        self.lake = lake
        self.view = view
        self.rng = rng
        self.truth = Truth()
        self.writer: TransactionalWriter
        self._open_offsets: list[int] = []
        self._count = 0

    def _values(self) -> list[bytes]:
        self._count += 1
        return [b"%d-%d" % (self._count, number) for number in range(self.rng.randint(1, 3))]

    async def produce(self) -> None:
        """A batch without a transaction."""
        values = self._values()
        await self.lake.lake.produce(self.view, *values)
        self.truth.values += values

    async def begin_or_continue(self) -> None:
        """A batch of a transaction."""
        values = self._values()
        await self.writer.send(*values)
        if self.truth.open_from is None:
            self.truth.open_from = len(self.truth.values)
            self._open_offsets = []
        self._open_offsets += range(len(self.truth.values), len(self.truth.values) + len(values))
        self.truth.values += values

    async def end(self) -> None:
        """The end of a transaction."""
        if self.truth.open_from is None:
            return
        is_commit = self.rng.random() < 0.5
        await self.writer.end(is_commit=is_commit)
        if not is_commit:
            for offset in self._open_offsets:
                self.truth.values[offset] = None
        self.truth.values.append(None)
        self.truth.open_from = None

    async def trim(self) -> None:
        """DeleteRecords."""
        start = self.rng.randint(self.truth.start, self.truth.stable)
        await self.lake.lake.streams.trim(ANONYMOUS, "orders", 0, start)
        self.truth.start = max(self.truth.start, start)

    async def compact(self) -> None:
        """A worker that works until nothing is left to do."""
        metadata, key = self.lake.lake.stores.metadata, self.view.stream.partition(0)

        async def is_done() -> bool:
            compacted = (await metadata.tasks.compacted([key]))[key]
            return max(compacted, self.truth.start) >= self.truth.stable

        if self.truth.open_from is None:
            await self.lake.lake.work(is_done)

    async def look(self) -> None:
        """A load."""
        self.truth.check([(row["_offset"], row["_value"]) for row in await self.lake.rows(self.view)])


@pytest.mark.parametrize("seed", range(8))
async def test_views_show_what_was_promised_after_random_histories(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with live_lake(tmp_path, build_pause_ms=0) as lake:
        history = History(lake, await lake.lake.create(table__value__mode="raw"), rng)
        history.writer = await TransactionalWriter.of(lake.lake.streams, "orders")
        steps = [history.produce] * 4 + [history.begin_or_continue] * 2 + [history.end] * 2
        steps += [history.look] * 4 + [history.trim, history.compact]
        for _ in range(STEP_COUNT):
            await rng.choice(steps)()
        await history.look()
        await history.end()
        await history.look()
