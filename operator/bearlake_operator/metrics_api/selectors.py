"""Parser of label selectors in query strings: `app=a,zone in (b, c),!test`.

Source: Kubernetes documentation, "Labels and Selectors"; apimachinery `labels.Parse`.
"""

import re
from collections.abc import Callable, Mapping

from bearlake_operator.errors import Invalid

Selector = Callable[[Mapping[str, str]], bool]
"""A predicate: whether labels match."""

_KEY = r"(?P<key>[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?)"
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<sign>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)")
_SET = re.compile(rf"{_KEY}\s+(?P<sign>in|notin)\s*\((?P<values>[A-Za-z0-9._,\s-]*)\)")
_EXISTS = re.compile(rf"(?P<sign>!?)\s*{_KEY}")
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma that is not inside parentheses."""


def parse(text: str) -> Selector:
    """Parse a selector; an empty one matches everything. Raises `Invalid`."""
    requirements = [_requirement(part.strip()) for part in _COMMA.split(text)] if text.strip() else []
    return lambda labels: all(requirement(labels) for requirement in requirements)


def _requirement(text: str) -> Selector:
    if match := _EQUALITY.fullmatch(text):
        return _label_in(match["key"], {match["value"]}, is_included=match["sign"] != "!=")
    if match := _SET.fullmatch(text):
        values = {value.strip() for value in match["values"].split(",")}
        return _label_in(match["key"], values, is_included=match["sign"] == "in")
    if match := _EXISTS.fullmatch(text):
        key, is_included = match["key"], not match["sign"]
        return lambda labels: (key in labels) is is_included
    raise Invalid(f"unable to parse the label selector {text!r}")


def _label_in(key: str, values: set[str], *, is_included: bool) -> Selector:
    """Whether the label's value is one of `values`, or is not. A missing label has none of the values."""
    return lambda labels: (key in labels and labels[key] in values) is is_included
