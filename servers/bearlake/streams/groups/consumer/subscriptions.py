"""Which topics the members of a group subscribe to, and which of them exist.

Members are counted by topic name, so that a join costs as much as its own topics. Topics are looked up in this server's view of all streams
when that view or the set of names has changed. A topic or partition that the view lacks counts as deleted. So the view must have caught up
before this object is made for a group that has members (decision 157), and what a member derived from an older view is not used.
"""

from collections import Counter
from typing import Protocol

from bearlake.metadata.model import PARTITION_BITS
from bearlake.streams.groups.consumer.model import ConsumerGroup, ConsumerMember, Topic

KNOWN_COUNT_MAX = 1_024


class Stream(Protocol):
    """A stream; `StreamView` is one."""

    partition_count: int
    first_key: int


class Topics(Protocol):
    """All topics that this server knows; `Catalog` and `KafkaTopics` are such."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    def peek(self, name: str) -> Stream | None:
        """Return the stream with this name."""

    async def catch_up(self) -> None:
        """Return when this view includes every change that the store had at the time of this call. Raises `Unavailable`."""


class NoTopics:
    """`Topics` without any stream."""

    version = 0

    def peek(self, name: str) -> Stream | None:
        """Return None."""
        return None

    async def catch_up(self) -> None:
        """Return at once."""


class Subscriptions:
    """The topics of one group."""

    def __init__(self, group: ConsumerGroup, topics: Topics) -> None:
        self._group = group
        self._topics = topics
        self._counts: Counter[str] = Counter()
        self.since = topics.version
        """Version of the view with which this object began."""
        self._version = -1
        self._known: dict[frozenset[int], frozenset[int]] = {}
        """Sets of streams that members have; forgotten when the topics change, or when there are `KNOWN_COUNT_MAX`."""
        for member in group.members.values():
            self._counts.update(member.subscribed())
            self._resolve(member)

    def add(self, member: ConsumerMember) -> None:
        """Count the member's topics."""
        self._counts.update(member.subscribed())
        if any(name not in self._group.topics for name in member.subscribed()):
            self._version = -1  # look the new names up
        self._resolve(member)

    def remove(self, member: ConsumerMember) -> None:
        """Stop counting the member's topics."""
        for name in member.subscribed():
            self._counts[name] -= 1
            if self._counts[name] <= 0:
                del self._counts[name]
                self._version = -1

    def refresh(self) -> bool:
        """Look the topics up if anything may have changed; returns whether the group's topics changed."""
        if self._version == self._topics.version:
            return False
        self._version = self._topics.version
        found: dict[str, Topic] = {}
        for name in self._counts:
            stream = self._topics.peek(name)
            if stream is not None:
                found[name] = Topic(stream.first_key >> PARTITION_BITS, stream.partition_count, stream.first_key)
        if found == self._group.topics:
            return False
        self._group.topics = found
        self._known.clear()
        for member in self._group.members.values():
            self._resolve(member)
        return True

    def _resolve(self, member: ConsumerMember) -> None:
        """Set the member's streams. Equal sets are one object, so that comparing them is cheap."""
        topics = self._group.topics
        streams = frozenset(topics[name].number for name in member.subscribed() if name in topics)
        if len(self._known) >= KNOWN_COUNT_MAX:
            self._known.clear()
        member.streams = self._known.setdefault(streams, streams)
