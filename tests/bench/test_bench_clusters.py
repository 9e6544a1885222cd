"""Clusters of the benchmarks: a short run on PostgreSQL and S3, and where Kafka's partitions and the load's connections go."""

import shutil
from pathlib import Path

import pytest
from bench.bearlake_server import COMMAND
from bench.configured_server import BearlakeCluster
from bench.errors import BenchError
from bench.kafka_cluster import KafkaCluster
from bench.same_promise import CASES, MODES, measure, row_of
from bench.stores import Postgresql, S3Gateway

from bench import kafka_cluster, same_promise
from bench import stores as bench_stores

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


def test_every_part_of_a_cluster_on_postgresql_and_s3_is_measured(stores: None, bench_folder: Path) -> None:
    postgresql = Postgresql(bench_folder / "postgresql")
    cluster = BearlakeCluster(
        bench_folder, postgresql, s3=S3Gateway(bench_folder / "s3"), server_count=2, settings=MODES["latency"],
        command=COMMAND,
    )  # fmt: skip
    try:
        postgresql.start()
        cluster.start()
        measured = measure(cluster, CASES[1], bench_folder / "templates", seconds=0.5, warmup_s=0.2)
        parts = cluster.parts
    finally:
        cluster.stop()
        postgresql.stop()

    assert {part: len(pids) for part, pids in parts.items()} == {"servers": 2, "PostgreSQL": 2, "S3": 1}
    assert measured.run.requests > 0
    assert min(measured.cpu_s.values()) > 0
    assert measured.cpu_s_per_gb_without_s3 < measured.run.cpu_s_per_gb
    assert len(row_of("case", "bearlake", [measured])) == len(same_promise.HEADS)


def test_brokers_lead_the_partitions_whose_connections_they_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[list[list[int]]] = []
    monkeypatch.setattr(kafka_cluster.topics, "create", lambda *_, replicas: seen.append(replicas))
    monkeypatch.setattr(KafkaCluster, "address", "127.0.0.1:9")

    KafkaCluster(tmp_path).create_topic("t", 4)

    assert seen == [[[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]]


def test_a_missing_s3_server_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench_stores.shutil, "which", lambda _: None)
    monkeypatch.setattr(bench_stores, "CACHED_GATEWAY", tmp_path / "versitygw")

    with pytest.raises(BenchError, match="no Versity S3 Gateway"):
        S3Gateway(tmp_path / "s3").start()
