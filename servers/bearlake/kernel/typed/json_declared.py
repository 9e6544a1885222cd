"""Cells of the types that only declared columns have: decimals, times without an offset, bytes.

Source: RFC 8259, "Numbers"; RFC 3339, "Internet Date/Time Format" without an offset; RFC 4648, "Base 64 Encoding".
"""

import base64
import re
from typing import Final

from bearlake.kernel.typed import TypedOutcome
from bearlake.kernel.typed.json_cells import exponent, micros

_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LOCAL: Final = re.compile(rb".{19}(?:\.[0-9]+)?", flags=re.DOTALL)
_BASE64: Final = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def decimal(token: bytes, precision: int, scale: int) -> bytes | TypedOutcome:
    """Return a number as an int128, little-endian, of its parts of 10^-scale; RANGE: it has more digits, before or after the point."""
    is_negative = token.startswith(b"-")
    mantissa, _, power = token.lstrip(b"-").lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    significant = digits.rstrip(b"0")
    if not significant:
        return bytes(16)
    zeros = len(digits) - len(significant) - len(fraction) + exponent(power) + scale
    if zeros < 0 or len(significant) + zeros > precision:
        return TypedOutcome.RANGE
    size = int(significant + b"0" * zeros)
    return (-size if is_negative else size).to_bytes(16, "little", signed=True)


def decimal_text(text: bytes, precision: int, scale: int) -> bytes | TypedOutcome:
    """Return the same of a text that is a number."""
    return decimal(text, precision, scale) if _NUMBER.fullmatch(text) else TypedOutcome.FORMAT


def local_micros(text: bytes) -> int | TypedOutcome:
    """Return the microseconds since 1970 of a time without an offset, as if it was in UTC; smaller parts are cut off."""
    return micros(text + b"Z") if _LOCAL.fullmatch(text) else TypedOutcome.FORMAT


def octets(text: bytes) -> bytes | TypedOutcome:
    """Return what a text in base64 stands for: the usual alphabet, with padding."""
    return base64.b64decode(text) if _BASE64.fullmatch(text) else TypedOutcome.FORMAT
