"""Kafka's internal topics, as clients see them.

Bearlake keeps the offsets of groups in the metadata store, so no internal topic is a stream. A client may still ask for one: Kafka's
Java clients look for the leader of `__consumer_offsets`, for example. `DESCRIBED` has the topics that Metadata and
DescribeTopicPartitions then describe, with one partition. They are not listed, and there is nothing to read from them.

Source: Apache Kafka, `org.apache.kafka.common.internals.Topic`.
"""

import uuid

from bearlake.metadata.model import Stream
from bearlake.streams.catalog import StreamView

NAMES = frozenset({"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"})
"""A client that asks for one of these topics must not create an ordinary stream of that name."""


def _described(name: str, topic_id: uuid.UUID) -> StreamView:
    stream = Stream(name=name, id=topic_id, number=0, partition_count=1, configs={}, created_ms=0)
    return StreamView(stream)


DESCRIBED = {
    name: _described(name, topic_id)
    for name, topic_id in (("__consumer_offsets", uuid.UUID("0a3e0f1c-5b7a-4c52-9f0e-6d3b8c1e2a47")),)
}
"""What clients see of internal topics. The topic ids are the same in every deployment."""


def is_internal(view: StreamView) -> bool:
    """Whether `view` is one of `DESCRIBED`; a stream that a client created under such a name is an ordinary stream."""
    return DESCRIBED.get(view.name) is view
