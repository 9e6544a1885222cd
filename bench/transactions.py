"""Transactions beside Apache Kafka: how many per second, how long a commit takes, what they cost the server.

    python bench/transactions.py [--producers 4] [--records 100] [--partitions 10] [--seconds 10] [--rounds 5] [--json FILE]

Each producer (librdkafka, in a process of its own) writes `--records` records of 100 bytes in turn to all partitions, commits, and begins
again. Both servers are up; the rounds alternate, and the first one of each server is discarded. A figure is the median of the others.
Goals: at least 0.7 x Kafka's transactions per second, and a commit within 10 ms (p50).
"""

import argparse
import multiprocessing
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka
from bench.alternation import Server
from bench.errors import BenchError

from bench import alternation, processes

TOPIC = "transactions"
VALUE = b"x" * 100
TIMEOUT_S = 60.0
RATE_MIN = 0.7
P50_MS_MAX = 10.0


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of one server."""

    per_s: float
    """Transactions per second, of all producers together."""
    commit_p50_ms: float
    commit_p99_ms: float
    cpu_ms: float
    """The server's CPU time (ms) per transaction."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--producers", type=int, default=4)
    parser.add_argument("--records", type=int, default=100)
    alternation.add_options(parser, seconds=10.0)
    options = parser.parse_args()
    found = alternation.run(
        "transactions",
        options,
        TOPIC,
        lambda server, number: asdict(_round(server, options, number)),
        ["transactions/s", "commit p50 ms", "commit p99 ms", "CPU ms each"],
    )
    alternation.compare(found, "cpu_ms", RATE_MIN, lambda ours: ours["commit_p50_ms"] <= P50_MS_MAX)


def _round(server: Server, options: argparse.Namespace, number: int) -> Round:
    """Let all producers run for `--seconds`. Raises `BenchError`."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(options.producers + 1)
    with context.Manager() as manager:
        commits_s = manager.list()
        producers = [
            context.Process(
                target=_produce, args=(server.address, f"{number}-{at}", vars(options), barrier, commits_s), daemon=True
            )
            for at in range(options.producers)
        ]
        for process in producers:
            process.start()
        barrier.wait(TIMEOUT_S)
        before = processes.usage(server.pid)
        for process in producers:
            process.join(options.seconds + TIMEOUT_S)
        used_s = processes.usage(server.pid).cpu_s - before.cpu_s
        if any(process.exitcode != 0 for process in producers):
            raise BenchError(f"a producer failed at {server.name}")
        times_ms = sorted(1000 * value for value in commits_s)
    if not times_ms:
        raise BenchError(f"no transaction was committed at {server.name}")
    return Round(
        per_s=len(times_ms) / options.seconds,
        commit_p50_ms=times_ms[len(times_ms) // 2],
        commit_p99_ms=times_ms[len(times_ms) * 99 // 100],
        cpu_ms=1000 * used_s / len(times_ms),
    )


def _produce(address: str, name: str, options: dict[str, float], barrier: object, commits_s: list[float]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    _transact(producer, options)  # the library looks up the topic
    barrier.wait(TIMEOUT_S)  # type: ignore[attr-defined]
    end_s, mine = time.monotonic() + options["seconds"], []
    while time.monotonic() < end_s:
        mine.append(_transact(producer, options))
    commits_s.extend(mine)


def _transact(producer: confluent_kafka.Producer, options: dict[str, float]) -> float:
    """Run one transaction; return how long the commit took (s)."""
    producer.begin_transaction()
    for at in range(int(options["records"])):
        producer.produce(TOPIC, VALUE, partition=at % int(options["partitions"]))
    if producer.flush(TIMEOUT_S):
        raise BenchError("records were not delivered in time")
    began_s = time.monotonic()
    producer.commit_transaction(TIMEOUT_S)
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
