"""Typed columns to Avro values: the reverse of `decode_avro`.

The values have the usual form: the shortest varints and decimals, at most one block per array or map, UUIDs in lower case. A row that
`decode_avro` gave the status EXACT is encoded to the bytes that it was decoded from. The encoder trusts nothing in the columns, which may
come from a file.
"""

from array import array
from collections.abc import Iterator, Sequence
from uuid import UUID

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.typed import BITMAPS, BYTES_MAX, LISTS, STRUCTS, TEXTS, TypedKind, TypedSchema, TypedSource
from bearlake.kernel.typed.slots import Column, columns_of

_MILLI = 1000


class Impossible(Exception):
    """A row of the columns is not one of this schema."""


def encode_avro(schema: TypedSchema, columns: Sequence[TypedSource], prefix: Buffer, /) -> tuple[Buffer, Buffer]:
    """Encode all rows, each after `prefix`; return a binary column: offsets, int32[rows + 1], and content.

    `columns` are those of the schema, in its order, and all buffers are those of Arrow's layout. A null row gets no bytes, not even
    the prefix. The native kernel releases the GIL while it encodes.

    Raises:
        ValueError: the schema or the number of columns is wrong, or a buffer is too short for its slots.
        Corrupt: a row has a null where the schema has none, no branch or two of a union, an unknown symbol, a value outside of its type,
            or offsets outside of the columns. Names the first such row.
        TooLarge: the values would have 2 GiB.
    """
    root = sources_of(schema, columns)
    lead = bytes(view_of(prefix))
    content = bytearray()
    offsets = array("i", [0])
    for row in range(root.length):
        if not root.is_null(row):
            try:
                content += lead + encode_row(root, row)
            except Impossible:
                raise Corrupt(f"row {row} of the typed columns is impossible") from None
            if len(content) > BYTES_MAX:
                raise TooLarge("a column of encoded values", len(content), BYTES_MAX)
        offsets.append(len(content))
    return offsets.tobytes(), bytes(content)


class Source:
    """The slots of one node, to be read."""

    __slots__ = ("_cells", "_entry_count", "_indices", "_marks", "_start", "_validity", "children", "column", "length")

    def __init__(self, column: Column, source: TypedSource, children: "Sequence[Source]") -> None:
        kind = TypedKind(column.node.kind)
        start, length = source.start, source.length
        if start < 0 or length < 0 or start + length > BYTES_MAX:
            raise ValueError(f"a column with {length} slots from {start} on is impossible")
        if not 0 <= source.entry_count < BYTES_MAX:
            raise ValueError(f"a dictionary of {source.entry_count} texts is impossible")
        end = start + length
        mark_count = end + 1 if length else 0
        if source.indices is not None:
            mark_count = source.entry_count + 1 if source.entry_count else 0
        self.column, self.children = column, children
        self.length, self._start = length, start
        self._validity = None if source.validity is None else _view(source.validity, (end + 7) // 8)
        self._cells = view_of(b"")
        self._marks = view_of(b"")
        if kind in TEXTS or kind in LISTS:
            self._marks = _view(source.offsets, 4 * mark_count)
        if kind in BITMAPS:
            self._cells = _view(source.content, (end + 7) // 8)
        elif kind in TEXTS:
            self._cells = _view(source.content, 0)
        elif kind not in LISTS and kind not in STRUCTS:
            self._cells = _view(source.content, end * column.width)
        self._indices, self._entry_count = None, source.entry_count
        if source.indices is not None:
            if kind not in TEXTS:
                raise ValueError("a column without texts has indices")
            self._indices = _view(source.indices, 4 * end)
        if kind in STRUCTS and any(child.length < length for child in children):
            raise ValueError("a field has fewer slots than its struct")

    def is_null(self, slot: int) -> bool:
        """Whether the slot is null."""
        at = self._start + slot
        return self._validity is not None and not self._validity[at >> 3] >> (at & 7) & 1

    def bit(self, slot: int) -> int:
        """Return a bit of a bitmap."""
        at = self._start + slot
        return self._cells[at >> 3] >> (at & 7) & 1

    def cell(self, slot: int) -> bytes:
        """Return the bytes of a slot with a fixed width."""
        width = self.column.width
        at = (self._start + slot) * width
        return bytes(self._cells[at : at + width])

    def text(self, slot: int) -> bytes:
        """Return the bytes of a slot of any width."""
        at = self._start + slot
        if self._indices is not None:
            at = _int32(self._indices, at)
            if not 0 <= at < self._entry_count:
                raise Impossible
        low, high = _int32(self._marks, at), _int32(self._marks, at + 1)
        if not 0 <= low <= high <= len(self._cells):
            raise Impossible
        return bytes(self._cells[low:high])

    def items(self, slot: int) -> tuple[int, int]:
        """Return the range of the children's slots."""
        low, high = _int32(self._marks, self._start + slot), _int32(self._marks, self._start + slot + 1)
        if not 0 <= low <= high <= min(child.length for child in self.children):
            raise Impossible
        return low, high


def _int32(numbers: memoryview, at: int) -> int:
    return int.from_bytes(numbers[4 * at : 4 * at + 4], "little", signed=True)


def _view(buffer: Buffer | None, least: int) -> memoryview:
    view = view_of(b"" if buffer is None else buffer)
    if len(view) < least:
        raise ValueError(f"a buffer of a typed column has {len(view)} bytes, {least} are needed")
    return view


def sources_of(schema: TypedSchema, columns: Sequence[TypedSource]) -> Source:
    """Return the root of the columns. Raises `ValueError` as `encode_avro` does."""
    root = columns_of(schema)
    count = _count(root)
    if len(columns) != count:
        raise ValueError(f"the schema has {count} columns, {len(columns)} were given")
    return _source(root, iter(columns))


def _count(column: Column) -> int:
    return 1 + sum(_count(child) for child in column.children)


def _source(column: Column, rest: Iterator[TypedSource]) -> Source:
    own = next(rest)
    return Source(column, own, [_source(child, rest) for child in column.children])


def encode_row(root: Source, row: int) -> bytes:
    """Encode a row that is not null. Raises `Impossible`."""
    out = bytearray()
    _encode(out, root, row)
    return bytes(out)


def _encode(out: bytearray, source: Source, slot: int) -> None:
    node = source.column.node
    kind = TypedKind(node.kind)
    is_null = source.is_null(slot)
    if node.null_branch >= 0:
        is_null = is_null or kind == TypedKind.NULL
        _write(out, node.null_branch if is_null else 1 - node.null_branch)
        if is_null:
            return
    if kind == TypedKind.UNION:
        _encode_union(out, source, slot, is_null=is_null)
    elif kind != TypedKind.NULL:
        if is_null:
            raise Impossible
        _encode_value(out, source, slot, kind)


def _encode_union(out: bytearray, source: Source, slot: int, *, is_null: bool) -> None:
    branches = source.column.node.children
    chosen = [child for child in source.children if not child.is_null(slot)]
    if is_null:
        columns = {child.column.index for child in source.children}
        without = [at for at, branch in enumerate(branches) if branch not in columns]
        if len(without) != 1:
            raise Impossible
        _write(out, without[0])
        return
    if len(chosen) != 1:
        raise Impossible
    _write(out, branches.index(chosen[0].column.index))
    _encode(out, chosen[0], slot)


def _encode_value(out: bytearray, source: Source, slot: int, kind: TypedKind) -> None:
    node = source.column.node
    if kind == TypedKind.RECORD:
        for child in source.children:
            _encode(out, child, slot)
    elif kind in LISTS:
        low, high = source.items(slot)
        if high > low:
            _write(out, high - low)
            for at in range(low, high):
                for child in source.children:
                    _encode(out, child, at)
        out.append(0)
    elif kind == TypedKind.BOOLEAN:
        out.append(source.bit(slot))
    elif kind in (TypedKind.INT, TypedKind.LONG):
        _write(out, int.from_bytes(source.cell(slot), "little", signed=True))
    elif kind in (TypedKind.FLOAT, TypedKind.DOUBLE, TypedKind.FIXED):
        out += source.cell(slot)
    elif kind in (TypedKind.BYTES, TypedKind.STRING):
        text = source.text(slot)
        _write(out, len(text))
        out += text
    elif kind == TypedKind.OPAQUE:
        out += source.text(slot)
    elif kind == TypedKind.ENUM:
        symbol = source.text(slot)
        if symbol not in node.symbols:
            raise Impossible
        _write(out, node.symbols.index(symbol))
    elif kind == TypedKind.UUID:
        out += b"\x48" + str(UUID(bytes=source.cell(slot))).encode()
    elif kind != TypedKind.PRESENT:
        _encode_number(out, kind, node.size, int.from_bytes(source.cell(slot), "little", signed=True))


def _encode_number(out: bytearray, kind: TypedKind, size: int, number: int) -> None:
    if kind == TypedKind.DECIMAL:
        octets = shortest(number)
        _write(out, len(octets))
        out += octets
    elif kind == TypedKind.DECIMAL_FIXED:
        if len(shortest(number)) > size:
            raise Impossible
        out += number.to_bytes(size, "big", signed=True)
    elif kind == TypedKind.UINT32:
        if not 0 <= number < 2**32:
            raise Impossible
        out += number.to_bytes(4, "little")
    elif kind == TypedKind.TIME_MICROS:
        _write(out, number)
    else:
        assert kind in (TypedKind.TIME_MILLIS, TypedKind.TIMESTAMP_MILLIS)
        millis, rest = divmod(number, _MILLI)
        if rest or (kind == TypedKind.TIME_MILLIS and millis not in range(-(2**31), 2**31)):
            raise Impossible
        _write(out, millis)


def shortest(number: int) -> bytes:
    """Return the shortest big-endian two's complement of a number, at least one byte."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _write(out: bytearray, number: int) -> None:
    bits = number << 1 ^ number >> 63
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
