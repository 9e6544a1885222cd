"""The JSON format of messages between servers about groups: requests, responses, refusals. Bytes are base64.

    POST /v1/groups/join       {"group", "request": JoinRequest}                                    → Joined
    POST /v1/groups/sync       {"group", "member_id", "instance_id", "generation", "protocol",
                                "assignments": {member: bytes}}                                     → Synced
    POST /v1/groups/heartbeat  {"beats": [[group, member_id, instance_id, generation]]}             → {"problems": [null | name]}
    POST /v1/groups/leave      {"group", "member_id", "instance_id"}                                → {"member_id"}
    POST /v1/groups/commit     {"group", "member_id", "instance_id", "generation",
                                "offsets": [[partition, offset, leader_epoch, metadata]]}           → {}
    POST /v1/groups/delete     {"group"}                                                            → {}
    POST /v1/groups/describe   {"group"}                                   → {"kind", "state", "protocol_type", "snapshot"}

A refusal is status 409, {"problem", "detail", "member_id"}. If a join or sync must wait longer than one request may, the status is 202:
the sender repeats the request, with the member id that it has by then.

A join, a sync, a leave and a commit have a "revision": the newest revision of the group that the sender knows, or ""
(`streams/groups/revisions.py`). Their responses, including 202, carry the group's newest revision. Status 412, {"revision"}: nothing was
done; the response carries the newest revision. A request of an older version, without the field, is accepted unchecked.

Fields are added, never changed: servers of two versions run side by side.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.streams.groups.model import (
    Group,
    GroupKind,
    GroupState,
    Joined,
    JoinedMember,
    JoinRequest,
    MemberRef,
    Synced,
)
from bearlake.streams.groups.problems import GroupRefusal, Problem

Document = dict[str, Any]
"""A JSON object; Any: its values."""


def pack_member(member: MemberRef) -> Document:
    """Encode the sender of a request, except a join and a heartbeat."""
    return asdict(member)


def pack_beat(member: MemberRef) -> Sequence[object]:
    """Encode one heartbeat."""
    return [member.group, member.member_id, member.instance_id, member.generation]


def pack_request(request: JoinRequest) -> Document:
    """Encode a join."""
    return {**asdict(request), "protocols": [[name, text(metadata)] for name, metadata in request.protocols]}


def pack_joined(joined: Joined) -> Document:
    """Encode the response to a join."""
    members = [[member.member_id, member.instance_id, text(member.metadata)] for member in joined.members]
    return {**asdict(joined), "members": members}


def unpack_joined(document: Document) -> Joined:
    """Decode the response to a join. Raises `KeyError`, `TypeError`, `ValueError`."""
    members = [
        JoinedMember(member_id=member_id, instance_id=instance_id, metadata=octets(metadata))
        for member_id, instance_id, metadata in document["members"]
    ]
    return Joined(**{**_known(Joined, document), "members": members})


def pack_synced(synced: Synced) -> Document:
    """Encode the response to a sync."""
    return {**asdict(synced), "assignment": text(synced.assignment)}


def unpack_synced(document: Document) -> Synced:
    """Decode the response to a sync. Raises as `unpack_joined`."""
    return Synced(**{**_known(Synced, document), "assignment": octets(document["assignment"])})


def pack_offsets(offsets: Mapping[PartitionKey, CommittedOffset]) -> Sequence[Sequence[object]]:
    """Encode the offsets to commit."""
    return [[key, value.offset, value.leader_epoch, value.metadata] for key, value in offsets.items()]


def pack_group(group: Group) -> Document:
    """Encode a group as its coordinator has it."""
    return {
        "kind": group.kind.value,
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "snapshot": text(group.encode()),
    }


def unpack_group(name: str, document: Document) -> Group:
    """Decode a group, without timers, futures and pending member ids. Raises as `unpack_joined`, and `Corrupt`."""
    group = Group.decode(name, document["protocol_type"], octets(document["snapshot"]))
    group.kind = GroupKind(document.get("kind", GroupKind.CLASSIC.value))
    group.state = GroupState(document["state"])
    return group


def pack_refusal(refusal: GroupRefusal) -> Document:
    """Encode a coordinator's refusal."""
    return {"problem": refusal.problem.name, "detail": str(refusal), "member_id": refusal.member_id}


def unpack_refusal(document: Document) -> GroupRefusal:
    """Decode a refusal. Raises as `unpack_joined`."""
    return GroupRefusal(Problem[document["problem"]], document["detail"], member_id=document["member_id"])


def pack_problems(problems: Sequence[Problem | None]) -> Document:
    """Encode the results of heartbeats."""
    return {"problems": [None if problem is None else problem.name for problem in problems]}


def unpack_problems(document: Document) -> list[Problem | None]:
    """Decode the results of heartbeats. Raises as `unpack_joined`."""
    return [None if name is None else Problem[name] for name in document["problems"]]


def text(value: bytes) -> str:
    """Encode bytes for JSON."""
    return base64.b64encode(value).decode()


def octets(value: str) -> bytes:
    """Decode bytes from JSON. Raises `TypeError`, `ValueError`."""
    return base64.b64decode(value, validate=True)


def _known(kind: type[Any], document: Document) -> Document:
    """Return only the fields that this version knows; a newer server may send more."""
    names = kind.__dataclass_fields__
    return {name: value for name, value in document.items() if name in names}
