"""Watched topic lists, for pattern consumers. `watching.py` executes the commands.

After a change of the stream catalog, the client of each watcher gets the added and removed topics. Patterns are matched against topic
names without scheme and partition. The matcher is RE2, which takes linear time for every pattern.

Source: PIP-145 (notifications of topic list changes).
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

import re2

from bearlake.protocols.pulsar import commands, names, topic_lists
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandWatchTopicList,
    CommandWatchTopicUpdate,
)
from bearlake.protocols.pulsar.topics import Topics
from bearlake.streams.catalog import Catalog
from bearlake.streams.principal import Principal
from bearlake.telemetry.containment import contained

log = logging.getLogger(__name__)

_GATHER_S = 0.01
"""Delay (s) after a change, to collect further changes."""
_PATTERN_BYTES_MAX = 10_000


class Client(Protocol):
    """The client that watches a list: its connection."""

    @property
    def who(self) -> Principal:
        """The client's principal."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def failed(self, error: Exception) -> None:
        """Close the connection because of a bug."""


class Watcher:
    """One watched list of one connection: topics of a namespace that match a pattern."""

    def __init__(self, client: Client, request: CommandWatchTopicList) -> None:
        self.client = client
        self.id = request.watcher_id
        self.namespace = topic_lists.namespace(request.namespace)
        self.topics: frozenset[str] = frozenset()
        """The topics that the client knows."""
        self._pattern = _compile(request.topics_pattern)

    def matching(self, topics: Iterable[str]) -> frozenset[str]:
        """The topics that match the client's pattern."""
        return frozenset(topic for topic in topics if self._pattern.fullmatch(_matched(topic)))

    def update(self, topics: Iterable[str]) -> None:
        """Send the client the added and removed topics."""
        now = self.matching(topics)
        if now == self.topics:
            return
        body = CommandWatchTopicUpdate(
            watcher_id=self.id,
            new_topics=sorted(now - self.topics),
            deleted_topics=sorted(self.topics - now),
            topics_hash=topic_lists.hash_of(now),
        )
        self.topics = now
        self.client.send(commands.frame("watch_topic_update", body))


class Watchers:
    """The watchers of one server."""

    def __init__(self, topics: Topics, catalog: Catalog) -> None:
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
        watcher.topics = watcher.matching(self._topics.of_namespace(watcher.client.who, watcher.namespace))

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher; idempotent."""
        self._watchers.discard(watcher)
        if not self._watchers:
            self._catalog.on_change.discard(self._changed)

    async def check_rights(self) -> None:
        """Send all clients the topics that they may see now, or may no longer see; one client per turn of the event loop."""
        for watcher in list(self._watchers):
            if watcher in self._watchers:
                self._contain(watcher)
            await asyncio.sleep(0)

    def close(self) -> None:
        """Remove all watchers."""
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
            self._contain(watcher)

    def _contain(self, watcher: Watcher) -> None:
        contained(log, "update a topic list", partial(self._update_one, watcher), watcher.client.failed)

    def _update_one(self, watcher: Watcher) -> None:
        watcher.update(self._topics.of_namespace(watcher.client.who, watcher.namespace))


def _compile(pattern: str) -> "re2.Pattern":
    if len(pattern) > _PATTERN_BYTES_MAX:
        raise Refused(
            "NotAllowedError", f"a pattern of {len(pattern)} characters: expected at most {_PATTERN_BYTES_MAX}"
        )
    try:
        return re2.compile(pattern.partition("://")[2] or pattern)
    except re2.error as error:
        raise Refused("NotAllowedError", f"invalid pattern: {error}") from error


def _matched(topic: str) -> str:
    """The part of a topic name that patterns are matched against."""
    name = names.parse(topic)
    split = name.split_partition()
    return str(split[0] if split is not None else name).partition("://")[2]
