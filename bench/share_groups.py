"""A share group beside Apache Kafka: how many records per second its consumers get and accept, and what a record costs the server.

    python bench/share_groups.py [--consumers 10] [--partitions 10] [--bytes 30] [--seconds 5] [--rounds 3] [--json FILE]

The topic is written first, by batches of up to 500 records; it is larger than Bearlake's cache. Each consumer (librdkafka, in a process of
its own) then polls, which accepts what the poll before returned. Each round has a new group, which begins at the start of the
topic. Both servers are up; rounds alternate, and the first one of each server is discarded. A figure is the median of the others. Goal: at
least 0.7 x Kafka's records per second.
"""

import argparse
import ctypes
import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
from bench.alternation import Server
from bench.errors import BenchError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench import alternation, processes

TOPIC = "shared"
TIMEOUT_S = 60.0
WARM_UP_S = 3.0
"""Time between the first record of a round and its measured seconds."""
RATE_MIN = 0.7


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of one server."""

    per_s: float
    """Records per second, of all consumers together."""
    cpu_us: float
    """The server's CPU time (us) per record."""
    cores: float
    """Cores that the server used."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=30, help="of a record's value")
    parser.add_argument("--records", type=int, default=8_000_000, help="in the topic; a round must not come to its end")
    alternation.add_options(parser, seconds=5.0)
    options = parser.parse_args()
    found = alternation.run(
        "share_groups",
        options,
        TOPIC,
        lambda server, number: asdict(_round(server, options, f"group-{number}")),
        ["records/s", "CPU us each", "cores"],
        prepare=lambda server: _fill(server.address, options),
    )
    alternation.compare(found, "cpu_us", RATE_MIN)


def _fill(address: str, options: argparse.Namespace) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.num.messages": 500,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    value = b"x" * options.bytes
    for number in range(options.records):
        producer.produce(TOPIC, value, partition=number // 500 % options.partitions)
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
    if producer.flush(TIMEOUT_S):
        raise BenchError(f"the topic was not written within {TIMEOUT_S:g} s")


def _begin_at_start(address: str, group: str) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


def _round(server: Server, options: argparse.Namespace, group: str) -> Round:
    """Let all consumers run for `--seconds`. Raises `BenchError`."""
    _begin_at_start(server.address, group)
    context = multiprocessing.get_context("spawn")
    counts: list[Any] = [context.Value(ctypes.c_int64, 0, lock=False) for _ in range(options.consumers)]
    are_ready = context.Barrier(options.consumers + 1)
    is_over = context.Event()
    consumers = [
        context.Process(target=_consume, args=(server.address, group, count, are_ready, is_over), daemon=True)
        for count in counts
    ]
    for process in consumers:
        process.start()
    try:
        are_ready.wait(TIMEOUT_S)
        _until_first(counts)
        time.sleep(WARM_UP_S)
        first, before, began_s = _sum(counts), processes.usage(server.pid).cpu_s, time.monotonic()
        time.sleep(options.seconds)
        last, after, ended_s = _sum(counts), processes.usage(server.pid).cpu_s, time.monotonic()
    finally:
        is_over.set()
        for process in consumers:
            process.join(TIMEOUT_S)
    if any(process.exitcode != 0 for process in consumers):
        raise BenchError(f"a consumer failed at {server.name}")
    if last == first or last >= options.records:
        raise BenchError(f"{last - first} of {options.records} records in the measured time at {server.name}")
    return Round(
        per_s=(last - first) / (ended_s - began_s),
        cpu_us=1e6 * (after - before) / (last - first),
        cores=(after - before) / (ended_s - began_s),
    )


def _sum(counts: Sequence[Any]) -> int:
    return sum(count.value for count in counts)


def _until_first(counts: Sequence[Any]) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not all(count.value for count in counts):
        if time.monotonic() > end_s:
            raise BenchError(f"{sum(not count.value for count in counts)} consumers got no record")
        time.sleep(0.05)


def _consume(address: str, group: str, count: Any, are_ready: Any, is_over: Any) -> None:
    consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    are_ready.wait(
        TIMEOUT_S
    )  # all begin together: the first one alone would read the topic before the last one has started
    consumer.subscribe([TOPIC])
    while not is_over.is_set():
        messages = consumer.poll(0.5)
        count.value += sum(message.error() is None for message in messages)
    consumer.close()


if __name__ == "__main__":
    main()
