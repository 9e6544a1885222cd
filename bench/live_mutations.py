"""`bearlake` with an error on purpose, for `live_reads.py --mutation NAME`: its readers must notice.

    python bench/live_mutations.py NAME up …

| name | the error |
|---|---|
| `index_after_table` | what is compacted is read after the table: offsets that a task commits in between are in neither |
| `snapshot_of_now` | a view's snapshot is as old as its load: DuckDB reads as of the moment before |
| `half_compacted_piece` | a piece stays although compaction has reached into it: rows twice |
| `running_build` | a load during a build gets its result: records of the time in between are missing |
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bearlake.cli import main
from bearlake.live import shared_build, tail, views
from bearlake.metadata.compaction import OffsetRange


def index_after_table() -> None:
    """Ask for what is compacted again, once the table is read."""
    right = views.Views._build_once
    late: dict[int, Mapping[Any, int]] = {}

    async def build(self: Any, number: int) -> Any:
        """Build as before, with an index that is read after the table."""
        stream = await self._stream(number)
        load = self._tables.load

        async def load_then_look(asked: Any) -> Any:
            """Load the table, then read what is compacted."""
            table = await load(asked)
            await asyncio.sleep(0.3)  # a task commits in between, as on a busy server
            partitions = [stream.partition(index) for index in range(stream.partition_count)]
            late[number] = await self._metadata.tasks.compacted(partitions)
            return table

        self._tables.load = load_then_look
        try:
            return await right(self, number)
        finally:
            self._tables.load = load

    tail_of = views.tail_of

    def tail_of_late(ends: Mapping[int, int], _: Any, bounds: Any) -> Any:
        """Return the tail as of the late index."""
        return tail_of(ends, next(iter(late.values())), bounds)

    views.Views._build_once = build  # type: ignore[method-assign]
    views.tail_of = tail_of_late


def snapshot_of_now() -> None:
    """Set no margin of the clock."""
    os.environ["BEARLAKE_LIVE__CLOCK_MARGIN_MS"] = "0"


def half_compacted_piece() -> None:
    """Keep a piece as long as its end is in the tail."""

    def choose(
        pieces: Iterable[tail.Piece], desired: Sequence[OffsetRange], **_: int
    ) -> tuple[list[tail.Piece], list[OffsetRange]]:
        """Return pieces that reach into the tail, and what is behind them."""
        of_partition = {range_.partition: range_ for range_ in desired}
        kept = [
            piece
            for piece in pieces
            if any(part.partition in of_partition and of_partition[part.partition].start < part.end for part in piece.ranges)
        ]  # fmt: skip
        covered = {}
        for piece in kept:
            for part in piece.ranges:
                covered[part.partition] = max(covered.get(part.partition, 0), part.end)
        missing = [
            OffsetRange(range_.partition, max(range_.start, covered.get(range_.partition, 0)), range_.end)
            for range_ in desired
            if covered.get(range_.partition, 0) < range_.end
        ]
        return kept, missing

    views.choose = choose


def running_build() -> None:
    """Share the build that runs."""
    right = shared_build.SharedBuild.result

    async def result(self: Any) -> Any:
        """Return the result of the build that runs, if one does."""
        return await (right(self) if self._running is None else asyncio.shield(self._running))

    shared_build.SharedBuild.result = result  # type: ignore[method-assign]


MUTATIONS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (index_after_table, snapshot_of_now, half_compacted_piece, running_build)
}

if __name__ == "__main__":
    MUTATIONS[sys.argv[1]]()
    sys.argv[1:2] = []
    sys.exit(main())
