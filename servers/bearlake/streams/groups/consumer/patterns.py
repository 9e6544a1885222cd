"""Topic patterns of members: RE2, which Kafka's RE2/J follows, so that no pattern takes time exponential in its length.

A pattern must match a whole topic name. What a pattern matches depends on who asks: members see only topics that they may describe. Answers
are kept until topics change, but at most `pattern_refresh_ms`, because rights change too; and topics that change all the time cause one
comparison per `pattern_interval_ms`. A pattern whose comparison takes too long is refused.

Source: KIP-848 (SubscribedTopicRegex).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.turns import in_turns

COUNT_MAX = 1_024
"""Pairs of pattern and principal whose matches are kept."""
NAME_COUNT_MAX = 1_000_000
"""Names in all kept matches together; each takes about 50 bytes."""

OffLoop = Callable[..., Awaitable[Any]]
"""`Checks.off_loop` (Any: what its work returns)."""


class Names(Protocol):
    """All topics that this server knows; `Catalog` and `KafkaTopics` are such."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    def names(self) -> Sequence[str]:
        """Return the names of all topics, sorted."""


Sees = Callable[[Principal, Operation, str], bool]
"""Whether a list shows the topic to the principal."""

_Key = tuple[str, str, str]


class Matches(NamedTuple):
    """The topics that match a pattern."""

    names: frozenset[str]
    version: int
    """Version of the view that the pattern was compared with."""


@dataclass(slots=True)
class _Known:
    version: int
    at: float
    names: frozenset[str]


class Patterns:
    """The topics that match each pattern. Use it from the event loop's thread only."""

    def __init__(self, topics: Names, sees: Sees, settings: ConsumerGroupSettings, off_loop: OffLoop) -> None:
        self._topics = topics
        self._sees = sees
        self._settings = settings
        self._off_loop = off_loop
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._name_count = 0
        self._running: dict[_Key, asyncio.Task[Matches]] = {}

    async def matches(self, pattern: str, who: Principal) -> Matches:
        """Return the topics that match the pattern and that `who` may describe. Raises `GroupRefusal` (INVALID_PATTERN)."""
        key = pattern, str(who), who.host
        known = self._known.get(key)
        if known is not None and self._is_fresh(known):
            self._known.move_to_end(key)
            return Matches(known.names, known.version)
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.get_running_loop().create_task(self._match(key, who))
            running.add_done_callback(lambda task: self._done(key, task))
        return await asyncio.shield(running)

    def _is_fresh(self, known: _Known) -> bool:
        age_ms = (asyncio.get_running_loop().time() - known.at) * 1000
        limit_ms = self._settings.pattern_refresh_ms
        if known.version != self._topics.version:
            limit_ms = min(limit_ms, self._settings.pattern_interval_ms)
        return age_ms < limit_ms

    async def _match(self, key: _Key, who: Principal) -> Matches:
        begun = asyncio.get_running_loop().time()
        version, names = self._topics.version, self._topics.names()
        found = await self._off_loop(compare, key[0], names, self._settings)
        seen: list[str] = []
        async for part in in_turns(found):
            seen += [name for name in part if self._sees(who, Operation.DESCRIBE, name)]
        before = self._known.get(key)
        matched = frozenset(seen)
        if before is not None and before.names == matched:
            matched = before.names  # one object, so that members share it
        self._known[key] = _Known(version, begun, matched)
        self._known.move_to_end(key)
        self._name_count += len(matched) - (0 if before is None else len(before.names))
        while len(self._known) > COUNT_MAX or (self._name_count > NAME_COUNT_MAX and len(self._known) > 1):
            self._name_count -= len(self._known.popitem(last=False)[1].names)
        return Matches(matched, version)

    def _done(self, key: _Key, task: "asyncio.Task[Matches]") -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # its callers have it


def compare(pattern: str, names: Sequence[str], settings: ConsumerGroupSettings) -> list[str]:
    """As `comparing.compare`; the first call loads it, so call it in a thread."""
    from bearlake.streams.groups.consumer import comparing

    return comparing.compare(pattern, names, settings)
