"""Compaction under load by real clients, while workers, their JVMs and servers are repeatedly killed (-9).

At the end the table has each record of the log once, and no other; a consumer that starts at the beginning reads from Parquet files
what was acknowledged. `BEARLAKE_TEST_FAULTS_SECONDS=60` makes ten minutes of it.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.cluster import Cluster, Server, Stores, running
from faults.load import Producer, Reader, create_stream
from faults.traffic import Traffic, seconds
from faults.waiting import until
from fixtures.server_process import PROGRAM, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "faults"
PARTITION_COUNT = 4
KILL_COUNT = 6
TABLE_TIMEOUT_S = 120.0
WORKERS = ("w1", "w2")
ROWS = """select _partition_id as partition, count(*) as rows, count(distinct _offset) as offsets,
 min(_offset) as first, max(_offset) as last, count(distinct _value) as names from faults group by 1 order by 1"""

Tell = Callable[[object], None]


@contextlib.contextmanager
def lake(folder: Path, stores: Stores) -> Iterator[Cluster]:
    """One Kafka server and two compaction workers; the catalog is in the metadata store's database."""
    settings = {"tables.catalog_url": stores.metadata_url, "spark.master": "local[1]"}
    with running(Cluster(folder, stores, settings), "a") as cluster:
        for name in WORKERS:
            cluster.add(name, role="compactor").start()
        yield cluster


def test_workers_are_killed_while_they_compact(folder: Path, stores: Stores, load_s: float, tell: Tell) -> None:
    choose = random.Random(4)
    killed: Counter[str] = Counter()
    with lake(folder, stores) as cluster:
        server = cluster["a"]
        create_stream([server.kafka], STREAM, PARTITION_COUNT, {"table.freshness_ms": "2000"})
        producers = [Producer(f"p{index}", server.kafka, STREAM, PARTITION_COUNT, per_second=300) for index in (1, 2)]
        readers = [Reader("r1", server.kafka, STREAM, PARTITION_COUNT)]
        with Traffic(STREAM, PARTITION_COUNT, producers, readers) as traffic:
            traffic.resumed(time.monotonic())
            for turn in range(KILL_COUNT):
                traffic.run_on(load_s * choose.uniform(0.5, 1.5))
                what = ("worker", "jvm", "server")[turn % 3]
                killed[what] += kill(cluster, what, choose.choice(WORKERS))
            found = traffic.resumed(time.monotonic())
            counts = traffic.finish(server.kafka)
        complete_s = until(lambda: is_compacted(server), TABLE_TIMEOUT_S, "everything is compacted")
        with Traffic(STREAM, PARTITION_COUNT, [], [Reader("r2", server.kafka, STREAM, PARTITION_COUNT)]) as again:
            from_parquet = again.finish(server.kafka)
        rows = table_rows(cluster, stores)
        tasks = json.loads(bearlake(cluster, stores, "compaction", "tasks", "--admin", server.admin, "--json"))

    tell(f"killed {dict(killed)}; progress after the last: {seconds(found)}; {counts}")
    tell(f"compacted {complete_s:.1f} s later; from Parquet: {from_parquet}; rows {sum(row['rows'] for row in rows):,}")
    counts.assert_exact()
    assert not traffic.failed
    assert from_parquet.stored == from_parquet.read["r2"] == counts.stored
    for row in rows:
        assert row["rows"] == row["offsets"] == row["names"] == row["last"] - row["first"] + 1, row
        assert row["first"] == 0
    assert sum(row["rows"] for row in rows) == counts.stored
    assert not [task for task in tasks if task["state"] == "quarantined"]


def kill(cluster: Cluster, what: str, name: str) -> int:
    """Kill (-9) a worker, a worker's JVM, or the server, and restart it. Returns the number of kills."""
    server = cluster["a" if what == "server" else name]
    if what == "jvm":
        pids = [pid for pid in children(server.pid) if "java" in (Path("/proc") / str(pid) / "comm").read_text()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)
    server.kill()
    server.start()
    return 1


def children(pid: int) -> list[int]:
    """Child processes of `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def is_compacted(server: Server) -> bool:
    with urllib.request.urlopen(f"{server.admin}/v1/compaction/backlog", timeout=30) as answer:
        return bool(json.load(answer)["record_count"] == 0)


def table_rows(cluster: Cluster, stores: Stores) -> list[dict[str, int]]:
    """The table's rows by partition, counted by SQL."""
    found = json.loads(bearlake(cluster, stores, "sql", ROWS, "--json", "--config", str(cluster["w1"].config)))
    assert isinstance(found, list)
    return found


def bearlake(cluster: Cluster, stores: Stores, *words: str) -> bytes:
    done = subprocess.run(
        [*PROGRAM, *words],
        capture_output=True,
        env=clean_environment(stores.environment),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
