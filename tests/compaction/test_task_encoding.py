import json
import uuid
from dataclasses import replace

import pytest

from bearlake.compaction.encoding import (
    decode_item,
    decode_item_result,
    decode_result,
    encode_item,
    encode_item_result,
    encode_result,
)
from bearlake.compaction.model import AbortedRange, Cleaning, ItemResult, TaskResult, WorkItem, WrittenFile
from bearlake.errors import Corrupt, Unsupported
from bearlake.metadata.compaction import SwapObject, TaskKind
from bearlake.metadata.model import NO_ROW, LocatedSlice, ObjectKind, ObjectRef, Slice
from bearlake.table.column_book import MessageKey, new_book, with_schema
from bearlake.table.column_tree import Column, ListOf, MapOf, StructOf
from bearlake.table.model import DataFile
from bearlake.table.value_plan import FileColumns, PartPlan, ValuePlan, WriterSchema
from fixtures.compaction_items import key_of

FILE = DataFile(
    key="table/a/b-00000000/data/1-1-0-x.parquet",
    size=10,
    row_count=3,
    max_timestamp_ms=-1,
    split_offsets=[4, 9],
    column_sizes={1: 5, 15: 2},
    value_counts={1: 3},
    null_value_counts={1: 0},
    lower_bounds={1: b"\0\1\xff\0"},
    upper_bounds={1: b"\xff\0\0\0"},
)
SEGMENT = Slice(key_of(3), 10, 3, 0, 200, 7)
WRITTEN = WrittenFile(
    file=FILE, swap=SwapObject(object=ObjectRef(FILE.key, FILE.size, ObjectKind.PARQUET), slices=[SEGMENT])
)
KEPT = SwapObject(object=ObjectRef("kept/2026112110/u", 99), slices=[Slice(key_of(3), 13, 1, 84, 70, -1)])
RESULT = ItemResult(
    files=[WRITTEN],
    kept_objects=[KEPT],
    row_count=3,
    read_bytes=270,
    record_bytes=100,
    written_bytes=109,
    kept_counts={"inexact": 1},
)
ITEM = WorkItem(
    kind=TaskKind.MERGE,
    stream_id=uuid.UUID(int=7),
    output_prefix="table/a/b-00000000/data/2-1-0",
    kept_prefix="kept/",
    slices=[LocatedSlice(SEGMENT, *WRITTEN.swap.object), LocatedSlice(KEPT.slices[0], *KEPT.object)],
    inputs=[WRITTEN.swap.object],
    file_bytes_max=1000,
    row_group_bytes=100,
    aborted=[AbortedRange(key_of(3), 5, 10, 12)],
)


CLEANING = Cleaning(
    bounds={0: 13, 3: 14},
    dirty=[WRITTEN.swap.object],
    kept=[LocatedSlice(KEPT.slices[0], *KEPT.object)],
    now_ms=1_700_000_000_000,
    tombstone_keep_ms=86_400_000,
)


def test_items_and_results_of_a_cleaning_survive_a_round_trip() -> None:
    item = replace(ITEM, cleaning=CLEANING)
    result = replace(RESULT, unchanged=[FILE.key], rowless=[SEGMENT._replace(position=NO_ROW)], dropped_count=5)

    assert decode_item(encode_item(item)) == item
    assert decode_item_result(encode_item_result(result)) == result


def test_items_and_results_with_typed_values_survive_a_round_trip() -> None:
    schema = WriterSchema("AVRO", '{"type": "int"}', ("ü",), True, 16, 1_000)
    fields = [Column(0, "a", "a", ListOf(0, MapOf(0, "string", 0, StructOf((Column(0, "b", "b", "int"),)))))]
    book = replace(with_schema(new_book(15), 7, fields, last_id=15, column_count_max=100), version=3)
    columns = FileColumns(book=book, schemas={7: schema})
    plan = ValuePlan(elides=True, columns=columns, known=[7, 8], refused={8: "UNSUPPORTED_SCHEMA: …"}, schema_id=7)
    item = replace(ITEM, values=plan)
    result = replace(RESULT, error_counts={"NO_SCHEMA": 3}, missing_schema_ids=[8])

    assert decode_item(encode_item(item)) == item
    assert decode_item_result(encode_item_result(result)) == result


def test_items_and_results_with_typed_keys_survive_a_round_trip() -> None:
    schema = WriterSchema("AVRO", '{"type": "int"}', (), False, 16, 1_000)
    message = MessageKey(9, (0, 1))
    book = replace(with_schema(new_book(15), 7, [], last_id=15, column_count_max=100, is_key=True), version=3)
    key = PartPlan(
        elides=True, known=[7], refused={8: "no"}, schema_id=7, protobuf={9: schema}, refused_messages={message: "no"}
    )
    columns = FileColumns(book=book, schemas={}, key_schemas={7: schema})
    item = replace(
        ITEM, values=ValuePlan(elides=False, columns=columns, known=[], refused={}, types_values=False, key=key)
    )
    result = replace(RESULT, missing_key_schema_ids=[8], missing_key_messages=(message,))

    assert decode_item(encode_item(item)) == item
    assert decode_item_result(encode_item_result(result)) == result


def test_items_and_results_survive_a_round_trip() -> None:
    assert decode_item(encode_item(ITEM)) == ITEM
    assert decode_item_result(encode_item_result(RESULT)) == RESULT
    assert decode_result(encode_result(TaskResult(items=[RESULT, RESULT]))) == TaskResult(items=[RESULT, RESULT])
    assert decode_item(encode_item(ITEM)).slices[0].kind is ObjectKind.PARQUET


def test_the_encoding_is_versioned_json() -> None:
    fields = json.loads(encode_item_result(RESULT))

    assert fields["version"] == 1
    assert fields["files"][0]["swap"]["slices"] == [[key_of(3), 10, 3, 0, 200, 7]]
    with pytest.raises(Unsupported, match="version 2"):
        decode_item_result(json.dumps({**fields, "version": 2}))


@pytest.mark.parametrize("encoded", [b"", b"{}", b"[]", b'{"version":1}', b'{"version":1,"files":[{}]}', b"\xff"])
def test_anything_else_is_corrupt(encoded: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_item_result(encoded)
    with pytest.raises(Corrupt):
        decode_item(encoded)
