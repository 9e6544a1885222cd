"""Encodes `compaction/model.py` as JSON, version 1: for messages to and from executors, and for `TaskQueue.prepare`.

Slices are arrays in the order of their fields; bounds are hexadecimal; everything else is an object with the fields' names. Readers
reject unknown versions. Old versions stay readable as long as tasks may contain them.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from bearlake.compaction.model import AbortedRange, Cleaning, CurrentWork, ItemResult, TaskResult, WorkItem, WrittenFile
from bearlake.errors import Corrupt, Unsupported
from bearlake.metadata.compaction import SwapObject, TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectKind, ObjectRef, PartitionKey, Slice
from bearlake.table.column_book import MessageKey, decode_book
from bearlake.table.current_columns import decode_current_columns
from bearlake.table.model import DataFile
from bearlake.table.value_plan import FileColumns, PartPlan, ValuePlan, WriterSchema, encode_schemas

VERSION = 1

_Json = Mapping[str, Any]  # as returned by `json.loads`


def encode_item(item: WorkItem) -> bytes:
    """Encode an item as JSON."""
    keys = sorted({located.object_key for located in item.slices})
    number = {key: at for at, key in enumerate(keys)}
    objects = {located.object_key: located.object for located in item.slices}
    return _dump(
        {
            "kind": item.kind,
            "stream_id": str(item.stream_id),
            "output_prefix": item.output_prefix,
            "kept_prefix": item.kept_prefix,
            "objects": [objects[key] for key in keys],
            "slices": [[number[located.object_key], *located.slice] for located in item.slices],
            "aborted": [list(found) for found in item.aborted],
            "inputs": list(item.inputs),
            "file_bytes_max": item.file_bytes_max,
            "row_group_bytes": item.row_group_bytes,
            **({} if item.cleaning is None else {"cleaning": _cleaning_fields(item.cleaning)}),
            **({} if item.values is None else {"values": _values_fields(item.values)}),
            **({} if item.current is None else {"current": _current_fields(item.current)}),
        }
    )


def decode_item(encoded: bytes | str) -> WorkItem:
    """Decode an item.

    Raises:
        Corrupt: not an encoded item.
        Unsupported: a newer version.
    """
    with _Reading("work item"):
        fields = _load(encoded)
        objects = [_object(value) for value in fields["objects"]]
        return WorkItem(
            kind=TaskKind(fields["kind"]),
            stream_id=uuid.UUID(fields["stream_id"]),
            output_prefix=fields["output_prefix"],
            kept_prefix=fields["kept_prefix"],
            slices=[LocatedSlice(_slice(value[1:]), *objects[value[0]]) for value in fields["slices"]],
            inputs=[_object(value) for value in fields["inputs"]],
            file_bytes_max=fields["file_bytes_max"],
            row_group_bytes=fields["row_group_bytes"],
            aborted=[AbortedRange(PartitionKey(partition), *found) for partition, *found in fields.get("aborted", ())],
            cleaning=_cleaning(fields["cleaning"]) if "cleaning" in fields else None,
            values=_values(fields["values"]) if "values" in fields else None,
            current=_current(fields["current"]) if "current" in fields else None,
        )


def encode_item_result(result: ItemResult) -> bytes:
    """Encode the result of one item as JSON."""
    return _dump(_item_result_fields(result))


def decode_item_result(encoded: bytes | str) -> ItemResult:
    """Decode the result of one item.

    Raises:
        Corrupt: not an encoded result.
        Unsupported: a newer version.
    """
    with _Reading("result of a work item"):
        return _item_result(_load(encoded))


def encode_result(result: TaskResult) -> bytes:
    """Encode the result of a task as JSON."""
    return _dump({"items": [_item_result_fields(item) for item in result.items]})


def decode_result(encoded: bytes | str) -> TaskResult:
    """Decode the result of a task.

    Raises:
        Corrupt: not an encoded result.
        Unsupported: a newer version.
    """
    with _Reading("result of a task"):
        return TaskResult(items=[_item_result(item) for item in _load(encoded)["items"]])


def _item_result_fields(result: ItemResult) -> dict[str, object]:
    return {
        "files": [{"file": _file_fields(file.file), "swap": _swap_fields(file.swap)} for file in result.files],
        "kept": [_swap_fields(swap) for swap in result.kept_objects],
        "row_count": result.row_count,
        "read_bytes": result.read_bytes,
        "record_bytes": result.record_bytes,
        "written_bytes": result.written_bytes,
        "kept_counts": dict(result.kept_counts),
        **({"unchanged": list(result.unchanged)} if result.unchanged else {}),
        **({"rowless": [list(piece) for piece in result.rowless]} if result.rowless else {}),
        **({"dropped_count": result.dropped_count} if result.dropped_count else {}),
        **({"error_counts": dict(result.error_counts)} if result.error_counts else {}),
        **({"missing_schema_ids": list(result.missing_schema_ids)} if result.missing_schema_ids else {}),
        **({"missing_messages": list(result.missing_messages)} if result.missing_messages else {}),
        **({"missing_key_schema_ids": list(result.missing_key_schema_ids)} if result.missing_key_schema_ids else {}),
        **({"missing_key_messages": list(result.missing_key_messages)} if result.missing_key_messages else {}),
        **({"buckets": list(result.buckets)} if result.buckets else {}),
        **({"newest_us": result.newest_us} if result.newest_us else {}),
        **({"exceeds_memory": True} if result.exceeds_memory else {}),
    }


def _item_result(fields: _Json) -> ItemResult:
    return ItemResult(
        files=[WrittenFile(file=_file(value["file"]), swap=_swap(value["swap"])) for value in fields["files"]],
        kept_objects=[_swap(value) for value in fields["kept"]],
        row_count=fields["row_count"],
        read_bytes=fields["read_bytes"],
        record_bytes=fields["record_bytes"],
        written_bytes=fields["written_bytes"],
        kept_counts=fields["kept_counts"],
        unchanged=fields.get("unchanged", ()),
        rowless=[_slice(value) for value in fields["rowless"]] if "rowless" in fields else (),
        dropped_count=fields.get("dropped_count", 0),
        error_counts=fields.get("error_counts", {}),
        missing_schema_ids=fields.get("missing_schema_ids", ()),
        missing_messages=tuple(_message(value) for value in fields.get("missing_messages", ())),
        missing_key_schema_ids=fields.get("missing_key_schema_ids", ()),
        missing_key_messages=tuple(_message(value) for value in fields.get("missing_key_messages", ())),
        buckets=fields.get("buckets", ()),
        newest_us=fields.get("newest_us", 0),
        exceeds_memory=fields.get("exceeds_memory", False),
    )


def _cleaning_fields(cleaning: Cleaning) -> dict[str, object]:
    return {
        "bounds": dict(cleaning.bounds),
        "dirty": [list(reference) for reference in cleaning.dirty],
        "kept": [[list(located.slice), list(located.object)] for located in cleaning.kept],
        "now_ms": cleaning.now_ms,
        "tombstone_keep_ms": cleaning.tombstone_keep_ms,
    }


def _cleaning(fields: _Json) -> Cleaning:
    return Cleaning(
        bounds=_by_field(fields["bounds"]),
        dirty=[_object(value) for value in fields["dirty"]],
        kept=[LocatedSlice(_slice(piece), *_object(value)) for piece, value in fields["kept"]],
        now_ms=fields["now_ms"],
        tombstone_keep_ms=fields["tombstone_keep_ms"],
    )


def _current_fields(work: CurrentWork) -> dict[str, object]:
    return {
        "starts": dict(work.starts),
        "ends": dict(work.ends),
        "bucket_count": work.bucket_count,
        "buckets": {bucket: [list(reference) for reference in files] for bucket, files in work.buckets.items()},
        "columns": work.columns.encoded(),
        "newest_us": work.newest_us,
        "remember_us": work.remember_us,
    }


def _current(fields: _Json) -> CurrentWork:
    return CurrentWork(
        starts=_by_field(fields["starts"]),
        ends=_by_field(fields["ends"]),
        bucket_count=fields["bucket_count"],
        buckets={int(bucket): [_object(value) for value in files] for bucket, files in fields["buckets"].items()},
        columns=decode_current_columns(fields["columns"]),
        newest_us=fields["newest_us"],
        remember_us=fields["remember_us"],
    )


def _values_fields(plan: ValuePlan) -> dict[str, object]:
    book = plan.columns.book
    return {
        **_part_fields(plan),
        "book": book.encoded(),
        "book_version": book.version,
        "schemas": encode_schemas(plan.columns.schemas),
        **({} if plan.types_values else {"types_values": False}),
        **({} if not plan.columns.key_schemas else {"key_schemas": encode_schemas(plan.columns.key_schemas)}),
        **({} if plan.key is None else {"key": _part_fields(plan.key)}),
    }


def _part_fields(plan: PartPlan) -> dict[str, object]:
    return {
        "elides": plan.elides,
        "known": list(plan.known),
        "refused": {str(id_): why for id_, why in plan.refused.items()},
        "schema_id": plan.schema_id,
        "protobuf": encode_schemas(plan.protobuf),
        "refused_messages": [[list(message), why] for message, why in plan.refused_messages.items()],
        **({} if plan.guids is None else {"guids": dict(plan.guids)}),
    }


def _values(fields: _Json) -> ValuePlan:
    book = decode_book(fields["book"], fields["book_version"])
    columns = FileColumns(
        book=book, schemas=_schemas(fields["schemas"]), key_schemas=_schemas(fields.get("key_schemas", {}))
    )
    return ValuePlan(
        **_part(fields),
        columns=columns,
        types_values=fields.get("types_values", True),
        key=PartPlan(**_part(fields["key"])) if "key" in fields else None,
    )


def _part(fields: _Json) -> dict[str, Any]:
    return {
        "elides": fields["elides"],
        "known": fields["known"],
        "refused": {int(id_): why for id_, why in fields["refused"].items()},
        "schema_id": fields["schema_id"],
        "protobuf": _schemas(fields.get("protobuf", {})),
        "refused_messages": {_message(message): why for message, why in fields.get("refused_messages", ())},
        "guids": fields.get("guids"),
    }


def _schemas(fields: Mapping[str, Sequence[Any]]) -> dict[int, WriterSchema]:
    return {
        int(id_): WriterSchema(type_, text, tuple(references), is_framed, levels_max, columns_max)
        for id_, (type_, text, references, is_framed, levels_max, columns_max) in fields.items()
    }


def _message(value: Sequence[Any]) -> MessageKey:
    schema_id, indexes = value
    return MessageKey(schema_id, tuple(indexes))


def _file_fields(file: DataFile) -> dict[str, object]:
    return {
        "key": file.key,
        "size": file.size,
        "row_count": file.row_count,
        "max_timestamp_ms": file.max_timestamp_ms,
        "split_offsets": list(file.split_offsets),
        "column_sizes": dict(file.column_sizes),
        "value_counts": dict(file.value_counts),
        "null_value_counts": dict(file.null_value_counts),
        "lower_bounds": {field: bound.hex() for field, bound in file.lower_bounds.items()},
        "upper_bounds": {field: bound.hex() for field, bound in file.upper_bounds.items()},
    }


def _file(fields: _Json) -> DataFile:
    return DataFile(
        key=fields["key"],
        size=fields["size"],
        row_count=fields["row_count"],
        max_timestamp_ms=fields["max_timestamp_ms"],
        split_offsets=fields["split_offsets"],
        column_sizes=_by_field(fields["column_sizes"]),
        value_counts=_by_field(fields["value_counts"]),
        null_value_counts=_by_field(fields["null_value_counts"]),
        lower_bounds={int(field): bytes.fromhex(bound) for field, bound in fields["lower_bounds"].items()},
        upper_bounds={int(field): bytes.fromhex(bound) for field, bound in fields["upper_bounds"].items()},
    )


def _swap_fields(swap: SwapObject) -> dict[str, object]:
    return {"object": list(swap.object), "slices": [list(piece) for piece in swap.slices]}


def _swap(fields: _Json) -> SwapObject:
    return SwapObject(object=_object(fields["object"]), slices=[_slice(value) for value in fields["slices"]])


def _object(value: Sequence[Any]) -> ObjectRef:
    key, size, kind = value
    return ObjectRef(key, size, ObjectKind(kind))


def _slice(value: Sequence[Any]) -> Slice:
    return Slice._make(value)


def _by_field(fields: Mapping[str, int]) -> dict[int, int]:
    return {int(field): value for field, value in fields.items()}


def _dump(fields: dict[str, object]) -> bytes:
    return json.dumps({"version": VERSION, **fields}, separators=(",", ":")).encode()


def _load(encoded: bytes | str) -> _Json:
    fields: _Json = json.loads(encoded)
    if fields["version"] != VERSION:
        raise Unsupported(f"compaction JSON has version {fields['version']}; expected {VERSION}")
    return fields


class _Reading:
    """Turns any error in the JSON into `Corrupt`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LookupError | TypeError | ValueError | AttributeError):
            raise Corrupt(f"{self._what}: {error!r}") from error
