"""Adapts the consumer protocol (`streams/groups/assignment.py`) to this API's partitions: pairs of topic and index."""

from bearlake.streams.groups import assignment

Partition = tuple[str, int]
"""A topic and the index of a partition."""


def decode_assignment(octets: bytes) -> list[Partition]:
    """Decode a member's assignment; empty bytes mean no partitions. Raises `Corrupt`."""
    return pairs(assignment.decode_assignment(octets))


def pairs(partitions: assignment.Partitions) -> list[Partition]:
    """Return the partitions as pairs."""
    return [(topic, index) for topic, indexes in partitions.items() for index in indexes]
