"""Values of Protobuf schemas become typed columns, and consumers get the same bytes before and after compaction."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from bearlake.compaction.settings import ColumnSettings
from bearlake.errors import Unavailable
from bearlake.streams.catalog import StreamView
from bearlake.streams.schemas.compiled import Compiled, SchemaCompiler
from bearlake.streams.schemas.model import SchemaType
from fixtures.protobuf_values import message_value
from fixtures.typed_lake import TypedLake, settings, typed_lake

ORDER = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; optional string note = 2; google.protobuf.Timestamp placed = 3; repeated Line lines = 4;
  oneof to { string city = 5; uint64 locker = 6; } map<string, int32> tags = 7; }
message Line { string sku = 1; int32 count = 2; }
message Unused { string never = 1; }
"""


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


async def register(lake: TypedLake, text: str, subject: str = "orders-value", **refers: str) -> int:
    names = {name.replace("__", "/").replace("_", "."): other for name, other in refers.items()}
    return await lake.register(text, subject, type_=SchemaType.PROTOBUF, refers=names)


async def alter(lake: TypedLake, **configs: str) -> None:
    found = await lake.stores.metadata.streams.get("orders")
    given = {name.replace("__", "."): value for name, value in configs.items()}
    await lake.stores.metadata.streams.alter(found.number, set_configs=given, unset_configs=(), version=found.version)


@pytest.mark.parametrize("mode", ["keep", "elide"])
async def test_consumers_get_the_same_bytes_before_and_after_compaction(lake: TypedLake, mode: str) -> None:
    stream = await lake.create(table__value__mode=mode)
    schema_id = await register(lake, ORDER)
    whole = bytes.fromhex("0801" + "120161" + "1a020801" + "22050a01781002" + "2a0179" + "3a050a01611001")
    bodies = [whole, b"", b"\x08\2\xa0\6\1", b"\x08"]
    await lake.produce(stream, *(message_value(schema_id, (0,), body) for body in bodies), None, b"text")
    before = await lake.read(stream)

    await lake.compact(stream)

    assert await lake.read(stream) == before
    rows = await lake.rows(stream)
    names = [name for name in rows[0] if not name.startswith("_")]
    assert names == ["id", "note", "placed", "lines", "city", "locker", "tags"]
    assert [(row["id"], row["note"], row["city"], row["locker"], row["_error"]) for row in rows] == [
        (1, "a", "y", None, None),
        (0, None, None, None, None),
        (2, None, None, None, None),
        (None, None, None, None, "TRUNCATED: id"),
        (None, None, None, None, None),
        (None, None, None, None, "NO_SCHEMA: the value does not begin with byte 0 and a schema's id"),
    ]
    assert (rows[0]["lines"], rows[0]["tags"]) == ([{"sku": "x", "count": 2}], [("a", 1)])
    left = [row["_value"] for row in rows]
    kept = [record[2] for record in before]
    assert left == ([None, None, *kept[2:]] if mode == "elide" else kept)


async def test_imports_are_references_to_other_subjects(lake: TypedLake) -> None:
    stream = await lake.create()
    await register(lake, 'syntax = "proto3"; package p; message Place { string city = 1; }', "place")
    text = 'syntax = "proto3"; import "shop/place.proto"; message Order { p.Place to = 1; }'
    schema_id = await register(lake, text, shop__place_proto="place")
    await lake.produce(stream, message_value(schema_id, (0,), b"\x0a\3\x0a\1B"))
    before = await lake.read(stream)

    await lake.compact(stream)

    assert [(row["to"], row["_value"]) for row in await lake.rows(stream)] == [({"city": "B"}, None)]
    assert await lake.read(stream) == before


async def test_a_message_adds_its_columns_when_a_record_uses_it(lake: TypedLake) -> None:
    stream = await lake.create()
    first = await register(lake, ORDER)
    await lake.produce(stream, message_value(first, (1,), b"\x0a\1x\x10\5"))
    await lake.compact(stream)
    assert [name for name in (await lake.rows(stream))[0] if not name.startswith("_")] == ["sku", "count"]
    text = ORDER.replace("int32 count = 2", "int64 count = 2; double weight = 3").replace("string sku", "bytes sku")
    second = await register(lake, text)
    await lake.produce(
        stream, message_value(first, (1,), b"\x10\6"), message_value(second, (1,), b"\x0a\1\xff\x10\x80\x80\x80\x80\x10"),
        message_value(first, (0,), b"\x08\1"),
    )  # fmt: skip
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["sku"], row["count"], row["sku__binary"], row["weight"], row["id"]) for row in rows] == [
        ("x", 5, None, None, None),
        ("", 6, None, None, None),
        (None, 2**32, b"\xff", 0.0, None),
        (None, None, None, None, 1),
    ]
    assert [row["_value"] is None for row in rows] == [True, True, True, False]
    assert await lake.read(stream) == before


async def test_a_fixed_schema_reads_values_of_its_first_message_without_a_header(lake: TypedLake) -> None:
    schema_id = await register(lake, ORDER, "anything")
    stream = await lake.create(table__value__schema_id=str(schema_id))
    await lake.produce(stream, b"\x08\1", None)
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert [(row["id"], row["_value"], row["_schema_id"]) for row in rows] == [(1, None, schema_id), (None, None, None)]
    assert await lake.read(stream) == before


async def test_a_message_that_is_too_wide_has_no_columns_and_others_do(lake: TypedLake) -> None:
    stream = await lake.create()
    wide = " ".join(f"int32 f{at} = {at};" for at in range(1, 40))
    schema_id = await register(lake, f'syntax = "proto3"; message A {{ int32 id = 1; }} message B {{ {wide} }}')
    await lake.produce(stream, message_value(schema_id, (1,), b""), message_value(schema_id, (0,), b"\x08\1"))
    before = await lake.read(stream)

    for _ in range(2):
        await lake.compact(stream, replace(settings(), columns=ColumnSettings(column_count_max=20)))
        await lake.produce(stream, message_value(schema_id, (1,), b""))

    assert (await lake.read(stream))[:2] == before
    rows = await lake.rows(stream, "_offset", "id", "_value", "_error")
    assert [(row["id"], row["_value"] is None, (row["_error"] or "").partition(":")[0]) for row in rows[:2]] == [
        (None, False, "UNSUPPORTED_SCHEMA"),
        (1, True, ""),
    ]


async def test_a_schema_that_does_not_compile_has_no_columns_and_stops_nothing(lake: TypedLake) -> None:
    stream = await lake.create()
    bad = await register(lake, 'syntax = "proto3"; message A { Missing m = 1; }')
    good = await register(lake, ORDER)
    await lake.produce(stream, message_value(bad, (0,), b""), message_value(good, (0,), b"\x08\1"))
    before = await lake.read(stream)

    await lake.compact(stream)

    rows = await lake.rows(stream, "_offset", "id", "_error")
    assert [(row["id"], (row["_error"] or "")[:50]) for row in rows] == [
        (None, "UNSUPPORTED_SCHEMA: Invalid schema of type PROTOBU"),
        (1, ""),
    ]
    assert await lake.read(stream) == before


class _Slow(SchemaCompiler):
    """Does not answer the first calls."""

    def __init__(self, compiler: SchemaCompiler, failure_count: int) -> None:
        self.compiler = compiler
        self.left_count = failure_count
        self.call_count = 0

    @override
    async def compiled(self, type_name: str, text: str, references: Mapping[str, str]) -> Compiled:
        self.call_count += 1
        if self.left_count > 0:
            self.left_count -= 1
            raise Unavailable("the compiler does not answer")
        return await self.compiler.compiled(type_name, text, references)


async def test_a_compiler_that_does_not_answer_delays_the_task_without_an_attempt(lake: TypedLake) -> None:
    stream = await lake.create()
    schema_id = await register(lake, ORDER)
    slow = _Slow(lake.compiler, 5)
    lake.compiler = slow  # type: ignore[assignment]
    await lake.produce(stream, message_value(schema_id, (0,), b"\x08\1"))

    await lake.compact(stream)  # two attempts quarantine a task

    assert [row["id"] for row in await lake.rows(stream)] == [1]
    assert slow.call_count == 6


async def test_merges_keep_columns_and_bytes_of_several_messages(lake: TypedLake) -> None:
    stream = await lake.create()
    schema_id = await register(lake, ORDER)
    for index, body in ((0, b"\x08\1"), (1, b"\x10\2"), (0, b"\x08\3\x12\1a")):
        await lake.produce(stream, message_value(schema_id, (index,), body))
        await lake.compact(stream)
    await lake.produce(stream, message_value(schema_id, (1,), b"\x10\4"))
    before = await lake.read(stream)

    await lake.work(lambda: is_merged(lake, stream, 2), settings(merges=True))

    assert await lake.read(stream) == before
    rows = await lake.rows(stream, "_offset", "id", "count", "_value")
    assert [(row["id"], row["count"], row["_value"] is None) for row in rows] == [
        (1, None, True),
        (None, 2, False),
        (3, None, True),
        (None, 4, False),
    ]


async def is_merged(lake: TypedLake, stream: StreamView, file_count: int) -> bool:
    state = await lake.tables.summary(stream.stream)
    is_replaced = state is not None and state.snapshots[-1].deleted_files >= file_count
    return is_replaced and await lake.is_compacted(stream)


async def test_a_stream_changes_between_avro_and_protobuf(lake: TypedLake) -> None:
    stream = await lake.create()
    avro = await lake.register({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}, "avro")
    proto = await register(lake, ORDER, "proto")
    await alter(lake, table__value__subjects="avro,proto")
    await lake.produce(stream, b"\0" + avro.to_bytes(4) + b"\2", message_value(proto, (0,), b"\x08\2"))
    before = await lake.read(stream)

    await lake.compact(stream)

    assert [(row["id"], row["_value"]) for row in await lake.rows(stream)] == [(1, None), (2, None)]
    assert await lake.read(stream) == before
