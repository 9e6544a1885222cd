"""What pods counted, and how fast: a few samples of each pod, and the rates between the oldest and the newest of them.

A request is what the protocol calls one: a Kafka request, a Pulsar command, an HTTP request, a gRPC call (a stream of records is one call:
scale gRPC by bytes). Bytes are those on the wire where the server counts them (Kafka, Pulsar), else those of record batches.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.parser import text_string_to_metric_families

from bearlake_operator.errors import Invalid
from bearlake_operator.manifests.scaling import BYTES_METRIC, REQUESTS_METRIC

_BATCHES = ("bearlake_append_bytes_total", "bearlake_fetch_bytes_total")
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
        BYTES_METRIC: _BATCHES,
    },
    "grpc": {REQUESTS_METRIC: ("bearlake_grpc_calls_total",), BYTES_METRIC: _BATCHES},
}
"""The counters of a server that make up each metric, by tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a pod had counted at a time. `at_s` is of a clock that only goes forward, `time` what people call it."""

    at_s: float
    time: datetime
    counts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How much a second, on average over the `window_s` before `time`."""

    value: float
    window_s: float
    time: datetime


def counts(tier: str, text: str) -> dict[str, float]:
    """Each metric's count in the text that a pod of the tier exposes. Raises `Invalid` for what is no such text."""
    wanted = {name: metric for metric, names in COUNTERS[tier].items() for name in names}
    lines = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(tuple(wanted)))
    found = dict.fromkeys(COUNTERS[tier], 0.0)
    try:
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if sample.name in wanted:
                    found[wanted[sample.name]] += sample.value
    except ValueError as error:
        raise Invalid(f"not in Prometheus' text format: {error}") from error
    return found


class Readings:
    """The samples of the last `window_s` of each pod, by the pod's uid. A pod that is not kept by `keep` is forgotten."""

    def __init__(self, window_s: float, age_max_s: float) -> None:
        """`age_max_s`: a newest sample that is older says nothing any more."""
        self._window_s = window_s
        self._age_max_s = age_max_s
        self._samples: dict[str, deque[Sample]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def record(self, uid: str, sample: Sample) -> None:
        """Add a pod's newest sample. One that counts less than the one before is of a new process: what was before is forgotten."""
        samples = self._samples.setdefault(uid, deque())
        if samples and any(sample.counts[metric] < count for metric, count in samples[-1].counts.items()):
            samples.clear()
        samples.append(sample)
        while len(samples) > 2 and sample.at_s - samples[1].at_s >= self._window_s:
            samples.popleft()

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        self._samples = {uid: samples for uid, samples in self._samples.items() if uid in uids}

    def rate(self, uid: str, metric: str, now_s: float) -> Rate | None:
        """How fast a pod counts; None when that is not known (yet, or any more)."""
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
