"""The options of a query of the Spark data source."""

from pathlib import Path

import pytest

from bearlake.errors import Invalid
from bearlake.spark.options import EARLIEST, LATEST, Bound, parse

STORES = {"dataDir": "/lake"}


def test_a_query_of_spark_sql_kafka_needs_only_the_stores_in_addition() -> None:
    found = parse(
        {
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.security.protocol": "SSL",
            "groupIdPrefix": "g",
            "fetchOffset.numRetries": "3",
            "subscribe": "orders, returns",
            "startingOffsets": '{"orders": {"0": 23, "1": -2}, "returns": {"0": -1}}',
            "endingOffsets": "latest",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "10",
            **STORES,
        }
    )
    assert found.names == ("orders", "returns")
    assert found.starting is not None
    places = (("orders", 0), ("orders", 1), ("returns", 0), ("returns", 1))
    assert [found.starting.of(*place) for place in places] == [23, EARLIEST, LATEST, EARLIEST]
    assert (found.ending, found.fails_on_data_loss, found.has_headers) == (Bound(LATEST), False, True)
    assert (found.offsets_max, found.partition_count_min, found.bytes_max) == (100, 10, None)
    assert (found.columns, found.stores.data_dir) == ("raw", Path("/lake"))


def test_times_are_for_all_partitions_or_for_each() -> None:
    found = parse({"assign": '{"orders": [1, 0]}', "startingTimestamp": "1000", **STORES})
    assert found.assigned == (("orders", (0, 1)),)
    assert found.starting == Bound(EARLIEST, is_time=True, time_ms=1000)
    found = parse({"subscribePattern": "o.*", "endingOffsetsByTimestamp": '{"orders": {"0": 5}}', **STORES})
    assert (found.ending.is_time, found.ending.of("orders", 0), found.ending.of("orders", 1)) == (True, 5, LATEST)
    found = parse({"subscribe": "orders", "startingOffsetsByTimestamp": '{"orders": {"0": 5}}', **STORES})
    assert found.starting is not None
    assert [found.starting.of("orders", index) for index in (0, 1)] == [5, EARLIEST]


def test_stores_can_be_single_urls() -> None:
    found = parse({"subscribe": "s", "metadataUrl": "sqlite:///m.db", "objectStoreUrl": "file:///o"})
    assert found.stores.urls == (("metadata.url", "sqlite:///m.db"), ("object_store.url", "file:///o"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of the options subscribe"),
        ({"subscribe": "a", "assign": "{}"}, "exactly one"),
        ({"subscribe": ","}, "names no stream"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "unknown option startingoffset"),
        ({"subscribe": "a", "kafka.isolation.level": "read_uncommitted"}, "only read_committed"),
        ({"subscribe": "a", "maxBytesPerTrigger": "0"}, "maxBytesPerTrigger: 0 is not positive"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "many"}, "'many' is not a whole number"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "neither true nor false"),
        ({"subscribe": "a", "startingOffsets": "5"}, "expected JSON"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "would read nothing"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets: -2 is less than -1"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets: -3 is less than -2"),
        ({"subscribe": "a", "startingTimestamp": "-1"}, "startingTimestamp: -1 is negative"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "ByTimestamp: -1 is less than 0"),
        ({"subscribe": "a", "columns": "table"}, "neither raw nor typed"),
        ({"subscribe": "a,b", "columns": "typed"}, "only the columns of one stream"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"assign": "[]"}, "option assign"),
    ],
)
def test_options_that_say_nothing_useful_are_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message.replace("(", r"\(")):
        parse({**STORES, **given})


def test_a_query_must_name_the_stores() -> None:
    with pytest.raises(Invalid, match="dataDir, config, or metadataUrl and objectStoreUrl"):
        parse({"subscribe": "a", "metadataUrl": "sqlite:///m.db"})
