"""The snapshot of a streams group in the store: JSON, version 4. Versions 1 to 3 are those of classic, consumer and share groups.

    {"version": 4, "epoch", "assignment_epoch", "validated_epoch", "standby_count", "topics": {name: [stream number, partition count]},
     "topology": null | {…},
     "members": [{"id", "rack", "client", "host", "rebalance_ms", "topology_epoch", "process", "endpoint": null | [host, port], "tags",
                  "epoch", "previous", "state", "active": [[epoch, {subtopology: [partition]}]], "standby": {…}, "revoking_active": …,
                  "revoking_standby", "target": {"active": {…}, "standby": {…}}}]}

Texts are kept until what they say changes: a group is saved after each change of any member. A large group's targets change all at once,
in the thread that computes them, which also makes their texts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bearlake.errors import Corrupt
from bearlake.metadata.model import PARTITION_BITS
from bearlake.streams.groups.consumer.model import MemberState, Topic
from bearlake.streams.groups.tasks import topology
from bearlake.streams.groups.tasks.model import Endpoint, StreamsGroup, StreamsMember, TaskId, Tasks
from bearlake.streams.groups.tasks.topology import Topology

VERSION = 4
Values = Mapping[str, Any]
"""A decoded JSON object, whose values are checked as they are used."""


def encode(group: StreamsGroup) -> bytes:
    """Encode the group."""
    head: dict[str, object] = {
        "version": VERSION,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "validated_epoch": group.validated_epoch,
        "standby_count": group.standby_count,
    }
    texts, members = group.target_texts, []
    for member_id, member in group.members.items():
        if member.encoded is None:
            member.encoded = json.dumps(_fields(member))
        text = texts.get(member_id)
        if text is None:
            text = texts[member_id] = target_text(group.target.get(member_id, Tasks()))
        members.append(f'{member.encoded[:-1]}, "target": {text}}}')
    return f'{json.dumps(head)[:-1]}, {_inputs_text(group)}, "members": [{", ".join(members)}]}}'.encode()


def target_text(target: Tasks) -> str:
    """Return the tasks that a member should have, as the snapshot has them."""
    return json.dumps({"active": _grouped(target.active), "standby": _grouped(target.standby)})


def inputs_text(parts: Topology | None, topics: Mapping[str, Topic]) -> str:
    """Return a topology and its topics, as the snapshot has them."""
    values = {
        "topics": {name: [topic.number, topic.partition_count] for name, topic in topics.items()},
        "topology": None if parts is None else topology.pack(parts),
    }
    return json.dumps(values)[1:-1]


def _inputs_text(group: StreamsGroup) -> str:
    kept = group.inputs_text
    if kept is None or kept[0] is not group.topology or kept[1] is not group.topics:
        text = inputs_text(group.topology, group.topics)
        kept = group.inputs_text = group.topology, group.topics, text
    return kept[2]


def is_streams(snapshot: bytes) -> bool:
    """Whether the snapshot is of a streams group: members of the classic protocol may name any protocol type. Raises `Corrupt`."""
    try:
        return bool(json.loads(snapshot)["version"] == VERSION)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of a group is damaged: {error}") from error


def decode(name: str, snapshot: bytes) -> StreamsGroup:
    """Decode a snapshot. Raises `Corrupt`."""
    group = StreamsGroup(name=name)
    try:
        values: dict[str, Any] = json.loads(snapshot)
        if values["version"] != VERSION:
            raise Corrupt(f"snapshot of group {name!r} has version {values['version']}, expected {VERSION}")
        group.epoch, group.assignment_epoch = values["epoch"], values["assignment_epoch"]
        group.validated_epoch, group.standby_count = values["validated_epoch"], values["standby_count"]
        group.topics = {
            topic: Topic(number, count, number << PARTITION_BITS) for topic, (number, count) in values["topics"].items()
        }
        if values["topology"] is not None:
            group.topology = topology.unpack(values["topology"])
        for item in values["members"]:
            member = _member(item)
            group.add(member)
            target = item["target"]
            group.target[member.member_id] = Tasks(_flat(target["active"]), _flat(target["standby"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of group {name!r} is damaged: {error}") from error
    return group


def _fields(member: StreamsMember) -> dict[str, object]:
    """Return all of a member but its target."""
    return {
        "id": member.member_id,
        "rack": member.rack_id,
        "client": member.client_id,
        "host": member.client_host,
        "rebalance_ms": member.rebalance_timeout_ms,
        "topology_epoch": member.topology_epoch,
        "process": member.process_id,
        "endpoint": member.endpoint,
        "tags": dict(member.tags),
        "epoch": member.epoch,
        "previous": member.previous_epoch,
        "state": member.state.value,
        "active": _by_epoch(member.active),
        "standby": _grouped(member.standby),
        "revoking_active": _by_epoch(member.revoking_active),
        "revoking_standby": _grouped(member.revoking_standby),
    }


def _member(item: Values) -> StreamsMember:
    return StreamsMember(
        member_id=item["id"],
        rack_id=item["rack"],
        client_id=item["client"],
        client_host=item["host"],
        rebalance_timeout_ms=item["rebalance_ms"],
        topology_epoch=item["topology_epoch"],
        process_id=item["process"],
        endpoint=None if item["endpoint"] is None else Endpoint(*item["endpoint"]),
        tags=item["tags"],
        epoch=item["epoch"],
        previous_epoch=item["previous"],
        state=MemberState(item["state"]),
        active=_with_epochs(item["active"]),
        standby=_flat(item["standby"]),
        revoking_active=_with_epochs(item["revoking_active"]),
        revoking_standby=_flat(item["revoking_standby"]),
    )


def _grouped(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        found.setdefault(task.subtopology_id, []).append(task.partition)
    return found


def _flat(grouped: Mapping[str, list[int]]) -> frozenset[TaskId]:
    return frozenset(TaskId(name, partition) for name, partitions in grouped.items() for partition in partitions)


def _by_epoch(tasks: Mapping[TaskId, int]) -> list[tuple[int, dict[str, list[int]]]]:
    epochs: dict[int, list[TaskId]] = {}
    for task, epoch in tasks.items():
        epochs.setdefault(epoch, []).append(task)
    return [(epoch, _grouped(found)) for epoch, found in sorted(epochs.items())]


def _with_epochs(epochs: Iterable[tuple[int, Mapping[str, list[int]]]]) -> dict[TaskId, int]:
    return {task: epoch for epoch, grouped in epochs for task in sorted(_flat(grouped))}
