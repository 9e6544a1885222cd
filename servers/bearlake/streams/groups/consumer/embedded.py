"""What a classic member says about itself in its metadata: topics, and from version 1 on the partitions that it has.

    version 0: int16 version | [string topic] | bytes user data
    version 1: … | [string topic, [int32 partition]] owned
    version 2: … | int32 generation                             version 3: … | string? rack

Source: Kafka's ConsumerProtocolSubscription (KIP-429, KIP-792, KIP-881).
"""

import struct
from typing import NamedTuple

from bearlake.errors import Corrupt
from bearlake.streams.groups import assignment
from bearlake.streams.groups.model import Protocols

_VERSION_AND_COUNT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_LENGTH = struct.Struct(">h")


class Subscription(NamedTuple):
    """A classic member's subscription."""

    topics: list[str]
    owned: assignment.Partitions


def decode(protocols: Protocols) -> Subscription:
    """Decode the metadata of the first protocol; all of them subscribe to the same topics. Raises `Corrupt`."""
    if not protocols:
        raise Corrupt("a member without protocols")
    metadata = protocols[0][1]
    topics = assignment.decode_subscription(metadata)
    owned: assignment.Partitions = {}
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            position = _past_string(metadata, position)
        (size,) = _INT32.unpack_from(metadata, position)
        position += _INT32.size + max(size, 0)
        if version >= 1:
            owned = assignment.decode_assignment(metadata[:2] + metadata[position:])
    except struct.error as error:
        raise Corrupt(f"subscription of a group's member: {error}") from error
    return Subscription(topics, owned)


def _past_string(metadata: bytes, position: int) -> int:
    size: int = _LENGTH.unpack_from(metadata, position)[0]
    return position + _LENGTH.size + max(size, 0)
