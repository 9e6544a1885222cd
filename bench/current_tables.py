"""Cost and freshness of current tables: rounds over a stream with many keys of which few change.

    .venv/bin/python bench/current_tables.py [--keys 1000000] [--value-bytes 200] [--changed 0.01] [--buckets 16 64 256] [--folder DIR]

A stream's table gets every key once, then updates of random keys, and of keys in few buckets. Each round runs as a worker's does, with its
commit to a SQLite catalog and files in a folder without fsync; its items run one after the other in this process. CPU time is that of the
process, since wall time depends on other load. The last column is what a query reads instead, without a current table: all versions.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from bearlake.compaction.current_rounds import items_of, plan_round
from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.task import run
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.model import Stream
from bearlake.objects import ObjectStore
from bearlake.streams.current_rules import CurrentRules, Envelope, current_stream
from bearlake.table.current import IcebergCurrentTables
from bearlake.table.current_columns import CurrentColumns
from bearlake.table.current_model import CurrentChange, CurrentState
from bearlake.table.current_state import bucket_of
from bearlake.table.iceberg import IcebergTables
from bearlake.table.model import AppliedTask, TableChange, TableCommit
from bearlake.table.naming import location_key
from bearlake.table.schema import ARROW_SCHEMA, BATCH
from bearlake.table.writer import DataFileWriter
from fixtures.tables import a_stream, local_store, tables_in

MB = 1_000_000
FILE_ROWS = 250_000
GROUP_ROWS = 25_000
TIME_US = 1_760_000_000_000_000


class Lake:
    """A stream's table and its current table."""

    def __init__(self, store: ObjectStore, tables: IcebergTables, buckets: int, value_bytes: int) -> None:
        configs = {"table.current": "on", "table.current.buckets": str(buckets)}
        self.stream: Stream = a_stream(configs=configs)
        self._store, self._tables = store, tables
        self._current = IcebergCurrentTables(tables)
        self._randomness = random.Random(1)
        self._value_bytes = value_bytes
        self._offset = self._task = 0
        self.table_bytes = 0
        self._rules = CurrentRules(
            bucket_count=buckets,
            envelope=Envelope.NONE,
            freshness_ms=0,
            remember_ms=86_400_000,
            loses_tombstones=False,
        )

    async def start(self) -> None:
        """Create both tables."""
        await self._tables.ensure(self.stream)
        await self._tables.ensure(current_stream(self.stream))

    async def append(self, keys: Sequence[bytes]) -> None:
        """Add records of these keys to the stream's table, as compaction does."""
        for start in range(0, len(keys), FILE_ROWS):
            await self._append(keys[start : start + FILE_ROWS])

    async def _append(self, keys: Sequence[bytes]) -> None:
        first, self._offset = self._offset, self._offset + len(keys)
        self._task += 1
        writer = DataFileWriter(f"{location_key(self.stream)}/data/{self._task:016x}-1-0.parquet")
        for at in range(0, len(keys), GROUP_ROWS):
            group = keys[at : at + GROUP_ROWS]
            values = [self._randomness.randbytes(self._value_bytes // 2).hex().encode() for _ in group]
            offsets = range(first + at, first + at + len(group))
            columns = [
                pa.array([0] * len(group), pa.int32()),
                pa.array(offsets, pa.int64()),
                pa.array([TIME_US + offset for offset in offsets], ARROW_SCHEMA.field(2).type),
                pa.array(group, pa.binary()),
                pa.array([[]] * len(group), ARROW_SCHEMA.field(4).type),
                pa.array(values, pa.binary()),
                _batches(first, len(group)),
            ]
            writer.write(pa.Table.from_arrays(columns, schema=ARROW_SCHEMA))
        finished = writer.finish()
        await self._store.put(finished.file.key, finished.parts)
        self.table_bytes += finished.file.size
        task = AppliedTask(task_id=self._task, epoch=1, ranges={0: (first, self._offset)})
        change = TableChange(task=task, add=[finished.file])
        await self._tables.commit(self.stream, TableCommit(changes=[change]), closed_tasks=[])

    async def round(self, what: str) -> None:
        """Make rounds until the current table has all; print their cost."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        read = written = rounds = files = 0
        derived = current_stream(self.stream)
        while True:
            view = await self._current.view(self.stream, derived)
            assert view is not None
            if not view.is_behind:
                break
            rounds += 1
            settings = CompactionSettings()
            planned = plan_round(view, settings.current.round_bytes_max)
            made = items_of(
                self.stream,
                view,
                planned,
                self._rules,
                CurrentColumns(),
                settings,
                f"{self._randomness.getrandbits(64):016x}",
            )
            results = [await run(item, self._store, Workbench()) for item in made]
            unchanged = {key for result in results for key in result.unchanged}
            state = CurrentState(
                round=f"{self._randomness.getrandbits(64):016x}",
                source=view.source,
                source_snapshot=view.source_snapshot,
                sequence=view.sequence if planned.is_whole else -1 if view.state is None else view.state.sequence,
                is_whole=planned.is_whole,
                newest_us=max(result.newest_us for result in results),
                at_ms=0,
                buckets=view.bucket_count,
                envelope="none",
            )
            added = [
                (file.file, bucket)
                for result in results
                for file, bucket in zip(result.files, result.buckets, strict=True)
            ]
            removed = [file.key for file in view.files if file.key not in unchanged]
            change = CurrentChange(
                snapshot_id=view.snapshot_id, added=added, removed=removed, ends=planned.ends, state=state
            )
            await self._current.commit(derived, change)
            read += sum(result.read_bytes for result in results)
            written += sum(result.written_bytes for result in results)
            files += len(added)
        cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
        print(
            f"{self._rules.bucket_count:8}  {what:34}  {rounds:6}  {cpu_s:7.2f}  {wall_s:7.2f}  {read / MB:8.1f}  {written / MB:8.1f}"
            f"  {files:6}  {self.table_bytes / MB:10.1f}",
            flush=True,
        )


def _batches(first: int, count: int) -> pa.Array:
    fields = list(ARROW_SCHEMA.field(BATCH).type)
    numbers = {"base_offset": first, "attributes": 0}
    return pa.StructArray.from_arrays(
        [pa.array([numbers.get(field.name, -1)] * count, field.type) for field in fields], fields=fields
    )


async def measure(folder: Path, buckets: int, arguments: argparse.Namespace) -> None:
    """Measure one number of buckets."""
    store, url = local_store(folder)
    tables = tables_in(folder, store, url)
    try:
        lake = Lake(store, tables, buckets, arguments.value_bytes)
        await lake.start()
        keys = [b"customer-%012d" % number for number in range(arguments.keys)]
        await lake.append(keys)
        await lake.round("all keys are new")
        count = int(arguments.keys * arguments.changed)
        await lake.append(random.Random(2).sample(keys, count))
        await lake.round(f"{arguments.changed:.0%} of the keys, at random")
        of = bucket_of(pa.array(keys, pa.binary()), buckets).to_pylist()
        chosen = [key for key, bucket in zip(keys, of, strict=True) if bucket == 0][:count]
        await lake.append(chosen)
        await lake.round(f"{len(chosen):,} keys of one bucket")
        await lake.append(keys[:1])
        await lake.round("1 key")
    finally:
        await tables.close()
        await store.close()


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--buckets", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    print(
        " buckets  records of the round                rounds    CPU s   wall s   read MB  wrote MB   files  history MB"
    )
    for buckets in arguments.buckets:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            asyncio.run(measure(Path(folder), buckets, arguments))


if __name__ == "__main__":
    main()
