"""JSON texts of schemas: read strictly, written compactly."""

import json
import math
from typing import Any

from bearlake.streams.schemas.problems import InvalidSchema


def load(text: str, what: str) -> Any:
    """The JSON value of a text. Raises `InvalidSchema`. (Any: whatever JSON can say.)"""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogates
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"Invalid schema: {what} is not JSON: {error}") from error
    return value


def dump(value: Any, *, is_sorted: bool = False) -> str:
    """The value as compact JSON, keys in their order or sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:32]} is too large")
    return number
