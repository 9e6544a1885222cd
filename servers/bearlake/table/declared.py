"""The columns that a stream is declared with: the text of its config `table.columns`. Pure; no third-party types.

    id long, item string, price decimal(10,2), tags list<string>, place struct<x double, y double>, notes map<string, string>

A column is a name and a type of Iceberg; a name that is no word stands in backticks, a backtick in it twice. Values of such a stream are
JSON objects: a column has the field of its name. Keys of maps are strings, because those of JSON are. There is no `time`: Spark reads no
table that has one.

Source: Apache Iceberg table spec, "Schemas and Data Types"; decision 290.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from bearlake.errors import Invalid
from bearlake.table.column_book import NULL_BYTES_MAX, RESERVED_NAMES
from bearlake.table.column_tree import (
    Column,
    ColumnType,
    ListOf,
    MapOf,
    StructOf,
    ids_of,
    is_of_family,
    null_bytes,
    promoted,
)

DECLARED_ID: Final = -2
"""Stands for an id of the registry where values have the declared columns; no schema has it."""
TEXT_LENGTH_MAX: Final = 65_536
COLUMN_COUNT_MAX: Final = 1_000
"""Columns, nested fields included."""
LEVELS_MAX: Final = 16
"""Structs, lists and maps in each other."""
NAME_LENGTH_MAX: Final = 255
DECIMAL_DIGITS_MAX: Final = 38
PRIMITIVES: Final = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamptz",
    "uuid",
)
_TYPES: Final = f"{', '.join(PRIMITIVES)}, decimal(p,s), struct<name type, …>, list<type> or map<string, type>"
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[^\W\d]\w*)|(?P<number>\d{1,9})|(?P<mark>[<>(),:])|(?P<end>\Z))"
)
_WORD: Final = re.compile(r"[^\W\d]\w*")


@lru_cache(64)
def declared_columns(text: str) -> tuple[Column, ...]:
    """Return the columns of a text as fields of a schema, without ids. Raises `Invalid`."""
    if len(text) > TEXT_LENGTH_MAX:
        raise Invalid(f"table.columns has {len(text)} characters; expected at most {TEXT_LENGTH_MAX}")
    columns = _Parser(text).columns()
    if sum(1 for _ in ids_of(columns)) > COLUMN_COUNT_MAX:
        raise Invalid(f"table.columns has more than {COLUMN_COUNT_MAX} columns, nested ones included")
    if (size := null_bytes(columns)) > NULL_BYTES_MAX:
        raise Invalid(f"table.columns: an empty row would take {size} bytes; expected at most {NULL_BYTES_MAX}")
    return columns


def declared_text(columns: Sequence[Column]) -> str:
    """Return the text of columns; `declared_columns` of it gives them back."""
    return ", ".join(f"{_name_text(column.name)} {_type_text(column.type)}" for column in columns)


def evolved(before: Sequence[Column], after: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of `before` with those that `after` adds, and as wide as it makes them, at any level.

    Columns that `after` does not have stay.

    Raises:
        Invalid: a column would have another type than one to which its own is promoted.
    """
    found = {column.name: column for column in before}
    for column in after:
        own = found.get(column.name)
        if own is not None:
            column = Column(0, column.name, own.source, _wider(own.type, column.type, column.name))
        found[column.name] = column
    return tuple(found.values())


def check_evolution(before: str, after: str) -> None:
    """Raise `Invalid` if columns of `before` have another type in `after`, unless it is wider. Columns may come and go."""
    if not before or not after:
        return
    known = {column.name: column.type for column in declared_columns(before)}
    for column in declared_columns(after):
        if column.name in known and not is_of_family(known[column.name], column.type):
            raise Invalid(
                f"table.columns: column {column.name} cannot become {_type_text(column.type)}: declare another column"
            )


def _wider(ours: ColumnType, theirs: ColumnType, name: str) -> ColumnType:
    if not is_of_family(ours, theirs):
        raise Invalid(f"column {name} is {_type_text(ours)} and cannot become {_type_text(theirs)}")
    if isinstance(ours, StructOf) and isinstance(theirs, StructOf):
        return StructOf(evolved(ours.fields, theirs.fields))
    if isinstance(ours, ListOf) and isinstance(theirs, ListOf):
        return ListOf(0, _wider(ours.element, theirs.element, name))
    if isinstance(ours, MapOf) and isinstance(theirs, MapOf):
        return MapOf(0, ours.key, 0, _wider(ours.value, theirs.value, name))
    assert isinstance(ours, str)
    assert isinstance(theirs, str)
    return promoted(ours, theirs) or ours


def _name_text(name: str) -> str:
    return name if _WORD.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _type_text(found: ColumnType) -> str:
    if isinstance(found, StructOf):
        return f"struct<{declared_text(found.fields)}>"
    if isinstance(found, ListOf):
        return f"list<{_type_text(found.element)}>"
    if isinstance(found, MapOf):
        return f"map<{found.key}, {_type_text(found.value)}>"
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Reads one text, from token to token."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._count = 0

    def columns(self) -> tuple[Column, ...]:
        """Read the whole text. Raises `Invalid`."""
        columns = self._fields("", 0, lambda: self._next.kind == "end")
        names = {column.name.lower() for column in columns}
        if taken := names & RESERVED_NAMES:
            raise Invalid(f"table.columns: the name {min(taken)} is reserved")
        return columns

    def _fields(self, path: str, level: int, is_over: Callable[[], bool]) -> tuple[Column, ...]:
        columns: list[Column] = []
        names = set()
        while True:
            name = self._name()
            if name.lower() in names:
                raise Invalid(
                    f"table.columns: the column {name} is there twice; names that differ by case are one name"
                )
            names.add(name.lower())
            self._count += 1
            if self._count > COLUMN_COUNT_MAX:  # at once: the text may have many more
                raise Invalid(f"table.columns has more than {COLUMN_COUNT_MAX} columns, nested ones included")
            if self._next.text == ":" and level:
                self._take(":")
            below = f"{path}.{name}" if path else name
            columns.append(Column(0, name, below, self._type(below, level + 1)))
            if is_over():
                return tuple(columns)
            self._take(",")

    def _name(self) -> str:
        token = self._next
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        if token.kind not in ("quoted", "word") or not name:
            raise self._error("the name of a column")
        if len(name) > NAME_LENGTH_MAX or not name.isprintable() or "." in name:
            raise Invalid(
                f"table.columns: a name has at most {NAME_LENGTH_MAX} printable characters, and no dot: {name[:50]!r}"
            )
        self._next = next(self._tokens)
        return name

    def _type(self, path: str, level: int) -> ColumnType:
        if level > LEVELS_MAX:
            raise Invalid(f"table.columns: types are nested more than {LEVELS_MAX} levels deep")
        token = self._next
        word = token.text.lower() if token.kind == "word" else ""
        if word in PRIMITIVES:
            self._next = next(self._tokens)
            return word
        if word not in ("decimal", "struct", "list", "map"):
            raise self._error(f"one of the types {_TYPES}")
        self._next = next(self._tokens)
        if word == "decimal":
            return self._decimal()
        self._take("<")
        found: ColumnType
        if word == "struct":
            found = StructOf(self._fields(path, level, lambda: self._next.text == ">"))
        elif word == "list":
            found = ListOf(0, self._type(f"{path}.element", level + 1))
        else:
            if self._type(f"{path}.key", level + 1) != "string":
                raise Invalid(f"table.columns: {path}: the keys of a map are strings, as those of JSON are")
            self._take(",")
            found = MapOf(0, "string", 0, self._type(f"{path}.value", level + 1))
        self._take(">")
        return found

    def _decimal(self) -> str:
        self._take("(")
        precision = self._number()
        self._take(",")
        scale = self._number()
        self._take(")")
        if not 0 < precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise Invalid(
                f"table.columns: decimal({precision},{scale}): expected 1 to {DECIMAL_DIGITS_MAX} digits, at most as many after the point"
            )
        return f"decimal({precision},{scale})"

    def _number(self) -> int:
        if self._next.kind != "number":
            raise self._error("a number")
        number = int(self._next.text)
        self._next = next(self._tokens)
        return number

    def _take(self, mark: str) -> None:
        if self._next.text != mark or self._next.kind != "mark":
            raise self._error(mark)
        self._next = next(self._tokens)

    def _error(self, expected: str) -> Invalid:
        token = self._next
        found = "the end" if token.kind == "end" else repr(token.text[:50])
        return Invalid(f"table.columns, character {token.at}: expected {expected}, not {found}")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            rest = text[at:].lstrip()
            raise Invalid(f"table.columns, character {len(text) - len(rest)}: {rest[:20]!r} is not understood")
        kind = found.lastgroup or "end"
        yield _Token(kind, found[kind], found.start(kind))
        at = found.end()
        if kind == "end":
            while True:
                yield _Token("end", "", at)
