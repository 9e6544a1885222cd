"""Cells of numbers, dates, times and UUIDs that are written as text in JSON.

Source: RFC 8259, "Numbers"; RFC 3339, "Internet Date/Time Format"; RFC 9562, "UUID Format".
"""

import math
import re
from datetime import date
from typing import Final

from bearlake.kernel.typed import TypedOutcome

INTEGER_DIGITS_MAX: Final = 19
"""Digits of the largest int64."""
_EXPONENT_MAX: Final = 1_000_000_000
_DATE: Final = re.compile(rb"(\d{4})-(\d\d)-(\d\d)")
_TIMESTAMP: Final = re.compile(
    rb"(.{10})[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", flags=re.DOTALL
)
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EPOCH: Final = date(1970, 1, 1).toordinal()
_SECONDS_MIN: Final = -62_135_596_800
"""The year 1 begins."""
_SECONDS_END: Final = 253_402_300_800
"""The year 10000 begins."""


def integer(token: bytes) -> int | TypedOutcome:
    """Return the integer that a number is, however it is written (`1.0`, `1e3`), or why it is none of 64 bits."""
    is_negative = token.startswith(b"-")
    mantissa, _, power = token.lstrip(b"-").lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    digits = (whole + fraction).lstrip(b"0")
    significant = digits.rstrip(b"0")
    if not significant:
        return 0
    zeros = len(digits) - len(significant) - len(fraction) + exponent(power)
    if zeros < 0:
        return TypedOutcome.TYPE
    if len(significant) + zeros > INTEGER_DIGITS_MAX:
        return TypedOutcome.RANGE
    size = int(significant + b"0" * zeros)
    if size >= 2**63 + is_negative:
        return TypedOutcome.RANGE
    return -size if is_negative else size


def exponent(digits: bytes) -> int:
    """Return an exponent, at most `_EXPONENT_MAX` in size."""
    size = digits.lstrip(b"+-").lstrip(b"0")
    number = _EXPONENT_MAX if len(size) > 10 else min(int(size or b"0"), _EXPONENT_MAX)
    return -number if digits.startswith(b"-") else number


def double(token: bytes) -> float | TypedOutcome:
    """Return the nearest double of a number; RANGE: it is too large."""
    number = float(token)
    return TypedOutcome.RANGE if math.isinf(number) else number


def days(text: bytes) -> int | TypedOutcome:
    """Return the days since 1970 of a date in the years 1 to 9999."""
    found = _DATE.fullmatch(text)
    if found is None:
        return TypedOutcome.FORMAT
    try:
        return date(*map(int, found.groups())).toordinal() - _EPOCH
    except ValueError:
        return TypedOutcome.FORMAT


def micros(text: bytes) -> int | TypedOutcome:
    """Return the microseconds since 1970 of a time with an offset; smaller parts are cut off."""
    found = _TIMESTAMP.fullmatch(text)
    day = TypedOutcome.FORMAT if found is None else days(found[1])
    if found is None or isinstance(day, TypedOutcome):
        return TypedOutcome.FORMAT
    hour, minute, second = (int(found[at]) for at in (2, 3, 4))
    zone_hour, zone_minute = (int(found[at] or 0) for at in (7, 8))
    if hour > 23 or minute > 59 or second > 59 or zone_hour > 23 or zone_minute > 59:
        return TypedOutcome.FORMAT
    zone = 60 * (60 * zone_hour + zone_minute)
    seconds = 86_400 * day + 60 * (60 * hour + minute) + second + (zone if found[6] == b"-" else -zone)
    if not _SECONDS_MIN <= seconds < _SECONDS_END:
        return TypedOutcome.RANGE
    return 1_000_000 * seconds + int((found[5] or b"")[:6].ljust(6, b"0"))


def uuid(text: bytes) -> bytes | TypedOutcome:
    """Return the 16 bytes of a UUID."""
    return bytes.fromhex(text.decode().replace("-", "")) if _UUID.fullmatch(text) else TypedOutcome.FORMAT
