"""Avro values to typed columns.

The decoder takes memory only for what the bytes prove: a length never exceeds the bytes left, and all elements of all arrays and maps
of a value are together no more than its bytes, also those that take none. Columns with many fields multiply nulls, so that `bytes_max`
bounds the columns of a call.

Source: Apache Avro 1.12 specification, "Binary Encoding", "Logical Types".
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise

from bearlake.errors import TooLarge
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.typed import (
    BYTES_MAX,
    LEVELS_MAX,
    OUTCOME_BITS,
    TypedKind,
    TypedNode,
    TypedOutcome,
    TypedSchema,
    TypedSlots,
    TypedSource,
)
from bearlake.kernel.typed.avro_encode import Impossible, Source, encode_row, shortest, sources_of
from bearlake.kernel.typed.slots import Column, columns_of

DAY_MILLIS = 86_400_000
MILLI = 1000
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
_OUTCOME_MASK = (1 << OUTCOME_BITS) - 1
_HYPHENS = (8, 13, 18, 23)
_HEXADECIMAL = frozenset(b"0123456789abcdef")


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
    decoder = _Decoder(schema, root, len(values), bytes_max)
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


class _Stop(Exception):
    """The value cannot be decoded."""

    def __init__(self, index: int, outcome: TypedOutcome) -> None:
        super().__init__(index, outcome)
        self.status = index << OUTCOME_BITS | outcome


class _Full(Exception):
    """The columns would exceed their limit."""


class _Decoder:
    """Appends one row per value."""

    def __init__(self, schema: TypedSchema, root: Column, row_count: int, bytes_max: int) -> None:
        self._schema = schema
        self._root = root
        self._row_count = row_count
        self._bytes_max = bytes_max
        self._used = row_count * root.slot_bytes
        if self._used > bytes_max and row_count > 1:
            raise TooLarge("a set of typed columns", self._used, bytes_max)
        self._data = b""
        self._at = 0
        self._credit = 0
        self._status = 0

    def append(self, value: bytes | None, skip: int) -> int:
        """Append the row of a value; return its status."""
        row, used = self._root.length, self._used
        try:
            if value is None:
                self._root.add_null()
                return TypedOutcome.NULL
            self._begin(value, skip)
            self._value(self._root)
            if self._at != len(self._data):
                self._found(0, TypedOutcome.FORM)
        except _Stop as stop:
            self._status = stop.status
        except _Full:
            if self._row_count > 1:
                raise TooLarge("a set of typed columns", self._used, self._bytes_max) from None
            self._status = TypedOutcome.SIZE
        else:
            return self._status
        self._used = used
        self._root.cut(row)
        self._root.add_null()
        return self._status

    def _begin(self, value: bytes, skip: int) -> None:
        self._data, self._at, self._status = value, skip, TypedOutcome.EXACT
        self._credit = len(value) - skip
        if self._credit < 0:
            raise _Stop(0, TypedOutcome.TRUNCATED)
        self._use(0)

    def _use(self, size: int) -> None:
        self._used += size
        if self._used > self._bytes_max:
            raise _Full

    def _found(self, index: int, outcome: TypedOutcome) -> None:
        """Keep the first outcome; a value that does not fit counts more than its form."""
        if self._status & _OUTCOME_MASK < outcome:
            self._status = index << OUTCOME_BITS | outcome

    # Values of the tree

    def _value(self, column: Column) -> None:
        if self._is_null(column.index, column.node):
            column.add_null()
            return
        kind = TypedKind(column.node.kind)
        if kind == TypedKind.RECORD:
            for child in column.children:
                self._value(child)
            column.add()
        elif kind == TypedKind.UNION:
            self._union(column)
        elif kind == TypedKind.NULL:
            column.add_null()
        elif kind == TypedKind.MAP:
            self._map(column)
        elif kind == TypedKind.ARRAY:
            self._blocks(column.index, column.children)
            column.add()
        else:
            content = self._leaf(column.index, column.node)
            if content is None:
                self._found(column.index, TypedOutcome.DOMAIN)
                column.add_null()
                return
            if kind in (TypedKind.BYTES, TypedKind.STRING, TypedKind.ENUM, TypedKind.OPAQUE):
                self._use(len(content))
            column.add(content)

    def _is_null(self, index: int, node: TypedNode) -> bool:
        """Read the index of a union with null; return whether null was chosen."""
        if node.null_branch < 0:
            return False
        branch = self._number(index)
        if branch not in (0, 1) or (node.kind == TypedKind.NULL and branch != node.null_branch):
            raise _Stop(index, TypedOutcome.BRANCH)
        return branch == node.null_branch

    def _union(self, column: Column) -> None:
        branches = column.node.children
        branch = self._number(column.index)
        if not 0 <= branch < len(branches):
            raise _Stop(column.index, TypedOutcome.BRANCH)
        chosen = branches[branch]
        is_null = True
        for child in column.children:
            if child.index == chosen:
                self._value(child)
                is_null = False
            else:
                child.add_null()
        column.end(is_valid=not is_null)

    def _map(self, column: Column) -> None:
        keys = column.children[0]
        start = keys.length
        self._blocks(column.index, column.children)
        places = keys.offsets[start : keys.length + 1]
        texts = [bytes(keys.content[low:high]) for low, high in pairwise(places)]
        if len(set(texts)) == len(texts):
            column.add()
            return
        self._found(column.index, TypedOutcome.DOMAIN)
        for child in column.children:
            child.cut(start)
        column.add_null()

    def _blocks(self, index: int, children: Sequence[Column]) -> None:
        cost = sum(child.slot_bytes for child in children)
        block_count = 0
        while count := self._block(index):
            self._use(count * cost)
            block_count += 1
            if block_count == 2:
                self._found(index, TypedOutcome.FORM)
            for _ in range(count):
                for child in children:
                    self._value(child)

    def _block(self, index: int) -> int:
        """Read the head of a block; return its count."""
        count = self._number(index)
        if count < 0:
            self._found(index, TypedOutcome.FORM)
            count = -count
            if self._number(index) < 0:
                raise _Stop(index, TypedOutcome.COUNT)
        if count > len(self._data) - self._at or count > self._credit:
            raise _Stop(index, TypedOutcome.COUNT)
        self._credit -= count
        return count

    # Values without children

    def _leaf(self, index: int, node: TypedNode) -> bytes | None:
        """Read a value; return its content in the column, None if it does not fit."""
        kind = TypedKind(node.kind)
        if kind == TypedKind.PRESENT:
            return b"\1"
        if kind == TypedKind.BOOLEAN:
            octet = self._take(index, 1)
            if octet > b"\1":
                raise _Stop(index, TypedOutcome.BOOLEAN)
            return octet
        if kind == TypedKind.INT:
            return self._int(index).to_bytes(4, "little", signed=True)
        if kind == TypedKind.LONG:
            return self._number(index).to_bytes(8, "little", signed=True)
        if kind in (TypedKind.FLOAT, TypedKind.DOUBLE):
            return self._take(index, 4 if kind == TypedKind.FLOAT else 8)
        if kind == TypedKind.FIXED:
            return self._take(index, node.size)
        if kind == TypedKind.BYTES:
            return self._sized(index)
        if kind == TypedKind.STRING:
            return self._text(index)
        if kind == TypedKind.ENUM:
            symbol = self._number(index)
            if not 0 <= symbol < len(node.symbols):
                raise _Stop(index, TypedOutcome.SYMBOL)
            return node.symbols[symbol]
        if kind == TypedKind.UINT32:
            return self._take(index, 4) + bytes(4)
        if kind == TypedKind.OPAQUE:
            start = self._at
            self._pass(index, node.children[0], 0)
            return self._data[start : self._at]
        return self._logical(index, node, kind)

    def _logical(self, index: int, node: TypedNode, kind: TypedKind) -> bytes | None:
        if kind == TypedKind.DECIMAL:
            return self._decimal(index, node, self._sized(index), is_shortest=True)
        if kind == TypedKind.DECIMAL_FIXED:
            return self._decimal(index, node, self._take(index, node.size), is_shortest=False)
        if kind == TypedKind.UUID:
            return self._uuid(index)
        number = self._int(index) if kind == TypedKind.TIME_MILLIS else self._number(index)
        if kind == TypedKind.TIME_MICROS:
            return _int64(number) if 0 <= number < DAY_MILLIS * MILLI else None
        if kind == TypedKind.TIME_MILLIS:
            return _int64(number * MILLI) if 0 <= number < DAY_MILLIS else None
        assert kind == TypedKind.TIMESTAMP_MILLIS
        return _int64(number * MILLI) if number * MILLI in INT64 else None

    def _decimal(self, index: int, node: TypedNode, octets: bytes, *, is_shortest: bool) -> bytes | None:
        number = int.from_bytes(octets, "big", signed=True)
        if abs(number) >= 10**node.precision:
            return None
        if is_shortest and octets != shortest(number):
            self._found(index, TypedOutcome.FORM)
        return number.to_bytes(16, "little", signed=True)

    def _uuid(self, index: int) -> bytes | None:
        text = self._text(index)
        lower = text.lower()
        digits = bytes(octet for at, octet in enumerate(lower) if at not in _HYPHENS)
        if len(text) != 36 or any(text[at] != 0x2D for at in _HYPHENS) or not _HEXADECIMAL.issuperset(digits):
            return None
        if text != lower:
            self._found(index, TypedOutcome.FORM)
        return bytes.fromhex(digits.decode())

    def _number(self, index: int) -> int:
        """Read a zigzag varint of 64 bits."""
        number = shift = 0
        while True:
            if self._at >= len(self._data):
                raise _Stop(index, TypedOutcome.TRUNCATED)
            octet = self._data[self._at]
            self._at += 1
            if shift == 63 and octet > 1:
                raise _Stop(index, TypedOutcome.VARINT)
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                if octet == 0 and shift:
                    self._found(index, TypedOutcome.FORM)
                return number >> 1 ^ -(number & 1)
            shift += 7

    def _int(self, index: int) -> int:
        number = self._number(index)
        if number not in INT32:
            raise _Stop(index, TypedOutcome.RANGE)
        return number

    def _take(self, index: int, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise _Stop(index, TypedOutcome.TRUNCATED)
        self._at += size
        return self._data[self._at - size : self._at]

    def _sized(self, index: int) -> bytes:
        size = self._number(index)
        if not 0 <= size <= len(self._data) - self._at:
            raise _Stop(index, TypedOutcome.COUNT)
        return self._take(index, size)

    def _text(self, index: int) -> bytes:
        text = self._sized(index)
        try:
            text.decode()
        except UnicodeDecodeError:
            raise _Stop(index, TypedOutcome.TEXT) from None
        return text

    # Values outside of the tree

    def _pass(self, column: int, index: int, level: int) -> None:
        """Move past a value of the node `index`, below the OPAQUE node `column`, which errors name."""
        status = self._status
        if level >= LEVELS_MAX:
            raise _Stop(column, TypedOutcome.DEPTH)
        node = self._schema[index]
        kind = TypedKind(node.kind)
        if not self._is_null(column, node):
            if kind == TypedKind.RECORD:
                for child in node.children:
                    self._pass(column, child, level + 1)
            elif kind == TypedKind.UNION:
                branch = self._number(column)
                if not 0 <= branch < len(node.children):
                    raise _Stop(column, TypedOutcome.BRANCH)
                self._pass(column, node.children[branch], level + 1)
            elif kind in (TypedKind.ARRAY, TypedKind.MAP):
                while count := self._block(column):
                    for _ in range(count):
                        for child in node.children:
                            self._pass(column, child, level + 1)
            elif kind == TypedKind.OPAQUE:
                self._pass(column, node.children[0], level + 1)
            elif kind != TypedKind.NULL:
                self._leaf(column, node)
        self._status = status  # the bytes are kept as they are


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)
