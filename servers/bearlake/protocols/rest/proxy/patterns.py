"""Subscriptions to topics whose names match a pattern."""

from collections.abc import Collection, Sequence
from typing import Protocol

from bearlake.streams.catalog import Catalog
from bearlake.streams.turns import in_turns


class Pattern(Protocol):
    """A compiled pattern of topic names. Matches in linear time, because clients write the patterns."""

    def fullmatch(self, text: str) -> object | None:
        """Match the whole text, or return None."""


async def topics_of(catalog: Catalog, topics: Collection[str], pattern: Pattern | None) -> Sequence[str]:
    """Return the topics of a subscription, sorted by name: `topics`, or all that match `pattern`, in turns of the event loop."""
    if pattern is None:
        return sorted(topics)
    found: list[str] = []
    async for part in in_turns(catalog.names()):
        found += [name for name in part if pattern.fullmatch(name)]
    return found
