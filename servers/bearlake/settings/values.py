"""Converts text of a file or the environment to a value of the declared type, or raises an error that says what is expected.

Nothing is guessed: a whole number is not a string and `1` is not `true`. However, text from the environment is first parsed as
YAML, unless the setting is a string.
"""

import dataclasses
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bearlake.errors import Invalid
from bearlake.settings import yaml_text
from bearlake.settings.schema import Limits, is_section, walk


class Unfit(Exception):
    """A value does not fit its setting; `where` is a path below the setting (`[0].port`)."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where


def convert(raw: object, annotation: Any, limits: Limits) -> object:
    """Convert `raw` (a YAML value) to the declared type.

    Raises:
        Unfit: says what is expected.
    """
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return _convert_union(raw, get_args(annotation), limits)
    if origin is Literal:
        choices = get_args(annotation)
        if raw not in choices:
            raise Unfit(f"expected one of {', '.join(map(str, choices))}, not {raw!r}")
        return raw
    if origin in (tuple, list):
        return origin(_convert_list(raw, get_args(annotation)[0], limits))
    if is_section(annotation):
        return _convert_section(raw, annotation)
    return _convert_scalar(raw, annotation, limits)


def parse_text(text: str, annotation: Any) -> object:
    """Parse text from the environment or the command line as YAML.

    Raises:
        Unfit: the text is not YAML.
    """
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if str in kinds or any(get_origin(kind) is Literal for kind in kinds):
        return text
    if any(get_origin(kind) in (tuple, list) for kind in kinds) and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return yaml_text.parse(text)
    except yaml_text.NotYaml as error:
        raise Unfit(f"cannot be read: {error}") from error


def _convert_union(raw: object, kinds: Sequence[Any], limits: Limits) -> object:
    if raw is None and NoneType in kinds:
        return None
    return convert(raw, next(kind for kind in kinds if kind is not NoneType), limits)


def _convert_scalar(raw: object, kind: type, limits: Limits) -> object:
    if kind is bool:
        if not isinstance(raw, bool):
            raise Unfit(f"expected true or false, not {raw!r}")
        return raw
    if kind is str:
        if not isinstance(raw, str):
            raise Unfit(f"expected text, not {raw!r} (put it in quotes)")
        return raw
    assert kind in (int, float), f"settings of type {kind} are not supported"
    is_number = isinstance(raw, int | float) if kind is float else isinstance(raw, int)
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not is_number or not _is_within(raw, limits):
        raise Unfit(f"expected {expectation(kind, limits)}, not {raw!r}")
    return float(raw) if kind is float else raw


def _is_within(number: float, limits: Limits) -> bool:
    return (limits.low is None or number >= limits.low) and (limits.high is None or number <= limits.high)


def expectation(kind: type, limits: Limits) -> str:
    """Describe in words what a number must be."""
    noun = "a whole number" if kind is int else "a number"
    if limits.low is not None and limits.high is not None:
        return f"{noun} from {limits.low:.0f} to {limits.high:.0f}"
    if limits.low is not None:
        return f"{noun}, at least {limits.low:.0f}"
    return noun if limits.high is None else f"{noun}, at most {limits.high:.0f}"


def _convert_list(raw: object, kind: Any, limits: Limits) -> list[object]:
    if not isinstance(raw, list | tuple):
        raise Unfit(f"expected a list, not {raw!r}")
    items = []
    for index, item in enumerate(raw):
        try:
            items.append(convert(item, kind, limits))
        except Unfit as error:
            raise Unfit(error.what, f"[{index}]{error.where}") from error
    return items


def _convert_section(raw: object, section: type) -> object:
    """Convert a section inside a list (elsewhere the loader merges sections field by field)."""
    if not isinstance(raw, dict):
        raise Unfit(f"expected a mapping, not {raw!r}")
    known = {setting.path[0]: setting for setting in walk(section)}
    values = {}
    for name, item in raw.items():
        if name not in known:
            raise Unfit(f"unknown key {name!r}; known are {', '.join(known)}")
        try:
            values[name] = convert(item, get_type_hints(section)[name], known[name].limits)
        except Unfit as error:
            raise Unfit(error.what, f".{name}{error.where}") from error
    return build(section, values)


def build(section: type, values: dict[str, Any]) -> object:
    """Build the section; errors of its own checks become `Unfit`."""
    assert dataclasses.is_dataclass(section)
    try:
        return section(**values)
    except (ValueError, Invalid) as error:
        raise Unfit(str(error)) from error
