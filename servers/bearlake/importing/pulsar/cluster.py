"""The source cluster: its topics, which broker serves each, and what its HTTP API says about their ledgers and subscriptions.

Source: Pulsar binary protocol specification (lookups); Pulsar's admin REST API (stats, internalStats, subscriptions, schemas).
"""

import asyncio
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from bearlake.errors import AlreadyExists, Corrupt, Invalid, NotFound, Unavailable
from bearlake.importing.cluster import SourceTopic
from bearlake.importing.http_source import HttpSource
from bearlake.importing.pulsar.connection import Connection
from bearlake.importing.pulsar.login import SECTION, PulsarLogin
from bearlake.importing.pulsar.positions import FIRST, Place, parse, ranges
from bearlake.importing.pulsar_settings import PulsarSourceSettings
from bearlake.importing.reach import Reach
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.names import TopicName
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    Schema,
)

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_LOOKUP_COUNT_MAX = 20
_PARTITION_COUNT_MAX = 100_000
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_NO_ID = uuid.UUID(int=0)
_SYSTEM = "__"
"""How the names of the source's own topics begin (`__change_events`, `__transaction_buffer_snapshot`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTopic(SourceTopic):
    """A topic of the source; `name` is that of its stream. `leaders`: for each partition, the broker that serves it, as `open` takes it."""

    topic: TopicName
    is_partitioned: bool

    def partition(self, index: int) -> TopicName:
        """Return the name by which the source knows a partition."""
        return self.topic.partition(index) if self.is_partitioned else self.topic


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCursor:
    """Where a subscription is in a partition: everything up to `through` is acknowledged, and ranges `(after, through]` behind it."""

    through: Place
    acknowledged: Sequence[tuple[Place, Place]]
    is_durable: bool
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledgers:
    """What the source stores of a partition: the entries of each ledger that it still has, and its last entry; and its subscriptions."""

    entries: Mapping[int, int]
    last: Place
    cursors: Mapping[str, SourceCursor]

    def count_behind(self, place: Place) -> int:
        """Return how many entries come after `place`, markers of transactions and messages of aborted ones included."""
        total = 0
        for ledger, count in self.entries.items():
            if ledger == place.ledger:
                total += max(0, count - place.entry - 1)
            elif ledger > place.ledger:
                total += count
        return total

    def grown(self, last: Place) -> "Ledgers":
        """Return the same with a last entry that is newer."""
        if last <= self.last:
            return self
        return replace(self, last=last, entries={**self.entries, last.ledger: last.entry + 1})


class PulsarCluster:
    """The source. Questions are rare, so each opens connections of its own."""

    def __init__(self, url: str, admin_url: str, settings: PulsarSourceSettings) -> None:
        """`url`: `pulsar://host:port` or `pulsar+ssl://…`, several hosts with commas. `admin_url`: its HTTP API.

        Raises `Invalid`; also if a TLS file cannot be used.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.netloc or parts.username or parts.path.strip("/"):
            raise Invalid(f"{url!r} is no address of Pulsar: expected pulsar://host:port or pulsar+ssl://host:port")
        port = _PORTS[parts.scheme]
        hosts = [host if re.search(r":\d+$", host) else f"{host}:{port}" for host in parts.netloc.split(",")]
        self.url = url
        self.settings = settings
        self._addresses = hosts
        self._login = PulsarLogin(settings, is_tls=parts.scheme == "pulsar+ssl")
        self.reach = Reach(f"the source {url}")
        """Where its brokers may be."""
        self._scheme = parts.scheme
        self.admin: HttpSource = HttpSource(
            "the source's HTTP API",
            admin_url,
            lambda host, is_readable: self._login.header(host, is_readable=is_readable),
            self._login.context,
            login_setting=f"{SECTION}.token_file",
            timeout_ms=settings.timeout_ms,
            bytes_max=settings.answer_bytes_max,
            redirect_count_max=5,
        )
        self.name = ""
        """The cluster's name, known after `topics`."""

    async def connect(self, address: str = "") -> Connection:
        """Connect to a broker, given as in `PulsarTopic.leaders`; by default to the first address that answers."""
        if address:
            physical, _, proxied = address.partition(" ")
            return await Connection.open(physical, self.settings, self._login, self._check(physical), proxied=proxied)
        for other in self._addresses[:-1]:
            with suppress(Unavailable):
                return await Connection.open(other, self.settings, self._login, self._check(other))
        last = self._addresses[-1]
        return await Connection.open(last, self.settings, self._login, self._check(last))

    def _check(self, address: str) -> Callable[[str], None]:
        return partial(self.reach.named_by_user, address=address) if address in self._addresses else self.reach.check

    async def topics(self, patterns: Sequence[str]) -> list[PulsarTopic]:
        """Return the topics whose whole name matches a pattern, `persistent://tenant/namespace/REGEX`, by stream.

        The tenant and the namespace are names; what follows is a regular expression of the topic's name without its partition. The
        parts before the last may be left out: `public/default`.
        Raises `Invalid`; `Denied`, `NotFound`, `Unavailable`, as the source answers.
        """
        wanted = [_pattern(text) for text in patterns]
        if not self.name:
            found = _list(await self.admin.get("admin", "v2", "clusters"), "clusters")
            self.name = ",".join(sorted(name for name in found if name != "global"))[:200]
        topics: dict[str, PulsarTopic] = {}
        async with await self.connect() as connection:
            for namespace in sorted({namespace for namespace, _ in wanted}):
                expressions = [expression for other, expression in wanted if other == namespace]
                for topic in await self._topics_of(connection, namespace):
                    if any(expression.fullmatch(topic.local) for expression in expressions):
                        found_topic = await self._topic(connection, topic)
                        topics[found_topic.name] = found_topic
        return [topics[name] for name in sorted(topics)]

    async def _topics_of(self, connection: Connection, namespace: str) -> list[TopicName]:
        """Return the persistent topics of a namespace, each partitioned one once, without those of the source itself."""
        body = CommandGetTopicsOfNamespace(namespace=namespace, mode=CommandGetTopicsOfNamespace.PERSISTENT)
        answer = await connection.ask("get_topics_of_namespace", body)
        tenant, _, rest = namespace.partition("/")
        partitioned = await self.admin.get("admin", "v2", "persistent", tenant, rest, "partitioned")
        whole = set(_topics_in(namespace, _list(partitioned, "partitioned topics")))
        found = set(whole)
        for topic in _topics_in(namespace, answer.topics):
            split = topic.split_partition()
            if split is None or split[0] not in whole:
                found.add(topic)
        return sorted(topic for topic in found if not topic.local.startswith(_SYSTEM))

    async def _topic(self, connection: Connection, topic: TopicName) -> PulsarTopic:
        body = CommandPartitionedTopicMetadata(topic=str(topic), metadata_auto_creation_enabled=False)
        count = (await connection.ask("partitioned_metadata", body)).partitions
        if count > _PARTITION_COUNT_MAX:
            raise Corrupt(f"the source says that topic {topic} has {count} partitions")
        parts = [topic.partition(index) for index in range(count)] if count else [topic]
        leaders = [await self._broker(connection, part) for part in parts]
        return PulsarTopic(name=topic.stream, id=_NO_ID, leaders=leaders, topic=topic, is_partitioned=count > 0)

    async def _broker(self, connection: Connection, topic: TopicName) -> str:
        """Return where a partition is served, as `connect` takes it. Raises `Unavailable`, also if brokers point at each other."""
        at, is_authoritative, opened = connection, False, list[Connection]()
        try:
            for _ in range(_LOOKUP_COUNT_MAX):
                body = CommandLookupTopic(topic=str(topic), authoritative=is_authoritative)
                answer = await at.ask("lookup", body)
                url = answer.broker_service_url_tls if self._scheme == "pulsar+ssl" else answer.broker_service_url
                if answer.response == CommandLookupTopicResponse.Connect:
                    if not answer.proxy_through_service_url:
                        return _address(url)
                    return at.name if _address(url) == at.name else f"{at.name} {url}"
                is_authoritative = answer.authoritative
                at = await self.connect(_address(url))
                opened.append(at)
        finally:
            for other in opened:
                await other.close()
        raise Unavailable(f"the source does not say which broker serves {topic}")

    # -- one partition -------------------------------------------------------------------------------------------

    async def ledgers(self, topic: TopicName) -> Ledgers:
        """Return what the source stores of a partition, and the subscriptions there. Raises `NotFound`, and as `HttpSource`."""
        path = _path(topic)
        internal = await self.admin.get(*path, "internalStats")
        stats = await self.admin.get(*path, "stats")
        return await asyncio.to_thread(_ledgers, topic, internal, stats)  # a subscription may have a million holes

    async def hold(self, topic: TopicName, name: str, through: Place) -> None:
        """Let the source keep what comes after a place: create the subscription `name`, or move it there. Raises as `HttpSource`."""
        path = [*_path(topic), "subscription", name]
        place = {"ledgerId": through.ledger, "entryId": through.entry, "partitionIndex": -1}
        try:
            await self.admin.change("PUT", *path, body={**place, "excluded": through != FIRST})
        except AlreadyExists:
            if through != FIRST:
                await self.admin.change("POST", *path, "resetcursor", body={**place, "excluded": True})

    async def let_go(self, topic: TopicName, name: str) -> None:
        """Delete the subscription by which the source keeps entries; nothing if there is none. Raises as `HttpSource`."""
        try:
            await self.admin.change("DELETE", *_path(topic), "subscription", name)
        except NotFound:
            return

    # -- schemas -------------------------------------------------------------------------------------------------

    async def schema_versions(self, topic: TopicName) -> list[int]:
        """Return the numbers of the topic's schema versions, oldest first. Raises as `HttpSource`."""
        tenant, _, namespace = topic.namespace.partition("/")
        try:
            found = await self.admin.get("admin", "v2", "schemas", tenant, namespace, topic.local, "schemas")
            return sorted({int(item["version"]) for item in found["getSchemaResponses"]})
        except NotFound:
            return []
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"the source's list of schemas of topic {topic} lacks {error}") from error

    async def schema(self, connection: Connection, topic: TopicName, version: int) -> Schema:
        """Return a version of the topic's schema. Raises `NotFound`, `Unavailable`."""
        body = CommandGetSchema(topic=str(topic), schema_version=version.to_bytes(8, "big"))
        answer = await connection.ask("get_schema", body)
        if answer.HasField("error_code"):
            raise NotFound(
                f"the source has no version {version} of the schema of {topic}: {answer.error_message[:500]}"
            )
        found: Schema = answer.schema
        return found


def _ledgers(topic: TopicName, internal: Any, stats: Any) -> Ledgers:
    try:
        entries = {_count(item["ledgerId"]): _count(item["entries"]) for item in internal["ledgers"]}
        last = parse(internal["lastConfirmedEntry"])
        if last.entry >= 0 and last.ledger in entries:
            entries[last.ledger] = max(entries[last.ledger], last.entry + 1)  # an open ledger says 0
        known = stats["subscriptions"]
        cursors = {
            name: SourceCursor(
                through=parse(item["markDeletePosition"]),
                acknowledged=ranges(item.get("individuallyDeletedMessages") or "[]"),
                is_durable=name in known and known[name].get("isDurable", True),
                properties=_texts(known.get(name, {}).get("subscriptionProperties")),
            )
            for name, item in internal["cursors"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"the source's statistics of topic {topic} lack {error}") from error
    return Ledgers(entries=entries, last=last, cursors=cursors)


def _path(topic: TopicName) -> list[str]:
    tenant, _, namespace = topic.namespace.partition("/")
    return ["admin", "v2", "persistent", tenant, namespace, topic.local]


def _list(found: Any, what: str) -> list[str]:
    """Return a list of texts, as the HTTP API has sent it. Raises `Corrupt`."""
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return found
    raise Corrupt(f"the source's list of {what} is no list of names")


def _topics_in(namespace: str, texts: Iterable[str]) -> Iterator[TopicName]:
    """Yield the topics of a namespace: a source does not choose of which namespaces there shall be streams."""
    for text in texts:
        with suppress(Invalid):  # a name of Pulsar 1, with a cluster
            topic = names.parse(text)
            if topic.namespace == namespace:
                yield topic


def _count(value: object) -> int:
    """Return a number of a ledger or of entries. Raises `ValueError`."""
    if isinstance(value, int) and 0 <= value < 1 << 63:
        return value
    raise ValueError(f"a number from 0 on in place of {str(value)[:60]}")


def _address(url: str) -> str:
    """Return `host:port` of a broker's URL. Raises `Corrupt`."""
    try:
        parts = urlsplit(url)
        if parts.scheme in _PORTS and parts.hostname and _HOST.fullmatch(parts.hostname):
            return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
    except ValueError:
        pass
    raise Corrupt(f"the source names {url[:200]!r} as a broker")


def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    """Return the namespace of a pattern, and the expression of its topics' names. Raises `Invalid`."""
    domain, found, rest = text.partition("://")
    if not found:
        domain, rest = "persistent", text
    parts = rest.split("/", 2) if found or rest.count("/") >= 2 else [*names.PUBLIC_DEFAULT.split("/"), rest]
    if domain != "persistent" or len(parts) != 3:
        raise Invalid(f"{text!r} names no topics: expected persistent://tenant/namespace/REGEX")
    try:
        return names.check_namespace("/".join(parts[:2])), re.compile(parts[2])
    except re.error as error:
        raise Invalid(f"the pattern of topics is not a regular expression: {error}") from error


def _texts(found: Any) -> Mapping[str, str]:
    """Return what is text in an object that should have only texts."""
    items = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in items if isinstance(key, str) and isinstance(value, str)}
