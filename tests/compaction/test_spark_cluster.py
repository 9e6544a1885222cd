# ruff: noqa: SLF001 - the session and process of the driver, to see what ends with them
import asyncio
import itertools
import sys
from pathlib import Path

import pytest

from bearlake.clock import SystemClock
from bearlake.compaction.runner import InProcess
from bearlake.compaction.spark.runner import SparkRunner
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.compaction.workbench import TaskLimits
from bearlake.objects.open import ObjectStoreSettings, open_store
from bearlake.records import codec
from bearlake.records.codec import Record
from bearlake.wal.keys import KeySource
from fixtures.compaction_items import Wal, workbench
from fixtures.spark_cluster import SparkCluster, spark_cluster

__all__ = ["spark_cluster"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    # py4j leaves sockets of threads to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ITEM_COUNT = 8


async def test_two_workers_of_a_standalone_cluster_return_the_results_of_this_process(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/objects"
    store = open_store(url)
    counter = itertools.count()
    items = []
    for number in range(ITEM_COUNT):
        wal = Wal(store, keys=KeySource(SystemClock(), lambda _bits: next(counter)))
        for index in range(3):
            records = [Record(value=b"%d" % at, timestamp=at) for at in range(number + 1)]
            await wal.put({index: [codec.encode(records)]})
        items.append(wal.item())
    conf = (
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.executor.memory=512m",
        "spark.executor.cores=1",
        "spark.scheduler.minRegisteredResourcesRatio=1.0",
    )
    settings = SparkSettings(
        master=spark_cluster.master, java_home=str(spark_cluster.java_home), conf=conf, archive=False
    )
    runner = SparkRunner(settings, url, ObjectStoreSettings(), TaskLimits())
    try:
        results = await runner.run(items)
        assert runner._session is not None
        context = runner._session._context
        executors = await asyncio.to_thread(lambda: context._jsc.sc().statusTracker().getExecutorInfos())
        seen = {f"{info.host()}:{info.port()}" for info in executors}
    finally:
        await runner.close()

    expected = await InProcess(store, workbench()).run(items)
    await store.close()
    assert [result.row_count for result in results] == [3 * (number + 1) for number in range(ITEM_COUNT)]
    assert [result.files[0].swap.slices for result in results] == [result.files[0].swap.slices for result in expected]
    assert [result.files[0].file.size for result in results] == [result.files[0].file.size for result in expected]
    assert len(seen) == 3, f"the driver and two executors, by {sys.executable}"
