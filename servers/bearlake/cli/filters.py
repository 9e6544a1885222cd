"""The filters of `consume`: which records are shown. A record must pass all of them.

Patterns are regular expressions that may match anywhere, on the bytes of key, value and headers. A null matches nothing.
"""

import re
from collections.abc import Callable, Sequence

import click

from bearlake.cli.record_format import Record

Filter = Callable[[Record], bool]


def record_filter(key: str | None, value: str | None, headers: Sequence[str]) -> Filter | None:
    """Return the filter that the options describe; None if they describe none. Raises `click.UsageError`."""
    filters: list[Filter] = []
    if key is not None:
        key_pattern = _pattern("--filter-key", key)
        filters.append(lambda record: record.key is not None and key_pattern.search(record.key) is not None)
    if value is not None:
        value_pattern = _pattern("--filter-value", value)
        filters.append(lambda record: record.value is not None and value_pattern.search(record.value) is not None)
    filters += [_header_filter(text) for text in headers]
    if not filters:
        return None
    return lambda record: all(passes(record) for passes in filters)


def _header_filter(text: str) -> Filter:
    name, equals, pattern = text.partition("=")
    if not name:
        raise click.UsageError(f"--filter-header {text}: expected NAME or NAME=REGEX")
    if not equals:
        return lambda record: any(header == name for header, _ in record.headers)
    compiled = _pattern("--filter-header", pattern)
    return lambda record: any(
        header == name and value is not None and compiled.search(value) is not None for header, value in record.headers
    )


def _pattern(option: str, text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise click.UsageError(f"{option} {text}: not a regular expression: {error}") from None
