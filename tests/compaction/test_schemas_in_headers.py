"""Headers of records name the schemas of values and keys, by GUID or by id."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bearlake.metadata.schemas import SchemaRow
from bearlake.records.codec import Record, encode
from bearlake.streams.catalog import StreamView
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import SchemaType
from fixtures.deployment import NOW_MS, append
from fixtures.typed_lake import TypedLake, typed_lake
from fixtures.typed_orders import ORDER, value
from fixtures.typed_values import framed

VALUE, KEY = "__value_schema_id", "__key_schema_id"
JSON_ORDER = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}
PROTO = 'syntax = "proto3"; message Other { int64 x = 1; } message Order { int64 id = 1; string note = 2; }'


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def guid(lake: TypedLake, schema_id: int) -> bytes:
    """The header that names a schema by its GUID."""
    context = names.parse("orders-value").context
    (row,) = await lake.stores.metadata.schemas.schemas(context, [schema_id])
    assert isinstance(row, SchemaRow)
    return b"\1" + row.fingerprint


def by_id(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4)


async def produce(
    lake: TypedLake, view: StreamView, *records: tuple[bytes | None, list[tuple[str, bytes | None]]], key: bytes = b"k"
) -> None:
    made = [Record(key=key, value=content, timestamp=NOW_MS, headers=headers) for content, headers in records]
    await append(lake.streams, view, encode(made))


def seen(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in rows]


@pytest.mark.parametrize("mode", ["keep", "elide"])
async def test_values_of_all_formats_have_the_columns_of_the_schema_in_their_header(lake: TypedLake, mode: str) -> None:
    stream = await lake.create(table__value__mode=mode, table__value__subjects="orders-value, json, proto")
    avro, json_id = await lake.register(ORDER), await lake.register(JSON_ORDER, "json", type_=SchemaType.JSON)
    proto = await lake.register(PROTO, "proto", type_=SchemaType.PROTOBUF)
    unknown = b"\1" + bytes(15) + b"\7"
    proto_value = b"\x08\x05\x12\x01e"
    await produce(
        lake,
        stream,
        (value(1), [(VALUE, await guid(lake, avro))]),
        (b'{"id": 2, "note": "b"}', [("other", b""), (VALUE, await guid(lake, json_id)), (KEY, b"\5")]),
        (b'{"id": 3}', [(VALUE, by_id(json_id))]),
        (framed(avro, value(4)), []),
        (proto_value, [(VALUE, await guid(lake, proto) + b"\2\2")]),
        (b'{"id": 6}', [(VALUE, unknown), (VALUE, by_id(json_id))]),
        (None, [(VALUE, await guid(lake, json_id))]),
        (framed(json_id, b'{"id": 8}'), [(VALUE, unknown)]),
        (framed(json_id, b'{"id": 9}'), [(VALUE, b"\1")]),
        (framed(json_id, b'{"id": 10}'), [(VALUE, None)]),
        (b'{"id": "no"}', [(VALUE, await guid(lake, json_id))]),
        (b"{}", [(VALUE, by_id(99))]),
        (b"{}", [(VALUE, by_id(json_id) + bytes(1000))]),
    )
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    names_no = f"NO_SCHEMA: the header {VALUE} names no schema"
    assert seen(rows, "id", "note", "_schema_id", "_error") == [
        (1, "a", avro, None),
        (2, "b", json_id, None),
        (3, None, json_id, None),
        (4, "a", avro, None),
        (5, "e", proto, None),
        (6, None, json_id, None),
        (None, None, None, None),
        (None, None, None, f"UNKNOWN_SCHEMA: {unknown[1:].hex()}"),
        (None, None, None, names_no),
        (None, None, None, names_no),
        (None, None, json_id, "TYPE: id"),
        (None, None, 99, "UNKNOWN_SCHEMA: 99"),
        (None, None, None, f"NO_SCHEMA: the header {VALUE} is too long"),
    ]
    kept = [record[2] for record in before]
    assert [row["_value"] for row in rows] == [*kept[:3], None if mode == "elide" else kept[3], *kept[4:]]
    assert await lake.read(stream) == before


async def test_keys_have_headers_of_their_own_and_later_tasks_know_the_guids(lake: TypedLake) -> None:
    stream = await lake.create(table__key__mode="elide", table__value__mode="raw")
    of_key = await lake.register(JSON_ORDER, "orders-key", type_=SchemaType.JSON)
    for number in range(3):
        headers: list[tuple[str, bytes | None]] = [(VALUE, b"ignored"), (KEY, await guid(lake, of_key))]
        await produce(lake, stream, (b"raw", headers), key=b'{"id": %d}' % number)
        await lake.compact(stream)
    before = await lake.read(stream)

    rows = await lake.rows(stream)

    assert seen(rows, "id", "_key_schema_id", "_key", "_value", "_error") == [
        (number, of_key, b'{"id": %d}' % number, b"raw", None) for number in range(3)
    ]
    assert [record[1] for record in before] == [row["_key"] for row in rows]


async def test_a_fixed_schema_takes_no_notice_of_headers(lake: TypedLake) -> None:
    schema_id = await lake.register(JSON_ORDER, "any", type_=SchemaType.JSON)
    stream = await lake.create(table__value__schema_id=str(schema_id))
    await produce(lake, stream, (b'{"id": 1}', [(VALUE, b"\1" * 17)]))

    await lake.compact(stream)

    assert seen(await lake.rows(stream), "id", "_schema_id", "_error") == [(1, schema_id, None)]
