"""Reads the metadata files of tables piece by piece, so that other threads run in between.

PyIceberg parses and checks a whole file in one call, which holds the interpreter's lock: up to 140 ms for 4 MiB. Here a large file is
parsed and checked a few elements at a time, with the same result. Compare `pyiceberg.serializers.FromInputFile`.

Source: Iceberg table spec, "Table Metadata"; RFC 8259.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from json.decoder import (  # type: ignore[attr-defined]  # typeshed leaves two names out
    WHITESPACE,
    JSONDecodeError,
    scanstring,
)
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import from_json
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
SUMMARY_COUNT_MAX: Final = 20_000
"""Entries of one snapshot's summary, which PyIceberg checks in one piece. Engines write some 20, and one for each partition at most."""
_WRONG: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What PyIceberg's checks and the parser raise for a text that is no metadata."""
_PIECE_LENGTH: Final = 64 * 1024
"""Characters of the text that are parsed at once: about 2 ms."""
_DEPTH_MAX: Final = 32
"""Levels of values that are longer than a piece; four of them lie between a column and the columns within it."""
_AFTER_VALUE: Final = (",", "]", "}", " ", "\n", "\r", "\t")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_REFS: Final = TypeAdapter(dict[str, SnapshotRef])
_scan: Final[Callable[[str, int], tuple[Any, int]]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # as above


def read_metadata(file: InputFile) -> TableMetadata:
    """Return the metadata in a file. Blocks. Raises `ValidationError` (PyIceberg's), and what reading the file raises."""
    return parsed(text_of(file))


def text_of(file: InputFile) -> bytes:
    """Return the JSON text in a metadata file, uncompressed. Blocks. Raises what reading the file raises."""
    with file.open() as stream, Compressor.get_compressor(file.location).stream_decompressor(stream) as plain:
        octets: bytes = plain.read()
    return octets


def parsed(octets: bytes) -> TableMetadata:
    """Return the metadata in a JSON text. Raises `ValidationError` (PyIceberg's)."""
    try:
        text = octets.decode()
        if len(octets) <= AT_ONCE_BYTES:
            return TableMetadataUtil.parse_raw(text)
        reader = _Reader(text)
        found = {name: reader.part() for name in reader.whole()}  # the last one of equal names counts
        for name, value in found.items():
            found[name] = _checked(name, value)
        return TableMetadataWrapper.model_validate(found).root
    except _WRONG as error:
        raise ValidationError(error) from error


def check_summaries(snapshots: Sequence[Any]) -> None:
    """Raise `ValidationError` if a snapshot (Any: JSON) has a summary of too many entries."""
    for snapshot in snapshots:
        summary = snapshot.get("summary") if isinstance(snapshot, dict) else None
        if isinstance(summary, dict) and len(summary) > SUMMARY_COUNT_MAX:
            raise ValidationError(f"a snapshot's summary has more than {SUMMARY_COUNT_MAX} entries")


def _checked(name: str, value: Any) -> Any:
    """Return a field of the metadata; elements of lists that may be long are checked already. (Any: JSON, or PyIceberg's objects.)"""
    if isinstance(value, list) and (elements := _ELEMENTS.get(name)) is not None:
        if name == "snapshots":
            check_summaries(value)
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
    """A position in a JSON text. Every method raises `ValueError` and `RecursionError`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._piece = ""
        self._piece_at = 0

    def whole(self) -> Iterator[str]:
        """Yield the names of the object that is the whole text; the caller takes the value of each before the next."""
        yield from self._names()
        self._skip_space()
        if self._at < len(self._text):
            raise self._wrong("Extra data")

    def part(self, depth: int = 1) -> Any:
        """Take a value, and parse it one element or member at a time. (Any: JSON.)"""
        self._skip_space()
        if depth > _DEPTH_MAX:
            raise self._wrong(
                f"A value of more than {_PIECE_LENGTH} characters, nested more deeply than {_DEPTH_MAX} levels"
            )
        if self._text.startswith("{", self._at):
            return {name: self._value(depth) for name in self._names()}
        if self._text.startswith("[", self._at):
            return list(self._items(depth))
        value, end = self._scan(self._text, self._at)
        self._at = end
        return value

    def _names(self) -> Iterator[str]:
        self._expect("{")
        if self._takes("}"):
            return
        while True:
            self._expect('"')
            name, self._at = scanstring(self._text, self._at)
            if not name.isascii():
                name.encode()  # refuses half of a surrogate pair, as PyIceberg does
            self._expect(":")
            yield name
            if self._takes("}"):
                return
            self._expect(",")

    def _items(self, depth: int) -> Iterator[Any]:
        self._expect("[")
        if self._takes("]"):
            return
        while True:
            yield self._value(depth)
            if self._takes("]"):
                return
            self._expect(",")

    def _value(self, depth: int) -> Any:
        """Take an element: at once if it lies in the piece of the text that begins here or before, else in parts."""
        self._skip_space()
        for _ in range(2):
            start = self._at - self._piece_at
            with suppress(JSONDecodeError):  # the piece ends within the element
                value, end = self._scan(self._piece, start)
                if self._piece.startswith(_AFTER_VALUE, end):  # otherwise a number may go on
                    self._at = self._piece_at + end
                    return value
            if start == 0:
                break
            self._piece, self._piece_at = self._text[self._at : self._at + _PIECE_LENGTH], self._at
        return self.part(depth + 1)

    def _scan(self, text: str, start: int) -> tuple[Any, int]:
        """Return the value at `start`, and where it ends. (Any: JSON.)"""
        try:
            value, end = _scan(text, start)
        except StopIteration:
            raise self._wrong("Expecting value") from None
        if _SURROGATE.search(text, start, end):
            from_json(text[start:end])  # refuses half of a surrogate pair, as PyIceberg does
        return value, end

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
