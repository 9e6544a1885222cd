"""Figures: one run's measurements, medians of several, ratios of two servers. Pure functions.

A figure of the result table is the median of the runs; a ratio is the ratio of two medians. Runs with errors give no
figures, because a server that refuses requests is fast.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured window of one server under one load."""

    seconds: float
    requests: int
    """Requests answered in the window; records for the Java producer; messages with Pulsar."""
    payload_bytes: int
    """Record values sent (before compression) or bytes of whole batches received."""
    mb_per_s: float
    p50_ms: float | None
    """None for consumers without requests, which are sent as much as they have room for."""
    p99_ms: float | None
    p999_ms: float | None
    client_cpu_s: float
    server_cpu_s: float
    cpu_payload_bytes: int
    """Payload during which `server_cpu_s` was used; for the Java producer its warm-up is included."""
    cpu_requests: int
    rss_bytes: int
    other_cores: float
    """Cores kept busy by neither server nor client."""
    objects: float | None = None
    """Objects put per second, warm-up included; None where the server has no objects."""
    object_bytes: float | None = None
    """Bytes put per second, warm-up included."""
    commits: float | None = None
    """Metadata commits per second, warm-up included."""

    @property
    def requests_per_s(self) -> float:
        """Requests (Java: records) answered per second."""
        return self.requests / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        """Server CPU seconds per 10^9 bytes of payload."""
        return self.server_cpu_s / (self.cpu_payload_bytes / 1e9)

    @property
    def cpu_us_per_request(self) -> float:
        """Server CPU microseconds per request (Java: per record)."""
        return self.server_cpu_s / self.cpu_requests * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Bearlake's goal relative to the peer; None: no goal."""

    cpu_ratio_max: float | None = None
    throughput_ratio_min: float | None = None
    p50_ratio_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Bearlake's median divided by the peer's."""

    throughput: float
    cpu: float
    p50: float | None
    p99: float | None


def of_runs(runs: Sequence[Run], figure: Callable[[Run], float | None]) -> float | None:
    """Median of a figure over `runs`; None when no run has it."""
    values = [value for run in runs if (value := figure(run)) is not None]
    return median(values) if values else None


def spread(runs: Sequence[Run], figure: Callable[[Run], float]) -> tuple[float, float]:
    """Smallest and largest value of a figure; `runs` must not be empty."""
    values = [figure(run) for run in runs]
    return min(values), max(values)


def ratios(ours: Sequence[Run], peers: Sequence[Run]) -> Ratios | None:
    """Ratios of medians, ours to the peer's; None when one side has no runs."""
    if not ours or not peers:
        return None

    def ratio(figure: Callable[[Run], float]) -> float:
        return median(map(figure, ours)) / median(map(figure, peers))

    def latency_ratio(figure: Callable[[Run], float | None]) -> float | None:
        own, other = of_runs(ours, figure), of_runs(peers, figure)
        return own / other if own is not None and other else None

    return Ratios(
        throughput=ratio(lambda run: run.mb_per_s),
        cpu=ratio(lambda run: run.cpu_s_per_gb),
        p50=latency_ratio(lambda run: run.p50_ms),
        p99=latency_ratio(lambda run: run.p99_ms),
    )


def missed(goal: Goal, found: Ratios | None) -> list[str]:
    """Describe the parts of `goal` that the measured figures miss; a part without a measurement is not missed."""
    out = []
    if found and goal.throughput_ratio_min is not None and found.throughput < goal.throughput_ratio_min:
        out.append("throughput")
    if found and goal.cpu_ratio_max is not None and found.cpu > goal.cpu_ratio_max:
        out.append("CPU")
    if found and found.p50 is not None and goal.p50_ratio_max is not None and found.p50 > goal.p50_ratio_max:
        out.append("p50")
    return out


def as_json(run: Run) -> dict[str, float | None]:
    """A run with its derived figures, for a program to read."""
    derived = {
        "requests_per_s": run.requests_per_s,
        "cpu_s_per_gb": run.cpu_s_per_gb,
        "cpu_us_per_request": run.cpu_us_per_request,
    }
    return asdict(run) | derived
