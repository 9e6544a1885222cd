"""The consumer protocol (`streams/groups/assignment.py`) over partitions as this API has them: pairs of a topic and an index."""

from collections.abc import Collection, Mapping

from bearlake.streams.groups import assignment

Partition = tuple[str, int]
"""A topic and the index of a partition."""
Assignment = dict[str, list[Partition]]
"""Partitions by member."""


def encode_subscription(topics: Collection[str]) -> bytes:
    """What a member wants."""
    return assignment.encode_subscription(sorted(topics))


def encode_assignment(partitions: Collection[Partition]) -> bytes:
    """What a member got."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return assignment.encode_assignment(by_topic)


def decode_assignment(octets: bytes) -> list[Partition]:
    """The partitions that a member got; none of no bytes. Raises `Corrupt`."""
    return _pairs(assignment.decode_assignment(octets))


def assign(protocol: str, wanted: Mapping[str, Collection[str]], counts: Mapping[str, int]) -> Assignment:
    """Divide the partitions; see `assignment.assign`."""
    return {member: _pairs(parts) for member, parts in assignment.assign(protocol, wanted, counts).items()}


def _pairs(partitions: assignment.Partitions) -> list[Partition]:
    return [(topic, index) for topic, indexes in partitions.items() for index in indexes]
