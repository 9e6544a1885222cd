"""The consumer protocol of Kafka groups: subscriptions, assignments, and the range and round-robin assignors.

    ConsumerProtocolSubscription, version 0: int16 version | [string stream] | bytes user data
    ConsumerProtocolAssignment,   version 0: int16 version | [string stream, [int32 partition]] | bytes user data

Later versions append fields. Source: Kafka's ConsumerProtocol, RangeAssignor, RoundRobinAssignor.
"""

import struct
from collections.abc import Collection, Mapping, Sequence

from bearlake.errors import Corrupt

RANGE = "range"
ROUND_ROBIN = "roundrobin"
PROTOCOLS = (RANGE, ROUND_ROBIN)
"""Assignors, most preferred first. In a mixed group any member may lead, so these assign exactly as Kafka's clients do."""

_NO_USER_DATA = struct.pack(">i", -1)
_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_INT32 = struct.Struct(">i")

Partitions = dict[str, list[int]]
"""Partition indexes by stream."""


def encode_subscription(streams: Collection[str]) -> bytes:
    """Encode the metadata with which a member joins."""
    return _VERSION_AND_COUNT.pack(0, len(streams)) + b"".join(map(_string, streams)) + _NO_USER_DATA


def decode_subscription(metadata: bytes) -> list[str]:
    """Decode the streams that a member subscribes to. Raises `Corrupt`."""
    try:
        count, position = _VERSION_AND_COUNT.unpack_from(metadata)[1], _VERSION_AND_COUNT.size
        names = []
        for _ in range(count):
            name, position = _read_string(metadata, position)
            names.append(name)
    except (struct.error, UnicodeDecodeError) as error:
        raise Corrupt(f"subscription of a group's member: {error}") from error
    return names


def encode_assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Encode the assignment that the leader gives a member."""
    out = [_VERSION_AND_COUNT.pack(0, len(partitions))]
    for name, indexes in partitions.items():
        out += [_string(name), _INT32.pack(len(indexes)), struct.pack(f">{len(indexes)}i", *indexes)]
    return b"".join([*out, _NO_USER_DATA])


def decode_assignment(assignment: bytes) -> Partitions:
    """Decode a member's partitions; none for an empty assignment. Raises `Corrupt`."""
    found: Partitions = {}
    if not assignment:
        return found
    try:
        count, position = _VERSION_AND_COUNT.unpack_from(assignment)[1], _VERSION_AND_COUNT.size
        for _ in range(count):
            name, position = _read_string(assignment, position)
            (size,) = _INT32.unpack_from(assignment, position)
            position += _INT32.size
            if not 0 <= size * _INT32.size <= len(assignment) - position:
                raise struct.error(f"stream {name!r} with {size} partitions")
            found[name] = list(struct.unpack_from(f">{size}i", assignment, position))
            position += size * _INT32.size
    except (struct.error, UnicodeDecodeError) as error:
        raise Corrupt(f"assignment of a group's member: {error}") from error
    return found


def assign(
    protocol: str, subscriptions: Mapping[str, Collection[str]], counts: Mapping[str, int]
) -> dict[str, Partitions]:
    """Assign the partitions: `subscriptions` maps member ids to streams, `counts` each existing stream to its partition count."""
    members = {member: frozenset(names) for member, names in subscriptions.items()}
    result: dict[str, Partitions] = {member: {} for member in members}
    if protocol == RANGE:
        for name in sorted(counts):
            takers = sorted(member for member, topics in members.items() if name in topics)
            start = 0
            for place, member in enumerate(takers):
                size = counts[name] // len(takers) + (place < counts[name] % len(takers))
                if size:
                    result[member][name] = list(range(start, start + size))
                start += size
        return result
    order = sorted(members)
    at = 0
    for name in sorted(counts):
        if not any(name in topics for topics in members.values()):
            continue
        for index in range(counts[name]):
            while name not in members[order[at % len(order)]]:
                at += 1
            result[order[at % len(order)]].setdefault(name, []).append(index)
            at += 1
    return result


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    if not 0 <= size <= len(data) - position:
        raise struct.error(f"a string of {size} bytes")
    return data[position : position + size].decode(), position + size
