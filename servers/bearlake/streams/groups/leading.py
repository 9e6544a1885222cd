"""What the leader of a group that uses the consumer protocol does: it assigns the partitions to the members.

A group may subscribe to very many streams. Its metadata is decoded, and its assignment computed, in a thread if it is large.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from bearlake.streams.groups import assignment
from bearlake.streams.groups.assignment import Partitions
from bearlake.streams.groups.model import Joined

AT_ONCE_BYTES = 32 * 1024
"""Metadata and assignments of this size are handled on the event loop: 1,000 streams with names of 30 bytes, about 1 ms."""

OffLoop = Callable[..., Awaitable[Any]]
"""`Checks.off_loop` (Any: what its work returns)."""

Subscriptions = dict[str, list[str]]
"""Subscribed streams by member."""


async def subscriptions_of(joined: Joined, off_loop: OffLoop) -> tuple[Subscriptions, set[str]]:
    """Return the members' subscriptions, and all their streams. Raises `Corrupt`."""
    metadata = {member.member_id: member.metadata for member in joined.members}
    if sum(map(len, metadata.values())) <= AT_ONCE_BYTES:
        return _decoded(metadata)
    found: tuple[Subscriptions, set[str]] = await off_loop(_decoded, metadata)
    return found


async def assignments_of(
    protocol: str, subscriptions: Subscriptions, counts: Mapping[str, int], off_loop: OffLoop
) -> dict[str, bytes]:
    """Return the encoded assignment of each member; `counts` maps each existing stream to its partition count."""
    size = sum(map(len, counts)) + 4 * sum(counts.values()) + sum(map(len, subscriptions.values()))
    if size <= AT_ONCE_BYTES:
        return _assigned(protocol, subscriptions, counts)
    found: dict[str, bytes] = await off_loop(_assigned, protocol, subscriptions, counts)
    return found


async def encoded_subscription(streams: Collection[str], off_loop: OffLoop) -> bytes:
    """Encode a member's subscription, sorted by name."""
    if sum(map(len, streams)) <= AT_ONCE_BYTES:
        return _encoded(streams)
    encoded: bytes = await off_loop(_encoded, streams)
    return encoded


async def decoded_assignment(octets: bytes, off_loop: OffLoop) -> Partitions:
    """Decode a member's partitions. Raises `Corrupt`."""
    if len(octets) <= AT_ONCE_BYTES:
        return assignment.decode_assignment(octets)
    found: Partitions = await off_loop(assignment.decode_assignment, octets)
    return found


def _decoded(metadata: Mapping[str, bytes]) -> tuple[Subscriptions, set[str]]:
    subscriptions = {member: assignment.decode_subscription(octets) for member, octets in metadata.items()}
    return subscriptions, {name for names in subscriptions.values() for name in names}


def _assigned(protocol: str, subscriptions: Subscriptions, counts: Mapping[str, int]) -> dict[str, bytes]:
    divided = assignment.assign(protocol, subscriptions, counts)
    return {member: assignment.encode_assignment(parts) for member, parts in divided.items()}


def _encoded(streams: Collection[str]) -> bytes:
    return assignment.encode_subscription(sorted(streams))
