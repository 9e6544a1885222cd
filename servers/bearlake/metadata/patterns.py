"""Patterns of stream names, as shells and Python's `fnmatch` have them, on both sides of a query: `*`, `?`, `[a-z]`, `[!a-z]`.

A pattern matches whole names, case-sensitively. What a name cannot hold a pattern cannot hold either, so its translations need no
quoting beyond the dot's.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from bearlake.errors import Invalid

LENGTH_MAX = 500
_LEGAL = re.compile(r"(?:[A-Za-z0-9._*?-]|\[!?[A-Za-z0-9._-]+\])+")


def check_pattern(what: str, pattern: str) -> None:
    """Raise `Invalid` unless it is a pattern; `what` names it in the message."""
    if len(pattern) > LENGTH_MAX or not _LEGAL.fullmatch(pattern):
        raise Invalid(
            f"{what} {pattern[:LENGTH_MAX]!r}: expected a pattern of stream names, of letters, digits, `._-`, `*`, `?` and `[a-z]`"
        )
    try:
        re.compile(as_regular_expression(pattern))
    except re.error as error:
        raise Invalid(f"{what} {pattern!r}: {error}") from error


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns; all names fit none at all."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def as_regular_expression(pattern: str) -> str:
    """For PostgreSQL's `~`."""
    return "^" + pattern.replace(".", r"\.").replace("*", ".*").replace("?", ".").replace("[!", "[^") + "$"


def as_glob(pattern: str) -> str:
    """For SQLite's GLOB."""
    return pattern.replace("[!", "[^")
