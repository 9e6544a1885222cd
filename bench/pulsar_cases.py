"""The cases of the Pulsar suite: the load, and Bearlake's goals relative to the peer.

One producer, or the consumers of a subscription, on one topic that is not partitioned. Requests are messages here, so
"CPU us/request" is CPU seconds per million messages. The goals refer to Apache Pulsar's figures on the same machine.
"""

from dataclasses import dataclass, field
from typing import Literal

from bench.figures import Goal
from bench.pulsar_frames import Entry, Subscription

KIB = 1024
_64_KIB = Entry(message_count=64, message_bytes=KIB)
_10_KB = Entry(message_count=100, message_bytes=100)
_ALONE = Entry(message_count=1, message_bytes=KIB)
_PERMITS = 1000
"""Messages that a consumer of the Java client has room for by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarCase:
    """One row of the result table."""

    name: str
    title: str
    kind: Literal["produce", "consume"] = "produce"
    entry: Entry
    depth: int
    """Produce: SENDs in flight. Consume: messages for which a consumer has room."""
    subscription: Subscription = "Exclusive"
    consumer_count: int = 1
    message_count: int = 0
    """Of the backlog that is consumed."""
    pause_us: int = 0
    goal: Goal = field(default_factory=Goal)


CASES = (
    PulsarCase(
        name="produce-64k", title="produce 1 KiB, 64 KiB batches", entry=_64_KIB, depth=64,
        goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
    PulsarCase(
        name="produce-100b", title="produce 100 B, 10 KB batches", entry=_10_KB, depth=100,
        goal=Goal(cpu_ratio_max=0.5, throughput_ratio_min=1.5),
    ),
    PulsarCase(
        name="produce-unbatched", title="produce 1 KiB, unbatched", entry=_ALONE, depth=1000,
        goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
    PulsarCase(
        name="consume-1k-exclusive", title="consume 1 KiB, Exclusive", kind="consume", entry=_64_KIB, depth=_PERMITS,
        message_count=600_000, goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
    PulsarCase(
        name="consume-1k-shared", title="consume 1 KiB, Shared, 2 consumers", kind="consume", entry=_64_KIB, depth=_PERMITS,
        message_count=600_000, subscription="Shared", consumer_count=2, goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
    PulsarCase(
        name="consume-100b-exclusive", title="consume 100 B, Exclusive", kind="consume", entry=_10_KB, depth=_PERMITS,
        message_count=3_000_000, goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
    PulsarCase(
        name="consume-100b-shared", title="consume 100 B, Shared, 2 consumers", kind="consume", entry=_10_KB,
        depth=_PERMITS, message_count=3_000_000, subscription="Shared", consumer_count=2,
        goal=Goal(cpu_ratio_max=0.3, throughput_ratio_min=1.5),
    ),
)  # fmt: skip

EXTRA = (
    PulsarCase(
        name="consume-unbatched-exclusive", title="consume 1 KiB, unbatched, Exclusive", kind="consume", entry=_ALONE,
        depth=_PERMITS, message_count=200_000,
    ),
    PulsarCase(
        name="consume-unbatched-shared", title="consume 1 KiB, unbatched, Shared, 2 consumers", kind="consume",
        entry=_ALONE, depth=_PERMITS, message_count=200_000, subscription="Shared", consumer_count=2,
    ),
    PulsarCase(
        name="low-load", title="low load: 1 KiB unbatched, 1 ms pause", entry=_ALONE, depth=1, pause_us=1000,
    ),
)  # fmt: skip

MOVES = {"move-python": "python", "move-java": "java"}
"""By name: the client whose producer and consumer are moved by a drain (`pulsar_moves.py`)."""
MOVE_GOAL_MS = {"python": 8.0, "java": 34.0}
"""Longest time without a receipt or a message that Pulsar's clients showed when a proxy sent them to another broker."""

BY_NAME = {case.name: case for case in (*CASES, *EXTRA)}
