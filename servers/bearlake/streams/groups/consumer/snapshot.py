"""The snapshot of a consumer group in the store: JSON, version 2. Version 1 is that of classic groups (`streams/groups/model.py`).

    {"version": 2, "epoch", "assignment_epoch", "assignor", "topics": {name: [stream number, partition count]},
     "matches": {digest: [name]},
     "members": [{"id", "instance", "rack", "client", "host", "rebalance_ms", "topics", "pattern", "matches", "assignor",
                  "classic": null | {"session_ms", "protocols": [[name, base64]]},
                  "epoch", "previous", "state", "assigned": [[epoch, [partition]]], "revoking": …, "target": [partition]}]}

A member's "matches" is the digest of the topics that match its pattern; members with the same pattern share the list. Each member's text
is kept until the member changes: a group is saved after each change of any member.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bearlake.errors import Corrupt
from bearlake.metadata.model import PARTITION_BITS, PartitionKey
from bearlake.streams.groups.consumer.model import ClassicMember, ConsumerGroup, ConsumerMember, MemberState, Topic

VERSION = 2
PROTOCOL_TYPE = "consumer"


def encode(group: ConsumerGroup) -> bytes:
    """Encode the group."""
    head: dict[str, object] = {
        "version": VERSION,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "topics": {name: [topic.number, topic.partition_count] for name, topic in group.topics.items()},
    }
    members, matches = [], {member.matches for member in group.members.values() if member.matches}
    group.digests = {names: group.digests.get(names) or _digest(names) for names in matches}
    head["matches"] = {digest: sorted(names) for names, digest in group.digests.items()}
    for member in group.members.values():
        if member.encoded is None:
            target = sorted(group.target.get(member.member_id, ()))
            member.encoded = json.dumps(_member(group, member) | {"target": target})
        members.append(member.encoded)
    return f'{json.dumps(head)[:-1]}, "members": [{", ".join(members)}]}}'.encode()


def is_consumer(snapshot: bytes) -> bool:
    """Whether the snapshot is of a consumer group. Raises `Corrupt`."""
    try:
        return bool(json.loads(snapshot)["version"] == VERSION)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of a group is damaged: {error}") from error


def decode(name: str, snapshot: bytes) -> ConsumerGroup:
    """Decode a snapshot. Raises `Corrupt`."""
    try:
        values: dict[str, Any] = json.loads(snapshot)
        if values["version"] != VERSION:
            raise Corrupt(f"snapshot of group {name!r} has version {values['version']}, expected {VERSION}")
        group = ConsumerGroup(
            name=name,
            epoch=values["epoch"],
            assignment_epoch=values["assignment_epoch"],
            assignor=values["assignor"],
            topics={
                topic: Topic(number, count, number << PARTITION_BITS)
                for topic, (number, count) in values["topics"].items()
            },
        )
        matches = {digest: frozenset(names) for digest, names in values["matches"].items()}
        for item in values["members"]:
            member = _decoded(item, matches)
            group.add(member)
            group.target[member.member_id] = frozenset(map(PartitionKey, item["target"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of group {name!r} is damaged: {error}") from error
    return group


def _digest(names: frozenset[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=16).hexdigest()


def _member(group: ConsumerGroup, member: ConsumerMember) -> dict[str, object]:
    classic = None
    if member.classic is not None:
        protocols = [[name, base64.b64encode(metadata).decode()] for name, metadata in member.classic.protocols]
        classic = {"session_ms": member.classic.session_timeout_ms, "protocols": protocols}
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "rack": member.rack_id,
        "client": member.client_id,
        "host": member.client_host,
        "rebalance_ms": member.rebalance_timeout_ms,
        "topics": list(member.topics),
        "pattern": member.pattern,
        "matches": group.digests[member.matches] if member.matches else None,
        "assignor": member.assignor,
        "classic": classic,
        "epoch": member.epoch,
        "previous": member.previous_epoch,
        "state": member.state.value,
        "assigned": _by_epoch(member.assigned),
        "revoking": _by_epoch(member.revoking),
    }


def _decoded(item: Mapping[str, Any], matches: Mapping[str, frozenset[str]]) -> ConsumerMember:
    classic = None
    if item["classic"] is not None:
        protocols = [(name, base64.b64decode(text, validate=True)) for name, text in item["classic"]["protocols"]]
        classic = ClassicMember(session_timeout_ms=item["classic"]["session_ms"], protocols=tuple(protocols))
    return ConsumerMember(
        member_id=item["id"],
        instance_id=item["instance"],
        rack_id=item["rack"],
        client_id=item["client"],
        client_host=item["host"],
        rebalance_timeout_ms=item["rebalance_ms"],
        topics=tuple(item["topics"]),
        pattern=item["pattern"],
        matches=frozenset() if item["matches"] is None else matches[item["matches"]],
        assignor=item["assignor"],
        classic=classic,
        epoch=item["epoch"],
        previous_epoch=item["previous"],
        state=MemberState(item["state"]),
        assigned=_flat(item["assigned"]),
        revoking=_flat(item["revoking"]),
    )


def _by_epoch(partitions: Mapping[PartitionKey, int]) -> list[tuple[int, list[int]]]:
    epochs: dict[int, list[int]] = {}
    for key, epoch in sorted(partitions.items()):
        epochs.setdefault(epoch, []).append(key)
    return sorted(epochs.items())


def _flat(epochs: list[tuple[int, list[int]]]) -> dict[PartitionKey, int]:
    return {PartitionKey(key): epoch for epoch, keys in epochs for key in keys}
