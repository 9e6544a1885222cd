"""Label selectors as they stand in queries: `app=a,zone in (b, c),!test`.

Source: Kubernetes documentation, "Labels and Selectors"; apimachinery `labels.Parse`.
"""

import re
from collections.abc import Callable, Mapping

from bearlake_operator.errors import Invalid

Selector = Callable[[Mapping[str, str]], bool]
"""Whether labels are selected."""

_KEY = r"(?P<key>[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?)"
_IS = re.compile(rf"{_KEY}\s*(?P<sign>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)")
_IN = re.compile(rf"{_KEY}\s+(?P<sign>in|notin)\s*\((?P<values>[A-Za-z0-9._,\s-]*)\)")
_HAS = re.compile(rf"(?P<sign>!?)\s*{_KEY}")
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma that is not between brackets."""


def parse(text: str) -> Selector:
    """The selector that `text` is; an empty one selects everything. Raises `Invalid`."""
    rules = [_rule(part.strip()) for part in _COMMA.split(text)] if text.strip() else []
    return lambda labels: all(rule(labels) for rule in rules)


def _rule(text: str) -> Selector:
    if match := _IS.fullmatch(text):
        return _among(match["key"], {match["value"]}, is_wanted=match["sign"] != "!=")
    if match := _IN.fullmatch(text):
        values = {value.strip() for value in match["values"].split(",")}
        return _among(match["key"], values, is_wanted=match["sign"] == "in")
    if match := _HAS.fullmatch(text):
        key, is_wanted = match["key"], not match["sign"]
        return lambda labels: (key in labels) is is_wanted
    raise Invalid(f"unable to parse the label selector {text!r}")


def _among(key: str, values: set[str], *, is_wanted: bool) -> Selector:
    """A label that does not exist is among no values."""
    return lambda labels: (key in labels and labels[key] in values) is is_wanted
