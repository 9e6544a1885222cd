"""Reads the metadata files of tables piece by piece, so that other threads run in between.

PyIceberg parses and checks a whole file in one call, which holds the interpreter's lock: up to 140 ms for 4 MiB. Here a large file is
parsed and checked a few elements at a time, with the same result. Compare `pyiceberg.serializers.FromInputFile`.

Source: Iceberg table spec, "Table Metadata"; RFC 8259.
"""

import json
from collections.abc import Callable, Iterator
from json.decoder import (  # type: ignore[attr-defined]  # typeshed leaves two names out
    WHITESPACE,
    JSONDecodeError,
    scanstring,
)
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic import ValidationError as PydanticError
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import InputFile
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataWrapper
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile

AT_ONCE_BYTES: Final = 128 * 1024
"""Larger files are read in pieces; this many bytes take up to 5 ms."""
_AT_ONCE: Final = 500
"""Elements that are checked in one piece: about 2 ms."""
_ELEMENTS: Final[dict[str, TypeAdapter[Any]]] = {
    "snapshots": TypeAdapter(list[Snapshot]),
    "snapshot-log": TypeAdapter(list[SnapshotLogEntry]),
    "metadata-log": TypeAdapter(list[MetadataLogEntry]),
    "statistics": TypeAdapter(list[StatisticsFile]),
    "partition-statistics": TypeAdapter(list[PartitionStatisticsFile]),
}
"""The lists that have many elements. Columns need no pieces: PyIceberg's own code checks each of them."""
_REFS: Final = TypeAdapter(dict[str, SnapshotRef])
_scan: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # as above


def read_metadata(file: InputFile) -> TableMetadata:
    """Return the metadata in a file. Blocks. Raises `ValidationError` (PyIceberg's), and what reading the file raises."""
    with file.open() as stream, Compressor.get_compressor(file.location).stream_decompressor(stream) as plain:
        octets = plain.read()
    return parsed(octets)


def parsed(octets: bytes) -> TableMetadata:
    """Return the metadata in a JSON text. Raises `ValidationError` (PyIceberg's)."""
    try:
        text = octets.decode()
        if len(octets) <= AT_ONCE_BYTES:
            return TableMetadataUtil.parse_raw(text)
        reader = _Reader(text)
        return TableMetadataWrapper.model_validate(
            {name: _checked(name, reader.part()) for name in reader.whole()}
        ).root
    except (PydanticError, UnicodeDecodeError, JSONDecodeError, RecursionError) as error:
        raise ValidationError(error) from error


def _checked(name: str, value: Any) -> Any:
    """Return a field of the metadata; elements of lists that may be long are checked already. (Any: JSON, or PyIceberg's objects.)"""
    if isinstance(value, list) and (elements := _ELEMENTS.get(name)) is not None:
        pieces = [elements.validate_python(value[at : at + _AT_ONCE]) for at in range(0, len(value), _AT_ONCE)]
        return [element for piece in pieces for element in piece]
    if isinstance(value, dict) and name == "refs":
        names = list(value)
        refs: dict[str, SnapshotRef] = {}
        for at in range(0, len(names), _AT_ONCE):
            refs |= _REFS.validate_python({ref: value[ref] for ref in names[at : at + _AT_ONCE]})
        return refs
    return value


class _Reader:
    """A position in a JSON text. Every method raises `JSONDecodeError`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Iterator[str]:
        """Yield the names of the object that is the whole text; the caller takes the value of each before the next."""
        yield from self._names()
        self._skip_space()
        if self._at < len(self._text):
            raise self._wrong("Extra data")

    def part(self) -> Any:
        """Take a value, and parse it one element or member at a time. (Any: JSON.)"""
        self._skip_space()
        if self._text.startswith("{", self._at):
            return {name: self._value() for name in self._names()}
        if self._text.startswith("[", self._at):
            return list(self._items())
        return self._value()

    def _names(self) -> Iterator[str]:
        self._expect("{")
        if self._takes("}"):
            return
        while True:
            self._expect('"')
            name, self._at = scanstring(self._text, self._at)
            self._expect(":")
            yield name
            if self._takes("}"):
                return
            self._expect(",")

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        if self._takes("]"):
            return
        while True:
            yield self._value()
            if self._takes("]"):
                return
            self._expect(",")

    def _value(self) -> Any:
        self._skip_space()
        try:
            value, self._at = _scan(self._text, self._at)
        except StopIteration:
            raise self._wrong("Expecting value") from None
        return value

    def _takes(self, character: str) -> bool:
        self._skip_space()
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._takes(character):
            raise self._wrong(f"Expecting {character!r}")

    def _skip_space(self) -> None:
        found = WHITESPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _wrong(self, what: str) -> JSONDecodeError:
        return JSONDecodeError(what, self._text, self._at)
