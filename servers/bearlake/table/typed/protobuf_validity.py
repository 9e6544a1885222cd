"""Whether bytes are values of a Protobuf schema. No columns are made, so a few bytes never stand for many nulls.

A value is good if a parser of Protobuf takes it: its parts are whole, texts are UTF-8 where the schema asks for it, and it nests at most
100 levels. Unknown fields, fields of another wire type, and numbers that an enum does not have are no problem. Absent required fields
(proto2) are not looked for. With a schema's id in front, the path of one of the schema's messages must follow, with the shortest numbers,
as serializers write it: so a look-up finds it, whatever clients send.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import ClassVar, NamedTuple

from bearlake import kernel
from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.table.typed import framing
from bearlake.table.typed.model import SchemaType
from bearlake.table.typed.protobuf_types import MessageTypes

REASON_LENGTH_MAX = 256
WHAT = "not a value of the schema that it names"
_FIRST = (0,)
_FIRST_PATH = b"\0"
_FIRST_IN_FULL = b"\2\0"
_OUTCOME_MASK = (1 << OUTCOME_BITS) - 1


class _Places(NamedTuple):
    """Where the messages of values are."""

    roots: Sequence[int]
    """The type of each message; 0 for a value of no message of the schema."""
    skips: Iterable[int]
    """Bytes before each message."""
    missing: Sequence[int]
    """The values that are of no message of the schema."""


class ProtobufValidity:
    """Checks values of one Protobuf schema. Threads may share it."""

    is_light: ClassVar[bool] = True

    def __init__(self, files: Sequence[bytes]) -> None:
        """`files` are the schema's compiled descriptors, imports first. Raises `SchemaError`."""
        self._types = MessageTypes(files)
        self._paths = {framing.written_indexes(path): root for path, root in self._types.roots.items()}
        if _FIRST in self._types.roots:
            self._paths[_FIRST_IN_FULL] = self._types.roots[_FIRST]
        self._sizes: dict[bytes, list[int]] = {}
        """Lengths of the paths that begin with a byte. No path begins with another one, because the number of indexes comes first."""
        for size, first in sorted({(len(path), path[:1]) for path in self._paths}):
            self._sizes.setdefault(first, []).append(size)

    def failures(self, values: Sequence[bytes], skip: int) -> list[int]:
        """Return the places of the values that are none of the schema, ascending.

        The first `skip` bytes of each are its head, which the path of its message follows. With 0, there is neither head nor path: all
        values are of the first message. The values have less than 2 GiB in all.
        """
        places = self._places(values, skip)
        statuses = self._statuses(places, values)
        if not places.missing and not any(statuses):
            return []
        return sorted({*places.missing, *(at for at, status in enumerate(statuses) if status)})

    def reason(self, value: bytes, skip: int) -> str:
        """Return why a value is none of the schema, and the name of the message where the check stopped."""
        places = self._places([value], skip)
        if places.missing:
            head = framing.read_head(value[: framing.PREFIX_BYTES_MAX], SchemaType.PROTOBUF) if skip else None
            if head is None:
                return (
                    f"{WHAT}: no message indexes follow the schema's id"
                    if skip
                    else f"{WHAT}: the schema has no message"
                )
            if head.message_indexes in self._types.roots:
                return f"{WHAT}: its message indexes are not written as serializers do"
            return f"{WHAT}: the schema has no message at {list(head.message_indexes)}"[:REASON_LENGTH_MAX]
        (status,) = self._statuses(places, [value])
        outcome, name = TypedOutcome(status & _OUTCOME_MASK), self._types.names[status >> OUTCOME_BITS]
        return f"{WHAT}: {outcome.name} in the message {name}"[:REASON_LENGTH_MAX] if status else WHAT

    def _statuses(self, places: _Places, values: Sequence[bytes]) -> memoryview:
        starts = list(accumulate(map(len, values), initial=0))
        ends = starts[1:]
        begins = map(min, map(add, starts, places.skips), ends)
        statuses = kernel.check_protobuf(
            self._types.starts, self._types.parts, _int32(places.roots), _int32(begins), _int32(ends), b"".join(values)
        )
        return memoryview(statuses).cast("B").cast("i")

    def _places(self, values: Sequence[bytes], skip: int) -> _Places:
        first = self._types.roots.get(_FIRST)
        if first is not None and (not skip or {value[skip : skip + 1] for value in values} == {_FIRST_PATH}):
            return _Places([first] * len(values), repeat(skip + len(_FIRST_PATH) if skip else 0), ())
        if first is None:  # a file without messages
            return _Places([0] * len(values), map(len, values), range(len(values)))
        roots, skips, missing = [0] * len(values), [0] * len(values), []
        for at, value in enumerate(values):
            for size in self._sizes.get(value[skip : skip + 1], ()):
                root = self._paths.get(value[skip : skip + size])
                if root is not None:
                    roots[at], skips[at] = root, skip + size
                    break
            else:
                missing.append(at)
                skips[at] = len(value)
        return _Places(roots, skips, missing)


def _int32(numbers: Iterable[int]) -> memoryview:
    return memoryview(array("i", numbers)).cast("B")
