"""Metadata files read in pieces are what PyIceberg reads as a whole, and large ones let other threads run in between."""

import json
import uuid
from typing import Any

import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadataUtil

from bearlake.records.json_values import check_values
from bearlake.table.metadata_text import AT_ONCE_BYTES, parsed
from bearlake.table.warehouse.settings import WarehouseSettings
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import longest_hold_s

COUNT_MAX = WarehouseSettings().metadata_value_count_max
HELD_S = 2.6 * LIMIT_S
"""On a slow and busy machine, the same work takes 106 ms of processor time. Parsed as a whole, they take up to 142 ms on a quiet one, and
230 ms on a slow one."""
FIELD = {"id": 1, "name": "a", "required": False, "type": "long"}


def metadata(**fields: Any) -> bytes:
    """A table's metadata with these fields, `_` for `-`."""
    document: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": str(uuid.UUID(int=1)),
        "location": "file:///x/lake/t",
        "last-sequence-number": 1,
        "last-updated-ms": 1,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [FIELD]}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "current-snapshot-id": -1,
    }
    return json.dumps(document | {name.replace("_", "-"): value for name, value in fields.items()}).encode()


def snapshot(number: int) -> dict[str, Any]:
    return {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": number,
        "manifest-list": f"file:///x/lake/t/metadata/{number}.avro",
        "summary": {"operation": "append", "added-records": "1", "total-records": "\u202e'\""},
        "schema-id": 0,
    }


STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "p",
    "file-size-in-bytes": 1,
    "file-footer-size-in-bytes": 1,
    "blob-metadata": [{"type": "apache-datasketches-theta-v1", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}],
}


SCHEMA = {"type": "struct", "fields": [FIELD]}
PARTITIONS = {"snapshot-id": 7, "statistics-path": "s", "file-size-in-bytes": 1}
PART = {"name": "a", "transform": "identity", "source-id": 1, "field-id": 1000}
ORDER = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}


def large(count: int) -> dict[str, bytes]:
    """Metadata with about `count` JSON values of one kind."""
    return {
        "properties": metadata(properties={f"k{at}": "\x01" for at in range(count)}),
        "snapshots": metadata(snapshots=[snapshot(at + 1) for at in range(count // 11)], refs={}),
        "metadata log": metadata(metadata_log=[{"metadata-file": "f", "timestamp-ms": 1}] * (count // 3)),
        "snapshot log": metadata(
            snapshots=[snapshot(1)], snapshot_log=[{"snapshot-id": 1, "timestamp-ms": 1}] * (count // 3)
        ),
        "columns": metadata(
            schemas=[
                {"type": "struct", "schema-id": 0, "fields": [{**FIELD, "id": at + 1, "name": f"c{at}"}]}
                for at in range(count // 12)
            ]
        ),
        "one schema": metadata(
            schemas=[
                {
                    "type": "struct",
                    "schema-id": 0,
                    "fields": [{**FIELD, "id": at + 1, "name": f"c{at}"} for at in range(count // 6)],
                }
            ]
        ),
        "refs": metadata(
            snapshots=[snapshot(1)], refs={f"r{at}": {"snapshot-id": 1, "type": "tag"} for at in range(count // 4)}
        ),
        "statistics": metadata(statistics=[STATISTICS] * (count // 12)),
        "unknown lists": metadata(x=[[]] * (count // 2)),
        "unknown members below": metadata(x={"y": {"z": {f"k{at}": "" for at in range(count)}}}),
        "partition statistics": metadata(partition_statistics=[PARTITIONS] * (count // 4)),
        "one spec": metadata(partition_specs=[{"spec-id": 0, "fields": [PART] * (count // 5)}]),
        "one order": metadata(sort_orders=[{"order-id": 0, "fields": [ORDER] * (count // 5)}]),
        "unknown lists below": metadata(x={"y": {"z": [[]] * (count // 2)}}),
        "unknown numbers": metadata(x=[1] * count),
    }


@pytest.mark.parametrize("what", large(1))
def test_metadata_in_pieces_are_those_of_pyiceberg(what: str) -> None:
    octets = large(20_000)[what]
    assert len(octets) > AT_ONCE_BYTES or what.startswith("unknown")

    assert parsed(octets + b" " * AT_ONCE_BYTES) == TableMetadataUtil.parse_raw(octets.decode())
    assert parsed(large(20)[what]) == TableMetadataUtil.parse_raw(large(20)[what].decode())


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b" ",
        b"[]",
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":[1',
        b'{"a":[1,]}',
        b'{"a":{"b":1,}}',
        b'{"a":1}x',
        b"{1:2}",
        b'{"format-version":9}',
        b'{"format-version":2}',
        b"\xff",
        b"null",
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        metadata(x=0).replace(b'"x": 0', b'"x": ' + b"1" * 5_000),
        metadata(x="\ud800"),
        metadata(x={"y": ["\udc00\ud800"]}),
        metadata(x={"\ud800": 1}),
        metadata(snapshots=[{**snapshot(1), "summary": {"operation": "append", "k": "\ud800"}}]),
        metadata(format_version=1, schema=[]),
        metadata(snapshots=[5]),
        metadata(snapshots={"a": 1}),
        metadata(refs=[1]),
        metadata(refs={"a": 5}),
        metadata(metadata_log=[{"metadata-file": 5, "timestamp-ms": "x"}]),
    ],
)
def test_a_text_that_is_no_metadata_is_refused_in_pieces_too(octets: bytes) -> None:
    for text in (octets, octets + b" " * AT_ONCE_BYTES):
        with pytest.raises(ValidationError):
            parsed(text)


@pytest.mark.parametrize("what", large(1))
def test_metadata_of_as_many_values_as_allowed_let_other_threads_run(what: str) -> None:
    octets = large(COUNT_MAX - 1_000)[what]
    check_values("it", octets, COUNT_MAX)
    parsed(octets)

    assert min(longest_hold_s(lambda: parsed(octets)) for _ in range(3)) < HELD_S


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_last_of_equal_names_counts_whatever_the_others_are(version: int, is_first: bool) -> None:
    octets = metadata(
        format_version=version,
        schema=SCHEMA,
        partition_spec=[],
        refs={},
        snapshots=[snapshot(1)],
        properties={"\u00e9": "\U0001f600"},
        extra=[1.5e3],
    )
    bad = b'"snapshots":[5],"refs":{"a":5},"properties":7'
    octets = (
        b"{" + bad + b"," + octets[1:] if is_first else octets[:-1] + b',"snapshots":[],"refs":{},"last-updated-ms":9}'
    )

    assert parsed(octets + b" " * AT_ONCE_BYTES) == TableMetadataUtil.parse_raw(octets.decode())


@pytest.mark.parametrize("length", [65_500, 65_536, 131_072])
def test_numbers_and_texts_at_the_end_of_a_piece_are_whole(length: int) -> None:
    for at in range(length - 40, length):
        octets = metadata(x=[[0] * 3, "y" * at, 1234567890123456789, -1.25e100, "\U0001f600", [{"a": True}]])
        octets = (
            octets[:-1] + b',"properties":{"a":"' + b"z" * at + b'","b":1234567890123456789,"c":-1.25e100,"d":true}}'
        )

        assert parsed(octets + b" " * AT_ONCE_BYTES) == TableMetadataUtil.parse_raw(octets.decode())


def test_a_summary_of_very_many_entries_is_refused_without_holding_other_threads() -> None:
    octets = metadata(snapshots=[{**snapshot(1), "summary": {f"k{at}": "" for at in range(COUNT_MAX - 1_000)}}])

    def refused() -> None:
        with pytest.raises(ValidationError, match="summary"):
            parsed(octets)

    assert min(longest_hold_s(refused) for _ in range(3)) < HELD_S
