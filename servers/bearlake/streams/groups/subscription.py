"""Which topics a consumer group is subscribed to: the only look that the coordinator takes into members' metadata.

ConsumerProtocolSubscription: int16 version | [string topics] | …      (source: Kafka's ConsumerProtocol)
"""

import struct

from bearlake.streams.groups.model import Group

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def topics(group: Group) -> set[str]:
    """Topics in the subscriptions of all members; metadata of another shape says nothing."""
    found: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            found |= _topics(metadata)
    return found


def _topics(metadata: bytes) -> set[str]:
    names: set[str] = set()
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            names.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return set()
    return names
