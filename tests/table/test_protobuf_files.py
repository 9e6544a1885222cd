"""Data files with Protobuf values as typed columns: which messages have columns, and which values the columns give back."""

import io
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.compaction.encoding import decode_item, encode_item
from bearlake.compaction.model import WorkItem
from bearlake.errors import Corrupt
from bearlake.metadata.compaction import TaskKind
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table.column_book import MessageKey, decode_book
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import read_rows
from bearlake.table.sparse import SparseFile
from bearlake.table.value_codecs import SchemaUnusable
from bearlake.table.value_plan import FileColumns, ValuePlan
from bearlake.table.value_typing import MissingSchemas
from bearlake.table.writer import DataFileWriter
from fixtures.protobuf_cases import CASES, PROTO2, PROTO3
from fixtures.protobuf_values import message_value, protobuf_plan, protobuf_schema
from fixtures.typed_values import ValueFile, framed, plan_of, served, writer_schema

SHOP = """syntax = "proto3"; package shop;
message Order { int64 id = 1; repeated Line lines = 2; message Line { string sku = 1; uint64 count = 2; } }
message Refund { int64 id = 1; optional string reason = 3; message Inner { bool ok = 1; } }
"""
ORDER, REFUND, INNER = (0,), (1,), (1, 0)


def rows_of(file: ValueFile, *names: str) -> list[dict[str, object]]:
    table = pq.read_table(pa.BufferReader(b"".join(file.finished.parts)))
    return table.select(list(names)).to_pylist() if names else table.to_pylist()


def shop_plan(*messages: tuple[int, ...], **more: object) -> ValuePlan:
    return protobuf_plan({7: protobuf_schema(SHOP)}, [(7, indexes) for indexes in messages], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [PROTO2, PROTO3], ids=["proto2", "proto3"])
@pytest.mark.parametrize("elides", [True, False])
async def test_every_form_of_a_message_is_served_as_it_was_written(schema: str, elides: bool) -> None:
    store = MemoryObjectStore()
    cases = [case for case in CASES if case.schema == schema and case.indexes == (0,)]
    values = [message_value(7, (0,), case.value) for case in cases]
    plan = protobuf_plan({7: protobuf_schema(schema)}, [(7, (0,))], elides=elides)

    file = ValueFile(plan, [[[*values, None, b""]], [values[:3], values[3:]]])

    rows = rows_of(file, "_value", "_schema_id", "_error")
    for case, row in zip(cases, rows, strict=False):
        assert (row["_value"] is None) == (elides and case.outcome.name == "EXACT"), case.label
        assert row["_schema_id"] == 7
        assert (row["_error"] is not None) == (case.outcome >= 16), case.label
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_messages_of_one_schema_share_the_columns_of_equal_fields() -> None:
    store = MemoryObjectStore()
    plan = shop_plan(ORDER, REFUND, INNER)
    values = [
        message_value(7, ORDER, b"\x08\1\x12\5\x0a\1a\x10\2"),
        message_value(7, REFUND, b"\x08\2\x1a\1x"),
        message_value(7, INNER, b"\x08\1"),
        message_value(7, ORDER, b"\x08\3"),
    ]

    file = ValueFile(plan, [[values]])

    assert [(row["id"], row["lines"], row["reason"], row["ok"]) for row in rows_of(file)] == [
        (1, [{"sku": "a", "count": 2}], None, None),
        (2, None, "x", None),
        (None, None, None, True),
        (3, [], None, None),
    ]
    assert [row["_value"] is None for row in rows_of(file)] == [True, False, False, True]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_only_the_usual_form_of_a_path_is_left_out() -> None:
    store = MemoryObjectStore()
    order = b"\x08\1"
    values = [framed(7, path + order) for path in (b"\0", b"\2\0", b"\x80\0", b"\2\x80\0", b"\2\2", b"\2\x82\0")]

    file = ValueFile(shop_plan(ORDER, REFUND), [[values]])

    assert [(row["id"], row["_value"] is None, row["_error"]) for row in rows_of(file)] == [
        (1, True, None),
        *[(1, False, None)] * 5,
    ]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_a_later_message_of_the_file_can_be_the_first_one_that_is_used() -> None:
    store = MemoryObjectStore()
    values = [message_value(7, INNER, b"\x08\1"), message_value(7, INNER, b"")]

    file = ValueFile(shop_plan(INNER), [[values]])

    assert [(row["ok"], row["_value"]) for row in rows_of(file, "ok", "_value")] == [(True, None), (False, None)]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_values_of_no_message_keep_their_bytes() -> None:
    store = MemoryObjectStore()
    paths = [b"", b"\x80", b"\1", b"\2\4", b"\4\0\4", b"\2\1", b"\xca\1" * 3]

    file = ValueFile(shop_plan(ORDER), [[[framed(7, path) for path in paths], [message_value(7, ORDER, b"")]]])

    codes = [str(row["_error"]).partition(":")[0] for row in rows_of(file, "_error")]
    assert codes == ["NO_SCHEMA", "NO_SCHEMA", "NO_SCHEMA", "UNSUPPORTED_SCHEMA", "UNSUPPORTED_SCHEMA", "NO_SCHEMA",
                     "NO_SCHEMA", "None"]  # fmt: skip
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_a_fixed_schema_means_its_first_message() -> None:
    store = MemoryObjectStore()
    schema = protobuf_schema(SHOP, is_framed=False)
    plan = protobuf_plan({7: schema}, [(7, ORDER)], schema_id=7)

    file = ValueFile(plan, [[[b"\x08\1", None, b"\x08"]]])

    assert [(row["id"], row["_value"], row["_error"]) for row in rows_of(file)] == [
        (1, None, None),
        (None, None, None),
        (None, b"\x08", "TRUNCATED: id"),
    ]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


def test_messages_without_columns_are_asked_for_all_at_once() -> None:
    values = [[message_value(7, path, b"") for path in (ORDER, REFUND, INNER)] + [framed(8, b"\0"), b"x"]]
    refused = {MessageKey(7, INNER): "UNSUPPORTED_SCHEMA: too wide"}

    with pytest.raises(MissingSchemas) as raised:
        ValueFile(shop_plan(refused_messages=refused), [values])

    assert (raised.value.ids, raised.value.messages) == (frozenset(), {MessageKey(7, ORDER), MessageKey(7, REFUND)})


def test_a_refused_message_keeps_its_bytes_and_others_have_columns() -> None:
    refused = {MessageKey(7, REFUND): "UNSUPPORTED_SCHEMA: too wide"}
    values = [message_value(7, ORDER, b"\x08\1"), message_value(7, REFUND, b"\x08\2")]

    file = ValueFile(shop_plan(ORDER, refused_messages=refused), [[values]])

    assert [(row["id"], row["_value"], row["_error"]) for row in rows_of(file)] == [
        (1, None, None),
        (None, values[1], "UNSUPPORTED_SCHEMA: too wide"),
    ]


async def test_avro_and_protobuf_values_may_alternate() -> None:
    store = MemoryObjectStore()
    avro = {3: writer_schema({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})}
    base = plan_of(avro).columns
    plan = protobuf_plan({7: protobuf_schema(SHOP)}, [(7, ORDER)], book=base.book)
    columns = FileColumns(book=plan.columns.book, schemas={**base.schemas, **plan.columns.schemas})
    both = ValuePlan(elides=True, columns=columns, known=[3, 7], refused={}, protobuf=plan.protobuf)

    file = ValueFile(both, [[[framed(3, b"\2"), message_value(7, ORDER, b"\x08\2"), framed(3, b"\6")]]])

    assert [(row["id"], row["_value"]) for row in rows_of(file)] == [(1, None), (2, None), (3, None)]
    assert await served(store, await file.put(store)) == b"".join(file.batches)


async def test_a_merge_keeps_values_whose_id_means_another_message_there() -> None:
    store = MemoryObjectStore()
    orders, refunds = shop_plan(ORDER, REFUND), shop_plan(REFUND, ORDER)
    file = ValueFile(orders, [[[message_value(7, ORDER, b"\x08\1"), message_value(7, REFUND, b"\x08\2")]]])
    ref = await file.put(store)
    footer = await DataFileReader(store, DataFileSettings(thread_count=0)).footer(ref)
    whole = ByteRange(0, ref.size)
    book = orders.columns.book
    target = FileColumns(book=book, schemas=refunds.columns.schemas)

    rows = read_rows(SparseFile(ref.size, [whole], await store.read(ref.key, [whole])), footer, 0, target)

    writer = DataFileWriter("merged", target)
    writer.write(rows)
    merged = writer.finish()
    await store.put(merged.file.key, merged.parts)
    found = await served(store, ObjectRef(merged.file.key, merged.file.size, ObjectKind.PARQUET))
    assert found == b"".join(file.batches)


async def test_a_footer_with_damaged_descriptors_is_refused() -> None:
    store = MemoryObjectStore()
    file = ValueFile(shop_plan(ORDER), [[[message_value(7, ORDER, b"\x08\1")]]])
    content = b"".join(file.finished.parts)
    table = pq.read_table(io.BytesIO(content))
    text = pq.read_metadata(io.BytesIO(content)).metadata[b"bearlake.typed"].decode()
    changes = [text.replace('\\"message\\":[0]', f'\\"message\\":{other}') for other in ("[1]", "null")]
    for number, change in enumerate(changes):
        assert change != text
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({"bearlake.typed": change})
        await store.put(f"damaged-{number}", [sink.getvalue()])

        with pytest.raises((Corrupt, SchemaUnusable)):
            await served(store, ObjectRef(f"damaged-{number}", len(sink.getvalue()), ObjectKind.PARQUET))


def test_the_book_remembers_messages_in_order() -> None:
    book = shop_plan(REFUND, ORDER).columns.book

    assert book.messages == (MessageKey(7, REFUND), MessageKey(7, ORDER))
    assert decode_book(book.encoded(), book.version) == book
    assert "messages" not in plan_of({3: writer_schema("long")}).columns.book.encoded()


def test_a_plan_goes_to_executors_with_its_messages() -> None:
    plan = shop_plan(ORDER, refused_messages={MessageKey(7, INNER): "UNSUPPORTED_SCHEMA: too wide"})
    item = WorkItem(
        kind=TaskKind.COMPACT, stream_id=UUID(int=1), output_prefix="x", kept_prefix="kept/", slices=[], file_bytes_max=1,
        row_group_bytes=1, values=plan,
    )  # fmt: skip

    assert decode_item(encode_item(item)).values == ValuePlan(
        elides=True, columns=plan.columns, known=[7], refused={}, protobuf=plan.protobuf,
        refused_messages=plan.refused_messages,
    )  # fmt: skip
