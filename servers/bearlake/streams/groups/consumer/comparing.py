"""Compares topic patterns of members with names of topics: RE2, which Kafka's RE2/J follows, so that no pattern takes exponential time.

`patterns.py` loads this file with the first pattern, because RE2 takes 2 MB (decision 362).

Source: KIP-848 (SubscribedTopicRegex).
"""

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import re2

from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.problems import GroupRefusal, Problem

COMPILED_COUNT_MAX = 32
"""Compiled patterns that are kept: each may use `pattern_memory_bytes`, and is used again only when topics have changed."""
COMPARE_MS_MAX = 2_000
"""CPU time (ms) of the longest comparison of one pattern with all topics."""
_NAMES_AT_ONCE = 16
"""Names between two looks at the clock: a hostile pattern takes 0.1 s for a long name."""


def compare(pattern: str, names: Sequence[str], settings: ConsumerGroupSettings) -> list[str]:
    """Return the names that the pattern matches as a whole. Raises `GroupRefusal` (INVALID_PATTERN); may run in a thread."""
    if len(pattern.encode()) > settings.pattern_bytes_max:
        raise _refusal(pattern[:64] + "…", f"longer than {settings.pattern_bytes_max} bytes")
    compiled = _compiled(pattern, settings.pattern_memory_bytes)
    deadline = time.thread_time() + COMPARE_MS_MAX / 1000
    found: list[str] = []
    for start in range(0, len(names), _NAMES_AT_ONCE):
        found += [name for name in names[start : start + _NAMES_AT_ONCE] if compiled.fullmatch(name)]
        if time.thread_time() > deadline:
            raise _refusal(pattern, f"comparing it with all topics takes longer than {COMPARE_MS_MAX} ms")
    return found


@lru_cache(maxsize=COMPILED_COUNT_MAX)
def _compiled(pattern: str, memory_bytes: int) -> Any:  # Any: re2 has no types
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        raise _refusal(pattern, why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from error


def _refusal(pattern: str, why: str) -> GroupRefusal:
    return GroupRefusal(
        Problem.INVALID_PATTERN, f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {why}."
    )
