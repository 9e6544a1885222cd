"""Servers of a cluster die, are started again, or stand still, in the middle of load by unmodified clients.

Two servers share one PostgreSQL (fsync on) and one S3 bucket. Whatever happens to one of them: nothing acknowledged is lost, nothing
is stored twice or out of order, and clients go on by themselves.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.cluster import Cluster, Stores, running
from faults.java_load import JavaProducer
from faults.load import Producer, Reader, create_stream
from faults.traffic import AnyProducer, Traffic, quantile_ms, seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "faults"
PARTITION_COUNT = 6
RESUME_S_MAX = 20.0


def test_either_of_two_servers_is_killed_and_clients_go_on(
    folder: Path, stores: Stores, load_s: float, tell: Callable[[object], None]
) -> None:
    with running(Cluster(folder, stores), "one", "two") as cluster:
        create_stream([server.kafka for server in cluster.servers.values()], STREAM, PARTITION_COUNT)
        both = cluster.bootstrap
        producers: list[AnyProducer] = [
            Producer("p1", both, STREAM, PARTITION_COUNT, zone="one"),
            Producer("p2", both, STREAM, PARTITION_COUNT, zone="two"),
            JavaProducer(1, both, STREAM, folder, per_second=200, zone="one"),
        ]
        readers = [Reader(f"r-{zone}", both, STREAM, PARTITION_COUNT, zone=zone) for zone in ("one", "two")]
        with Traffic(STREAM, PARTITION_COUNT, producers, readers) as traffic:
            traffic.resumed(time.monotonic())
            for victim in ("one", "two"):
                traffic.run_on(load_s)
                killed_s = time.monotonic()
                cluster[victim].kill()
                found = traffic.resumed(killed_s)
                tell(f"killed {victim}; all partitions progress again after: {seconds(found)}")
                assert max(found.values()) < RESUME_S_MAX
                traffic.run_on(load_s)
                started_s = time.monotonic()
                cluster[victim].start()
                tell(f"started {victim} again in {time.monotonic() - started_s:.1f} s")
                traffic.resumed(time.monotonic())
            counts = traffic.finish(both)

        tell(f"p99 {quantile_ms(producers[0].acknowledged, 0.99):.0f} ms; failed {dict(traffic.failed)}; {counts}")
        counts.assert_exact()
        assert not traffic.failed
