"""Patterns of stream names, with the syntax of shells and Python's `fnmatch`: `*`, `?`, `[a-z]`, `[!a-z]`. SQL queries use them too.

A pattern matches whole names, case-sensitively. A pattern contains only characters that a name may contain, so its translations only
need to quote the dot.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from bearlake.errors import Invalid

LENGTH_MAX = 500
_LEGAL = re.compile(r"(?:[A-Za-z0-9._*?-]|\[!?[A-Za-z0-9._-]+\])+")


def check_pattern(what: str, pattern: str) -> None:
    """Raise `Invalid` unless `pattern` is valid; `what` names it in the message."""
    if len(pattern) > LENGTH_MAX or not _LEGAL.fullmatch(pattern):
        raise Invalid(
            f"{what} {pattern[:LENGTH_MAX]!r}: expected a stream name pattern of letters, digits, `._-`, `*`, `?` and `[a-z]`"
        )
    try:
        re.compile(as_regular_expression(pattern))
    except re.error as error:
        raise Invalid(f"{what} {pattern!r}: {error}") from error


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name matches one of the patterns; without patterns, every name matches."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def as_regular_expression(pattern: str) -> str:
    """Translate the pattern for PostgreSQL's `~`."""
    return "^" + pattern.replace(".", r"\.").replace("*", ".*").replace("?", ".").replace("[!", "[^") + "$"


def as_glob(pattern: str) -> str:
    """Translate the pattern for SQLite's GLOB."""
    return pattern.replace("[!", "[^")
