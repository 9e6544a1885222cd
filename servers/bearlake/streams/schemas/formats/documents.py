"""JSON texts of schemas: parses strictly and writes compactly."""

import json
import math
from typing import Any

from bearlake.streams.schemas.problems import InvalidSchema


def load(text: str, what: str) -> Any:
    """Parse a JSON text. Raises `InvalidSchema`. (Any: any JSON value.)"""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"Invalid schema: {what} is not JSON: {error}") from error
    return value


def dump(value: Any, *, is_sorted: bool = False) -> str:
    """Format the value as compact JSON, with keys in the original order or sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:32]} is too large")
    return number
