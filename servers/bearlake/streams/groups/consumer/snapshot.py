"""The snapshot of a consumer group in the store: JSON, version 2. Version 1 is that of classic groups (`streams/groups/model.py`).

    {"version": 2, "epoch", "assignment_epoch", "assignor", "topics": {name: [stream number, partition count]},
     "matches": {digest: [name]},
     "members": [{"id", "instance", "rack", "client", "host", "rebalance_ms", "topics", "pattern", "matches", "assignor",
                  "classic": null | {"session_ms", "protocols": [[name, base64]]},
                  "epoch", "previous", "state", "assigned": [[epoch, [partition]]], "revoking": …, "target": [partition]}]}

A member's "matches" is the digest of the topics that match its pattern; members with the same pattern share the list.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial

from bearlake.errors import Corrupt
from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer import snapshot_frame
from bearlake.streams.groups.consumer.model import ClassicMember, ConsumerGroup, ConsumerMember, MemberState
from bearlake.streams.groups.consumer.snapshot_frame import Values

VERSION = 2


def encode(group: ConsumerGroup) -> bytes:
    """Encode the group."""
    matches = {member.matches for member in group.members.values() if member.matches}
    group.digests = {names: group.digests.get(names) or _digest(names) for names in matches}
    lists = {digest: sorted(names) for names, digest in group.digests.items()}
    return snapshot_frame.encode(group, VERSION, {"matches": lists}, partial(_fields, group))


def is_consumer(snapshot: bytes) -> bool:
    """Whether the snapshot is of a consumer group. Raises `Corrupt`."""
    try:
        return bool(json.loads(snapshot)["version"] == VERSION)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot of a group is damaged: {error}") from error


def decode(name: str, snapshot: bytes) -> ConsumerGroup:
    """Decode a snapshot. Raises `Corrupt`."""
    return snapshot_frame.decode(ConsumerGroup(name=name), snapshot, VERSION, _members)


def _digest(names: frozenset[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=16).hexdigest()


def _fields(group: ConsumerGroup, member: ConsumerMember) -> dict[str, object]:
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


def _members(group: ConsumerGroup, values: Values) -> Iterable[ConsumerMember]:
    matches = {digest: frozenset(names) for digest, names in values["matches"].items()}
    return (_member(item, matches) for item in values["members"])


def _member(item: Values, matches: Mapping[str, frozenset[str]]) -> ConsumerMember:
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
