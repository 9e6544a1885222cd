"""Watched topic lists, for pattern consumers. `watching.py` executes the commands.

After a change of the stream catalog or of the access rules, the client of each watcher gets the added and removed topics. Patterns are
matched against topic names without scheme and partition. The matcher is RE2, which takes linear time for every pattern.

One task updates all watchers, one after the other and in turns of the event loop. Watchers of equal callers with the same pattern share a
list, and all lists are bounded together (`watched.py`).

Source: PIP-145 (notifications of topic list changes).
"""

import asyncio
import logging
from collections.abc import Hashable, Sequence
from typing import Protocol

import re2

from bearlake.errors import Overloaded
from bearlake.protocols.pulsar import commands, names, topic_lists
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandWatchTopicList,
    CommandWatchTopicUpdate,
)
from bearlake.protocols.pulsar.topics import Topics
from bearlake.protocols.pulsar.watched import NOTHING, TopicList, WatchedLists
from bearlake.streams.catalog import Catalog
from bearlake.streams.name_patterns import compiled
from bearlake.streams.principal import Principal, client_of
from bearlake.streams.turns import in_turns
from bearlake.telemetry.containment import contained_wait

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

    def close(self, why: str, reason: str) -> None:
        """Close the connection; `reason` is the metric's label."""


class Watcher:
    """One watched list of one connection: topics of a namespace that match a pattern."""

    def __init__(self, client: Client, request: CommandWatchTopicList) -> None:
        self.client = client
        self.id = request.watcher_id
        self.namespace = topic_lists.namespace(request.namespace)
        self.pattern = request.topics_pattern
        self.known = NOTHING
        """The topics that the client knows."""
        self.lock = asyncio.Lock()
        """Held while the topics are listed, so that the client gets lists in their order."""
        self.is_removed = False
        _compile(self.pattern)

    async def matching(self, topics: Sequence[str]) -> Sequence[str]:
        """Those of the sorted topics that match the client's pattern."""
        pattern = _compile(self.pattern)  # each time, because it may take a hundred times the memory of its text
        found: list[str] = []
        async for part in in_turns(topics):
            found += [topic for topic in part if pattern.fullmatch(_matched(topic))]
        return found

    def update(self, before: TopicList) -> None:
        """Send the client the topics that were added and removed since `before`."""
        if self.known.names == before.names:
            return
        old, new = set(before.names), set(self.known.names)
        body = CommandWatchTopicUpdate(
            watcher_id=self.id,
            new_topics=[topic for topic in self.known.names if topic not in old],
            deleted_topics=[topic for topic in before.names if topic not in new],
            topics_hash=self.known.topics_hash,
        )
        self.client.send(commands.frame("watch_topic_update", body))


class Watchers:
    """The watchers of one server."""

    def __init__(self, topics: Topics, catalog: Catalog, name_count_max: int) -> None:
        """`name_count_max`: see `WatchedLists`."""
        self._topics = topics
        self._catalog = catalog
        self._watchers: set[Watcher] = set()
        self._lists = WatchedLists(name_count_max)
        self._is_changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def name_count(self) -> int:
        """Names of all lists."""
        return self._lists.name_count

    async def add(self, watcher: Watcher) -> None:
        """List the topics of a watcher, and keep it up to date until it is removed. Raises `Overloaded`."""
        try:
            if self._lists.find(_audience(watcher), self._topics.version) is not None:
                await self._add(watcher)
            else:
                async with self._catalog.listing_partitions(watcher.client.who):
                    await self._add(watcher)
        except BaseException:
            self.remove(watcher)
            raise

    async def _add(self, watcher: Watcher) -> None:
        async with watcher.lock:
            if watcher.is_removed:
                return
            if not self._watchers:
                self._catalog.on_change.add(self.check)
            self._watchers.add(watcher)  # before the list: a change meanwhile must not be missed
            found = await self._listed(watcher, _Listing(self._topics))
            if not watcher.is_removed:
                self._have(watcher, found)

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher for good; idempotent."""
        watcher.is_removed = True
        self._have(watcher, NOTHING)
        self._watchers.discard(watcher)
        if not self._watchers:
            self._catalog.on_change.discard(self.check)

    def check(self) -> None:
        """Let `run` send all clients what changed; the catalog or the access rules changed."""
        self._is_changed.set()

    async def run(self) -> None:
        """Keep the watchers up to date until cancelled."""
        while True:
            await self._is_changed.wait()
            await asyncio.sleep(_GATHER_S)
            self._is_changed.clear()
            await self._update()

    def close(self) -> None:
        """Remove all watchers."""
        for watcher in self._watchers:
            self._have(watcher, NOTHING)
        self._watchers.clear()
        self._catalog.on_change.discard(self.check)

    async def _update(self) -> None:
        listing = _Listing(self._topics)
        for watcher in sorted(self._watchers, key=_order):
            await contained_wait(log, "update a topic list", self._update_one(watcher, listing), watcher.client.failed)
            await asyncio.sleep(0)

    async def _update_one(self, watcher: Watcher, listing: "_Listing") -> None:
        async with watcher.lock:
            if watcher not in self._watchers:
                return
            before, now = watcher.known, await self._listed(watcher, listing)
            if watcher.is_removed or now.version < before.version:
                return
            try:
                self._have(watcher, now)
            except Overloaded as error:
                watcher.client.close(str(error), "watched_names")
                return
            watcher.update(before)

    async def _listed(self, watcher: Watcher, listing: "_Listing") -> TopicList:
        audience, version = _audience(watcher), self._topics.version
        found = self._lists.find(audience, version) or listing.made_for(audience)
        if found is None:
            names = await watcher.matching(await listing.of(watcher))
            found = self._lists.find(audience, version)
            found = found or TopicList(names, client_of(watcher.client.who), audience, version)
        listing.last = found
        return found

    def _have(self, watcher: Watcher, now: TopicList) -> None:
        """Replace what a watcher knows. Raises `Overloaded`."""
        self._lists.replace(watcher.known, now)
        watcher.known = now


class _Listing:
    """What one round of updates has listed last, for the watchers after it."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._key: object = None
        self._list: Sequence[str] = ()
        self.last = NOTHING

    def made_for(self, audience: Hashable) -> TopicList | None:
        """Return the last list if it is one of this audience, and the access rules are the same.

        Topics may have changed since. If each of many watchers got the newest topics, each would have a list of its own for a time.
        The next round follows at once.
        """
        is_good = self.last.audience == audience and self.last.version[1] == self._topics.version[1]
        return self.last if is_good else None

    async def of(self, watcher: Watcher) -> Sequence[str]:
        """The sorted topics of the watcher's namespace that its client may see; the last ones again if nothing changed."""
        who = watcher.client.who
        key = self._topics.version, watcher.namespace, who, who.host
        if key != self._key:
            self._list = await self._topics.of_namespace(who, watcher.namespace)
            self._key = key
        return self._list


def _audience(watcher: Watcher) -> Hashable:
    """Watchers of one audience have the same topics."""
    who = watcher.client.who
    return watcher.namespace, who, who.host, watcher.pattern


def _order(watcher: Watcher) -> tuple[str, str, Sequence[str], str, str]:
    """Brings the watchers of an audience together."""
    who = watcher.client.who
    return watcher.namespace, str(who), sorted(who.groups), who.host, watcher.pattern


def _compile(pattern: str) -> "re2.Pattern":
    if len(pattern) > _PATTERN_BYTES_MAX:
        raise Refused(
            "NotAllowedError", f"a pattern of {len(pattern)} characters: expected at most {_PATTERN_BYTES_MAX}"
        )
    try:
        return compiled(pattern.partition("://")[2] or pattern)
    except re2.error as error:
        raise Refused("NotAllowedError", f"invalid pattern: {error}") from error


def _matched(topic: str) -> str:
    """The part of a topic name that patterns are matched against."""
    name = names.parse(topic)
    split = name.split_partition()
    return str(split[0] if split is not None else name).partition("://")[2]
