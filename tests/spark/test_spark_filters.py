"""Which filters of a query become offsets and times."""

import datetime

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: install bearlake[spark]")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from bearlake.spark.filters import RAW, TYPED, Pushed, push

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
NOON_US = 1_767_268_800_000_000


def test_filters_on_partition_and_offset_need_not_be_applied_again() -> None:
    filters = [
        IsNotNull(("partition",)),
        In(("partition",), (1, 2)),
        EqualTo(("partition",), 2),
        GreaterThan(("offset",), 4),
        GreaterThanOrEqual(("offset",), 3),
        LessThanOrEqual(("offset",), 9),
        LessThan(("offset",), 12),
    ]
    assert push(filters, RAW) == (Pushed(partitions=frozenset({2}), start=5, end=10), [])


def test_spark_applies_filters_on_time_again() -> None:
    filters: list[Filter] = [GreaterThan(("_timestamp",), NOON), LessThanOrEqual(("_timestamp",), NOON)]
    pushed, left = push(filters, TYPED)
    assert (pushed.since_us, pushed.until_us, left) == (NOON_US + 1, NOON_US + 1, filters)


def test_other_filters_are_sparks() -> None:
    filters: list[Filter] = [
        EqualTo(("value",), b"x"),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("offset",), "text"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("_offset",), 1),
    ]
    assert push(filters, RAW) == (Pushed(), filters)


def test_filters_that_exclude_each_other_leave_nothing() -> None:
    pushed, left = push([EqualTo(("partition",), 1), EqualTo(("partition",), 2)], RAW)
    assert (pushed.partitions, left) == (frozenset(), [])
