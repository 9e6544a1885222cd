"""What the snapshots of consumer groups and of share groups have in common: JSON with a version, epochs, topics and members.

    {"version", "epoch", "assignment_epoch", "assignor", "topics": {name: [stream number, partition count]}, …,
     "members": [{…, "target": [partition]}]}

Each member's text is kept until the member changes: a group is saved after each change of any member.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bearlake.errors import Corrupt
from bearlake.metadata.model import PARTITION_BITS, PartitionKey
from bearlake.streams.groups.consumer.model import ConsumerGroup, ConsumerMember, Topic

G = TypeVar("G", bound=ConsumerGroup)
Values = Mapping[str, Any]
"""A decoded JSON object, whose values are checked as they are used."""


def encode(
    group: ConsumerGroup,
    version: int,
    fields: Mapping[str, object],
    member_fields: Callable[[ConsumerMember], Mapping[str, object]],
) -> bytes:
    """Encode the group; `fields` and `member_fields` are those of this kind of group and of each member, in order."""
    head: dict[str, object] = {
        "version": version,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "topics": {name: [topic.number, topic.partition_count] for name, topic in group.topics.items()},
        **fields,
    }
    members = []
    for member in group.members.values():
        if member.encoded is None:
            target = sorted(group.target.get(member.member_id, ()))
            member.encoded = json.dumps({**member_fields(member), "target": target})
        members.append(member.encoded)
    return f'{json.dumps(head)[:-1]}, "members": [{", ".join(members)}]}}'.encode()


def decode(group: G, snapshot: bytes, version: int, members_of: Callable[[G, Values], Iterable[ConsumerMember]]) -> G:
    """Fill a new group from a snapshot of this version, and return it.

    `members_of` reads what only this kind of group has, and returns the members in the snapshot's order. Raises `Corrupt`.
    """
    try:
        values: dict[str, Any] = json.loads(snapshot)
        if values["version"] != version:
            raise Corrupt(f"snapshot of group {group.name!r} has version {values['version']}, expected {version}")
        group.epoch, group.assignment_epoch = values["epoch"], values["assignment_epoch"]
        group.assignor = values["assignor"]
        group.topics = {
            name: Topic(number, count, number << PARTITION_BITS) for name, (number, count) in values["topics"].items()
        }
        for item, member in zip(values["members"], members_of(group, values), strict=True):
            group.add(member)
            group.target[member.member_id] = frozenset(map(PartitionKey, item["target"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of group {group.name!r} is damaged: {error}") from error
    return group
