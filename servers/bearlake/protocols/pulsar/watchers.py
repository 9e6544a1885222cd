"""Watched topic lists: WATCH_TOPIC_LIST and its updates, for pattern consumers.

The stream catalog says that something changed; shortly after, every watcher is told which topics came and went. Patterns are matched
against the names of topics without their scheme and partition, by RE2, which takes linear time whatever the pattern is.

Source: PIP-145 (notifications of topic list changes).
"""

import asyncio
from typing import TYPE_CHECKING

import re2

from bearlake.errors import Overloaded
from bearlake.protocols.pulsar import commands, lookups, names
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bearlake.protocols.pulsar.connection import Connection
    from bearlake.protocols.pulsar.topics import Topics
    from bearlake.streams.catalog import Catalog

_GATHER_S = 0.01
"""Pause after a change, in which more may come."""
_PATTERN_BYTES_MAX = 10_000


class Watcher:
    """One watched list of one connection: topics of a namespace that match a pattern."""

    def __init__(self, connection: "Connection", request: CommandWatchTopicList) -> None:
        self.connection = connection
        self.id = request.watcher_id
        self.namespace = lookups.namespace(request.namespace)
        self.topics: frozenset[str] = frozenset()
        """What the client knows."""
        self._pattern = _compile(request.topics_pattern)

    def matching(self, topics: "Iterable[str]") -> frozenset[str]:
        """Those of the namespace's topics that the client wants to know."""
        return frozenset(topic for topic in topics if self._pattern.fullmatch(_matched(topic)))

    def update(self, topics: "Iterable[str]") -> None:
        """Tell the client what is different."""
        now = self.matching(topics)
        if now == self.topics:
            return
        body = CommandWatchTopicUpdate(
            watcher_id=self.id,
            new_topics=sorted(now - self.topics),
            deleted_topics=sorted(self.topics - now),
            topics_hash=lookups.hash_of(now),
        )
        self.topics = now
        self.connection.send(commands.frame("watch_topic_update", body))


class Watchers:
    """All watched lists of one server."""

    def __init__(self, topics: "Topics", catalog: "Catalog") -> None:
        self._topics = topics
        self._catalog = catalog
        self._watchers: set[Watcher] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: Watcher) -> None:
        """Keep a watcher up to date until it is removed."""
        if not self._watchers:
            self._catalog.on_change.add(self._changed)
        self._watchers.add(watcher)
        watcher.topics = watcher.matching(self._topics.of_namespace(watcher.connection.who, watcher.namespace))

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher; safe to repeat."""
        self._watchers.discard(watcher)
        if not self._watchers:
            self._catalog.on_change.discard(self._changed)

    def close(self) -> None:
        """Forget all."""
        self._watchers.clear()
        self._catalog.on_change.discard(self._changed)
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._update)

    def _update(self) -> None:
        self._timer = None
        for watcher in list(self._watchers):
            watcher.update(self._topics.of_namespace(watcher.connection.who, watcher.namespace))


async def watch(connection: "Connection", request: CommandWatchTopicList) -> bytes:
    """WATCH_TOPIC_LIST. Raises its refusal."""
    limit = connection.context.settings.watchers_max
    known = connection.watchers.pop(request.watcher_id, None)
    if known is not None:
        connection.context.watchers.remove(known)
    if len(connection.watchers) >= limit:
        raise Overloaded(f"the connection watches {limit} lists of topics, which is the limit")
    watcher = Watcher(connection, request)
    connection.watchers[watcher.id] = watcher
    connection.context.watchers.add(watcher)
    found = lookups.hash_of(watcher.topics)
    is_same = request.HasField("topics_hash") and request.topics_hash == found
    body = CommandWatchTopicListSuccess(
        request_id=request.request_id,
        watcher_id=watcher.id,
        topic=() if is_same else sorted(watcher.topics),
        topics_hash=found,
    )
    return commands.frame("watch_topic_list_success", body)


def unwatch(connection: "Connection", request: CommandWatchTopicListClose) -> None:
    """WATCH_TOPIC_LIST_CLOSE."""
    watcher = connection.watchers.pop(request.watcher_id, None)
    if watcher is not None:
        connection.context.watchers.remove(watcher)
    connection.send(commands.success(request.request_id))


def _compile(pattern: str) -> "re2.Pattern":
    if len(pattern) > _PATTERN_BYTES_MAX:
        raise Refused(
            "NotAllowedError", f"a pattern of {len(pattern)} characters: expected at most {_PATTERN_BYTES_MAX}"
        )
    try:
        return re2.compile(pattern.partition("://")[2] or pattern)
    except re2.error as error:
        raise Refused("NotAllowedError", f"the pattern does not parse: {error}") from error


def _matched(topic: str) -> str:
    """What patterns are matched against."""
    name = names.parse(topic)
    split = name.split_partition()
    return str(split[0] if split is not None else name).partition("://")[2]
