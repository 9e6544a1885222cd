"""Rates of the pods' counters: a few samples per pod, and the rate between the oldest and the newest of them.

A request is a Kafka request, a Pulsar command, an HTTP request or a gRPC call. (A gRPC stream is one call however many records it
carries, so scale gRPC by bytes.) Bytes are counted on the wire for Kafka and Pulsar, and as record batches for REST and gRPC.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.parser import text_string_to_metric_families

from bearlake_operator.errors import Invalid
from bearlake_operator.manifests.scaling import BYTES_METRIC, REQUESTS_METRIC

_BATCH_BYTES = ("bearlake_append_bytes_total", "bearlake_fetch_bytes_total")
COUNTERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "kafka": {
        REQUESTS_METRIC: ("bearlake_kafka_requests_total",),
        BYTES_METRIC: ("bearlake_kafka_received_bytes_total", "bearlake_kafka_sent_bytes_total"),
    },
    "pulsar": {
        REQUESTS_METRIC: ("bearlake_pulsar_commands_total", "bearlake_pulsar_http_requests_total"),
        BYTES_METRIC: ("bearlake_pulsar_received_bytes_total", "bearlake_pulsar_sent_bytes_total"),
    },
    "rest": {
        REQUESTS_METRIC: ("bearlake_rest_requests_total", "bearlake_registry_requests_total"),
        BYTES_METRIC: _BATCH_BYTES,
    },
    "grpc": {REQUESTS_METRIC: ("bearlake_grpc_calls_total",), BYTES_METRIC: _BATCH_BYTES},
    "catalog": {REQUESTS_METRIC: ("bearlake_catalog_requests_total",)},
}
"""The server counters that each metric sums up, by tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The counter values of a pod at one time. `at_s` is a monotonic time, `time` the same as wall-clock time."""

    at_s: float
    time: datetime
    counts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The average increase per second over the `window_s` before `time`."""

    value: float
    window_s: float
    time: datetime


def counts(tier: str, text: str) -> dict[str, float]:
    """The value of each metric's counters in the Prometheus text of a pod of the tier. Raises `Invalid` if it cannot be parsed."""
    metric_of = {name: metric for metric, names in COUNTERS[tier].items() for name in names}
    lines = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(tuple(metric_of)))
    totals = dict.fromkeys(COUNTERS[tier], 0.0)
    try:
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if sample.name in metric_of:
                    totals[metric_of[sample.name]] += sample.value
    except ValueError as error:
        raise Invalid(f"not in the Prometheus text format: {error}") from error
    return totals


class RateTracker:
    """The samples of the last `window_s` of each pod, by the pod's uid. `retain` drops the pods that are gone."""

    def __init__(self, window_s: float, age_max_s: float) -> None:
        """`age_max_s`: a pod whose newest sample is older has no rate."""
        self._window_s = window_s
        self._age_max_s = age_max_s
        self._samples: dict[str, deque[Sample]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def record(self, uid: str, sample: Sample) -> None:
        """Add a pod's newest sample. A counter that decreases means that the process was restarted: older samples are dropped."""
        samples = self._samples.setdefault(uid, deque())
        if samples and any(sample.counts[metric] < count for metric, count in samples[-1].counts.items()):
            samples.clear()
        samples.append(sample)
        while len(samples) > 2 and sample.at_s - samples[1].at_s >= self._window_s:
            samples.popleft()

    def retain(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        self._samples = {uid: samples for uid, samples in self._samples.items() if uid in uids}

    def rate(self, uid: str, metric: str, now_s: float) -> Rate | None:
        """The rate of a pod's metric; None without two recent samples."""
        samples = self._samples.get(uid)
        if samples is None or len(samples) < 2 or now_s - samples[-1].at_s > self._age_max_s:
            return None
        first, last = samples[0], samples[-1]
        window_s = last.at_s - first.at_s
        if metric not in last.counts or window_s <= 0:
            return None
        return Rate(
            value=(last.counts[metric] - first.counts[metric]) / window_s,
            window_s=window_s,
            time=last.time,
        )
