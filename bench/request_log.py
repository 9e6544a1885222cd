"""The request bill, measured: servers on PostgreSQL and an S3 server, a paced load, and the S3 server's access log.

The log has a line per request (Versity writes the format of S3's server access logs); a request counts under the first folder
of its key: `wal` are WAL objects, the others belong to tables. A bulk deletion names its keys only in its body: "several". With
compaction, a worker (Spark) converts the records, also for COMPACT_S after the load; its requests count.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.configured_server import BearlakeCluster, CompactionWorker
from bench.loading import Load, run_loader
from bench.stores import Postgresql, S3Gateway
from bench.templates import BatchShape

from bench import templates, topics

SHAPE = BatchShape(record_count=256, record_bytes=1024)
CONNECTIONS = 32
PAUSE_US = 100_000
TOPIC = "bill"
COMPACT_S = 40
"""Time after the load in which compaction works off the rest."""
REQUEST = re.compile(r" s3_(?P<name>[A-Za-z0-9]+) (?P<key>\S+) (?P<uri>\S+) ")
FOLDER = re.compile(r"(?:prefix=)?bearlake(?:/|%2F)(?P<name>[a-z_-]+)")
OPERATIONS = {
    "PutObject": "PUT",
    "CreateMultipartUpload": "PUT",
    "UploadPart": "PUT",
    "CompleteMultipartUpload": "PUT",
    "GetObject": "GET",
    "HeadObject": "HEAD",
    "ListObjectsV2": "LIST",
    "DeleteObject": "DELETE",
    "DeleteObjects": "DELETE",
}
"""Operation of each request of S3's API; requests that are not here count under their own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Requests by kind of object and operation, and the load that caused them."""

    requests: Mapping[str, Counter[str]]
    seconds: float
    """Time in which requests were counted."""
    payload_bytes: int
    mb_per_s: float
    p50_ms: float
    commits: float
    other_cores: float


def measure(directory: Path, *, command: Path, server_count: int, seconds: float, has_compaction: bool) -> Measured:
    """Run the load for `seconds` and count. Raises BenchError."""
    postgresql = Postgresql(directory / "postgresql", has_standby=False)
    s3 = S3Gateway(directory / "s3", has_log=True)
    cluster = BearlakeCluster(directory, postgresql, s3=s3, server_count=server_count, settings={}, command=command)
    worker = None
    try:
        postgresql.start()
        cluster.start()
        if has_compaction:
            worker = CompactionWorker(
                directory / "worker", command=command, settings=cluster.settings, environment=s3.environment
            )
            worker.start()
        topics.create(cluster.address, TOPIC, CONNECTIONS, {})
        before, start_s = cluster.counters(), time.monotonic()
        first_line = len(_lines(s3))
        batch = templates.record_batch(SHAPE)
        frames = [templates.produce_request(batch, [part], topic=TOPIC) for part in range(CONNECTIONS)]
        templates.write_templates(directory / "templates", frames)
        print(f"load for {seconds:g} s", flush=True)
        run = run_loader(cluster, Load(
            templates=directory / "templates", connections=CONNECTIONS, depth=1, seconds=seconds, pause_us=PAUSE_US,
            payload_bytes=SHAPE.payload_bytes, ports=cluster.ports, spread=True,
        ))  # fmt: skip
        if has_compaction:
            print(f"compaction for {COMPACT_S} s more", flush=True)
            time.sleep(COMPACT_S)
        after = cluster.counters()
        return Measured(
            requests=count_requests(_lines(s3)[first_line:]), seconds=time.monotonic() - start_s,
            payload_bytes=run.payload_bytes, mb_per_s=run.mb_per_s,
            p50_ms=run.p50_ms or 0.0, commits=(after.commits or 0) - (before.commits or 0), other_cores=run.other_cores,
        )  # fmt: skip
    finally:
        if worker is not None:
            worker.stop()
        cluster.stop()
        postgresql.stop()


def count_requests(lines: Iterable[str]) -> dict[str, Counter[str]]:
    """Count the requests in lines of an access log, by the first folder below the prefix and by operation."""
    counts: dict[str, Counter[str]] = {}
    for line in lines:
        request = REQUEST.search(line)
        if request is None:
            continue  # the head of the log
        folder = FOLDER.match(request["key"]) or FOLDER.search(request["uri"].partition("?")[2])
        kind = folder["name"] if folder else "several"
        counts.setdefault(kind, Counter())[OPERATIONS.get(request["name"], request["name"])] += 1
    return counts


def total(requests: Mapping[str, Counter[str]]) -> Counter[str]:
    """Requests by operation, of all kinds of objects."""
    return sum(requests.values(), Counter())


def _lines(s3: S3Gateway) -> list[str]:
    assert s3.access_log is not None, "the server was started with a log"
    return s3.access_log.read_text().splitlines()
