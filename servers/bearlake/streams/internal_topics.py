"""Kafka's internal topics, which are no streams, beside the streams: what Kafka's protocol and its consumer groups see (decision 198).

Bearlake keeps the offsets of groups, the states of transactional ids, and those of share groups in the metadata store. Kafka's clients and
tools expect topics for them, so these exist by name: empty, with one partition, and read-only. The store has none of them. They count
against no limit, and no other protocol shows them. `KafkaTopics` has the look-ups of `Catalog` that Kafka's protocol needs.

A stream that an older version created under such a name stays an ordinary stream, and stands in the internal topic's place.

Source: Apache Kafka, `org.apache.kafka.common.internals.Topic`; `GroupCoordinator`, `TransactionLog` and
`ShareCoordinator` for the configs.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence

from bearlake.errors import Invalid
from bearlake.metadata.model import Stream
from bearlake.streams.catalog import Catalog, StreamView

GROUP_OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
SHARE_GROUPS = "__share_group_state"

NEVER_CREATED = frozenset({"__cluster_metadata"})
"""Internal topics of Kafka that do not exist here. A client that asks for one must not create an ordinary stream of that name."""

_SEGMENT_BYTES = str(100 * 1024 * 1024)
_COMPACT = {"cleanup.policy": "compact", "compression.type": "producer"}
_KEPT = {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"}
_NUMBER_LAST = 2**43 - 1
"""The largest number that a partition's key can hold; the store counts streams from 1."""


class InternalTopic(Invalid):
    """The request would change an internal topic, or create a stream of its name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is an internal topic of Kafka: it is read-only")


def _described(name: str, topic_id: str, number: int, configs: Mapping[str, str]) -> StreamView:
    configs = {**configs, "segment.bytes": _SEGMENT_BYTES, "table.enable": "false"}
    return StreamView(
        Stream(name=name, id=uuid.UUID(topic_id), number=number, partition_count=1, configs=configs, created_ms=0)
    )


INTERNAL = {
    view.name: view
    for view in (
        _described(GROUP_OFFSETS, "0a3e0f1c-5b7a-4c52-9f0e-6d3b8c1e2a47", _NUMBER_LAST, _COMPACT),
        _described(
            TRANSACTIONS,
            "6f1d4b0e-2c8a-4e37-8b95-d17a3c60f2e9",
            _NUMBER_LAST - 1,
            {**_COMPACT, "compression.type": "uncompressed"},
        ),
        _described(SHARE_GROUPS, "3c9be2d1-71f4-4a0c-a6d8-52e81b7f90c3", _NUMBER_LAST - 2, _KEPT),
    )
}
"""The internal topics by name. Their ids are the same in every deployment."""
_BY_ID = {view.id_bytes: view for view in INTERNAL.values()}
_BY_NUMBER = {view.stream.number: view for view in INTERNAL.values()}


def is_internal(view: StreamView) -> bool:
    """Whether `view` is an internal topic, and not a stream of such a name."""
    return INTERNAL.get(view.name) is view


def is_reserved(catalog: Catalog, name: str) -> bool:
    """Whether the name belongs to an internal topic, and no stream has it."""
    return name in INTERNAL and catalog.peek(name) is None


class KafkaTopics:
    """The streams of a catalog and the internal topics. Use it from the event loop's thread only."""

    def __init__(self, catalog: Catalog, has_transactions: Callable[[], bool]) -> None:
        """`has_transactions`: whether transactions are in use, which stays so. Kafka creates a topic for them with the first one."""
        self._catalog = catalog
        self._has_transactions = has_transactions
        self._names: tuple[Sequence[str], list[str], Sequence[str]] = ((), [], ())
        """The streams' names, those of the internal topics beside them, and both, sorted."""

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._catalog.version + self._has_transactions()

    def names(self) -> Sequence[str]:
        """Names of all streams and of the internal topics in use, sorted: what a list of all topics shows. Callers share them."""
        streams = self._catalog.names()
        beside = [name for name in INTERNAL if self._is_shown(name)]
        if self._names[0] is not streams or self._names[1] != beside:
            self._names = streams, beside, tuple(sorted([*streams, *beside]))
        return self._names[2]

    def _is_shown(self, name: str) -> bool:
        is_in_use = name == GROUP_OFFSETS or (name == TRANSACTIONS and self._has_transactions())
        return is_in_use and is_reserved(self._catalog, name)

    def peek(self, name: str) -> StreamView | None:
        """As `Catalog.peek`; knows every internal topic."""
        return self._catalog.peek(name) or INTERNAL.get(name)

    def peek_id(self, topic_id: bytes) -> StreamView | None:
        """As `Catalog.peek_id`; knows every internal topic."""
        return self._catalog.peek_id(topic_id) or self._unless_hidden(_BY_ID.get(topic_id))

    def peek_number(self, number: int) -> StreamView | None:
        """As `Catalog.peek_number`; knows every internal topic."""
        return self._catalog.peek_number(number) or self._unless_hidden(_BY_NUMBER.get(number))

    def _unless_hidden(self, internal: StreamView | None) -> StreamView | None:
        return internal if internal is not None and is_reserved(self._catalog, internal.name) else None

    async def find(self, name: str) -> StreamView:
        """As `Catalog.find`; an internal topic needs no store. Raises `NotFound`, `Unavailable`."""
        return INTERNAL[name] if is_reserved(self._catalog, name) else await self._catalog.find(name)

    async def catch_up(self) -> None:
        """As `Catalog.catch_up`. Raises `Unavailable`."""
        await self._catalog.catch_up()

    async def current(self, views: Collection[StreamView]) -> dict[str, StreamView]:
        """As `Catalog.current`; an internal topic is always current. Raises `Unavailable`, `Overloaded`."""
        found = {view.name: view for view in views if is_internal(view)}
        streams = [view for view in views if view.name not in found]
        return found | (await self._catalog.current(streams) if streams else {})
