"""Writes Avro's primitive values, enums and fixed, from JSON to binary; see `avro_writing`."""

from collections.abc import Callable, Mapping
from typing import Any

from avro.io import BinaryEncoder

from bearlake.streams.schemas.values.model import Unfit

Write = Callable[[Any, BinaryEncoder], None]
"""A function that writes a JSON value (Any: any JSON value). Raises `Unfit`."""

FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""Floating-point values that JSON numbers cannot express."""


def enum(symbols: list[str]) -> Write:
    """Return a function that writes one of these symbols, given as text."""

    places = {symbol: at for at, symbol in enumerate(symbols)}

    def write(value: Any, encoder: BinaryEncoder) -> None:
        if not isinstance(value, str) or value not in places:
            raise Unfit(f"expected one of {', '.join(symbols)[:500]}, not {shown(value)}")
        encoder.write_long(places[value])

    return write


def fixed(size: int) -> Write:
    """Return a function that writes `size` bytes, given as the characters of a text."""

    def write(value: Any, encoder: BinaryEncoder) -> None:
        octets = octets_of(value)
        if len(octets) != size:
            raise Unfit(f"expected {size} bytes, not {len(octets)}")
        encoder.write(octets)

    return write


def _null(value: Any, encoder: BinaryEncoder) -> None:
    if value is not None:
        raise Unfit(f"expected null, not {shown(value)}")


def _boolean(value: Any, encoder: BinaryEncoder) -> None:
    if not isinstance(value, bool):
        raise Unfit(f"expected true or false, not {shown(value)}")
    encoder.write_boolean(value)


def _integer(kind: str, bits: int) -> Write:
    smallest, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def write(value: Any, encoder: BinaryEncoder) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
            raise Unfit(f"expected {kind}, a whole number of {bits} bits, not {shown(value)}")
        encoder.write_long(value)

    return write


def _number(kind: str) -> Write:
    def write(value: Any, encoder: BinaryEncoder) -> None:
        number = FLOATS.get(value) if isinstance(value, str) else value
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise Unfit(f"expected {kind}, a number, not {shown(value)}")
        try:
            encoder.write_float(number) if kind == "float" else encoder.write_double(number)
        except OverflowError as error:
            raise Unfit(f"the number is too large for {kind}") from error

    return write


def _bytes(value: Any, encoder: BinaryEncoder) -> None:
    encoder.write_bytes(octets_of(value))


def text(value: Any, encoder: BinaryEncoder) -> None:
    """Write a text in UTF-8. Raises `Unfit`."""
    if not isinstance(value, str):
        raise Unfit(f"expected text, not {shown(value)}")
    try:
        encoder.write_utf8(value)
    except UnicodeEncodeError as error:
        raise Unfit("the text has an unpaired surrogate, which UTF-8 cannot encode") from error


def octets_of(value: Any) -> bytes:
    """Convert the characters of a text, U+0000 to U+00FF, to bytes. Raises `Unfit`."""
    if not isinstance(value, str):
        raise Unfit(f"expected text of characters up to U+00FF, one per byte, not {shown(value)}")
    try:
        return value.encode("iso-8859-1")
    except UnicodeEncodeError as error:
        raise Unfit("expected text of characters up to U+00FF, one per byte") from error


def object_of(value: Any) -> dict[str, Any]:
    """Return the members of a JSON object. Raises `Unfit` for other values."""
    if not isinstance(value, dict):
        raise Unfit(f"expected an object, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return the JSON type of a value; error messages must not show record contents."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    kinds = {dict: "an object", list: "a list", str: "text"}
    return next((shown for kind, shown in kinds.items() if isinstance(value, kind)), "that number")


PRIMITIVES: Mapping[str, Write] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int", 32),
    "long": _integer("long", 64),
    "float": _number("float"),
    "double": _number("double"),
    "bytes": _bytes,
    "string": text,
}
