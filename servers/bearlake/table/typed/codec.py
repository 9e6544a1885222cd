"""Values to typed columns and back, as Arrow arrays. The kernel does the work on their buffers, without a copy where it can."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid, TooLarge
from bearlake.kernel import OUTCOME_BITS, TypedOutcome, TypedSlots, TypedSource
from bearlake.table.typed.model import Decoded, SchemaType, TypedColumns, ValueProblem

BYTES_MAX = 2**31 - 1
"""Largest limit of the bytes of decoded columns."""

_OUTCOME_MASK = (1 << OUTCOME_BITS) - 1


def decode(
    columns: TypedColumns,
    values: pa.BinaryArray | pa.LargeBinaryArray,
    *,
    skip: int = 0,
    is_verified: bool = False,
    bytes_max: int = BYTES_MAX,
) -> Decoded:
    """Decode values of one schema into one row each, without the first `skip` bytes of each value.

    With `is_verified`, every row that counts as exact has been encoded and compared with its value. No row of a JSON schema is exact.

    Raises:
        TooLarge: the columns would have more than `bytes_max` bytes (a few bytes can stand for many nulls): decode fewer values at once.
            One value never raises it.
    """
    binary = _binary(values)
    validity, offsets, content = binary.buffers()
    start = binary.offset
    arguments = (
        _view(validity),
        _view(offsets) or b"",
        _view(content) or b"",
        start,
        start + len(values),
        skip,
        int(is_verified),
        bytes_max,
    )
    if columns.schema_type is SchemaType.JSON:
        statuses, slots = kernel.decode_json(columns.nodes, *arguments[:6], bytes_max)
    elif columns.wires:
        statuses, slots = kernel.decode_protobuf(columns.nodes, columns.wires, *arguments)
    else:
        statuses, slots = kernel.decode_avro(columns.nodes, *arguments)
    rows = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(statuses)])
    outcomes = pc.bit_wise_and(rows, pa.scalar(_OUTCOME_MASK, pa.int32()))
    failed = pc.indices_nonzero(pc.greater_equal(outcomes, pa.scalar(int(TypedOutcome.TRUNCATED), pa.int32())))
    return Decoded(
        struct=_array(columns.arrow, iter(slots)),
        is_exact=pc.equal(outcomes, pa.scalar(int(TypedOutcome.EXACT), pa.int32())),
        problems={row: problem(columns, rows[row].as_py()) for row in failed.to_pylist()},
        statuses=rows,
    )


def problem(columns: TypedColumns, status: int) -> ValueProblem:
    """Return what a status says."""
    return ValueProblem(outcome=TypedOutcome(status & _OUTCOME_MASK), path=columns.paths[status >> OUTCOME_BITS])


def encode(columns: TypedColumns, struct: pa.StructArray, *, prefix: bytes = b"") -> pa.BinaryArray:
    """Encode rows, each after `prefix`; a null row becomes a null value.

    The struct has the fields of `columns.arrow`, or casts to them. Its texts may have dictionaries.

    Raises:
        Invalid: the struct does not have the columns, or they are those of a JSON schema, which do not give values back.
        Corrupt: a row is not one that `decode` made: a null where the schema has none, two branches of a union or oneof, an unknown
            symbol.
        TooLarge: the values would have 2 GiB.
    """
    if columns.schema_type is SchemaType.JSON:
        raise Invalid("the columns of a JSON schema do not give values back")
    if _without_dictionaries(struct.type) != columns.arrow:
        struct = _cast(struct, columns.arrow)
    sources = list(_sources(struct))
    if columns.wires:
        offsets, content = kernel.encode_protobuf(columns.nodes, columns.wires, sources, prefix)
    else:
        offsets, content = kernel.encode_avro(columns.nodes, sources, prefix)
    validity = None
    if struct.null_count:
        is_valid = pc.invert(struct.is_null())  # a bitmap of its own: that of the struct may begin within a byte
        assert is_valid.offset == 0
        validity = is_valid.buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(struct), [validity, pa.py_buffer(offsets), pa.py_buffer(content)])


def _without_dictionaries(arrow: pa.DataType) -> pa.DataType:
    """Return the type with texts in place of dictionaries."""
    if pa.types.is_dictionary(arrow):
        return arrow.value_type
    if pa.types.is_struct(arrow):
        return pa.struct([_plain_field(arrow.field(at)) for at in range(arrow.num_fields)])
    if pa.types.is_map(arrow):
        return pa.map_(_plain_field(arrow.key_field), _plain_field(arrow.item_field))
    if pa.types.is_list(arrow):
        return pa.list_(_plain_field(arrow.value_field))
    return arrow


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_without_dictionaries(field.type))


def _cast(struct: pa.StructArray, arrow: pa.StructType) -> pa.StructArray:
    try:
        return struct.cast(arrow)
    except pa.ArrowException as error:
        raise Invalid(f"the columns are not those of the schema: {error}") from error


def _binary(values: pa.BinaryArray | pa.LargeBinaryArray) -> pa.BinaryArray:
    if values.type == pa.binary():
        return values
    try:
        return values.cast(pa.binary())
    except pa.ArrowException as error:
        raise TooLarge("a column of values", values.nbytes, BYTES_MAX) from error


def _view(buffer: Any) -> memoryview | None:  # Any: pyarrow has no types
    return None if buffer is None else memoryview(buffer)


def _array(arrow: pa.DataType, slots: Iterator[TypedSlots]) -> pa.Array:
    """Return the column of the next slots, with those below it."""
    own = next(slots)
    children: list[pa.Array] = []
    if pa.types.is_struct(arrow):
        children = [_array(arrow.field(at).type, slots) for at in range(arrow.num_fields)]
    elif pa.types.is_map(arrow):
        pair = pa.struct([arrow.key_field, arrow.item_field])
        parts = [_array(arrow.key_type, slots), _array(arrow.item_type, slots)]
        children = [pa.Array.from_buffers(pair, len(parts[0]), [None], 0, children=parts)]
    elif pa.types.is_list(arrow):
        children = [_array(arrow.value_type, slots)]
    buffers = [_buffer(own.validity)]
    if own.offsets is not None:
        buffers.append(_buffer(own.offsets))
    if own.content is not None:
        buffers.append(_buffer(own.content))
    return pa.Array.from_buffers(arrow, own.length, buffers, own.null_count, children=children)


def _buffer(content: Any) -> pa.Buffer | None:  # Any: pyarrow has no types
    return None if content is None else pa.py_buffer(content)


def _sources(array: pa.Array) -> Iterator[TypedSource]:
    """Yield an array's buffers, then those of the arrays below it."""
    arrow, buffers = array.type, [_view(buffer) for buffer in array.buffers()]
    if pa.types.is_struct(arrow):
        yield TypedSource(array.offset, len(array), buffers[0], None, None)
        for at in range(arrow.num_fields):
            yield from _sources(_field(array, at))
    elif pa.types.is_map(arrow) or pa.types.is_list(arrow):
        yield TypedSource(array.offset, len(array), buffers[0], buffers[1], None)
        for below in (array.keys, array.items) if pa.types.is_map(arrow) else (array.values,):
            yield from _sources(below)
    elif pa.types.is_dictionary(arrow):
        yield _dictionary_source(array)
    elif len(buffers) == 3:
        validity, offsets, content = buffers
        yield TypedSource(array.offset, len(array), validity, offsets, content)
    else:
        yield TypedSource(array.offset, len(array), buffers[0], None, buffers[1])


def _dictionary_source(array: pa.DictionaryArray) -> TypedSource:
    """Return the buffers of texts with a dictionary."""
    texts, indices = array.dictionary, array.indices
    if indices.type != pa.int32() or texts.offset or texts.null_count:
        (found,) = _sources(array.dictionary_decode())
        return found
    validity, places = (_view(buffer) for buffer in indices.buffers())
    _, offsets, content = (_view(buffer) for buffer in texts.buffers())
    return TypedSource(indices.offset, len(array), validity, offsets, content, places or b"", len(texts))


def _field(array: pa.StructArray, at: int) -> pa.Array:
    """Return a field's slots of the struct's own rows."""
    child = array.field(at)
    if len(child) == len(array):
        return child
    if len(child) < array.offset + len(array):
        raise Corrupt("a field has fewer slots than its struct")
    return child.slice(array.offset, len(array))
