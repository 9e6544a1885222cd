"""Cost of compaction: WAL objects to Parquet data files, MB of uncompressed records per second and core, compared with Spark's writer.

    .venv/bin/python bench/compaction.py [--mib 96] [--rounds 3] [--folder FOLDER] [--no-spark] [--avro]

Three ways over the same records, each the best of several rounds by CPU time (user and system, all threads and processes), since
wall time depends on other load:

- task: the work item as an executor runs it (read slices, check CRCs, decompress, decode, write row groups, put), in this process;
- on Spark: the same items through `SparkRunner` on local[2], the JVM's CPU included;
- DataFrame: a Spark job that writes the same table. Its input is favourable: decoded, uncompressed rows in Parquet. The writer
  uses zstd level 1 without dictionaries, like ours, all of Java's compilers and 2 GiB of heap. Measured with and without its scan.

Records are JSON-like text with random parts (zstd level 1 halves them); batches are 64 KiB of records, 8 MiB per WAL object, 16
partitions. Then the task with Avro orders (`bench/micro/typed_values.py`), in batches of 200, whose values stay bytes (`raw`) or become
columns that give them back (`elide`); MB are bytes of their values. With `--avro`, only these. The last part starts Spark with and without
its class-data archive, and measures the memory of the processes.
Goals: 150 MB/s per core at 1 KiB, 120 at 100 B, 3 times Spark's; Avro with `elide` 130, and files of at most 0.75 times those of `raw`.
"""

import argparse
import asyncio
import base64
import json
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from bench.micro import typed_values

from bearlake.compaction.runner import InProcess
from bearlake.compaction.spark import archive, gateway
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.compaction.spark.session import Session, jvm_command
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.compaction.workbench import TaskLimits, Workbench
from bearlake.objects import ObjectStore
from bearlake.objects.local import LocalSettings
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.records import codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from fixtures.compaction_items import Wal, read_whole

MIB = 1024 * 1024
BATCH_BYTES = 64 * 1024
OBJECT_BYTES = 8 * MIB
PARTITION_COUNT = 16
DISTINCT_BYTES = 4 * MIB  # farther apart than the window of zstd at level 1
CASES = [(1024, Compression.NONE), (1024, Compression.LZ4), (100, Compression.NONE), (100, Compression.LZ4)]
GOALS = {1024: 150, 100: 120}
STORE = ObjectStoreSettings(local=LocalSettings(fsync=False))


def value_of(size: int, randomness: random.Random) -> bytes:
    """Return a JSON value of about `size` bytes."""
    text = json.dumps({"id": str(uuid.UUID(int=randomness.getrandbits(128))), "user": randomness.randrange(10**6)})
    while len(text) < size:
        token = base64.b64encode(randomness.randbytes(6)).decode()
        text += randomness.choice(["alpha ", "beta ", "gamma ", "delta "]) + token
    return text[:size].encode()


def batches_of(size: int, compression: Compression) -> list[bytes]:
    """Return compressed batches whose records have `size` bytes each."""
    randomness = random.Random(size)
    count = BATCH_BYTES // size
    now_ms = 1_700_000_000_000
    return [
        codec.encode(
            [
                Record(
                    key=b"%08d" % randomness.randrange(10**6), value=value_of(size, randomness), timestamp=now_ms + at
                )
                for at in range(count)
            ],
            codec=compression,
        )
        for _ in range(DISTINCT_BYTES // BATCH_BYTES)
    ]


async def fill(store: ObjectStore, size: int, compression: Compression, total_bytes: int) -> Wal:
    """Write WAL objects with at least `total_bytes` of records; return what was written."""
    wal = Wal(store)
    batches = batches_of(size, compression)
    per_partition = OBJECT_BYTES // BATCH_BYTES // PARTITION_COUNT
    at = 0
    for _ in range(max(1, total_bytes // OBJECT_BYTES)):
        await wal.put(
            {
                index: [batches[(at + index * per_partition + turn) % len(batches)] for turn in range(per_partition)]
                for index in range(PARTITION_COUNT)
            }
        )
        at += 7
    return wal


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and all its children, including children that have ended."""
    found = [process, *process.children(recursive=True)]
    return sum(sum(process_.cpu_times()[:2]) for process_ in found) + sum(process.cpu_times()[2:4])


async def best(rounds: int, clock: Callable[[], float], call: Callable[[], Awaitable[object]]) -> float:
    """Return the shortest of `rounds` runs of `call`, in units of `clock`."""
    spent = []
    for _ in range(rounds):
        start = clock()
        await call()
        spent.append(clock() - start)
    return min(spent)


async def bench_case(size: int, compression: Compression, options: argparse.Namespace, folder: Path) -> None:
    """Measure one combination of record size and compression, and print a line."""
    shutil.rmtree(folder, ignore_errors=True)
    url = f"file://{folder}/objects"
    store = open_store(url, STORE)
    wal = await fill(store, size, compression, options.mib * MIB)
    item = wal.item(row_group_bytes=16 * MIB, file_bytes_max=128 * MIB)
    runner = InProcess(store, Workbench())
    (result,) = await runner.run([item])
    record_mb = result.record_bytes / 1e6

    async def run() -> None:
        await runner.run([item])

    task_s = await best(options.rounds, time.process_time, run)
    line = f"{size:>5} B {compression.name.lower():<5} task {record_mb / task_s:>5.0f} MB/s per core"
    line += f" (goal {GOALS[size]}), Parquet {result.written_bytes / result.record_bytes:.2f} of raw"
    if not options.no_spark:
        spark_s = await on_spark(item, url, options.rounds)
        line += f" | on Spark {2 * record_mb / spark_s:>5.0f}"
        files = [await read_whole(store, written.swap.object) for written in result.files]
        scan_s, write_s = await asyncio.to_thread(dataframe, files, folder, options.rounds)
        line += f" | DataFrame {record_mb / write_s:>4.0f}, {record_mb / (write_s - scan_s):>4.0f} without its scan"
        line += f" | {write_s / task_s:.1f} x, {(write_s - scan_s) / task_s:.1f} x without"
    await store.close()
    print(line, flush=True)


async def bench_orders(options: argparse.Namespace, folder: Path, *, is_big: bool) -> None:
    """Measure Avro orders of one size, and print a line."""
    shutil.rmtree(folder, ignore_errors=True)
    store = open_store(f"file://{folder}/objects", STORE)
    wal = Wal(store)
    batches, count, value_bytes = typed_values.groups_of(
        options.mib * MIB, is_big=is_big, has_keys=False, is_json=False
    )
    per_object = max(1, OBJECT_BYTES * len(batches) // value_bytes)
    for start in range(0, len(batches), per_object):
        own = batches[start : start + per_object]
        share = -(-len(own) // PARTITION_COUNT)
        await wal.put({index: own[at : at + share] for index, at in enumerate(range(0, len(own), share))})
    runner = InProcess(store, Workbench())
    line = f"{value_bytes / count:>5.0f} B Avro "
    for mode in ("raw", "elide"):
        item = replace(
            wal.item(row_group_bytes=16 * MIB, file_bytes_max=128 * MIB),
            values=typed_values.plan_of(mode, is_big=is_big),
        )
        (result,) = await runner.run([item])
        task_s = await best(options.rounds, time.process_time, partial(runner.run, [item]))
        line += f" {mode} task {value_bytes / 1e6 / task_s:>5.0f} MB/s per core,"
        line += f" Parquet {result.written_bytes / count:.1f} B per record"
    await store.close()
    print(line, flush=True)


async def on_spark(item, url: str, rounds: int) -> float:
    """Return the least CPU time of Spark's JVM for two tasks of this item on two cores, in seconds."""
    runner = SparkRunner(SparkSettings(master="local[2]"), url, STORE, TaskLimits())
    try:
        await runner.run([item, item])
        process = psutil.Process(runner.jvm_pid)
        return await best(rounds, lambda: cpu_s(process), lambda: runner.run([item, item]))
    finally:
        await runner.close()


def dataframe(files: list[bytes], folder: Path, rounds: int) -> tuple[float, float]:
    """CPU seconds of a scan alone, and of scan and write together."""
    source, target = folder / "source", folder / "target"
    source.mkdir()
    for number, content in enumerate(files):
        rows = pq.read_table(pa.BufferReader(content))
        pq.write_table(
            rows, source / f"{number}.parquet", compression="none", use_dictionary=False, row_group_size=10**5
        )
    start = jvm_command(SparkSettings(heap_bytes=2048 * MIB))
    flags = [flag for flag in start.flags if "TieredStop" not in flag]
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        "spark.hadoop.parquet.enable.dictionary": "false",
    }
    jvm = gateway.Jvm(
        replace(start, flags=flags), conf, deadline_ms=90_000, environment={"SPARK_LOCAL_IP": "127.0.0.1"}
    )
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(jvm.port), jvm.secret
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.getOrCreate()
        process = psutil.Process(jvm.pid)
        rows = spark.read.parquet(str(source))

        def spent(call: Callable[[], None]) -> float:
            found = []
            for _ in range(rounds + 2):  # the job gets faster during the first rounds
                start = sum(process.cpu_times()[:2])
                call()
                found.append(sum(process.cpu_times()[:2]) - start)
            return min(found)

        scan_s = spent(lambda: rows.write.format("noop").mode("overwrite").save())
        write_s = spent(lambda: rows.write.option("compression", "zstd").mode("overwrite").parquet(str(target)))
        spark.stop()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        if SparkContext._gateway is not None:
            SparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        jvm.close(10_000)
    return scan_s, write_s


async def bench_start(folder: Path, mib: int) -> None:
    """Time from start to first result, and the memory of the processes after an item of `mib` MiB."""
    shutil.rmtree(folder, ignore_errors=True)
    url = f"file://{folder}/objects"
    store = open_store(url, STORE)
    item = (await fill(store, 1024, Compression.NONE, mib * MIB)).item(
        row_group_bytes=16 * MIB, file_bytes_max=128 * MIB
    )
    small = replace(item, slices=item.slices[:1])
    await asyncio.to_thread(archive.build, SparkSettings())
    for has_archive in (False, True):
        settings = SparkSettings(master="local[2]", archive=has_archive)
        start_s = time.perf_counter()
        session = await asyncio.to_thread(Session, settings)
        await asyncio.to_thread(session.connect)
        ready_s = time.perf_counter() - start_s
        ready_cpu_s = cpu_s(psutil.Process(session.pid))
        await asyncio.to_thread(session.close)
        runner = SparkRunner(settings, url, STORE, TaskLimits())
        start_s = time.perf_counter()
        await runner.run([small, small])
        first_s = time.perf_counter() - start_s
        await runner.run([item, item])
        await runner.run([item, item])
        jvm = psutil.Process(runner.jvm_pid)
        workers = [child.memory_full_info() for child in jvm.children(recursive=True)]
        print(
            f"archive {'yes' if has_archive else 'no ':<3} start {ready_s:.1f} s ({ready_cpu_s:.1f} s CPU), to the first result"
            f" {first_s:.1f} s | RSS JVM {jvm.memory_info().rss // MIB} MiB, Python"
            f" {[worker.rss // MIB for worker in workers]} (PSS {[worker.pss // MIB for worker in workers]}) after 2 x {mib} MiB",
            flush=True,
        )
        await runner.close()
    await store.close()


async def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=96, help="records per item, MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--avro", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bearlake-bench-", dir=options.folder))
    try:
        for size, compression in () if options.avro else CASES:
            await bench_case(size, compression, options, folder)
        for is_big in (False, True):
            await bench_orders(options, folder, is_big=is_big)
        if not options.no_spark and not options.avro:
            await bench_start(folder, 64)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
