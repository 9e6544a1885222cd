"""Which message of its Protobuf schema each value is: the path that stands after the schema's id.

Values of one message whose paths have the same length are decoded together. Only the usual form of a path is the shortest, and only it can
be left out: `00` for the first message, else the count and the indexes as zigzag varints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bearlake.table.typed import framing
from bearlake.table.typed.model import SchemaType
from bearlake.table.value_codecs import SchemaUnusable, message_of
from bearlake.table.value_plan import WriterSchema

NO_MESSAGE: Final = "NO_SCHEMA: no message indexes follow the schema's id"
_FIRST: Final = (0,)


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Values of one message: which they are, and how many bytes stand before each."""

    indexes: tuple[int, ...]
    schema: WriterSchema
    head_bytes: int
    mask: pa.BooleanArray


def message_groups(values: pa.BinaryArray, schema: WriterSchema) -> tuple[Sequence[MessageGroup], pa.StringArray]:
    """Group values of a schema with all its messages; return the groups, and why other values are of no message. Nulls are of no group."""
    if not schema.is_framed:
        whole = MessageGroup(_FIRST, message_of(schema, _FIRST), 0, pc.is_valid(values))
        return [whole], pa.nulls(len(values), pa.string())
    heads = framing.prefixes(values, SchemaType.PROTOBUF)
    found: dict[tuple[tuple[int, ...], int], tuple[int, WriterSchema]] = {}
    places: list[int | None] = []
    errors: list[str | None] = []
    for octets in heads.dictionary.to_pylist():
        head = framing.read_head(octets, SchemaType.PROTOBUF)
        place: int | None = None
        error: str | None = NO_MESSAGE
        if head is not None:
            key = (head.message_indexes, head.length)
            try:
                if key not in found:
                    found[key] = (len(found), message_of(schema, head.message_indexes))
                place, error = found[key][0], None
            except SchemaUnusable as unusable:
                error = f"UNSUPPORTED_SCHEMA: {unusable}"
        places.append(place)
        errors.append(error)
    numbers = pa.array(places, pa.int32()).take(heads.indices)
    groups = [
        MessageGroup(indexes, message, head_bytes, pc.fill_null(pc.equal(numbers, number), False))
        for (indexes, head_bytes), (number, message) in found.items()
    ]
    return groups, pa.array(errors, pa.string()).take(heads.indices)
