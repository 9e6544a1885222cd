"""Manifests and manifest lists of other engines, checked before a library decodes them.

PyIceberg's decoder is C code that trusts the lengths in a file, and what it decodes takes many times the bytes. So this module decompresses
a file within a limit, follows its schema through every value, and returns the same values as an uncompressed file, of which it knows:

- every length and count is within its block, and every block is used to its last byte, so that no reader sees less or more than another;
- only forms that Iceberg's manifests need: no recursive types, no elements without bytes, unions of null and one type;
- the sums over all files of a commit are within `Budget`.

Pure. Source: Apache Avro 1.12 specification, "Object Container Files", "Binary Encoding"; Iceberg table spec, "Avro"; decision 224.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from bearlake.errors import Corrupt, TooLarge
from bearlake.records import compression
from bearlake.records.batch import Compression
from bearlake.table.warehouse.model import Refused, forbidden

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_HEADER_BYTES_MAX: Final = 1024 * 1024
"""Schema and other texts of a file's header: a manifest's schema has about 8 KB."""
_DEPTH_MAX: Final = 8
"""Depth of types; manifests have 5."""
_LONG_BYTES_MAX: Final = 10
_RAW_DEFLATE: Final = -15
_WIDTHS: Final = {"boolean": 1, "float": 4, "double": 8}

_Walk: TypeAlias = Callable[[bytes, int], int]
"""Takes a block and the position of a value in it, and returns the position behind the value."""


class Budget:
    """What one commit may still expand: bytes and values (fields, elements, entries). Each value takes up to 100 bytes of memory."""

    def __init__(self, bytes_max: int, value_count_max: int) -> None:
        self._bytes_left = self._bytes_max = bytes_max
        self._values_left = self._value_count_max = value_count_max

    @property
    def bytes_left(self) -> int:
        """Bytes that may still be decompressed."""
        return self._bytes_left

    def take_bytes(self, count: int) -> None:
        """Raises `Refused`."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise self.too_many_bytes()

    def take_values(self, count: int) -> None:
        """Raises `Refused`."""
        self._values_left -= count
        if self._values_left < 0:
            raise forbidden(
                f"the manifests of the commit have more than {self._value_count_max} values (catalog.warehouse.manifest_value_count_max)"
            )

    def too_many_bytes(self) -> Refused:
        """Return the refusal of a commit that expands to too many bytes."""
        return forbidden(
            f"the manifests of the commit have more than {self._bytes_max} uncompressed bytes "
            "(catalog.warehouse.manifest_expanded_bytes_max)"
        )


def plain(content: bytes, path: str, budget: Budget) -> bytes:
    """Return an uncompressed Avro file with the same schema and values. `path` is for messages.

    Raises:
        Refused: not such a file, or more than `budget` allows.
    """
    try:
        return _plain(content, budget)
    except (Corrupt, IndexError, KeyError, ValueError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise forbidden(f"the file {path} is not a valid Avro file of Iceberg: {error}"[:300]) from error


def _plain(content: bytes, budget: Budget) -> bytes:
    if content[: len(_MAGIC)] != _MAGIC:
        raise Corrupt("it does not begin like one")
    texts, at = _header(content)
    codec, schema = texts.get("avro.codec", b"null").decode(), json.loads(texts["avro.schema"])
    if schema.get("type") != "record":
        raise Corrupt("its schema is no record")
    walk, width = _compiled(schema, budget, 0)
    if not width:
        raise Corrupt("its records have no bytes")
    sync, at = content[at : at + _SYNC_BYTES], at + _SYNC_BYTES
    parts = [_MAGIC, _written_header(schema), bytes(_SYNC_BYTES)]
    while at < len(content):
        count, at = _long(content, at)
        block, at = _bytes(content, at)
        if count <= 0 or content[at : at + _SYNC_BYTES] != sync or len(sync) < _SYNC_BYTES:
            raise Corrupt("a block does not end with the file's mark, or is empty")
        at += _SYNC_BYTES
        block = _expanded(codec, block, budget)
        budget.take_bytes(len(block))
        budget.take_values(count)
        position = 0
        for _ in range(count):
            position = walk(block, position)
        if position != len(block):
            raise Corrupt("a block has other bytes than its records")
        parts += [_encoded(count), _encoded(len(block)), block, bytes(_SYNC_BYTES)]
    return b"".join(parts)


def _header(content: bytes) -> tuple[Mapping[str, bytes], int]:
    texts: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = _long(content, at)
        if not count:
            return texts, at
        if count < 0:
            count, (_, at) = -count, _long(content, at)
        for _ in range(count):
            name, at = _bytes(content, at)
            texts[name.decode()], at = _bytes(content, at)
            if at > _HEADER_BYTES_MAX:
                raise Corrupt(f"its header has more than {_HEADER_BYTES_MAX} bytes")


def _written_header(schema: Any) -> bytes:
    """Return a header with this schema (Any: JSON), and without compression."""
    texts = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}
    entries = b"".join(
        _encoded(len(name)) + name.encode() + _encoded(len(value)) + value for name, value in texts.items()
    )
    return _encoded(len(texts)) + entries + _encoded(0)


def _expanded(codec: str, block: bytes, budget: Budget) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        stream = zlib.decompressobj(_RAW_DEFLATE)
        content = stream.decompress(block, budget.bytes_left + 1)
        if (
            len(content) <= budget.bytes_left and not stream.eof
        ):  # Python's writers leave a part of zlib's checksum behind it
            raise Corrupt("a stream of deflate has no end")
        return content
    if codec == "zstandard":
        try:
            return bytes(compression.decompress(Compression.ZSTD, block, budget.bytes_left))
        except TooLarge as error:
            raise budget.too_many_bytes() from error
    raise Corrupt(f"its codec is {codec[:30]!r}, not null, deflate or zstandard")


def _compiled(kind: Any, budget: Budget, depth: int) -> tuple[_Walk, int]:
    """Return how to follow a value of a type (Any: JSON), and the least number of bytes that it has."""
    if depth > _DEPTH_MAX:
        raise Corrupt("its types are too deep")
    if isinstance(kind, list):
        null, other = kind
        if null != "null" or other == "null":
            raise Corrupt("a union is not of null and one type")
        return _union(_compiled(other, budget, depth + 1)[0]), 1
    fields: Mapping[str, Any] = kind if isinstance(kind, dict) else {"type": kind}
    name, logical = fields["type"], fields.get("logicalType")
    if logical is not None and (name, logical) != ("array", "map"):
        raise Corrupt(f"it has values of the logical type {str(logical)[:30]!r}")
    match name:
        case "record":
            return _record(fields["fields"], budget, depth)
        case "array":
            items = fields["items"]
            if logical is not None and [field["name"] for field in items["fields"]] != ["key", "value"]:
                raise Corrupt("the entries of a map are not of key and value")
            return _array(*_compiled(items, budget, depth + 1), budget)
        case "int" | "long":
            return _past_long, 1
        case "string" | "bytes":
            return _past_bytes, 1
        case "fixed":
            return _past_fixed(fields["size"])
        case str() if name in _WIDTHS:
            return _past_fixed(_WIDTHS[name])
    raise Corrupt(f"it has values of the type {str(name)[:30]!r}")


def _union(walk: _Walk) -> _Walk:
    def past(block: bytes, at: int) -> int:
        index, at = _long(block, at)
        if index not in (0, 1):
            raise Corrupt("a union has no such type")
        return walk(block, at) if index else at

    return past


def _record(fields: list[Any], budget: Budget, depth: int) -> tuple[_Walk, int]:
    if len({field["name"] for field in fields}) < len(fields) or len({field["field-id"] for field in fields}) < len(
        fields
    ):
        raise Corrupt("two fields of a record have one name or id")
    found = [_compiled(field["type"], budget, depth + 1) for field in fields]
    walks, count = [walk for walk, _ in found], len(fields)

    def past(block: bytes, at: int) -> int:
        budget.take_values(count)
        for walk in walks:
            at = walk(block, at)
        return at

    return past, sum(width for _, width in found)


def _array(walk: _Walk, width: int, budget: Budget) -> tuple[_Walk, int]:
    if not width:
        raise Corrupt("the elements of an array have no bytes")

    def past(block: bytes, at: int) -> int:
        while True:
            count, at = _long(block, at)
            if not count:
                return at
            end = None
            if count < 0:
                count, (size, at) = -count, _long(block, at)
                end = at + size
            budget.take_values(count)
            for _ in range(count):
                at = walk(block, at)
            if end not in (None, at):
                raise Corrupt("a part of an array has another size than it says")

    return past, 1


def _past_long(block: bytes, at: int) -> int:
    for end in range(at, at + _LONG_BYTES_MAX):
        if block[end] < 0x80:
            return end + 1
    raise Corrupt("a number is too long")


def _past_bytes(block: bytes, at: int) -> int:
    size, at = _long(block, at)
    if not 0 <= size <= len(block) - at:
        raise Corrupt("a text is longer than its block")
    return at + size


def _past_fixed(size: Any) -> tuple[_Walk, int]:  # Any: JSON
    if type(size) is not int or size < 0:
        raise Corrupt("a type has no valid size")

    def past(block: bytes, at: int) -> int:
        if size > len(block) - at:
            raise Corrupt("a block ends within a value")
        return at + size

    return past, size


def _bytes(content: bytes, at: int) -> tuple[bytes, int]:
    end = _past_bytes(content, at)
    _, start = _long(content, at)
    return content[start:end], end


def _long(content: bytes, at: int) -> tuple[int, int]:
    """Decode a zigzag number; returns it and the position behind it."""
    value = 0
    for place in range(_LONG_BYTES_MAX):
        octet = content[at + place]
        value |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise Corrupt("a number is too long")


def _encoded(number: int) -> bytes:
    """Encode a number >= 0 as zigzag."""
    value, found = number << 1, bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
