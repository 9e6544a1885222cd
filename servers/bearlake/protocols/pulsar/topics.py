"""Resolves the topic names of clients to partitions of streams.

A stream with several partitions is a partitioned topic. A stream with one partition is not partitioned, unless its config
`pulsar.partitioned` is true. Clients use the topics of the partitions, `t-partition-0` and so on; to use `t` itself is an error, as in
Pulsar. A request for a missing topic creates it, if the settings and the request permit.

Every access to a topic needs a right. A refusal does not reveal whether the topic exists: a caller learns that a topic is missing only if
the caller may DESCRIBE a topic of that name. A name `t-partition-N` has two meanings; a caller with rights on only one of them gets the
answer for a missing topic if the other exists.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bearlake.errors import AlreadyExists, Denied, Invalid, NotFound
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.errors import NO_TRANSACTIONS, Refused
from bearlake.protocols.pulsar.names import TopicName
from bearlake.protocols.pulsar.namespaces import Namespaces
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal, Resource
from bearlake.streams.service import Streams
from bearlake.streams.turns import Turns, in_turns

PARTITIONED = "pulsar.partitioned"
"""The stream config that makes a stream with one partition a partitioned topic."""
COORDINATORS = TopicName("pulsar/system", "transaction_coordinator_assign")
"""The topic whose partitions are Pulsar's coordinators of transactions."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is one partition of a stream."""

    name: TopicName
    view: StreamView
    index: int
    is_partitioned: bool
    """Whether it is a partition of a partitioned topic."""

    @property
    def partition(self) -> PartitionKey:
        """The partition's key."""
        return self.view.partition(self.index)

    @property
    def names_whole(self) -> bool:
        """Whether the name is that of a partitioned topic, not of one of its partitions."""
        return self.is_partitioned and self.name.stream == self.view.name


class Topics:
    """Resolves, creates and lists topics."""

    def __init__(self, streams: Streams, settings: PulsarSettings) -> None:
        self._streams = streams
        self._settings = settings
        self.namespaces = Namespaces(streams)

    async def resolve(self, who: Principal, text: str, operation: Operation, *, may_create: bool = True) -> Topic:
        """The topic of that name; created if it is missing and `may_create`.

        Raises:
            Refused: InvalidTopicName, TopicNotFound; NotAllowedError: the topic is partitioned, name one of its partitions instead.
            Denied: `who` may not do `operation` on the topic, or not create it.
            Unavailable: the store did not answer.
        """
        topic = await self.find(who, text, operation)
        if topic is None:
            name = parse(text)
            if not may_create or not self._settings.auto_create_streams or name.split_partition() is not None:
                raise Refused("TopicNotFound", f"topic {name} does not exist")
            if not self._streams.may(who, operation, name.stream):
                raise _denied(who, operation, name)
            topic = _whole(name, await self.create(who, name, 0))
        if topic.names_whole:
            count = topic.view.partition_count
            raise Refused("NotAllowedError", f"topic {topic.name} is partitioned: name one of its {count} partitions")
        return topic

    async def partition_count(self, who: Principal, text: str, *, may_create: bool) -> int:
        """The number of partitions of a topic; 0 if it is not partitioned. Raises as `resolve`.

        Raises `Refused` (NotAllowedError) for the topic by which clients find coordinators of transactions: some wait forever for a
        coordinator that refuses them later (decision 190).
        """
        if parse(text) == COORDINATORS:
            raise Refused("NotAllowedError", NO_TRANSACTIONS)
        topic = await self.find(who, text, Operation.DESCRIBE)
        if topic is not None:
            return topic.view.partition_count if topic.names_whole else 0
        name = parse(text)
        count = self._settings.auto_create_partition_count
        is_allowed = may_create and self._settings.auto_create_streams
        if not is_allowed or name.split_partition() is not None:
            raise Refused("TopicNotFound", f"topic {name} does not exist")
        if not count:
            return 0  # the client's next PRODUCER or SUBSCRIBE creates the topic
        view = await self.create(who, name, count)
        return view.partition_count if is_partitioned(view) else 0

    async def find(self, who: Principal, text: str, operation: Operation) -> Topic | None:
        """The topic of that name, to which `who` may do `operation`; for a partitioned topic, the first partition. None: it is missing.

        Raises `Refused` (InvalidTopicName), `Denied`, `Unavailable`.
        """
        name = parse(text)
        sees, streams = self._streams.sees, _streams_of(name)
        if not any(sees(who, right, stream) for stream in streams for right in (operation, Operation.DESCRIBE)):
            # Before the look-up: only a missing topic needs an answer of the store, whose time or absence would reveal it.
            self._streams.audit.denied(who, operation, Resource.STREAM, name.stream)
            raise _denied(who, operation, name)
        topic = await self._find(name)
        if topic is not None and self._streams.may(who, operation, topic.view.name):
            return topic
        is_known = topic is not None and sees(who, Operation.DESCRIBE, topic.view.name)
        if is_known or not any(sees(who, Operation.DESCRIBE, stream) for stream in streams):
            if topic is None:
                self._streams.audit.denied(who, operation, Resource.STREAM, name.stream)
            raise _denied(who, operation, name)
        return None

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever the catalog or the access rules do, and so perhaps a list of topics."""
        return self._streams.catalog.version, self._streams.access.revision

    async def of_namespace(self, who: Principal, namespace: str) -> list[str]:
        """The sorted full names of the namespace's topics that `who` may see, with each partition, from this server's catalog."""
        found: list[str] = []
        turns = Turns()
        async for topic, view in self.seen_in(who, namespace):
            if turns.is_over(view.partition_count):
                await asyncio.sleep(0)
            found += sorted(topics_of(topic, view))
        return sorted(found)  # fast: streams are in the order of their names, except for escapes

    async def seen_in(self, who: Principal, namespace: str) -> AsyncIterator[tuple[TopicName, StreamView]]:
        """Yield the namespace's streams that `who` may see, by name, from this server's catalog, in turns of the event loop."""
        catalog, topic_in = self._streams.catalog, names.topics_in(namespace)
        async for part in in_turns(catalog.names()):
            for stream in part:
                topic, view = topic_in(stream), catalog.peek(stream)
                if topic is not None and view is not None and self._streams.sees(who, Operation.DESCRIBE, stream):
                    yield topic, view

    async def create_new(self, who: Principal, name: TopicName, partition_count: int) -> None:
        """Create a topic that is missing; 0 partitions: not partitioned. Raises `Denied`, `AlreadyExists`, `Invalid`, `Unavailable`.

        `t-partition-N` already exists if `t` has that partition. So its creation also needs a right to learn whether `t` exists.
        """
        if not self._streams.may_create(who, name.stream):
            raise _denied(who, Operation.CREATE, name)
        split = name.split_partition()
        if split is not None and not self._learns(who, split[0].stream):
            raise _denied(who, Operation.DESCRIBE, split[0])
        if await self._find(name) is not None:
            raise AlreadyExists(f"This topic already exists: {name}")
        await self.create(who, name, partition_count)

    async def create(self, who: Principal, name: TopicName, partition_count: int) -> StreamView:
        """Create a topic; 0 partitions: not partitioned. Returns the existing stream if another client created it first.

        Raises `Denied`, `Invalid`, `Unavailable`.
        """
        configs = {
            "max.message.bytes": str(batch_bytes_max(self._settings)),
            **await self.namespaces.configs(name.namespace),
        }
        if partition_count:
            configs[PARTITIONED] = "true"
        try:
            return await self._streams.create(who, name.stream, max(1, partition_count), configs)
        except AlreadyExists:
            return await self._streams.catalog.find(name.stream)

    def _learns(self, who: Principal, stream: str) -> bool:
        """Whether `who` may learn if a stream exists: by describing it, or by creating it."""
        sees, administers = self._streams.sees, self._streams.authorizer.administers
        may_create = sees(who, Operation.CREATE, stream) or administers(who, Operation.CREATE)
        return may_create or self._streams.may(who, Operation.DESCRIBE, stream)

    async def _find(self, name: TopicName) -> Topic | None:
        """The topic of that name, whoever asks; for a partitioned topic, the first partition."""
        split = name.split_partition()
        if split is not None:
            parent, index = split
            view = await self._stream(parent)
            if view is not None and is_partitioned(view):
                return Topic(name, view, index, True) if index < view.partition_count else None
        view = await self._stream(name)
        return None if view is None else _whole(name, view)

    async def _stream(self, name: TopicName) -> StreamView | None:
        try:
            return await self._streams.catalog.find(name.stream)
        except NotFound:
            return None


def parse(text: str) -> TopicName:
    """Parse a topic name, and check that it maps to a valid stream name. Raises `Refused` (InvalidTopicName)."""
    try:
        name = names.parse(text)
        assert name.stream
    except Invalid as error:
        raise Refused("InvalidTopicName", str(error)) from error
    return name


def is_partitioned(view: StreamView) -> bool:
    """Whether clients see the stream as a partitioned topic."""
    return view.partition_count > 1 or view.stream.configs.get(PARTITIONED, "").lower() == "true"


def topics_of(name: TopicName, view: StreamView) -> list[str]:
    """The full names of a stream's topics: its own name, or the names of its partitions."""
    if not is_partitioned(view):
        return [str(name)]
    return [str(name.partition(index)) for index in range(view.partition_count)]


def batch_bytes_max(settings: PulsarSettings) -> int:
    """`max.message.bytes` of topics created here: a message of maximum size with very small parts grows when it becomes a record batch."""
    return 2 * settings.message_bytes_max


def _whole(name: TopicName, view: StreamView) -> Topic:
    return Topic(name, view, 0, is_partitioned(view))


def _streams_of(name: TopicName) -> list[str]:
    """The streams that a topic of this name may be, or be a partition of."""
    split = name.split_partition()
    return [name.stream] if split is None else [name.stream, split[0].stream]


def _denied(who: Principal, operation: Operation, name: TopicName) -> Denied:
    return Denied(f"{who} may not {operation.value} topic {name}")
