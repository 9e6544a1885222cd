"""The topics that clients watch: lists that equal clients share, and a bound on all of them together.

A list of 100,000 topics takes 10 to 20 MB, a connection may have 100 watchers, and a server thousands of connections. Clients with equal
rights that ask for the same pattern share one list. All lists have at most `name_count_max` names, and those of one client half of them.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeAlias

from bearlake.errors import Overloaded
from bearlake.protocols.pulsar import topic_lists

Version: TypeAlias = tuple[int, int]
"""The versions of the topics and of the access rules; both only grow."""


class TopicList:
    """Sorted topics, for all watchers of the same `audience`. `topics_hash`: see `topic_lists.hash_of`."""

    __slots__ = ("audience", "names", "owner", "topics_hash", "user_count", "version")

    def __init__(self, names: Sequence[str], owner: str, audience: Hashable, version: Version) -> None:
        """`owner`: the client whose list it is, as `client_of` returns it. `version`: of the topics when the list was begun."""
        self.names = tuple(names)
        self.owner = owner
        self.audience = audience
        self.version = version
        self.topics_hash = topic_lists.hash_of(self.names)
        self.user_count = 0
        """Watchers that have the list."""


NOTHING = TopicList((), "", None, (-1, -1))
"""What a watcher has before its first list."""


class WatchedLists:
    """The lists of all watchers of a server. Use it from the event loop's thread only."""

    def __init__(self, name_count_max: int) -> None:
        """`name_count_max`: names of all lists; the lists of one client have half of them."""
        self._name_count_max = name_count_max
        self._lists: dict[tuple[Hashable, Version], TopicList] = {}
        self._counts: Counter[str] = Counter()
        """Names of each client's lists."""
        self.name_count = 0

    def find(self, audience: Hashable, version: Version) -> TopicList | None:
        """Return the list of this audience and version that some watcher has."""
        return self._lists.get((audience, version))

    def replace(self, known: TopicList, new: TopicList) -> None:
        """Let a watcher have `new` instead of `known`. Raises `Overloaded` if there are too many names; then it keeps `known`.

        A later list of the same audience counts instead of `known`, because the other watchers of `known` get it next.
        """
        if new.user_count == 0 and new is not NOTHING:
            freed = len(known.names) if known.user_count == 1 or known.audience == new.audience else 0
            size = len(new.names)
            own = self._counts[new.owner] + size - (freed if known.owner == new.owner else 0)
            if self.name_count + size - freed > self._name_count_max or own > self._name_count_max // 2:
                raise Overloaded("the topic lists that clients watch have too many topics (pulsar.watched_names_max)")
        self._count(new, 1)
        self._count(known, -1)

    def _count(self, found: TopicList, change: int) -> None:
        if found is NOTHING:
            return
        found.user_count += change
        if (change, found.user_count) == (1, 1):
            self._lists[found.audience, found.version] = found
            self._add(found.owner, len(found.names))
        elif found.user_count == 0:
            if self.find(found.audience, found.version) is found:
                del self._lists[found.audience, found.version]
            self._add(found.owner, -len(found.names))

    def _add(self, owner: str, count: int) -> None:
        self.name_count += count
        self._counts[owner] += count
        if not self._counts[owner]:
            del self._counts[owner]
