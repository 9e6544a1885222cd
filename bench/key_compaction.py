"""Cost of key compaction: MB of uncompressed records per second and core, by record size, and a model for many keys.

    .venv/bin/python bench/key_compaction.py [--mib 192] [--rounds 3] [--keys 100000000]

A stream has clean files with each key once, and half as many bytes of dirty files that update random keys. The measured cleaning reads all
of them and writes what stays, as an executor does (in this process; CPU time, since wall time depends on other load). Goal: 100 MB/s per
core at 1 KiB. The last lines split the cost into keys and rows, and compute a cleaning of `--keys` keys from it: each work item reads the
keys of its own files once, and those of the dirty files once per chunk of keys (`compaction.task.key_bytes`).
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from bench.compaction import value_of

from bearlake.compaction.clean import clean
from bearlake.compaction.cleaned_files import item_prefix
from bearlake.compaction.key_compaction import plan, slices_of
from bearlake.compaction.model import Cleaning, WorkItem
from bearlake.compaction.row_passes import groups_of
from bearlake.compaction.settings import KeyCompactionSettings
from bearlake.compaction.superseded import superseded
from bearlake.compaction.task import run
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.compaction import TaskKind
from bearlake.metadata.model import LocatedSlice, PartitionBounds
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec
from bearlake.records.codec import Record
from bearlake.streams.key_compaction_rules import key_compaction_rules
from bearlake.table.reader import DataFileReader, DataFileSettings
from fixtures.compaction_items import OUTPUT_PREFIX, STREAM_ID, Wal, key_of

MIB = 1024 * 1024
BATCH_BYTES = 64 * 1024
OBJECT_BYTES = 8 * MIB
DISTINCT_VALUES = 4_000
GOAL_MB = 100
TIME_MS = 1_700_000_000_000
ROW_GROUP_BYTES = 8 * MIB
FILE_BYTES = 128 * MIB


class Stream:
    """A stream of one partition with records of one size, in memory."""

    def __init__(self, size: int) -> None:
        randomness = random.Random(size)
        self.size = size
        self.store = MemoryObjectStore()
        self.index: list[LocatedSlice] = []
        self._wal = Wal(self.store)
        self._values = [value_of(size, randomness) for _ in range(DISTINCT_VALUES)]
        self._task_count = 0

    async def produce(self, keys: Sequence[int]) -> None:
        """Write records with these keys into WAL objects, and compact them."""
        per_batch = max(1, BATCH_BYTES // self.size)
        batches = [
            codec.encode(
                [
                    Record(key=b"user-%011d" % key, value=self._values[key % DISTINCT_VALUES], timestamp=TIME_MS)
                    for key in keys[at : at + per_batch]
                ]
            )
            for at in range(0, len(keys), per_batch)
        ]
        self._wal.slices.clear()
        per_object = OBJECT_BYTES // BATCH_BYTES
        for at in range(0, len(batches), per_object):
            await self._wal.put({0: batches[at : at + per_object]})
        self._task_count += 1
        item = WorkItem(
            kind=TaskKind.COMPACT,
            stream_id=STREAM_ID,
            output_prefix=f"{self._folder()}-0",
            kept_prefix="kept/",
            slices=list(self._wal.slices),
            file_bytes_max=FILE_BYTES,
            row_group_bytes=ROW_GROUP_BYTES,
        )
        result = await run(item, self.store, Workbench())
        self.index += [LocatedSlice(piece, *file.swap.object) for file in result.files for piece in file.swap.slices]

    def item(self) -> WorkItem:
        """Return a cleaning of everything as one item."""
        rules = key_compaction_rules({"cleanup.policy": "compact"})
        assert rules is not None
        end = self._wal.ends[0]
        bounds = {key_of(0): PartitionBounds(0, end, end)}
        found = plan(self.index, bounds, rules, KeyCompactionSettings(), now_ms=TIME_MS)
        self._task_count += 1
        cleaning = Cleaning(bounds={0: end}, dirty=found.dirty, kept=[], now_ms=TIME_MS, tombstone_keep_ms=0)
        return WorkItem(
            kind=TaskKind.MERGE,
            stream_id=STREAM_ID,
            output_prefix=item_prefix(self._folder(), 0, is_in_table=True),
            kept_prefix="kept/",
            slices=slices_of(found, found.inputs),
            inputs=list(found.inputs),
            file_bytes_max=FILE_BYTES,
            row_group_bytes=ROW_GROUP_BYTES,
            cleaning=cleaning,
        )

    async def clean(self) -> None:
        """Clean, as preparation."""
        item = self.item()
        assert item.cleaning is not None
        result = await clean(item, item.cleaning, self.store, Workbench())
        self.index = [LocatedSlice(piece, *file.swap.object) for file in result.files for piece in file.swap.slices]

    def _folder(self) -> str:
        return OUTPUT_PREFIX.rsplit("/", 1)[0] + f"/{self._task_count:016x}-1"


async def measure(size: int, options: argparse.Namespace) -> None:
    """Measure one record size, and print its lines."""
    stream = Stream(size)
    key_count = options.mib * MIB * 2 // 3 // size
    randomness = random.Random(1)
    await stream.produce(range(key_count))
    await stream.clean()
    await stream.produce([randomness.randrange(key_count) for _ in range(key_count // 2)])
    item = stream.item()
    cleaning = item.cleaning
    assert cleaning is not None
    reader = DataFileReader(stream.store, DataFileSettings(thread_count=0))
    groups = [group for ref in item.inputs for group in groups_of(ref, await reader.footer(ref))]
    dirty = [group for ref in cleaning.dirty for group in groups_of(ref, await reader.footer(ref))]
    row_count = sum(
        group.footer.groups[group.number].row_end - group.footer.groups[group.number].row_start for group in groups
    )
    whole_s, keys_s = [], []
    dropped = 0
    for _ in range(options.rounds):
        start_s = time.process_time()
        await superseded(groups, dirty, cleaning.bounds, stream.store, Workbench())
        keys_s.append(time.process_time() - start_s)
        start_s = time.process_time()
        result = await clean(item, cleaning, stream.store, Workbench())
        whole_s.append(time.process_time() - start_s)
        dropped = result.dropped_count
        await stream.store.delete([file.file.key for file in result.files])
    rows_s = min(whole_s) - min(keys_s)
    size_mb = row_count * size / 1e6
    print(
        f"{size:>5} B: {size_mb / min(whole_s):>4.0f} MB/s per core (goal {GOAL_MB} at 1 KiB), {row_count:,} records in,"
        f" {dropped:,} left out; keys {1e6 * min(keys_s) / row_count:.2f} µs, rows {1e6 * rows_s / row_count:.2f} µs per record"
    )
    _model(size, 1e6 * min(keys_s) / row_count, 1e6 * rows_s / row_count, options.keys)


def _model(size: int, key_us: float, row_us: float, key_count: int) -> None:
    """Print the cost of a cleaning of `key_count` clean and half as many dirty records, without its parallel parts."""
    chunk_rows = Workbench().limits.key_bytes // 60
    dirty_count = key_count // 2
    chunks = -(-(key_count + dirty_count) // chunk_rows)
    seen = chunks * dirty_count
    rows_s = (key_count + dirty_count) * row_us / 1e6
    keys_s = (key_count + dirty_count + seen) * key_us / 1e6
    total_mb = (key_count + dirty_count) * size / 1e6
    print(
        f"        model, {key_count:,} keys: {total_mb / 1e3:.0f} GB in {(rows_s + keys_s) / 60:.0f} core-minutes"
        f" (rows {rows_s / 60:.0f}, keys {keys_s / 60:.0f}: {chunks} chunks of {chunk_rows:,} records):"
        f" {total_mb / (rows_s + keys_s):.0f} MB/s per core; with 16 times the key memory:"
        f" {total_mb / (rows_s + (key_count + dirty_count + seen / 16) * key_us / 1e6):.0f}"
    )


async def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=192, help="MiB of records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=100_000_000, help="keys of the model")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 100], help="bytes of a record's value")
    options = parser.parse_args()
    for size in options.sizes:
        await measure(size, options)


if __name__ == "__main__":
    asyncio.run(main())
