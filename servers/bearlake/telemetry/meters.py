"""Counters, gauges and histograms that cost a tenth of a microsecond; `exposition.py` shows them through prometheus_client.

A value is a plain attribute (`child.value += 1` is the hot path), because a server does all its work in one thread, the event
loop's. prometheus_client only reads the values during a scrape; its own classes take a lock per change, which is five times
slower. Every family is bounded: past `children_max` label sets, further ones share a child whose labels are all `other`.

Source: Prometheus, "Metric and label naming" and "Writing client libraries".
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

OTHER = "other"


class Counter:
    """A number that only grows while the process runs."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add `amount` (>= 0). The hot path may write `counter.value += amount` instead."""
        self.value += amount


class Gauge:
    """A number that goes up and down; its owner sets it, or a function returns it at every scrape."""

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
        """Call `function` at every scrape from now on; it must be quick and must not raise."""
        self.function = function

    def read(self) -> float:
        """Return the current value."""
        return self.value if self.function is None else self.function()


class Histogram:
    """Observations counted by bucket; `bounds` are inclusive upper bounds in growing order, without infinity."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, amount: float, count: int = 1) -> None:
        """Count `count` observations of `amount`."""
        self.counts[bisect_left(self.bounds, amount)] += count
        self.sum += amount * count

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


M = TypeVar("M", Counter, Gauge, Histogram)


class Family(Generic[M]):
    """All children of one metric name, by label values. Bind a child once and keep it: `labels` is a dictionary lookup."""

    def __init__(
        self,
        families: "Families",
        name: str,
        doc: str,
        make: Callable[[], M],
        label_names: Sequence[str] = (),
        children_max: int = 256,
    ) -> None:
        self.name = name
        self.doc = doc
        self.label_names = tuple(label_names)
        self.make: Callable[[], M] = make
        """Makes a child without observations."""
        self._children: dict[tuple[str, ...], M] = {}
        self._children_max = children_max
        families.add(self)

    def labels(self, *values: str) -> M:
        """Return the child with these label values, in the order of `label_names`; the shared `other` child if the family is full."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            if len(self._children) >= self._children_max:
                values = (OTHER,) * len(values)
            child = self._children.setdefault(values, self.make())
        return child

    def remove(self, *values: str) -> None:
        """Remove a child, so that it is no longer exposed; no effect if it is absent."""
        self._children.pop(values, None)

    @property
    def children(self) -> Mapping[tuple[str, ...], M]:
        """The children by label values."""
        return self._children


class Families:
    """Families of distinct names."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family[Any]] = {}  # Any: of each kind

    def add(self, family: Family[Any]) -> None:
        """Add a family. Raises `ValueError`: there is one of this name."""
        if family.name in self._by_name:
            raise ValueError(f"the metric {family.name} is declared twice")
        self._by_name[family.name] = family

    def __iter__(self) -> Iterator[Family[Any]]:
        return iter(self._by_name.values())


def cumulated(histogram: Histogram) -> Iterator[tuple[str, float]]:
    """Yield pairs (upper bound as text, observations up to it), ending with `+Inf`: Prometheus' histogram format."""
    total = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        yield "+Inf" if bound == float("inf") else repr(float(bound)), total
