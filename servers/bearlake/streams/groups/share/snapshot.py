"""The snapshot of a share group in the store: JSON, version 3. Versions 1 and 2 are those of classic groups and of consumer groups.

{"version": 3, "epoch", "assignment_epoch", "assignor", "topics": {name: [stream number, partition count]}, "known": [stream number],
 "members": [{"id", "rack", "client", "host", "topics", "epoch", "previous", "assigned": [[partition, epoch]], "target": [partition]}]}
"""

import json
from functools import lru_cache
from typing import Any

from bearlake.errors import Corrupt
from bearlake.metadata.model import PARTITION_BITS, PartitionKey
from bearlake.streams.groups.consumer.model import ConsumerMember, Topic
from bearlake.streams.groups.share.model import ShareGroup

VERSION = 3
PROTOCOL_TYPE = "share"


def encode(group: ShareGroup) -> bytes:
    """Encode the group."""
    head: dict[str, object] = {
        "version": VERSION,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "topics": {name: [topic.number, topic.partition_count] for name, topic in group.topics.items()},
        "known": sorted(group.known),
    }
    members = []
    for member in group.members.values():
        if member.encoded is None:
            target = sorted(group.target.get(member.member_id, ()))
            member.encoded = json.dumps(_member(member) | {"target": target})
        members.append(member.encoded)
    return f'{json.dumps(head)[:-1]}, "members": [{", ".join(members)}]}}'.encode()


def decode(name: str, snapshot: bytes) -> ShareGroup:
    """Decode a snapshot. Raises `Corrupt`."""
    try:
        values: dict[str, Any] = json.loads(snapshot)
        if values["version"] != VERSION:
            raise Corrupt(f"snapshot of group {name!r} has version {values['version']}, expected {VERSION}")
        group = ShareGroup(
            name=name,
            epoch=values["epoch"],
            assignment_epoch=values["assignment_epoch"],
            assignor=values["assignor"],
            topics={
                topic: Topic(number, count, number << PARTITION_BITS)
                for topic, (number, count) in values["topics"].items()
            },
            known=set(values["known"]),
        )
        for item in values["members"]:
            member = ConsumerMember(
                member_id=item["id"],
                rack_id=item["rack"],
                client_id=item["client"],
                client_host=item["host"],
                topics=tuple(item["topics"]),
                epoch=item["epoch"],
                previous_epoch=item["previous"],
                assigned={PartitionKey(key): epoch for key, epoch in item["assigned"]},
            )
            group.add(member)
            group.target[member.member_id] = frozenset(map(PartitionKey, item["target"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of group {name!r} is damaged: {error}") from error
    return group


@lru_cache(maxsize=32)
def known_in(name: str, snapshot: bytes) -> frozenset[int]:
    """Return the numbers of the streams in which the group of a snapshot may have state. Raises `Corrupt`."""
    return frozenset(decode(name, snapshot).known)


def _member(member: ConsumerMember) -> dict[str, object]:
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
