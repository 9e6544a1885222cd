"""Whether bytes are Protobuf messages. No columns are made, so that a few bytes never stand for many nulls.

The types of messages are tables of int32, which a call reads without making objects:

    starts   the first part of each type, and the number of parts
    parts    number, `ProtoCheck`, type of each part: the fields that have content to look into, by type and ascending number

Fields without a part are passed over by their wire type, and so are fields of another wire type than that of their part, as Protobuf's
parsers do. The work grows with the bytes, and a message nests at most `SKIPPED_LEVELS_MAX` levels.

Source: Protocol Buffers, "Encoding".
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from enum import IntEnum

from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.typed import NODES_MAX, TypedOutcome
from bearlake.kernel.typed.decode import Stop
from bearlake.kernel.typed.protobuf import FIELD_NUMBER_MAX, SKIPPED_LEVELS_MAX, WireType
from bearlake.kernel.typed.protobuf_parts import ProtobufParts, is_text

PART_FIELDS = 3


class ProtoCheck(IntEnum):
    """What the content of a field must be."""

    TEXT = 0
    """UTF-8"""
    MESSAGE = 1
    """a message of the part's type"""
    GROUP = 2
    """the same, as a group"""
    VARINTS = 3
    """packed varints"""
    I32 = 4
    """packed numbers of four bytes"""
    I64 = 5
    """packed numbers of eight bytes"""


def check_protobuf(
    starts: Buffer, parts: Buffer, roots: Buffer, begins: Buffer, ends: Buffer, content: Buffer, /
) -> Buffer:
    """Return the status of each value, int32: `type << OUTCOME_BITS | outcome`, for the type where the check stopped; EXACT: it is good.

    Value i is a message of the type `roots[i]` in `content[begins[i] : ends[i]]`; all three are int32. A text that is not UTF-8 is TEXT,
    a value that nests too deeply is DEPTH; other outcomes are those of `decode_protobuf`. The native kernel releases the GIL for large
    contents.

    Raises:
        ValueError: the tables are malformed, or a value is of no type, or not inside the content.
    """
    checker = _Checker(_int32(starts), _int32(parts))
    places = [_int32(buffer) for buffer in (roots, begins, ends)]
    if len({len(place) for place in places}) != 1:
        raise ValueError("there is not one place for each value")
    octets = view_of(content)
    for at, (root, begin, end) in enumerate(zip(*places, strict=True)):
        if not 0 <= root < checker.type_count or not 0 <= begin <= end <= len(octets):
            raise ValueError(f"value {at} is of no type, or not inside the content")
    statuses = [checker.status(root, bytes(octets[begin:end])) for root, begin, end in zip(*places, strict=True)]
    return array("i", statuses).tobytes()


def _int32(buffer: Buffer) -> Sequence[int]:
    octets = view_of(buffer)
    return array("i", bytes(octets[: len(octets) // 4 * 4]))


class _Checker(ProtobufParts):
    """Checks one message after the other."""

    def __init__(self, starts: Sequence[int], parts: Sequence[int]) -> None:
        super().__init__()
        self.type_count = len(starts) - 1
        self._parts = [
            tuple(parts[at : at + PART_FIELDS]) for at in range(0, len(parts) // PART_FIELDS * PART_FIELDS, PART_FIELDS)
        ]
        self._starts = starts
        if not 0 <= self.type_count <= NODES_MAX or not all(map(self._is_right, range(self.type_count))):
            raise ValueError("the types of messages are malformed")

    def _is_right(self, type_: int) -> bool:
        low, high = self._starts[type_ : type_ + 2]
        if not 0 <= low <= high <= len(self._parts):
            return False
        last = 0
        for number, check, inner in self._parts[low:high]:
            if (
                not last < number <= FIELD_NUMBER_MAX
                or check not in set(ProtoCheck)
                or not 0 <= inner < self.type_count
            ):
                return False
            last = number
        return True

    def status(self, root: int, value: bytes) -> int:
        """Check a message; return its status."""
        self._data, self._at, self._end = value, 0, len(value)
        try:
            self._fields(root, 0, 0)
        except Stop as stop:
            return stop.status
        return TypedOutcome.EXACT

    def _fields(self, type_: int, group: int, level: int) -> None:
        low, high = self._starts[type_ : type_ + 2]
        for number, wire_type in self._tags(type_, group):
            at = bisect_left(self._parts, (number,), low, high)
            part = self._parts[at] if at < high and self._parts[at][0] == number else None
            if part is None or wire_type != (WireType.START if part[1] == ProtoCheck.GROUP else WireType.LEN):
                self._skip(type_, number, wire_type, level)
            elif part[1] in (ProtoCheck.MESSAGE, ProtoCheck.GROUP):
                self._submessage(type_, part[2], number if part[1] == ProtoCheck.GROUP else 0, level)
            else:
                self._content(type_, ProtoCheck(part[1]))

    def _submessage(self, type_: int, inner: int, group: int, level: int) -> None:
        if level >= SKIPPED_LEVELS_MAX:
            raise Stop(type_, TypedOutcome.DEPTH)
        before = self._end if group else self._open(type_)
        self._fields(inner, group, level + 1)
        self._end = before

    def _content(self, type_: int, check: ProtoCheck) -> None:
        before = self._open(type_)
        if check == ProtoCheck.TEXT:
            if not is_text(self._data[self._at : self._end]):
                raise Stop(type_, TypedOutcome.TEXT)
            self._at = self._end
        elif check != ProtoCheck.VARINTS:
            if (self._end - self._at) % (4 if check == ProtoCheck.I32 else 8):
                raise Stop(type_, TypedOutcome.TRUNCATED)
            self._at = self._end
        while self._at < self._end:
            self._varint(type_)
        self._end = before
