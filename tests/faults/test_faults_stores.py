"""The stores behind two servers become unavailable and return, or answer late and wrongly, under load.

A server without its stores acknowledges nothing, answers late and then with errors that clients retry, and keeps its memory bounded.
When the stores are back, everything continues, and no acknowledged record is missing.
"""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from faults.cluster import Cluster, Stores, running
from faults.java_load import JavaProducer
from faults.load import Member, Producer, Reader, create_stream
from faults.traffic import AnyProducer, Traffic, quantile_ms, seconds
from faults.waiting import until
from fixtures import s3
from fixtures.postgresql import PostgresqlServer

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "faults"
PARTITION_COUNT = 6
NAMES = ("one", "two")
RESUME_S_MAX = 20.0
STOP_TIMEOUT_S = 20.0
BUDGET_BYTES = 64 * 1024 * 1024
RESIDENT_BYTES_MAX = 650_000_000
"""Idle 60 MB, the write path's budget 67 MB, the cache 134 MB, receive buffers of the one address 136 MB and kept ones 67 MB; the rest are
answers and what a reader from the start loads, more of it on a busy machine. The flood sends 750 MB and more."""
ERROR_FRACTION = 0.2

Tell = Callable[[object], None]


def readers(cluster: Cluster) -> list[Reader]:
    return [Reader(f"r-{zone}", cluster.bootstrap, STREAM, PARTITION_COUNT, zone=zone) for zone in NAMES]


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_postgresql_is_stopped_and_started_again(
    how: str, folder: Path, stores: Stores, postgresql: PostgresqlServer, load_s: float, tell: Tell
) -> None:
    with running(Cluster(folder, stores), *NAMES) as cluster:
        both = cluster.bootstrap
        create_stream([server.kafka for server in cluster.servers.values()], STREAM, PARTITION_COUNT)
        producers: list[AnyProducer] = [
            Producer("p-one", both, STREAM, PARTITION_COUNT, zone="one"),
            Producer("p-two", both, STREAM, PARTITION_COUNT, zone="two"),
        ]
        if how == "fast":
            producers.append(JavaProducer(1, both, STREAM, folder, per_second=200))
        members = [Member("m-one", both, STREAM, "faults-group", zone="one")]
        with Traffic(STREAM, PARTITION_COUNT, producers, readers(cluster), members) as traffic:
            traffic.resumed(time.monotonic())
            traffic.run_on(load_s)
            stop = {"fast": postgresql.stop, "immediate": postgresql.kill}[how]
            stop()
            stopped_s = time.monotonic()
            traffic.run_on(load_s)
            starting_s = time.monotonic()
            postgresql.start()
            started_s = time.monotonic()
            found = traffic.resumed(started_s)
            traffic.run_on(load_s)
            counts = traffic.finish(both)

        tell(f"PostgreSQL was down ({how}) for {started_s - stopped_s:.1f} s; progress after: {seconds(found)}")
        errors = sum(server.metric("bearlake_log_commit_errors_total") for server in cluster.servers.values())
        tell(f"commits asked again {errors:.0f}; failed {dict(traffic.failed)}; complaints {traffic.complaints}")
        tell(counts)
        counts.assert_exact()
        assert_none_acknowledged_without_store(producers[:2], stopped_s, starting_s)
        assert max(found.values()) < RESUME_S_MAX
        assert not traffic.failed


@contextlib.contextmanager
def s3_of_our_own(folder: Path) -> Iterator[tuple[s3.S3Server, subprocess.Popen[bytes]]]:
    """An S3 server that the test may stop, and its process."""
    for part in ("buckets", "sidecar"):
        (folder / part).mkdir(parents=True)
    server, process = s3.start(folder)
    try:
        yield server, process
    finally:
        process.send_signal(signal.SIGCONT)
        s3.stop(process)


def stands_still(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    states = [
        task.joinpath("stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return set(states) == {"T"}


def assert_none_acknowledged_without_store(
    producers: Sequence[AnyProducer], stopped_s: float, continued_s: float
) -> None:
    """No record that was sent while a store was paused was acknowledged before the store resumed.

    Acknowledgements of records sent before the pause may still arrive, for as long as a busy machine takes.
    """
    sent = [
        record for producer in producers for record in producer.acknowledged if stopped_s < record.sent_s < continued_s
    ]
    assert sent, "no record was sent while the store was paused"
    assert not [record for record in sent if record.at_s < continued_s], "acknowledged without a store"


def megabytes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in sizes.items())


@contextlib.contextmanager
def flood(cluster: Cluster) -> Iterator[None]:
    """A client that sends 50 MB/s without waiting for answers, to its own stream, so only the servers can limit it."""
    create_stream([server.kafka for server in cluster.servers.values()], "flood", PARTITION_COUNT)
    client = Producer(
        "flood", cluster.bootstrap, "flood", PARTITION_COUNT, per_second=500, padding_bytes=100_000,
        enable_idempotence=False, max_in_flight=1_000, queue_buffering_max_kbytes=400_000,
    )  # fmt: skip
    client.start()
    try:
        yield
    finally:
        client.stop()


def test_the_object_store_is_paused_and_fails_a_fifth_of_its_requests(
    folder: Path, stores: Stores, load_s: float, tell: Tell
) -> None:
    stall_s = 5.0 if load_s < 30 else 30.0
    stall_file = folder / "stall"
    with s3_of_our_own(folder / "s3") as (server, process):
        bucket = f"s3://{server.make_bucket()}/bearlake"
        stores = replace(stores, object_store_url=bucket, environment=server.environment)
        settings = {
            "object_store.faults.error_fraction": ERROR_FRACTION,
            "object_store.faults.lost_reply_fraction": 0.05,
            "object_store.faults.stall_file": str(stall_file),
            # So that even a short stall exceeds the server's retries, and its clients get errors.
            "streams.writer.deadline_ms": int(stall_s * 600),
            "streams.writer.bytes_max": BUDGET_BYTES,
        }
        with running(Cluster(folder, stores, settings), *NAMES) as cluster:
            both = cluster.bootstrap
            create_stream([server.kafka for server in cluster.servers.values()], STREAM, PARTITION_COUNT)
            producers: list[AnyProducer] = [
                Producer("p-one", both, STREAM, PARTITION_COUNT, zone="one"),
                Producer("p-two", both, STREAM, PARTITION_COUNT, zone="two"),
                JavaProducer(1, both, STREAM, folder, per_second=200),
            ]
            with flood(cluster), Traffic(STREAM, PARTITION_COUNT, producers, readers(cluster)) as traffic:
                traffic.resumed(time.monotonic())
                traffic.run_on(load_s)
                calm = [record for producer in producers[:2] for record in producer.acknowledged]
                process.send_signal(signal.SIGSTOP)
                until(lambda: stands_still(process.pid), STOP_TIMEOUT_S, "the S3 server stands still")
                stopped_s = time.monotonic()
                traffic.run_on(stall_s)
                continued_s = time.monotonic()
                process.send_signal(signal.SIGCONT)
                first = traffic.resumed(time.monotonic())
                stall_file.touch()
                traffic.run_on(stall_s)
                stall_file.unlink()
                second = traffic.resumed(time.monotonic())
                traffic.run_on(load_s)
                in_load = {name: server.resident_bytes_peak() for name, server in cluster.servers.items()}
                counts = traffic.finish(both)

            late = [record for producer in producers[:2] for record in producer.acknowledged]
            peaks = {name: server.resident_bytes_peak() for name, server in cluster.servers.items()}
            told = sum(
                server.metric("bearlake_kafka_errors_total", api="PRODUCE", error="REQUEST_TIMED_OUT")
                for server in cluster.servers.values()
            )
            tell(f"stood still twice for {stall_s:g} s; progress after: {seconds(first)}; {seconds(second)}")
            tell(
                f"latency p50 {quantile_ms(calm, 0.5):.0f}, p99 {quantile_ms(calm, 0.99):.0f} ms before, "
                f"p99 {quantile_ms(late, 0.99):.0f} ms over all; batches answered with REQUEST_TIMED_OUT {told:.0f}; "
                f"failed {dict(traffic.failed)}"
            )
            tell(f"most resident memory: {megabytes(in_load)}; with a reader from the start: {megabytes(peaks)}")
            tell(counts)
            counts.assert_exact()
            assert_none_acknowledged_without_store(producers[:2], stopped_s, continued_s)
            assert told > 0
            assert max(peaks.values()) < RESIDENT_BYTES_MAX
