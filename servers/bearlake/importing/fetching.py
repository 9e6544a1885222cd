"""Fetch requests of an import.

Source: Kafka protocol guide (Fetch), KIP-98 (aborted transactions), KIP-516 (topic ids).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bearlake.errors import Corrupt
from bearlake.importing.cluster import READ_COMMITTED, SourceTopic
from bearlake.importing.settings import SourceSettings
from bearlake.protocols.kafka import messages

FETCH_NEWEST = 16
"""The newest version that is used: later ones have nothing for a consumer."""
_WITH_TOPIC_IDS = 13


class Place(NamedTuple):
    """Where to read: an offset of a partition."""

    topic: SourceTopic
    partition: int
    offset: int


def topic_key(topic: SourceTopic, version: int) -> bytes | str:
    """Return how Fetch names the topic in this version: by id, or by name."""
    return topic.id.bytes if version >= _WITH_TOPIC_IDS else topic.name


def answered_key(topic: Any, version: int) -> bytes | str:
    """Return the key of a topic in the response, as `topic_key`."""
    return bytes(topic.topic_id) if version >= _WITH_TOPIC_IDS else str(topic.topic)


def only_partition(topics: Sequence[Any], index: int, what: str) -> Any:
    """Return the partition of a response to a request for this one alone. Raises `Corrupt` if the response does not have it."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.partition_index == index:
                return partition
    raise Corrupt(f"the source's answer does not have {what}")


def request_of(places: Sequence[Place], version: int, settings: SourceSettings) -> Any:
    """Return a Fetch request. From version 13 on, it names topics by id, so a topic that was deleted and created again is an error."""
    kind = messages.FetchRequest
    topics: dict[bytes | str, Any] = {}
    for place in places:
        key = topic_key(place.topic, version)
        named: dict[str, Any] = {"topic_id": key} if version >= _WITH_TOPIC_IDS else {"topic": key}
        topic = topics.setdefault(key, kind.Topic(**named, partitions=[]))
        topic.partitions.append(
            kind.Partition(
                partition=place.partition,
                fetch_offset=place.offset,
                partition_max_bytes=settings.partition_bytes_max,
            )
        )
    return kind(
        replica_id=-1,
        max_wait_ms=settings.fetch_wait_ms,
        min_bytes=1,
        max_bytes=settings.fetch_bytes_max,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=list(topics.values()),
    )
