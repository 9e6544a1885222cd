"""YAML documents as frozen dataclasses: unknown keys, wrong types and missing values are errors that name their path.

A dataclass describes a mapping: its fields are the keys, in camelCase in the document (`dataLayers`) and snake_case here. Types may be
`str`, `int`, `bool`, `X | None`, `tuple[X, ...]` (a list), `Mapping[str, X]`, another such dataclass, an `Enum` of words, and
`Mapping[str, Any]` for what is passed on as it is.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bearlake_operator.errors import Invalid

T = TypeVar("T")


def read(form: type[T], value: object, path: str = "") -> T:
    """`value`, as YAML gives it, as a `form`. Raises `Invalid` with the path of what is wrong."""
    if not isinstance(value, Mapping):
        raise Invalid(f"{path or 'the document'}: expected a mapping")
    hints = get_type_hints(form)
    known = {camel_case(one.name): one for one in fields(form)}  # type: ignore[arg-type]  # a dataclass
    for key in value:
        if key not in known:
            raise Invalid(f"{_join(path, str(key))}: unknown; known are {', '.join(known)}")
    given = {}
    for key, one in known.items():
        if value.get(key) is not None:
            given[one.name] = _convert(hints[one.name], value[key], _join(path, key))
        elif one.default is MISSING and one.default_factory is MISSING:
            raise Invalid(f"{_join(path, key)}: missing")
    try:
        return form(**given)
    except ValueError as error:
        raise Invalid(f"{path or 'the document'}: {error}") from error


def camel_case(name: str) -> str:
    """`data_layers` as `dataLayers`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _convert(form: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(form), get_args(form)
    if origin in (Union, types.UnionType):
        return _convert(next(one for one in arguments if one is not type(None)), value, path)
    if form is Any:
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise Invalid(f"{path}: expected a list")
        return tuple(_convert(arguments[0], item, f"{path}[{at}]") for at, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise Invalid(f"{path}: expected a mapping")
        return {str(key): _convert(arguments[1], item, _join(path, str(key))) for key, item in value.items()}
    if isinstance(form, type) and is_dataclass(form):
        return read(form, value, path)
    return _plain(form, value, path)


def _plain(form: type[Any], value: Any, path: str) -> Any:
    if issubclass(form, Enum):
        words = [one.value for one in form]
        if value not in words:
            raise Invalid(f"{path}: expected one of {', '.join(words)}")
        return form(value)
    if not isinstance(value, form) or (form is int and isinstance(value, bool)):
        raise Invalid(f"{path}: expected {_NAMES[form]}, not {value!r}")
    return value


_NAMES = {str: "text", int: "a whole number", bool: "true or false"}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
