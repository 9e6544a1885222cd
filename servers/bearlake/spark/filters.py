"""Which of a query's filters become offsets and times. Pure.

Filters on the partition and the offset decide which rows are read, so Spark need not apply them again. Filters on the time leave rows out
early, and Spark applies them once more. All others are Spark's.
"""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_OFFSET_MAX = 2**63 - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What filters leave: `partitions` (None: all), offsets `[start, end)`, times in µs `[since_us, until_us)` (None: any)."""

    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = _OFFSET_MAX
    since_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class FilterColumns:
    """The names of the columns whose filters are pushed."""

    partition: str
    offset: str
    time: str


RAW = FilterColumns("partition", "offset", "timestamp")
TYPED = FilterColumns("_partition_id", "_offset", "_timestamp")


def push(filters: Iterable[Filter], columns: FilterColumns) -> tuple[Pushed, list[Filter]]:
    """Return what the filters leave, all of which hold, and those that Spark must apply."""
    pushed, left = Pushed(), []
    for found in filters:
        path = getattr(found, "attribute", ())
        if path == (columns.partition,):
            pushed, is_done = _partition(pushed, found)
        elif path == (columns.offset,):
            pushed, is_done = _range(pushed, found, _offsets)
        elif path == (columns.time,):
            pushed, _ = _range(pushed, found, _times)
            is_done = isinstance(found, IsNotNull)
        else:
            is_done = False
        if not is_done:
            left.append(found)
    return pushed, left


def _partition(pushed: Pushed, found: Filter) -> tuple[Pushed, bool]:
    if isinstance(found, IsNotNull):
        return pushed, True
    if isinstance(found, EqualTo | EqualNullSafe):
        wanted = {found.value}
    elif isinstance(found, In):
        wanted = set(found.value)
    else:
        return pushed, False
    if not all(isinstance(value, int) for value in wanted):
        return pushed, False
    known = wanted if pushed.partitions is None else pushed.partitions & wanted
    return replace(pushed, partitions=frozenset(known)), True


def _range(
    pushed: Pushed, found: Filter, narrow: Callable[[Pushed, int | None, int | None], Pushed]
) -> tuple[Pushed, bool]:
    """Narrow a range `[low, high)` by one comparison."""
    if isinstance(found, IsNotNull):
        return pushed, True
    value = _number(getattr(found, "value", None))
    if value is None:
        return pushed, False
    if isinstance(found, EqualTo | EqualNullSafe):
        return narrow(pushed, value, value + 1), True
    if isinstance(found, GreaterThanOrEqual | GreaterThan):
        return narrow(pushed, value + isinstance(found, GreaterThan), None), True
    if isinstance(found, LessThan | LessThanOrEqual):
        return narrow(pushed, None, value + isinstance(found, LessThanOrEqual)), True
    return pushed, False


def _offsets(pushed: Pushed, low: int | None, high: int | None) -> Pushed:
    return replace(
        pushed,
        start=pushed.start if low is None else max(pushed.start, low),
        end=pushed.end if high is None else min(pushed.end, high),
    )


def _times(pushed: Pushed, low: int | None, high: int | None) -> Pushed:
    lows = [value for value in (pushed.since_us, low) if value is not None]
    highs = [value for value in (pushed.until_us, high) if value is not None]
    return replace(pushed, since_us=max(lows, default=None), until_us=min(highs, default=None))


def _number(value: Any) -> int | None:
    """Return a filter's value as a whole number: of a time, microseconds since 1970."""
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC)  # a time without a zone is local, as everywhere in PySpark
        return (moment - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None
