"""The cases of the suite: the load, and Bearlake's goals relative to the peer.

A "1 MiB" request holds 1,000 records of 1 KiB: with its headers the batch is just below the 1,048,588 bytes that a broker
accepts by default, so both servers run with their defaults. Connections share no partitions. `EXTRA` cases run only
if they are named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bench.figures import Goal
from bench.templates import BatchShape

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the result table."""

    name: str
    title: str
    kind: Literal["produce", "fetch", "java"] = "produce"
    shape: BatchShape
    """Produce: each batch of a request. Fetch: the batches of the log. Java: the records."""
    connections: int = 4
    depth: int = 5
    partitions_per_request: int = 1
    version: int = 9
    idempotent: bool = False
    pause_us: int = 0
    fetch_bytes_max: int = 1 << 20
    medium: Literal["memory", "disk"] = "memory"
    """File system of both servers' data."""
    peer_config: Mapping[str, str] = field(default_factory=dict)
    """Topic configuration of the peer only, to give it the durability that Bearlake has."""
    java_properties: Mapping[str, str] = field(default_factory=dict)
    goal: Goal = field(default_factory=Goal)

    @property
    def payload_bytes(self) -> int:
        """Value bytes of one Produce request."""
        return self.shape.payload_bytes * self.partitions_per_request

    @property
    def partition_count(self) -> int:
        """Partitions of the topic."""
        return self.connections * self.partitions_per_request


def _shape(record_count: int) -> BatchShape:
    return BatchShape(record_count=record_count, record_bytes=KIB)


JAVA_PROPERTIES = {"acks": "all", "batch.size": "131072", "linger.ms": "5"}

CASES = (
    Case(
        name="produce-1m", title="produce 1 MiB", shape=_shape(1000),
        goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.3),
    ),
    Case(
        name="produce-100k", title="produce 100 KiB", shape=_shape(100),
        goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.3),
    ),
    Case(
        name="produce-64k", title="produce 64 KiB", shape=_shape(64),
        goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.3),
    ),
    Case(
        name="produce-64k-idempotent", title="produce 64 KiB, idempotent", shape=_shape(64), idempotent=True,
        goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.3),
    ),
    Case(
        name="produce-16k", title="produce 16 KiB", shape=_shape(16), connections=16,
        goal=Goal(cpu_ratio_max=0.4, throughput_ratio_min=1.3),
    ),
    Case(
        name="produce-1k", title="produce 1 KiB", shape=_shape(1), connections=16,
        goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
    Case(
        name="produce-lz4", title="produce lz4, 100 KiB raw",
        shape=BatchShape(record_count=100, record_bytes=KIB, codec="lz4"),
        goal=Goal(cpu_ratio_max=0.4, throughput_ratio_min=1.5),
    ),
    Case(
        name="produce-zstd", title="produce zstd, 100 KiB raw",
        shape=BatchShape(record_count=100, record_bytes=KIB, codec="zstd"),
        goal=Goal(cpu_ratio_max=0.25, throughput_ratio_min=2.0),
    ),
    Case(
        name="produce-1000-partitions", title="1,000 partitions, 100 x 1 KiB", shape=_shape(1), connections=10,
        partitions_per_request=100, goal=Goal(cpu_ratio_max=0.35, throughput_ratio_min=2.0),
    ),
    Case(
        name="fetch-1m", title="fetch at the tail, 1 MiB", kind="fetch", shape=_shape(64), depth=2, version=12,
        goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.2),
    ),
    Case(
        name="java", title="Java ProducerPerformance, 1 KiB records", kind="java", shape=_shape(1), connections=16,
        java_properties=JAVA_PROPERTIES, goal=Goal(cpu_ratio_max=0.7, throughput_ratio_min=1.2),
    ),
    Case(
        name="low-load", title="low load: 4 x 1 KiB, 5 ms pause", shape=_shape(1), depth=1, pause_us=5000,
        goal=Goal(cpu_ratio_max=1.0, p50_ratio_max=1.3),
    ),
    Case(
        name="produce-64k-fsync", title="produce 64 KiB, disk, fsync", shape=_shape(64), medium="disk",
        peer_config={"flush.messages": "1"}, goal=Goal(cpu_ratio_max=0.2, throughput_ratio_min=2.5),
    ),
)  # fmt: skip

EXTRA = (
    Case(name="produce-64k-v7", title="produce 64 KiB, Produce v7", shape=_shape(64), version=7),
    Case(name="produce-64k-16-connections", title="produce 64 KiB, 16 connections", shape=_shape(64), connections=16),
    Case(
        name="produce-64k-small-records", title="produce 64 KiB of 100 B records",
        shape=BatchShape(record_count=655, record_bytes=100),
    ),
    Case(
        name="produce-16-partitions", title="produce 256 KiB in 16 partitions", shape=_shape(16),
        partitions_per_request=16,
    ),
    Case(name="produce-1-connection", title="produce 1 MiB, one connection", shape=_shape(1000), connections=1),
    Case(name="produce-64k-disk", title="produce 64 KiB, disk, peer without fsync", shape=_shape(64), medium="disk"),
    Case(name="fetch-1m-v4", title="fetch 1 MiB, Fetch v4", kind="fetch", shape=_shape(64), depth=2, version=4),
    Case(
        name="fetch-64k", title="fetch one 64 KiB batch", kind="fetch", shape=_shape(64), connections=16, depth=2,
        version=12, fetch_bytes_max=80_000, goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.2),
    ),
    Case(
        name="java-requests", title="requests as the Java producer sends: 4 x 104 KiB, one at a time", shape=_shape(104),
        connections=1, depth=1, partitions_per_request=4, goal=Goal(cpu_ratio_max=0.7),
    ),
    Case(name="closed-loop", title="closed loop: 4 x 16 KiB", shape=_shape(16), depth=1),
    Case(
        name="java-plain", title="Java ProducerPerformance, not idempotent", kind="java", shape=_shape(1),
        connections=16, java_properties={**JAVA_PROPERTIES, "enable.idempotence": "false"},
    ),
)  # fmt: skip

BY_NAME = {case.name: case for case in (*CASES, *EXTRA)}
