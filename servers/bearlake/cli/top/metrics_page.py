"""Reads a page of metrics in Prometheus' text format: sums of counters and gauges, and quantiles of histograms.

Source: Prometheus, "Exposition formats" (text format 0.0.4).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping

Labels = Mapping[str, str]

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
PAGE_LINE_COUNT_MAX = 200_000
"""Lines of a page that are read; a server has some thousands."""


class MetricsPage:
    """The samples of one page."""

    def __init__(self, text: str) -> None:
        """Lines that are not samples are ignored."""
        self._samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for line in text.splitlines()[:PAGE_LINE_COUNT_MAX]:
            if line.startswith("#") or (match := _SAMPLE.match(line)) is None:
                continue
            name, labels, value = match.groups()
            try:
                number = float(value)
            except ValueError:
                continue
            found = {key: _ESCAPED.sub(_unescaped, text) for key, text in _LABEL.findall(labels or "")}
            self._samples[name].append((found, number))

    def total(self, name: str, is_counted: Callable[[Labels], bool] = lambda _: True) -> float:
        """Return the sum of the samples of that name; 0 if there is none."""
        return sum(value for labels, value in self._samples.get(name, ()) if is_counted(labels))

    def largest(self, name: str) -> float:
        """Return the largest sample of that name; 0 if there is none."""
        return max((value for _, value in self._samples.get(name, ())), default=0.0)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of the samples of that name by the value of a label."""
        found: dict[str, float] = defaultdict(float)
        for labels, value in self._samples.get(name, ()):
            found[labels.get(label, "")] += value
        return dict(found)

    def buckets(self, name: str, is_counted: Callable[[Labels], bool] = lambda _: True) -> dict[float, float]:
        """Return the cumulative counts of a histogram by the upper bound of the bucket."""
        found: dict[float, float] = defaultdict(float)
        for labels, value in self._samples.get(f"{name}_bucket", ()):
            if is_counted(labels):
                try:
                    found[float(labels.get("le", "inf"))] += value
                except ValueError:
                    continue
        return dict(found)


def quantile(part: float, before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """Return the quantile (0 to 1) of the observations between two readings of a histogram; None if there were none.

    It is interpolated within its bucket, as Prometheus' `histogram_quantile` does. Above the last bound, it is that bound.
    """
    counts = [(bound, after[bound] - before.get(bound, 0.0)) for bound in sorted(after)]
    total = counts[-1][1] if counts else 0.0
    if total <= 0:
        return None
    rank, low_bound, low_count = part * total, 0.0, 0.0
    for bound, count in counts:
        if count >= rank:
            if bound == float("inf"):
                return low_bound
            share = (rank - low_count) / (count - low_count) if count > low_count else 1.0
            return low_bound + (bound - low_bound) * share
        low_bound, low_count = bound, count
    return low_bound


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
