"""Avro values to typed columns.

The decoder takes memory only for what the bytes prove: a length never exceeds the bytes left, and all elements of all arrays and maps
of a value are together no more than its bytes, also those that take none. Columns with many fields multiply nulls, so that `bytes_max`
bounds the columns of a call.

Source: Apache Avro 1.12 specification, "Binary Encoding", "Logical Types".
"""

from collections.abc import Callable
from functools import partial

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.typed import TypedSchema, TypedSlots, TypedSource
from bearlake.kernel.typed.avro_encode import Impossible, Source, encode_row, sources_of
from bearlake.kernel.typed.avro_values import AvroDecoder
from bearlake.kernel.typed.decode import decode_values
from bearlake.kernel.typed.slots import columns_of


def decode_avro(
    schema: TypedSchema,
    validity: Buffer | None,
    offsets: Buffer,
    content: Buffer,
    start: int,
    end: int,
    skip: int,
    is_verified: int,
    bytes_max: int,
    /,
) -> tuple[Buffer, list[TypedSlots]]:
    """Decode the values [start, end) of a binary column into one row each, without the first `skip` bytes of each value.

    Returns the rows' statuses, int32[end - start], and the columns. A status is `node << OUTCOME_BITS | outcome`, for the first node
    with the value's outcome (DOMAIN counts more than FORM). With `is_verified`, a row with EXACT has been encoded and compared: if its
    bytes differ, the status is FORM of node 0.
    The native kernel releases the GIL for large inputs.

    Raises:
        ValueError: the schema is malformed, or the buffers are too short for the rows.
        TooLarge: the columns would have more than `bytes_max` bytes: decode fewer values at once. One value never raises it.
    """
    root = columns_of(schema)

    def encoded(columns: list[TypedSource]) -> Callable[[int, bytes], bool]:
        return partial(_is_same, sources_of(schema, columns))

    values = validity, offsets, content, start, end
    return decode_values(root, partial(AvroDecoder, schema, root), encoded, values, skip, is_verified, bytes_max)


def _is_same(source: Source, row: int, value: bytes) -> bool:
    """Whether encoding the row gives the value's bytes."""
    try:
        return encode_row(source, row) == value
    except Impossible:
        return False
