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

    assert min(longest_hold_s(lambda: parsed(octets)) for _ in range(3)) < LIMIT_S
