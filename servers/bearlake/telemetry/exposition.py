"""Shows the metrics in Prometheus' text format, with the process's own CPU, memory and file descriptors (`process_…`, Linux).

Loaded at the first scrape: prometheus_client also loads its HTTP servers, which take 1 MB and are never used here (decision 362).

Source: Prometheus, "Writing client libraries".
"""

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from typing_extensions import override

from bearlake.telemetry import declaring
from bearlake.telemetry.meters import Counter, Families, Family, Gauge, Histogram, cumulated

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Shown(Collector):
    """Families, as prometheus_client collects them."""

    def __init__(self, families: Families) -> None:
        self._families = families

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the families with their current values."""
        for family in self._families:
            shown = _empty(family)
            for values, child in family.children.items():
                add_sample(shown, values, child)
            yield shown


def _empty(family: Family[Any]) -> Metric:
    sample = family.make()
    if isinstance(sample, Counter):
        return CounterMetricFamily(family.name, family.doc, labels=family.label_names)
    if isinstance(sample, Gauge):
        return GaugeMetricFamily(family.name, family.doc, labels=family.label_names)
    return HistogramMetricFamily(family.name, family.doc, labels=family.label_names)


def add_sample(family: Metric, values: Sequence[str], child: Counter | Gauge | Histogram) -> None:
    """Add the current value of `child` to a family of its type."""
    if isinstance(child, Counter):
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(values, child.value)
    elif isinstance(child, Gauge):
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(values, child.read())
    else:
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(values, list(cumulated(child)), child.sum)


def registry_of(families: Families) -> CollectorRegistry:
    """Return a registry of prometheus_client that shows these families."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Shown(families))
    return registry


REGISTRY = registry_of(declaring.FAMILIES)
ProcessCollector(registry=REGISTRY)


def expose() -> bytes:
    """Return all metrics in Prometheus' text format (`CONTENT_TYPE`)."""
    return generate_latest(REGISTRY)
