"""One million acknowledgements on a Shared subscription, out of order, by ten consumers: are the server's memory and the cursor flat?

    python bench/pulsar_acknowledgements.py [--bearlake PROGRAM] [--messages 1000000] [--consumers 10] [--json FILE]

Each message of 100 bytes is an entry of its own, so that it is acknowledged alone. A consumer keeps up to
`WINDOW_COUNT` messages; then it acknowledges all except `KEPT_COUNT` random messages: some wait for a long time, and the cursor
has a gap for each. Resident memory is that of the server process; the cursor's size is that of its row in the metadata store.
The client is Pulsar's Python client (based on the C++ client); it groups acknowledgements for 100 ms.
Exit code 1: memory or cursor grew with the number of messages. 2: nothing could be measured.
"""

import argparse
import json
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.pop(0)  # bench/ is removed: its pulsar.py would hide the client
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pulsar
from bench.bearlake_server import COMMAND
from bench.errors import BenchError
from bench.pulsar_server import BearlakePulsar
from bench.run import MEMORY_ROOT, workspace

from bench import processes, report

TOPIC = "acknowledged"
VALUE = bytes(100)
WINDOW_COUNT = 1_000
KEPT_COUNT = 100
QUEUE_COUNT = 1_000
"""Messages that a consumer's library fetches ahead."""
SAMPLE_S = 0.5
RECEIVE_MS = 200
SHOWN_COUNT = 12
FLAT_FROM = 0.1
"""Share of the messages after which memory must not grow."""
GROWTH_BYTES_MAX = 32 << 20
CURSOR_BYTES_MAX = 64 << 10
"""Ten windows have at most 10,000 gaps, each with two numbers of one to three bytes."""
HEADS = ("acknowledged", "seconds", "RSS MB", "cursor bytes", "mark-delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample of the server; `acknowledged` is the number of messages that the consumers had acknowledged by then."""

    acknowledged: int
    passed_s: float
    rss_bytes: int
    cursor_bytes: int
    mark_delete: int


class Sampler:
    """Samples a server periodically in its own thread."""

    def __init__(self, server: BearlakePulsar, metadata: Path) -> None:
        self._server = server
        self._metadata = metadata
        self._over = threading.Event()
        self._start_s = time.monotonic()
        self.acknowledged = 0
        self.samples: list[Sample] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample while the block runs, and once more at its end."""
        thread = threading.Thread(target=self._run)
        self._start_s = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        self.sample()

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.sample()

    def sample(self) -> None:
        """Take one sample."""
        acknowledged, passed_s = self.acknowledged, time.monotonic() - self._start_s
        store = sqlite3.connect(f"file:{self._metadata}?mode=ro", uri=True)
        try:
            row = store.execute("SELECT length(acknowledged), mark_delete FROM cursors").fetchone()
        finally:
            store.close()
        cursor_bytes, mark_delete = row or (0, 0)
        self.samples.append(
            Sample(
                acknowledged=acknowledged,
                passed_s=passed_s,
                rss_bytes=processes.usage(self._server.pid).rss_bytes,
                cursor_bytes=cursor_bytes,
                mark_delete=mark_delete,
            )
        )


def produce(client: Any, count: int) -> None:
    """Produce messages as single entries; returns when all have their receipts."""
    producer = client.create_producer(
        TOPIC, batching_enabled=False, max_pending_messages=5_000, block_if_queue_full=True
    )
    failed: list[Any] = []

    def receipt(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    for _ in range(count):
        producer.send_async(VALUE, receipt)
    producer.flush()
    producer.close()
    if failed:
        raise BenchError(f"{len(failed)} messages failed: {failed[0]}")


class Worker:
    """A consumer that acknowledges in random order."""

    def __init__(self, consumer: Any, seed: int) -> None:
        self._consumer = consumer
        self._random = random.Random(seed)
        self._held: list[Any] = []

    def take(self) -> int:
        """Receive until the window is full or nothing arrives, then acknowledge some; return how many, -1 if nothing arrived."""
        while len(self._held) < WINDOW_COUNT:
            try:
                self._held.append(self._consumer.receive(RECEIVE_MS).message_id())
            except pulsar.Timeout:
                break
        if len(self._held) < WINDOW_COUNT:
            return self._acknowledge(0) or -1
        return self._acknowledge(KEPT_COUNT)

    def _acknowledge(self, kept_count: int) -> int:
        self._random.shuffle(self._held)
        chosen, self._held = self._held[kept_count:], self._held[:kept_count]
        for message_id in chosen:
            self._consumer.acknowledge(message_id)
        return len(chosen)


def consume(client: Any, count: int, consumer_count: int, sampler: Sampler) -> None:
    """Acknowledge everything, with the consumers in turn."""
    consumers = [
        client.subscribe(
            TOPIC,
            "shared",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=QUEUE_COUNT,
        )
        for _ in range(consumer_count)
    ]
    workers = [Worker(consumer, seed) for seed, consumer in enumerate(consumers)]
    while sampler.acknowledged < count:
        found = [worker.take() for worker in workers]
        sampler.acknowledged += sum(max(0, count) for count in found)
        if all(count < 0 for count in found):
            raise BenchError(f"no more messages arrive after {sampler.acknowledged:,} of {count:,}")
    for consumer in consumers:
        consumer.close()  # sends the acknowledgements that the library still holds


def measure(options: argparse.Namespace) -> list[Sample]:
    """Produce, then consume; returns samples of the server."""
    with workspace(MEMORY_ROOT) as directory:
        server = BearlakePulsar(directory / "bearlake", command=options.bearlake)
        try:
            server.start()
            logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            client = pulsar.Client(f"pulsar://{server.address}", logger=logger)
            produce(client, options.messages)
            sampler = Sampler(server, server.directory / "data" / "metadata.db")
            with sampler.running():
                consume(client, options.messages, options.consumers, sampler)
                client.close()
                _await_saved(sampler, options.messages)
        finally:
            server.stop()
    return sampler.samples


def _await_saved(sampler: Sampler, count: int) -> None:
    """Wait until the stored cursor is at the end."""
    for _ in range(100):
        if sampler.samples and sampler.samples[-1].mark_delete == count:
            return
        time.sleep(SAMPLE_S)
    raise BenchError(f"the cursor is at {sampler.samples[-1].mark_delete:,} instead of {count:,}")


def main() -> None:
    """Command line: see the head of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        samples = measure(options)
    except (BenchError, pulsar.PulsarException) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    print("; ".join(f"{name}: {value}" for name, value in processes.machine().items()) + "\n")
    shown = [*samples[:: max(1, len(samples) // SHOWN_COUNT)], samples[-1]]
    print(report.table(HEADS, [_row(sample) for sample in shown]))
    later = [sample for sample in samples if sample.acknowledged >= FLAT_FROM * options.messages]
    growth_bytes = max(sample.rss_bytes for sample in later) - later[0].rss_bytes
    cursor_bytes = max(sample.cursor_bytes for sample in samples)
    print(
        f"\nmemory after the first {FLAT_FROM:.0%}: {growth_bytes / 1e6:+.1f} MB at most; cursor: {cursor_bytes:,} bytes at most"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(sample) for sample in samples], indent=1) + "\n")
    if growth_bytes > GROWTH_BYTES_MAX or cursor_bytes > CURSOR_BYTES_MAX or samples[-1].cursor_bytes:
        sys.exit(1)


def _row(sample: Sample) -> list[str]:
    rss_mb = f"{sample.rss_bytes / 1e6:.1f}"
    return [
        f"{sample.acknowledged:,}",
        f"{sample.passed_s:.1f}",
        rss_mb,
        f"{sample.cursor_bytes:,}",
        f"{sample.mark_delete:,}",
    ]


if __name__ == "__main__":
    main()
