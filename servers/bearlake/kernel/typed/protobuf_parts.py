"""Parts of Protobuf messages: tags, numbers, lengths, and fields that are passed over.

Source: Protocol Buffers, "Encoding".
"""

from collections.abc import Iterator

from bearlake.kernel.typed import TypedOutcome
from bearlake.kernel.typed.decode import Status, Stop
from bearlake.kernel.typed.protobuf import FIELD_NUMBER_MAX, SKIPPED_LEVELS_MAX, WireType


class ProtobufParts(Status):
    """Reads the value in `_data[_at:_end]`. Methods take the index that errors name; they raise `Stop`."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._end = 0
        self._tag_at = 0
        """Where the last tag began."""

    def _tags(self, index: int, group: int) -> Iterator[tuple[int, int]]:
        """Yield number and wire type of each field; the caller moves past the value before it goes on."""
        while group or self._at < self._end:
            self._tag_at = self._at
            bits = self._varint(index)
            number, wire_type = bits >> 3, bits & 7
            if not 0 < number <= FIELD_NUMBER_MAX or wire_type > WireType.I32:
                raise Stop(index, TypedOutcome.TAG)
            if wire_type == WireType.END:
                if number != group:
                    raise Stop(index, TypedOutcome.TAG)
                return
            yield number, wire_type

    def _skip(self, index: int, number: int, wire_type: int, level: int) -> None:
        """Move past the value of an unknown field."""
        if wire_type == WireType.VARINT:
            self._varint(index)
        elif wire_type in (WireType.I32, WireType.I64):
            self._take(index, 4 if wire_type == WireType.I32 else 8)
        elif wire_type == WireType.LEN:
            before = self._open(index)
            self._at, self._end = self._end, before
        else:
            if level >= SKIPPED_LEVELS_MAX:
                raise Stop(index, TypedOutcome.DEPTH)
            for inner, inner_type in self._tags(index, number):
                self._skip(index, inner, inner_type, level + 1)

    def _open(self, index: int) -> int:
        """Read a length, and end at it; return the end before."""
        size = self._varint(index)
        if size > self._end - self._at:
            raise Stop(index, TypedOutcome.COUNT)
        before, self._end = self._end, self._at + size
        return before

    def _take(self, index: int, size: int) -> bytes:
        if size > self._end - self._at:
            raise Stop(index, TypedOutcome.TRUNCATED)
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self, index: int) -> int:
        """Read a number; parsers drop bits beyond 64."""
        number = shift = 0
        while True:
            if self._at >= self._end:
                raise Stop(index, TypedOutcome.TRUNCATED)
            octet = self._data[self._at]
            self._at += 1
            if shift == 63 and octet > 0x7F:
                raise Stop(index, TypedOutcome.VARINT)
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                if shift and (octet == 0 or (shift == 63 and octet > 1)):
                    self._found(index, TypedOutcome.FORM)
                return number % 2**64
            shift += 7


def is_text(text: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
