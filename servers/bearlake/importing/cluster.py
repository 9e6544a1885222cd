"""The source cluster: its topics, where their partitions are, their offsets and configs.

Source: Kafka protocol guide (Metadata, ListOffsets, DescribeConfigs).
"""

import asyncio
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from bearlake.errors import Corrupt, Denied, Invalid, Overloaded, Unavailable
from bearlake.importing.login import SourceLogin
from bearlake.importing.reach import Reach
from bearlake.importing.settings import SourceSettings
from bearlake.importing.source import Connection
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode

LATEST, EARLIEST = -1, -2
READ_COMMITTED = 1
_TOPIC = 2
_SET_ON_THE_TOPIC = 1
_DENIED = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
_AWAY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_LIST_OFFSETS_NEWEST = 9
"""The newest version of ListOffsets without a time limit of the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic of the source. `leaders`: the address of each partition's leader, by index; "" if there is none now."""

    name: str
    id: uuid.UUID
    """Zero if the source is too old for topic ids."""
    leaders: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBounds:
    """A partition's first offset and its last stable offset, as of now."""

    start: int
    stable: int


class SourceCluster:
    """The source. Questions are rare, and brokers close idle connections: so each question, or each round of them, opens connections."""

    def __init__(self, bootstrap: str, settings: SourceSettings) -> None:
        """`bootstrap`: `host:port` of any broker, or several with commas. Raises `Invalid` if a TLS file cannot be used."""
        self.bootstrap = bootstrap
        self.settings = settings
        self._login = SourceLogin(settings)
        self._reach = Reach(f"{settings.PEER} {bootstrap}")
        self.cluster_id = ""
        """Known after `topics`."""
        self.brokers: Sequence[str] = ()
        """Addresses of all brokers, as of the newest `topics`."""
        self.controller = ""
        """Address of the broker that creates topics, likewise; "" if there is none now."""

    async def connect(self, address: str = "") -> Connection:
        """Connect to a broker; by default to the first bootstrap address that answers. Raises as `Connection.open`."""
        ours = [item.strip() for item in self.bootstrap.split(",")]
        if address and address not in ours:
            return await Connection.open(address, self.settings, self._reach.check, self._login)
        addresses = [address] if address else ours
        for other in addresses[:-1]:
            with suppress(Unavailable):
                return await self._connect_ours(other)
        return await self._connect_ours(addresses[-1])

    async def _connect_ours(self, address: str) -> Connection:
        check = partial(self._reach.named_by_user, address=address)
        return await Connection.open(address, self.settings, check, self._login)

    async def topics(self, patterns: Sequence[str]) -> list[SourceTopic]:
        """Return the topics whose whole name matches one of the regular expressions, by name, without internal ones.

        Raises:
            Invalid: a pattern is not a regular expression.
            Unavailable: the source does not answer.
        """
        try:
            expressions = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise Invalid(f"the pattern of topics is not a regular expression: {error}") from error
        found, brokers = await self._metadata(None)
        topics = [
            _topic(topic, brokers, self.settings.PEER)
            for topic in found.topics
            if not topic.is_internal and any(expression.fullmatch(topic.name or "") for expression in expressions)
        ]
        return sorted(topics, key=lambda topic: topic.name)

    async def topic(self, name: str) -> SourceTopic | None:
        """Return the topic of this name; None if there is none. Raises `Denied`, `Unavailable`."""
        found, brokers = await self._metadata([messages.MetadataRequest.Topic(name=name)])
        for topic in found.topics:
            if topic.name == name and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return _topic(topic, brokers, self.settings.PEER)
        return None

    async def _metadata(self, topics: list[Any] | None) -> tuple[Any, dict[int, str]]:
        """Return the answer about these topics (None: all), and the addresses of brokers by id."""
        async with await self.connect() as connection:
            found = await connection.ask(messages.MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        self.cluster_id = found.cluster_id or ""
        brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in found.brokers}
        self.brokers = sorted(brokers.values())
        self.controller = brokers.get(found.controller_id, "")
        return found, brokers

    async def bounds(self, topic: SourceTopic, connections: "Connections") -> list[SourceBounds]:
        """Return the bounds of each partition of the topic. Raises `Denied`; `Unavailable`, also while a partition has no leader."""
        found: dict[int, SourceBounds] = {}
        for address in sorted(set(topic.leaders)):
            if not address:
                raise Unavailable(f"{self.settings.PEER}: a partition of topic {topic.name!r} has no leader")
            indexes = [index for index, leader in enumerate(topic.leaders) if leader == address]
            connection = await connections.to(address)
            starts = await _offsets(connection, topic.name, indexes, EARLIEST)
            ends = await _offsets(connection, topic.name, indexes, LATEST)
            found |= {index: SourceBounds(start=starts[index], stable=ends[index]) for index in indexes}
        return [found[index] for index in range(len(topic.leaders))]

    async def configs(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the configs that are set on each topic itself, not those that it inherits. Raises `Denied`, `Unavailable`."""
        kind = messages.DescribeConfigsRequest
        request = kind(
            resources=[
                kind.Resource(resource_type=_TOPIC, resource_name=name, configuration_keys=None) for name in names
            ]
        )
        async with await self.connect() as connection:
            answer = await connection.ask(request)
        found: dict[str, dict[str, str]] = {}
        for result in answer.results:
            check(result.error_code, f"the configs of topic {result.resource_name!r}", self.settings.PEER)
            found[result.resource_name] = {
                config.name: config.value
                for config in result.configs
                if config.config_source == _SET_ON_THE_TOPIC and config.value is not None
            }
        return found


class Connections:
    """One connection to each broker, for one round of questions, or for an export; an asynchronous context.

    A connection that failed is opened again.
    """

    def __init__(self, cluster: SourceCluster) -> None:
        self._cluster = cluster
        self._open: dict[str, Connection] = {}
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._open.values():
            await connection.close()

    async def to(self, address: str) -> Connection:
        """Return a connection to the broker. Raises as `Connection.open`."""
        async with self._turn:
            found = self._open.get(address)
            if found is None or found.is_closed:
                found = self._open[address] = await self._cluster.connect(address)
            return found


async def _offsets(connection: Connection, name: str, indexes: Sequence[int], timestamp: int) -> dict[int, int]:
    kind = messages.ListOffsetsRequest
    partitions = [kind.Partition(partition_index=index, timestamp=timestamp) for index in indexes]
    request = kind(replica_id=-1, isolation_level=READ_COMMITTED, topics=[kind.Topic(name=name, partitions=partitions)])
    answer = await connection.ask(request, newest=_LIST_OFFSETS_NEWEST)
    found = {item.partition_index: item for topic in answer.topics if topic.name == name for item in topic.partitions}
    for index in indexes:
        what = f"the offsets of topic {name!r}, partition {index}"
        if index not in found:
            raise Corrupt(f"the answer does not have {what}")
        check(found[index].error_code, what)
    return {index: found[index].offset for index in indexes}


def _topic(topic: Any, brokers: Mapping[int, str], peer: str) -> SourceTopic:
    check(topic.error_code, f"topic {topic.name!r}", peer)
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    if [partition.partition_index for partition in partitions] != list(range(len(partitions))):
        raise Unavailable(f"{peer} does not list all partitions of topic {topic.name!r}")
    leaders = [brokers.get(partition.leader_id, "") for partition in partitions]
    return SourceTopic(name=topic.name, id=uuid.UUID(bytes=bytes(topic.topic_id or bytes(16))), leaders=leaders)


def check(code: int, what: str, peer: str = SourceSettings.PEER) -> None:
    """Raise the error kind of a code of the source, or of another `peer`; nothing if it is 0.

    Raises:
        Denied: it does not let this client do that.
        Overloaded: a group's coordinator is away for a moment, and nothing was done.
        Unavailable: any other error; ask again. A topic id that a broker does not know may be too new for it, or gone.
    """
    if code == ErrorCode.NONE:
        return
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
    message = f"{peer} refuses {what}: {name}"
    if code in _DENIED:
        raise Denied(message)
    if code in _AWAY:
        raise Overloaded(message)
    raise Unavailable(message)
