"""The snapshot of a share group in the store: JSON, version 3. Versions 1 and 2 are those of classic groups and of consumer groups.

{"version": 3, "epoch", "assignment_epoch", "assignor", "topics": {name: [stream number, partition count]}, "known": [stream number],
 "members": [{"id", "rack", "client", "host", "topics", "epoch", "previous", "assigned": [[partition, epoch]], "target": [partition]}]}
"""

from collections.abc import Iterable
from functools import lru_cache

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer import snapshot_frame
from bearlake.streams.groups.consumer.model import ConsumerMember
from bearlake.streams.groups.consumer.snapshot_frame import Values
from bearlake.streams.groups.share.model import ShareGroup

VERSION = 3


def encode(group: ShareGroup) -> bytes:
    """Encode the group."""
    return snapshot_frame.encode(group, VERSION, {"known": sorted(group.known)}, _fields)


def decode(name: str, snapshot: bytes) -> ShareGroup:
    """Decode a snapshot. Raises `Corrupt`."""
    return snapshot_frame.decode(ShareGroup(name=name), snapshot, VERSION, _members)


@lru_cache(maxsize=32)
def known_in(name: str, snapshot: bytes) -> frozenset[int]:
    """Return the numbers of the streams in which the group of a snapshot may have state. Raises `Corrupt`."""
    return frozenset(decode(name, snapshot).known)


def _fields(member: ConsumerMember) -> dict[str, object]:
    return {
        "id": member.member_id,
        "rack": member.rack_id,
        "client": member.client_id,
        "host": member.client_host,
        "topics": list(member.topics),
        "epoch": member.epoch,
        "previous": member.previous_epoch,
        "assigned": list(member.assigned.items()),
    }


def _members(group: ShareGroup, values: Values) -> Iterable[ConsumerMember]:
    group.known = set(values["known"])
    return map(_member, values["members"])


def _member(item: Values) -> ConsumerMember:
    return ConsumerMember(
        member_id=item["id"],
        rack_id=item["rack"],
        client_id=item["client"],
        client_host=item["host"],
        topics=tuple(item["topics"]),
        epoch=item["epoch"],
        previous_epoch=item["previous"],
        assigned={PartitionKey(key): epoch for key, epoch in item["assigned"]},
    )
