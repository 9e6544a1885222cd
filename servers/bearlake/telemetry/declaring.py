"""How metrics are declared: the families, the shared buckets, and one function for each kind. `metrics.py` declares them."""

from bearlake.telemetry.meters import Counter, Families, Family, Gauge, Histogram

FAMILIES = Families()
"""All metrics of the process."""

LATENCY_SECONDS = (
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
SIZE_BYTES = tuple(float(1 << power) for power in range(10, 27, 2))  # 1 KiB, 4 KiB … 64 MiB


def counter(name: str, doc: str) -> Counter:
    """Declare a counter without labels."""
    return counters(name, doc).labels()


def counters(name: str, doc: str, *labels: str) -> Family[Counter]:
    """Declare counters with labels."""
    return Family(FAMILIES, name, doc, Counter, labels)


def gauge(name: str, doc: str) -> Gauge:
    """Declare a gauge without labels."""
    return gauges(name, doc).labels()


def gauges(name: str, doc: str, *labels: str) -> Family[Gauge]:
    """Declare gauges with labels."""
    return Family(FAMILIES, name, doc, Gauge, labels)


def latency(name: str, doc: str) -> Histogram:
    """Declare a histogram of seconds without labels."""
    return latencies(name, doc).labels()


def latencies(name: str, doc: str, *labels: str) -> Family[Histogram]:
    """Declare histograms of seconds with labels."""
    return Family(FAMILIES, name, doc, lambda: Histogram(LATENCY_SECONDS), labels)


def sizes(name: str, doc: str) -> Histogram:
    """Declare a histogram of bytes without labels."""
    return Family(FAMILIES, name, doc, lambda: Histogram(SIZE_BYTES), ()).labels()
