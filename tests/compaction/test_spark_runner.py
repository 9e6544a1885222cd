# ruff: noqa: SLF001 - the session and process of the driver, to see what ends with them
import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from bearlake.compaction.model import Cleaning, ItemResult, WorkItem
from bearlake.compaction.runner import InProcess
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.compaction.workbench import TaskLimits
from bearlake.errors import Corrupt, Invalid, NotFound, Unavailable
from bearlake.metadata.compaction import SwapObject
from bearlake.objects import ObjectStore
from bearlake.objects.fault_settings import InjectedFaults
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.records import codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from fixtures.compaction_items import Wal, merge_item, read_whole, workbench

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="module"),
    # py4j leaves closing the sockets of threads to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

TIME_MS = 1_700_000_000_000
LOCAL = SparkSettings(master="local[2]", archive=False, cancel_deadline_ms=5_000)
PATIENCE_S = 60.0
POLL_S = 0.05


def batch(text: str, count: int, compression: Compression = Compression.NONE) -> bytes:
    records = [Record(key=b"k", value=f"{text}-{at}".encode(), timestamp=TIME_MS + at) for at in range(count)]
    return codec.encode(records, codec=compression)


def inexact() -> bytes:
    return codec.encode([Record(value=b"v", headers=(("caf\udce9", b"1"),), timestamp=TIME_MS)])


async def two_items(store: ObjectStore) -> list[WorkItem]:
    """Work for two executors: WAL objects of two streams."""
    items = []
    for number in range(2):
        wal = Wal(store)
        wal.keys = type(wal.keys)(
            wal.keys._clock, lambda bits, number=number: number << 40 | time.time_ns() % (1 << 40)
        )
        for turn in range(3):
            batches = {
                index: [batch(f"{number}-{turn}", 20, Compression(index)), inexact()]
                for index in range(len(Compression))
            }
            await wal.put(batches)
        items.append(replace(wal.item(), output_prefix=f"{wal.item().output_prefix[:-1]}{number}"))
    return items


async def contents(store: ObjectStore, swaps: Sequence[SwapObject]) -> list[tuple[bytes, list[tuple[int, ...]]]]:
    return [(await read_whole(store, swap.object), [tuple(piece) for piece in swap.slices]) for swap in swaps]


async def same(store: ObjectStore, left: Sequence[ItemResult], right: Sequence[ItemResult]) -> None:
    """Assert that both results are equal except for the objects' keys."""
    assert len(left) == len(right)
    for left_item, right_item in zip(left, right, strict=True):
        assert (left_item.row_count, left_item.record_bytes, left_item.read_bytes) == (
            right_item.row_count,
            right_item.record_bytes,
            right_item.read_bytes,
        )
        assert left_item.kept_counts == right_item.kept_counts
        for swaps in zip(
            ([file.swap for file in left_item.files], left_item.kept_objects),
            ([file.swap for file in right_item.files], right_item.kept_objects),
            strict=True,
        ):
            assert await contents(store, swaps[0]) == await contents(store, swaps[1])
        assert [replace(file.file, key="") for file in left_item.files] == [
            replace(file.file, key="") for file in right_item.files
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(folder: Path) -> AsyncIterator[ObjectStore]:
    opened = open_store(f"file://{folder}")
    yield opened
    await opened.close()


def runner_of(settings: SparkSettings, folder: Path) -> SparkRunner:
    """A store whose reads hang while the file `<folder>.stall` exists."""
    faults = InjectedFaults(stall_file=f"{folder}.stall", stall_deadline_ms=120_000)
    return SparkRunner(settings, f"file://{folder}", ObjectStoreSettings(faults=faults), TaskLimits())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(folder: Path) -> AsyncIterator[SparkRunner]:
    found = runner_of(LOCAL, folder)
    yield found
    await found.close()


def stall(folder: Path) -> None:
    """Calls of the runners' stores get no answer from now on."""
    Path(f"{folder}.stall").touch()


def go_on(folder: Path) -> None:
    """Calls get answers again."""
    Path(f"{folder}.stall").unlink(missing_ok=True)


def command_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def children_of(pid: int) -> list[int]:
    """Spark's Python daemon and its children."""
    direct = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended; its children are another one's
            direct += [int(child) for child in listed.read_text().split()]
    return direct + [grandchild for child in direct for grandchild in children_of(child)]


async def wait_until_running(runner: SparkRunner) -> None:
    assert runner._session is not None
    tracker = runner._session._context.statusTracker()
    deadline = time.monotonic() + PATIENCE_S
    while not list(await asyncio.to_thread(tracker.getActiveJobsIds)):
        assert time.monotonic() < deadline
        await asyncio.sleep(POLL_S)


async def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _exists(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(POLL_S)


def _exists(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_spark_returns_the_result_of_the_same_work_in_this_process(
    runner: SparkRunner, store: ObjectStore
) -> None:
    items = await two_items(store)

    compacted = await runner.run(items)

    await same(store, compacted, await InProcess(store, workbench()).run(items))
    merge = merge_item(compacted[:1])
    await same(store, await runner.run([merge]), await InProcess(store, workbench(seed=1)).run([merge]))


async def test_spark_cleans_by_key_as_this_process_does(runner: SparkRunner, store: ObjectStore) -> None:
    merge = merge_item(await runner.run((await two_items(store))[:1]))
    bounds = dict.fromkeys(range(len(Compression)), 1 << 40)
    cleaning = Cleaning(bounds=bounds, dirty=merge.inputs, kept=[], now_ms=TIME_MS, tombstone_keep_ms=1)
    item = replace(merge, cleaning=cleaning)

    cleaned = await runner.run([item])

    await same(store, cleaned, await InProcess(store, workbench(seed=2)).run([item]))
    assert cleaned[0].row_count == len(Compression)  # all records have the same key
    assert cleaned[0].dropped_count > 0


async def test_an_error_in_an_executor_keeps_its_kind(runner: SparkRunner, store: ObjectStore) -> None:
    items = await two_items(store)
    key = items[1].slices[0].object_key
    shorter = items[0].slices[0]._replace(slice=items[0].slices[0].slice._replace(record_count=1))
    wrong = replace(items[0], slices=[shorter])
    await store.delete([key])

    with pytest.raises(NotFound, match=key):
        await runner.run(items)
    with pytest.raises(Corrupt, match=shorter.object_key):
        await runner.run([wrong])
    assert (await runner.run([items[0]]))[0].row_count == 315


async def test_executors_get_the_environment_and_spark_does_not_show_it(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, runner: SparkRunner
) -> None:
    await runner.close()  # one session per process
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "much-too-secret")
    settings = replace(LOCAL, conf=("spark.speculation=false", "spark.app.name=other"))
    other = runner_of(settings, folder)
    try:
        await other.run(await two_items(store))
        assert other._session is not None
        context = other._session._context
        seen = await asyncio.to_thread(other._session.collect, "test", os.getenv, ["AWS_SECRET_ACCESS_KEY"])
        shown = str(await asyncio.to_thread(context.getConf().getAll))
        command = command_of(other.jvm_pid)
    finally:
        await other.close()

    assert seen == ["much-too-secret"]
    assert "much-too-secret" not in shown
    assert "much-too-secret" not in command
    assert "'spark.app.name', 'other'" in shown


async def test_a_cancelled_run_stops_its_executors_and_the_next_one_runs(folder: Path, store: ObjectStore) -> None:
    runner = runner_of(LOCAL, folder)
    items = await two_items(store)
    try:
        await runner.start()
        pid = runner.jvm_pid
        stall(folder)
        running = asyncio.create_task(runner.run(items))
        await wait_until_running(runner)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        go_on(folder)

        assert [result.row_count for result in await runner.run(items)] == [315, 315]
        assert runner.jvm_pid == pid
    finally:
        go_on(folder)
        await runner.close()


async def test_a_killed_jvm_is_detected_and_restarted(folder: Path, store: ObjectStore) -> None:
    runner = runner_of(LOCAL, folder)
    items = await two_items(store)
    try:
        await runner.run(items)
        pid = runner.jvm_pid
        assert pid is not None
        stall(folder)
        running = asyncio.create_task(runner.run(items))
        await wait_until_running(runner)
        children = children_of(pid)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable):
            await running
        go_on(folder)

        assert [result.row_count for result in await runner.run(items)] == [315, 315]
        assert runner.jvm_pid != pid
        assert runner.start_count == 2
        assert children
        for child in children:
            await wait_until_gone(child)
    finally:
        go_on(folder)
        await runner.close()


async def test_the_jvm_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import time
        from bearlake.compaction.spark.session import Session
        from bearlake.compaction.spark.settings import SparkSettings
        session = Session(SparkSettings(master="local[1]", archive=False))
        session.connect()
        print(session.pid, flush=True)
        time.sleep(600)
        """
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))

    process.kill()
    await process.wait()

    await wait_until_gone(pid)


async def test_a_class_data_archive_that_cannot_be_built_is_not_reported_as_built(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(LOCAL, archive=True, archive_folder=str(tmp_path / "archives"), java_home=str(tmp_path / "jdk"))
    runner = SparkRunner(settings, tmp_path.as_uri(), ObjectStoreSettings(), TaskLimits())

    with caplog.at_level(logging.INFO, "bearlake.compaction.spark.runner"):
        await runner._build_archive()

    await runner.close()
    assert [line.levelname for line in caplog.records] == ["WARNING"]
    assert caplog.records[0].getMessage().startswith("no class-data archive was built")
    assert str(tmp_path / "jdk") in caplog.records[0].error  # type: ignore[attr-defined]


async def test_items_of_a_memory_store_are_refused() -> None:
    with pytest.raises(Invalid, match="memory"):
        SparkRunner(LOCAL, "memory:///", ObjectStoreSettings(), TaskLimits())
