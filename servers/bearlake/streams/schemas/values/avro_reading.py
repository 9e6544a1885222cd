"""Converts Avro's binary encoding to the JSON encoding; the reverse of `avro_writing`."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from avro.io import BinaryDecoder
from avro.schema import Schema

from bearlake.streams.schemas.values.avro_writing import branch_name
from bearlake.streams.schemas.values.model import Unfit

Read = Callable[[BinaryDecoder], Any]
"""A function that reads a JSON value (Any: any JSON value). Raises `Unfit`, and the library's error for truncated bytes."""

EMPTY_ITEM_COUNT_MAX = 65_536
"""Most array items that take no bytes; more would be an attack on memory."""


def compiled(schema: Schema) -> Read:
    """Return the function that reads values of a schema."""
    return _Compiler().read_of(schema)


class _Compiler:
    """Compiled functions by identity of the type, because records may be recursive."""

    def __init__(self) -> None:
        self._done: dict[int, Read] = {}

    def read_of(self, schema: Any) -> Read:
        # Any: the library's types of schemas.
        kind: str = schema.type
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        if id(schema) in self._done:
            return lambda decoder: self._done[id(schema)](decoder)
        self._done[id(schema)] = _not_yet
        self._done[id(schema)] = made = self._made(schema, kind)
        return made

    def _made(self, schema: Any, kind: str) -> Read:
        if kind == "enum":
            return _enum(list(schema.symbols))
        if kind == "fixed":
            return _fixed(schema.size)
        if kind == "array":
            return _array(self.read_of(schema.items))
        if kind == "map":
            return _map(self.read_of(schema.values))
        if kind in ("union", "error_union"):
            return _union([(branch_name(branch), self.read_of(branch)) for branch in schema.schemas])
        return _record([(field.name, self.read_of(field.type)) for field in schema.fields])


def _not_yet(decoder: BinaryDecoder) -> Any:
    raise AssertionError("a type is used while it is compiled")


def _record(fields: list[tuple[str, Read]]) -> Read:
    return lambda decoder: {name: read(decoder) for name, read in fields}


def _union(branches: list[tuple[str, Read]]) -> Read:
    def read(decoder: BinaryDecoder) -> Any:
        at = _index(decoder, len(branches), "branch")
        name, read_branch = branches[at]
        return None if name == "null" else {name: read_branch(decoder)}

    return read


def _array(read_item: Read) -> Read:
    return lambda decoder: [read_item(decoder) for _ in _items(decoder)]


def _map(read_item: Read) -> Read:
    def read(decoder: BinaryDecoder) -> Any:
        found = {}
        for _ in _items(decoder):
            name = decoder.read_utf8()
            found[name] = read_item(decoder)
        return found

    return read


def _items(decoder: BinaryDecoder) -> Iterator[None]:
    """Yield once for each item of all blocks. Raises `Unfit`."""
    empty_count, before = 0, -1
    while count := decoder.read_long():
        if count < 0:
            count = -count
            decoder.read_long()  # the block's size in bytes, used only to skip blocks
        for _ in range(count):
            yield
            now = decoder.reader.tell()
            empty_count += now == before
            before = now
            if empty_count > EMPTY_ITEM_COUNT_MAX:
                raise Unfit(f"a list has more than {EMPTY_ITEM_COUNT_MAX} items that take no bytes")


def _enum(symbols: list[str]) -> Read:
    return lambda decoder: symbols[_index(decoder, len(symbols), "symbol")]


def _fixed(size: int) -> Read:
    return lambda decoder: decoder.read(size).decode("iso-8859-1")


def _index(decoder: BinaryDecoder, count: int, what: str) -> int:
    at = decoder.read_long()
    if not 0 <= at < count:
        raise Unfit(f"the bytes are not a value of the schema: it has no {what} {at}")
    return at


def _finite(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


_PRIMITIVES: Mapping[str, Read] = {
    "null": lambda decoder: None,
    "boolean": lambda decoder: decoder.read_boolean(),
    "int": lambda decoder: decoder.read_int(),
    "long": lambda decoder: decoder.read_long(),
    "float": lambda decoder: _finite(decoder.read_float()),
    "double": lambda decoder: _finite(decoder.read_double()),
    "bytes": lambda decoder: decoder.read_bytes().decode("iso-8859-1"),
    "string": lambda decoder: decoder.read_utf8(),
}
