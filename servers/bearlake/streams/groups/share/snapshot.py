"""The snapshot of a share group in the store: JSON, version 3. Versions 1 and 2 are those of classic groups and of consumer groups.

{"version": 3, "epoch", "assignment_epoch", "assignor", "topics": {name: [stream number, partition count]},
 "known": [stream number], "known_partitions": [partition count],
 "members": [{"id", "rack", "client", "host", "topics", "epoch", "previous", "assigned": [[partition, epoch]], "target": [partition]}]}

`known_partitions` has an item for each of `known`. Older servers do not write it: nothing is then known to have been added later.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from bearlake.metadata.model import PARTITION_COUNT_MAX, PartitionKey
from bearlake.streams.groups.consumer import snapshot_frame
from bearlake.streams.groups.consumer.model import ConsumerMember
from bearlake.streams.groups.consumer.snapshot_frame import Values
from bearlake.streams.groups.share.model import ShareGroup

VERSION = 3


def encode(group: ShareGroup) -> bytes:
    """Encode the group."""
    known = dict(sorted(group.known.items()))
    fields = {"known": list(known), "known_partitions": list(known.values())}
    return snapshot_frame.encode(group, VERSION, fields, _fields)


def decode(name: str, snapshot: bytes) -> ShareGroup:
    """Decode a snapshot. Raises `Corrupt`."""
    return snapshot_frame.decode(ShareGroup(name=name), snapshot, VERSION, _members)


@lru_cache(maxsize=32)
def known_in(name: str, snapshot: bytes) -> Mapping[int, int]:
    """Return the streams in which the group of a snapshot may have state, as `ShareGroup.known`. Raises `Corrupt`."""
    return MappingProxyType(decode(name, snapshot).known)


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
    known = values["known"]
    counts = values.get("known_partitions", [PARTITION_COUNT_MAX] * len(known))
    group.known = dict(zip(known, counts, strict=True))
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
