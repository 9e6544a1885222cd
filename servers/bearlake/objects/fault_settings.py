"""Settings that inject faults into a real server's object store: for benchmarks with latency and tests of faults, off by default.

The faults wrap the store that the URL names (`objects/faulty.py`), below the retries and the metrics. To a server, they look like
faults of a real store. Never use these settings where users depend on timely data.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFaults:
    """For benchmarks and fault tests only: adds latency, errors and stalls to the real store. Off by default."""

    put_latency_ms: float = 0.0
    """Median latency added to each put; 80 is typical of a cloud object store for 8 MiB."""

    read_latency_ms: float = 0.0
    """Median latency added to every other call; 20 is typical of a cloud object store for a small read."""

    latency_spread: float = 0.0
    """Standard deviation of the logarithm of the latencies; 0: always the median, 0.5: one call in a hundred takes 3.2 times the median."""

    error_fraction: float = 0.0
    """Fraction of all calls that fail without effect."""

    lost_reply_fraction: float = 0.0
    """Fraction of puts and deletions that succeed but are reported as failed."""

    stall_file: str = ""
    """While this file exists, no call gets an answer. Empty: never."""

    stall_deadline_ms: int = 20_000
    """Time after which a stalled call fails, without effect."""

    @property
    def is_off(self) -> bool:
        """Whether nothing is injected, so that the store needs no wrapper."""
        chances = self.error_fraction + self.lost_reply_fraction
        return self.put_latency_ms + self.read_latency_ms + chances == 0 and not self.stall_file
