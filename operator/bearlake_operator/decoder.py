"""Strict decoder of YAML documents into frozen dataclasses: unknown keys, wrong types and missing values are errors that name their path.

A dataclass describes a mapping. Its fields are the keys, camelCase in the document (`dataLayers`) and snake_case in the dataclass. Field
types may be `str`, `int`, `bool`, `X | None`, `tuple[X, ...]` (a list), `Mapping[str, X]`, another such dataclass, an `Enum` with string
values, and `Mapping[str, Any]` for content that is passed on unchanged.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bearlake_operator.errors import Invalid

T = TypeVar("T")


def decode(form: type[T], value: object, path: str = "") -> T:
    """Decode `value`, as a YAML parser returns it, into the dataclass `form`. Raises `Invalid` with the path of the error."""
    if not isinstance(value, Mapping):
        raise Invalid(f"{path or 'the document'}: expected a mapping")
    hints = get_type_hints(form)
    known = {camel_case(field.name): field for field in fields(form)}  # type: ignore[arg-type]  # a dataclass
    for key in value:
        if key not in known:
            raise Invalid(f"{_join(path, str(key))}: unknown key; known keys are {', '.join(known)}")
    given = {}
    for key, field in known.items():
        if value.get(key) is not None:
            given[field.name] = _decode(hints[field.name], value[key], _join(path, key))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise Invalid(f"{_join(path, key)}: missing")
    try:
        return form(**given)
    except ValueError as error:
        raise Invalid(f"{path or 'the document'}: {error}") from error


def camel_case(name: str) -> str:
    """`data_layers` as `dataLayers`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _decode(form: Any, value: Any, path: str) -> Any:
    origin, arguments = get_origin(form), get_args(form)
    if origin in (Union, types.UnionType):
        return _decode(next(argument for argument in arguments if argument is not type(None)), value, path)
    if form is Any:
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise Invalid(f"{path}: expected a list")
        return tuple(_decode(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise Invalid(f"{path}: expected a mapping")
        return {str(key): _decode(arguments[1], item, _join(path, str(key))) for key, item in value.items()}
    if isinstance(form, type) and is_dataclass(form):
        return decode(form, value, path)
    return _decode_scalar(form, value, path)


def _decode_scalar(form: type[Any], value: Any, path: str) -> Any:
    if issubclass(form, Enum):
        allowed = [choice.value for choice in form]
        if value not in allowed:
            raise Invalid(f"{path}: expected one of {', '.join(allowed)}")
        return form(value)
    if not isinstance(value, form) or (form is int and isinstance(value, bool)):
        raise Invalid(f"{path}: expected {_TYPE_NAMES[form]}, not {value!r}")
    return value


_TYPE_NAMES = {str: "a string", int: "an integer", bool: "true or false"}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
