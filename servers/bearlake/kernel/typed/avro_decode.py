"""Avro values to typed columns.

The decoder takes memory only for what the bytes prove: a length never exceeds the bytes left, and all elements of all arrays and maps
of a value are together no more than its bytes, also those that take none. Columns with many fields multiply nulls, so that `bytes_max`
bounds the columns of a call.

Source: Apache Avro 1.12 specification, "Binary Encoding", "Logical Types".
"""

from array import array

from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.typed import BYTES_MAX, TypedOutcome, TypedSchema, TypedSlots, TypedSource
from bearlake.kernel.typed.avro_encode import Impossible, Source, encode_row, sources_of
from bearlake.kernel.typed.avro_values import AvroDecoder
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
    if not 0 <= start <= end:
        raise ValueError(f"[{start}, {end}) are no rows")
    if not 0 <= bytes_max <= BYTES_MAX:
        raise ValueError(f"{bytes_max} bytes are no limit of columns")
    if skip < 0:
        raise ValueError(f"{skip} bytes cannot be skipped")
    values = values_of(validity, offsets, content, start, end)
    decoder = AvroDecoder(schema, root, len(values), bytes_max)
    statuses = [decoder.append(value, skip) for value in values]
    taken = list(root.take())
    if is_verified:
        columns = [TypedSource(0, slots.length, slots.validity, slots.offsets, slots.content) for slots in taken]
        source = sources_of(schema, columns)
        for row, value in enumerate(values):
            if statuses[row] == TypedOutcome.EXACT and value is not None and not _is_same(source, row, value[skip:]):
                statuses[row] = TypedOutcome.FORM
    return array("i", statuses).tobytes(), taken


def _is_same(source: Source, row: int, value: bytes) -> bool:
    """Whether encoding the row gives the value's bytes."""
    try:
        return encode_row(source, row) == value
    except Impossible:
        return False


def values_of(validity: Buffer | None, offsets: Buffer, content: Buffer, start: int, end: int) -> list[bytes | None]:
    """Return the values [start, end) of a binary column. Raises `ValueError` if its buffers are malformed."""
    marks, octets = view_of(offsets), view_of(content)
    bits = None if validity is None else view_of(validity)
    if len(marks) < 4 * (end + 1) and end > start:
        raise ValueError(f"offsets have {len(marks)} bytes, {4 * (end + 1)} are needed")
    if bits is not None and len(bits) < (end + 7) // 8:
        raise ValueError(f"the validity has {len(bits)} bytes, {(end + 7) // 8} are needed")
    found: list[bytes | None] = []
    places = array("i", bytes(marks[4 * start : 4 * (end + 1)] if end > start else b""))
    for at in range(end - start):
        low, high = places[at], places[at + 1]
        if not 0 <= low <= high <= len(octets):
            raise ValueError(f"value {start + at} is not inside the content")
        is_there = bits is None or bits[(start + at) >> 3] >> ((start + at) & 7) & 1
        found.append(bytes(octets[low:high]) if is_there else None)
    return found
