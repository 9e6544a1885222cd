"""Adapts the consumer protocol (`streams/groups/assignment.py`) to this API's partitions: pairs of topic and index."""

from collections.abc import Sequence

from bearlake.streams.groups import assignment
from bearlake.streams.turns import in_turns

Partition = tuple[str, int]
"""A topic and the index of a partition."""


def decode_assignment(octets: bytes) -> list[Partition]:
    """Decode a member's assignment; empty bytes mean no partitions. Raises `Corrupt`."""
    return pairs(assignment.decode_assignment(octets))


def pairs(partitions: assignment.Partitions) -> list[Partition]:
    """Return the partitions as pairs."""
    return [(topic, index) for topic, indexes in partitions.items() for index in indexes]


async def ordered(partitions: Sequence[Partition]) -> list[Partition]:
    """Return the partitions sorted by topic and index, in turns of the event loop. To sort pairs would hold it for four times as long."""
    by_topic: dict[str, list[int]] = {}
    async for part in in_turns(partitions):
        for topic, index in part:
            by_topic.setdefault(topic, []).append(index)
    found: list[Partition] = []
    async for topics in in_turns(sorted(by_topic)):
        found += [(topic, index) for topic in topics for index in sorted(by_topic[topic])]
    return found
