"""Counters, gauges and histograms that cost a tenth of a microsecond, exposed through prometheus_client.

A value is a plain attribute (`child.value += 1` is the hot path), because a server does all its work in one thread: the event
loop's. prometheus_client only reads the values, when somebody scrapes; its own classes take a lock per change, five times as
long. Every family is bounded: past `children_max` label sets, further ones share the child whose labels are all `other`.

Source: Prometheus, "Metric and label naming" and "Writing client libraries".
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

OTHER = "other"


class Counter:
    """A number that only grows since the process started."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add `amount` (>= 0). The hot path may write `counter.value += amount` instead."""
        self.value += amount


class Gauge:
    """A number that goes up and down, set by its owner or asked of a function at every scrape."""

    __slots__ = ("function", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self.function: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Set the value."""
        self.value = value

    def inc(self, amount: float = 1) -> None:
        """Add `amount`, which may be negative."""
        self.value += amount

    def set_function(self, function: Callable[[], float]) -> None:
        """Ask `function` at every scrape from now on; it must be quick and must not raise."""
        self.function = function

    def read(self) -> float:
        """The value now."""
        return self.value if self.function is None else self.function()


class Histogram:
    """Observations counted by bucket; `bounds` are inclusive upper bounds in growing order, without infinity."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, amount: float, count: int = 1) -> None:
        """Count an observation, made `count` times."""
        self.counts[bisect_left(self.bounds, amount)] += count
        self.sum += amount * count

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


M = TypeVar("M", Counter, Gauge, Histogram)


class Family(Collector, Generic[M]):
    """All children of one metric name, by label values. Bind a child once and keep it: `labels` is a dictionary look-up."""

    def __init__(
        self,
        registry: CollectorRegistry,
        name: str,
        doc: str,
        make: Callable[[], M],
        label_names: Sequence[str] = (),
        children_max: int = 256,
    ) -> None:
        self.name = name
        self.doc = doc
        self.label_names = tuple(label_names)
        self._make: Callable[[], M] = make
        self._children: dict[tuple[str, ...], M] = {}
        self._children_max = children_max
        registry.register(self)

    def labels(self, *values: str) -> M:
        """The child with these label values, in the order of `label_names`; the shared `other` child when the family is full."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            if len(self._children) >= self._children_max:
                values = (OTHER,) * len(values)
            child = self._children.setdefault(values, self._make())
        return child

    def remove(self, *values: str) -> None:
        """Forget a child, so that it is not exposed any more; absent is fine."""
        self._children.pop(values, None)

    def describe(self) -> Iterator[Metric]:
        """The family without samples (prometheus_client asks for it on registration)."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        """The family with the present values (prometheus_client asks for it on a scrape)."""
        family = self._family()
        for values, child in self._children.items():
            add_sample(family, values, child)
        yield family

    def _family(self) -> Metric:
        sample = self._make()
        if isinstance(sample, Counter):
            return CounterMetricFamily(self.name, self.doc, labels=self.label_names)
        if isinstance(sample, Gauge):
            return GaugeMetricFamily(self.name, self.doc, labels=self.label_names)
        return HistogramMetricFamily(self.name, self.doc, labels=self.label_names)


def add_sample(family: Metric, values: Sequence[str], child: Counter | Gauge | Histogram) -> None:
    """Add the present value of `child` to a family of its type."""
    if isinstance(child, Counter):
        assert isinstance(family, CounterMetricFamily)
        family.add_metric(values, child.value)
    elif isinstance(child, Gauge):
        assert isinstance(family, GaugeMetricFamily)
        family.add_metric(values, child.read())
    else:
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(values, list(cumulated(child)), child.sum)


def cumulated(histogram: Histogram) -> Iterator[tuple[str, float]]:
    """Pairs of (upper bound as text, observations up to it), ending with `+Inf`: Prometheus' form of a histogram."""
    total = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        yield "+Inf" if bound == float("inf") else repr(float(bound)), total
