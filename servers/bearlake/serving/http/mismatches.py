"""Explains why a body does not fit its model: the field, what its model expects there, and what was found.

msgspec reports a place (`$.records[2].partition`) and a reason. `mismatch` follows the place through the model and the JSON value together,
and describes the type and the value that it finds there. Messages quote a field's description in the model (`Meta(description=…)`)
verbatim, so that they agree with the OpenAPI document.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import inspect

from bearlake.errors import Invalid

_PLACE = " - at `$"
"""Precedes the place, which comes last. A name or value of the body may contain it too, so the text after it is not trusted."""
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_GOT = re.compile(r"got `(?P<kind>\w+)`")
_INDEX = re.compile(r"\[(\d{1,18})\]")
_OUT_OF_RANGE = re.compile(r"(Number|Integer value|Timestamp is) out of range")
_ANY_KEY = "[...]"
_FOUND_LENGTH_MAX = 60
_NAME_LENGTH_MAX = 100
_PATH_LENGTH_MAX = 200
NOTHING = object()
"""An unknown value, or none."""


class Mismatch(Invalid):
    """A body is JSON, but does not fit its model. `place` is the field; empty for the whole body."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class _Spot(NamedTuple):
    """The target of a path: its name in messages, its type (None: unknown), and its value (`NOTHING`: unknown)."""

    place: str
    type: inspect.Type | None
    value: Any


def mismatch(model: Any, text: str, document: Any) -> Mismatch:
    """Build the error for msgspec's message `text`, a model, and the JSON value that does not fit the model (`NOTHING`: unknown)."""
    reason, path = _split(text)
    got = _GOT.search(reason)
    spot = _walk(_Spot("", inspect.type_info(model), document), path, got["kind"] if got else None)
    if unknown := _UNKNOWN.fullmatch(reason):
        place = _joined(spot.place, unknown["name"][:_NAME_LENGTH_MAX])
        return Mismatch(f"Unrecognized field: {place}: expected {_names(spot.type)}", place)
    if missing := _MISSING.fullmatch(reason):
        place = _joined(spot.place, missing["name"])
        type_ = _step(spot, "." + missing["name"])
        return Mismatch(f"{place}: expected {_expected(type_)}, found nothing", place)
    named = spot.place or "the body"
    if not spot.place and isinstance(spot.type, inspect.StructType):
        return Mismatch(f"the body: expected a JSON object with {_names(spot.type)}{_found(spot.value)}")
    if spot.type is None or _OUT_OF_RANGE.fullmatch(reason):
        return Mismatch(f"{named}: {reason[:_NAME_LENGTH_MAX]}", spot.place)
    return Mismatch(f"{named}: expected {_described(spot.type)}{_found(spot.value)}", spot.place)


def _split(text: str) -> tuple[str, str]:
    """Split an error of msgspec into the reason and the (truncated) path; an empty path means the whole body."""
    reason, separator, path = text.rpartition(_PLACE)
    return (reason, path.removesuffix("`")[:_PATH_LENGTH_MAX]) if separator else (text, "")


def _walk(spot: _Spot, path: str, kind: str | None) -> _Spot:
    while path:
        if path.startswith(_ANY_KEY):
            spot, path = _entry(spot, kind), path.removeprefix(_ANY_KEY)
            continue
        found = _step_with_rest(spot, path)
        if found is None:
            return _Spot(_joined(spot.place, path.removeprefix(".")[:_NAME_LENGTH_MAX]), None, NOTHING)
        spot, path = found
    return spot


def _step(spot: _Spot, path: str) -> inspect.Type | None:
    found = _step_with_rest(spot, path)
    return found[0].type if found is not None else None


def _step_with_rest(spot: _Spot, path: str) -> tuple[_Spot, str] | None:
    """Take one step along a path; returns the new spot and the rest of the path."""
    for type_ in _alternatives(spot.type):
        if isinstance(type_, inspect.ListType) and (index := _INDEX.match(path)):
            at = int(index[1])
            value = spot.value[at] if isinstance(spot.value, list) and at < len(spot.value) else NOTHING
            return _Spot(f"{spot.place}[{at}]", type_.item_type, value), path[index.end() :]
        if isinstance(type_, inspect.StructType) and path.startswith("."):
            fitting = [
                field for field in type_.fields if re.match(re.escape(field.encode_name) + r"(?=[.\[]|\Z)", path[1:])
            ]
            if fitting:
                chosen = max(fitting, key=lambda field: len(field.encode_name))
                name = chosen.encode_name
                value = spot.value.get(name, NOTHING) if isinstance(spot.value, dict) else NOTHING
                return _Spot(_joined(spot.place, name), chosen.type, value), path[1 + len(name) :]
    return None


def _entry(spot: _Spot, kind: str | None) -> _Spot:
    """Return the first entry, of an object used as a map, whose value is of this kind."""
    type_ = next(
        (
            alternative.value_type
            for alternative in _alternatives(spot.type)
            if isinstance(alternative, inspect.DictType)
        ),
        None,
    )
    entries = spot.value.items() if isinstance(spot.value, dict) else ()
    for key, value in entries:
        if kind is not None and _kind(value) == kind:
            return _Spot(_joined(spot.place, key[:_NAME_LENGTH_MAX]), type_, value)
    return _Spot(_joined(spot.place, "…"), type_, NOTHING)


def _alternatives(type_: inspect.Type | None) -> list[inspect.Type]:
    """Return the types that a union allows, without null and without descriptions."""
    if isinstance(type_, inspect.Metadata):
        return _alternatives(type_.type)
    if isinstance(type_, inspect.UnionType):
        return [alternative for branch in type_.types for alternative in _alternatives(branch)]
    return [] if type_ is None or isinstance(type_, inspect.NoneType) else [type_]


def _expected(type_: inspect.Type | None) -> str:
    return "a value" if type_ is None else _described(type_)


def _described(type_: inspect.Type) -> str:
    """Describe in words the values that a type accepts; a description in the model takes precedence."""
    if isinstance(type_, inspect.Metadata):
        given = (type_.extra_json_schema or {}).get("description")
        return str(given) if given else _described(type_.type)
    if isinstance(type_, inspect.UnionType):
        words = [_described(branch) for branch in type_.types if not isinstance(branch, inspect.NoneType)]
        return " or ".join(dict.fromkeys(words))
    match type_:
        case inspect.IntType():
            return _ranged("a whole number", type_.ge, type_.le)
        case inspect.StrType():
            return _ranged("text", type_.min_length, type_.max_length, " characters")
        case inspect.ListType():
            if type_.min_length == 1 and type_.max_length is None:
                return "a list that is not empty"
            return _ranged("a list", type_.min_length, type_.max_length, " items")
        case inspect.LiteralType():
            choices = [str(value) for value in type_.values]
            return ("one of " if len(choices) > 1 else "") + ", ".join(choices)
        case inspect.EnumType():
            return "one of " + ", ".join(str(member.value) for member in type_.cls)
        case inspect.DictType():
            values = {"text": "text", "a whole number": "whole numbers"}.get(_described(type_.value_type))
            return f"an object whose values are {values}" if values else "an object"
        case inspect.StructType():
            return f"an object with {_names(type_)}"
    return _WORDS.get(type(type_), "a value")


_WORDS: Mapping[type, str] = {
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.BytesType: "base64 text",
    inspect.DateTimeType: "RFC 3339 with a zone, such as 2026-01-31T12:00:00Z",
}


def _ranged(what: str, low: int | None, high: int | None, unit: str = "") -> str:
    if low is None and high is None:
        return what
    sized = f"{what} of" if unit else what
    if high is None:
        return f"{sized} at least {low}{unit}" if unit else f"{what} from {low}"
    if low is None:
        return f"{sized} at most {high}{unit}"
    return f"{sized} {low} to {high}{unit}" if unit else f"{what} from {low} to {high}"


def _names(type_: inspect.Type | None) -> str:
    found = [
        field.encode_name
        for alternative in _alternatives(type_)
        if isinstance(alternative, inspect.StructType)
        for field in alternative.fields
    ]
    return _listed(found) or "no fields"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _found(value: Any) -> str:
    if value is NOTHING:
        return ""
    if isinstance(value, (dict, list)):
        kind = "object" if isinstance(value, dict) else "list"
        return f", found {'an' if kind == 'object' else 'a'} {kind}" if value else f", found an empty {kind}"
    text = json.dumps(value, ensure_ascii=False)
    return f", found {text if len(text) <= _FOUND_LENGTH_MAX else text[:_FOUND_LENGTH_MAX] + '…'}"


def _kind(value: Any) -> str:
    """Return msgspec's name for the type of a JSON value."""
    names = {bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place and not name.startswith("[") else place + name
