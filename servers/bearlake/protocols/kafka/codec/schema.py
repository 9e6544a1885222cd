"""The notation of Kafka's message schemas, and its parser.

Each API has one text file in `protocols/kafka/messages/`, named like the API (`list_offsets.txt`). The file describes the wire format:

    # Comments extend to the end of the line.
    api ListOffsets  key 2  versions 1-11  flexible 6+

    request
      replica_id       int32
      isolation_level  int8     2+                 only in versions 2 and newer (`2-4`, `3` work too)
      topics           [Topic]                     an array of structs; their fields follow, indented
        name   string?  = null                     nullable, with a default; other defaults are 0, "", false, empty
      rack             string?7+                   nullable in versions 7 and newer only
      cluster          string   9+ tag 0           a tagged field (KIP-482), omitted on the wire if it has its default
    response
      struct Shared                                a struct that several fields use
        id     uuid

Types: bool int8 int16 uint16 int32 int64 float64 uuid string bytes records, a struct, and arrays `[…]` of these types. A field without
versions exists in all versions of its enclosing struct. `flexible` versions use compact lengths and have tagged fields.

Source: the field tables of the Kafka protocol guide; each file names its KIPs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bearlake.protocols.kafka.codec.keys import ApiKey

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of fixed size, with their `struct` format codes."""

VARIABLE = frozenset({"string", "bytes", "records"})

Default = int | float | str | bytes | tuple[()] | None
UUID_ZERO = bytes(16)

_FOLDER = Path(__file__).parent.parent / "messages"
_API = re.compile(r"api (\w+) +key (\d+) +versions (\d+)-(\d+) +flexible (?:none|(\d+)\+)")
_FIELD = re.compile(
    r"(?P<name>[a-z]\w*) +(?P<array>\[)?(?P<type>\w+)(?(array)\])(?P<null>\?(?:(?P<null_from>\d+)\+)?)?"
    r"(?: +(?P<first>\d+)(?:(?P<open>\+)|-(?P<last>\d+))?)?(?: +tag (?P<tag>\d+))?(?: += (?P<default>\S+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field; `type` is a name in `FIXED`, in `VARIABLE`, or the name of a struct of the message."""

    name: str
    type: str
    is_array: bool
    versions: range
    null_versions: range
    tag: int | None
    default: Default

    @property
    def is_struct(self) -> bool:
        """Whether `type` names a struct."""
        return self.type not in FIXED and self.type not in VARIABLE


@dataclass(frozen=True, slots=True)
class Struct:
    """A named sequence of fields, in wire order."""

    name: str
    fields: list[Field] = field(default_factory=list)

    def untagged(self, version: int) -> list[Field]:
        """The fields that every value of this version contains."""
        return [field_ for field_ in self.fields if field_.tag is None and version in field_.versions]

    def tagged(self, version: int) -> list[Field]:
        """The tagged fields that a value of this version may contain after the untagged fields, in tag order."""
        found = [field_ for field_ in self.fields if field_.tag is not None and version in field_.versions]
        return sorted(found, key=lambda field_: field_.tag or 0)


@dataclass(frozen=True, slots=True)
class Schema:
    """A request or a response: its root struct, named like its class, and the structs inside."""

    root: Struct
    structs: dict[str, Struct] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: its versions, its first flexible version (None: no version is flexible), and its two messages."""

    name: str
    key: ApiKey
    versions: range
    flexible_from: int | None
    request: Schema
    response: Schema

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields; also works for versions that do not exist yet."""
        return self.flexible_from is not None and version >= self.flexible_from


@cache
def load(key: ApiKey) -> Api:
    """Read the schema of an API; the first call takes about 0.3 ms."""
    path = _FOLDER / f"{key.name.lower()}.txt"
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> Api:
    """Parse the notation.

    Raises:
        ValueError: the text violates the notation; most messages name the line.
    """
    lines = list(_significant(text))
    if not lines or not (found := _API.fullmatch(lines[0][2])):
        raise ValueError("a schema opens with `api NAME key N versions A-B flexible C+`")
    name, key, first, last, flexible = found.groups()
    versions = range(int(first), int(last) + 1)
    starts = [index for index, line in enumerate(lines) if line[1] == 0][1:]
    if [lines[index][2] for index in starts] != ["request", "response"]:
        raise ValueError("`api` is followed by `request` and by `response`, in this order")
    request, response = (
        _parse_schema(name + kind, lines[start + 1 : end], versions)
        for kind, start, end in (("Request", starts[0], starts[1]), ("Response", starts[1], len(lines)))
    )
    return Api(
        name=name,
        key=ApiKey(int(key)),
        versions=versions,
        flexible_from=int(flexible) if flexible else None,
        request=request,
        response=response,
    )


def _significant(text: str) -> Iterator[tuple[int, int, str]]:
    """Line number, indentation and content of each line that is neither empty nor a comment."""
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].rstrip()
        if content:
            yield number, len(content) - len(content.lstrip()), content.lstrip()


def _parse_schema(name: str, lines: list[tuple[int, int, str]], versions: range) -> Schema:
    schema = Schema(Struct(name))
    open_structs = [(-1, schema.root, versions)]  # indentation of the opening line, the struct, its versions
    for number, indent, content in lines:
        while open_structs[-1][0] >= indent:
            open_structs.pop()
        _, struct, around = open_structs[-1]
        if content.startswith("struct "):
            type_, inner = content.removeprefix("struct "), around
        else:
            if not (found := _FIELD.fullmatch(content)):
                raise ValueError(f"line {number}: not a field: {content!r}")
            field_ = _parse_field(found, around)
            if any(field_.name == other.name for other in struct.fields):
                raise ValueError(f"line {number}: {struct.name} already has a field {field_.name}")
            struct.fields.append(field_)
            type_, inner = field_.type, field_.versions
            if not field_.is_struct:
                continue
        open_structs.append((indent, schema.structs.setdefault(type_, Struct(type_)), inner))
    for struct in schema.structs.values():
        if not struct.fields:
            raise ValueError(f"{name}: struct {struct.name} is named but has no fields")
    return schema


def _parse_field(found: re.Match[str], around: range) -> Field:
    type_, first, last = found["type"], found["first"], found["last"]
    start = int(first) if first else around.start
    stop = around.stop if found["open"] or not first else int(last or first) + 1
    null_start = (int(found["null_from"]) if found["null_from"] else start) if found["null"] else stop
    return Field(
        name=found["name"],
        type=type_,
        is_array=bool(found["array"]),
        versions=range(start, stop),
        null_versions=range(null_start, stop),
        tag=int(found["tag"]) if found["tag"] else None,
        default=_parse_default(found["default"], "array" if found["array"] else type_),
    )


def _parse_default(text: str | None, type_: str) -> Default:
    if text == "null":
        return None
    if type_ == "array":
        return ()
    if type_ == "string":
        return text or ""
    if type_ in ("bytes", "records"):
        return b""
    if type_ == "uuid":
        return UUID_ZERO
    if type_ == "bool":
        return text == "true"
    if type_ == "float64":
        return float(text or 0)
    return int(text or 0) if type_ in FIXED else None
