"""Adapts the consumer protocol (`streams/groups/assignment.py`) to this API's partitions: pairs of topic and index."""

from collections.abc import Collection, Mapping

from bearlake.streams.groups import assignment

Partition = tuple[str, int]
"""A topic and the index of a partition."""
Assignment = dict[str, list[Partition]]
"""Partitions by member."""


def encode_subscription(topics: Collection[str]) -> bytes:
    """Encode a member's subscription."""
    return assignment.encode_subscription(sorted(topics))


def encode_assignment(partitions: Collection[Partition]) -> bytes:
    """Encode a member's assignment."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return assignment.encode_assignment(by_topic)


def decode_assignment(octets: bytes) -> list[Partition]:
    """Decode a member's assignment; empty bytes mean no partitions. Raises `Corrupt`."""
    return _pairs(assignment.decode_assignment(octets))


def assign(protocol: str, subscriptions: Mapping[str, Collection[str]], counts: Mapping[str, int]) -> Assignment:
    """Assign the partitions to members; see `assignment.assign`."""
    return {member: _pairs(parts) for member, parts in assignment.assign(protocol, subscriptions, counts).items()}


def _pairs(partitions: assignment.Partitions) -> list[Partition]:
    return [(topic, index) for topic, indexes in partitions.items() for index in indexes]
