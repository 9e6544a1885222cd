"""Reads the parts of Avro values: numbers, texts, decimals, blocks, and values outside of the tree of nodes.

Source: Apache Avro 1.12 specification, "Binary Encoding", "Logical Types".
"""

from bearlake.kernel.typed import LEVELS_MAX, TypedKind, TypedNode, TypedOutcome, TypedSchema
from bearlake.kernel.typed.avro_encode import shortest
from bearlake.kernel.typed.decode import Status, Stop

DAY_MILLIS = 86_400_000
MILLI = 1000
INT32 = range(-(2**31), 2**31)
INT64 = range(-(2**63), 2**63)
_HYPHENS = (8, 13, 18, 23)
_HEXADECIMAL = frozenset(b"0123456789abcdef")


class AvroReader(Status):
    """Reads one value after the other. Methods take the index of the node that errors name; they raise `Stop`."""

    def __init__(self, schema: TypedSchema) -> None:
        self._schema = schema
        self._data = b""
        self._at = 0
        self._credit = 0
        """Elements that the value may still have."""

    def _is_null(self, index: int, node: TypedNode) -> bool:
        """Read the index of a union with null; return whether null was chosen."""
        if node.null_branch < 0:
            return False
        branch = self._number(index)
        if branch not in (0, 1) or (node.kind == TypedKind.NULL and branch != node.null_branch):
            raise Stop(index, TypedOutcome.BRANCH)
        return branch == node.null_branch

    def _block(self, index: int) -> int:
        """Read the head of a block; return its count."""
        count = self._number(index)
        if count < 0:
            self._found(index, TypedOutcome.FORM)
            count = -count
            if self._number(index) < 0:
                raise Stop(index, TypedOutcome.COUNT)
        if count > len(self._data) - self._at or count > self._credit:
            raise Stop(index, TypedOutcome.COUNT)
        self._credit -= count
        return count

    def _leaf(self, index: int, node: TypedNode) -> bytes | None:
        """Read a value; return its content in the column, None if it does not fit."""
        kind = TypedKind(node.kind)
        if kind == TypedKind.PRESENT:
            return b"\1"
        if kind == TypedKind.BOOLEAN:
            octet = self._take(index, 1)
            if octet > b"\1":
                raise Stop(index, TypedOutcome.BOOLEAN)
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
                raise Stop(index, TypedOutcome.SYMBOL)
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
                raise Stop(index, TypedOutcome.TRUNCATED)
            octet = self._data[self._at]
            self._at += 1
            if shift == 63 and octet > 1:
                raise Stop(index, TypedOutcome.VARINT)
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                if octet == 0 and shift:
                    self._found(index, TypedOutcome.FORM)
                return number >> 1 ^ -(number & 1)
            shift += 7

    def _int(self, index: int) -> int:
        number = self._number(index)
        if number not in INT32:
            raise Stop(index, TypedOutcome.RANGE)
        return number

    def _take(self, index: int, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise Stop(index, TypedOutcome.TRUNCATED)
        self._at += size
        return self._data[self._at - size : self._at]

    def _sized(self, index: int) -> bytes:
        size = self._number(index)
        if not 0 <= size <= len(self._data) - self._at:
            raise Stop(index, TypedOutcome.COUNT)
        return self._take(index, size)

    def _text(self, index: int) -> bytes:
        text = self._sized(index)
        try:
            text.decode()
        except UnicodeDecodeError:
            raise Stop(index, TypedOutcome.TEXT) from None
        return text

    def _pass(self, column: int, index: int, level: int) -> None:
        """Move past a value of the node `index`, below the OPAQUE node `column`, which errors name."""
        status = self._status
        if level >= LEVELS_MAX:
            raise Stop(column, TypedOutcome.DEPTH)
        node = self._schema[index]
        kind = TypedKind(node.kind)
        if not self._is_null(column, node):
            if kind == TypedKind.RECORD:
                for child in node.children:
                    self._pass(column, child, level + 1)
            elif kind == TypedKind.UNION:
                branch = self._number(column)
                if not 0 <= branch < len(node.children):
                    raise Stop(column, TypedOutcome.BRANCH)
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
