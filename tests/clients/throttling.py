"""A server whose clients have quotas, and what tests compare before and after a client has used more than its quota.

    RATE      bytes of records that clients may write per second
    READ      bytes that they may read per second
    burst     a thousandth of a second: every request that writes more than 200 bytes owes something, on a busy machine too

`SIZES` are the sizes of the messages that a client writes: the first one alone is more than the quota gives in a second.
"""

import contextlib
import re
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from confluent_kafka import Consumer, TopicPartition

from clients.messages import TIMEOUT_S
from fixtures.server_process import ServerProcess, finished, started
from fixtures.waiting import WAIT_S

RATE, READ = 200_000, 400_000
SIZES = (300_000, *[5_000] * 20)
SECONDS_MIN = (sum(SIZES) - SIZES[-1]) / RATE - 0.1
"""The last message is not written sooner after the first one: the rate is what the server promises. A tenth of a second is for the burst
and for debts below a millisecond, which are not waited for."""
WRITES, READS = "producer_byte_rate", "consumer_byte_rate"


def values() -> list[bytes]:
    """The messages: each is its number, a space and filling."""
    return [(b"%d " % number).ljust(size, b"x") for number, size in enumerate(SIZES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedServer:
    """A `bearlake up` with quotas for every user."""

    process: ServerProcess

    def throttled(self, kind: str) -> float:
        """How often the server has throttled clients by this kind of quota."""
        with urllib.request.urlopen(f"{self.process.admin}/metrics", timeout=WAIT_S) as page:
            found = re.search(
                rf'^bearlake_server_throttled_total{{kind="{kind}"}} (\S+)$', page.read().decode(), re.MULTILINE
            )
        return float(found[1]) if found else 0.0

    @contextlib.contextmanager
    def throttles(self, *kinds: str) -> Iterator[None]:
        """Assert that the server has throttled somebody in this block, by each of these kinds of quota."""
        before = {kind: self.throttled(kind) for kind in kinds}
        yield
        for kind, count in before.items():
            assert self.throttled(kind) > count, f"nobody was throttled by {kind}"

    def end_offset(self, stream: str) -> int:
        """The number of records that the stream's only partition has been given."""
        consumer = Consumer({"bootstrap.servers": self.process.kafka, "group.id": stream})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(stream, 0), TIMEOUT_S)[1])
        finally:
            consumer.close()


@contextlib.contextmanager
def limited_server(folder: Path) -> Iterator[LimitedServer]:
    """Start the server; its files are in `folder`."""
    config = folder / "settings.yaml"
    settings = {
        "metadata": {"url": f"sqlite://{folder}/metadata.db"},
        "object_store": {"url": f"file://{folder}/objects"},
        "streams": {"quotas": {"burst_ms": 1}},
    }
    config.write_text(yaml.safe_dump(settings))
    quotas: Sequence[str] = (f"{WRITES}={RATE}", f"{READS}={READ}")
    made = finished("quota", "set", "--user-default", *quotas, "--config", config)
    assert made.returncode == 0, made.stderr.decode()
    words = ("up", "--data-dir", folder / "data", "--no-tour", "--config", config)
    with started(*words, ready_file=folder / "ready.json") as process:
        yield LimitedServer(process=process)
