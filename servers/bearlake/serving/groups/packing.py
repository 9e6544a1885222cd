"""What servers tell each other about groups, as JSON: requests, answers, refusals. Bytes are base64.

    POST /v1/groups/join       {"group", "request": JoinRequest}                                    → Joined
    POST /v1/groups/sync       {"group", "member_id", "instance_id", "generation", "protocol",
                                "assignments": {member: bytes}}                                     → Synced
    POST /v1/groups/heartbeat  {"beats": [[group, member_id, instance_id, generation]]}             → {"problems": [null | name]}
    POST /v1/groups/leave      {"group", "member_id", "instance_id"}                                → {"member_id"}
    POST /v1/groups/commit     {"group", "member_id", "instance_id", "generation",
                                "offsets": [[partition, offset, leader_epoch, metadata]]}           → {}
    POST /v1/groups/describe   {"group"}                                                            → {"state", "protocol_type", "snapshot"}

A refusal is status 409, {"problem", "detail", "member_id"}. A join or sync that has to wait longer than one request may is status 202:
it is asked again, with the id that it has by then.

A join, a sync, a leave and a commit have a "revision": the newest one of the group that the sender knows, or ""
(`streams/groups/revisions.py`). Their answers, 202 too, have the group's newest revision. Status 412, {"revision"}: nothing was done, the
newest revision is this one. A request without the field, of an older version, is taken as it comes.

Fields are added, never changed: servers of two versions run side by side.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.streams.groups.model import Group, GroupState, Joined, JoinedMember, JoinRequest, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem

Document = dict[str, Any]
"""A JSON object; Any: its values."""


def pack_request(request: JoinRequest) -> Document:
    """A join."""
    return {**asdict(request), "protocols": [[name, text(metadata)] for name, metadata in request.protocols]}


def unpack_request(document: Document) -> JoinRequest:
    """The inverse. Raises `KeyError`, `TypeError`, `ValueError`."""
    protocols = tuple((str(name), octets(metadata)) for name, metadata in document["protocols"])
    return JoinRequest(**{**_known(JoinRequest, document), "protocols": protocols})


def pack_joined(joined: Joined) -> Document:
    """The answer to a join."""
    members = [[one.member_id, one.instance_id, text(one.metadata)] for one in joined.members]
    return {**asdict(joined), "members": members}


def unpack_joined(document: Document) -> Joined:
    """The inverse. Raises as `unpack_request`."""
    members = [
        JoinedMember(member_id=member_id, instance_id=instance_id, metadata=octets(metadata))
        for member_id, instance_id, metadata in document["members"]
    ]
    return Joined(**{**_known(Joined, document), "members": members})


def pack_synced(synced: Synced) -> Document:
    """The answer to a sync."""
    return {**asdict(synced), "assignment": text(synced.assignment)}


def unpack_synced(document: Document) -> Synced:
    """The inverse. Raises as `unpack_request`."""
    return Synced(**{**_known(Synced, document), "assignment": octets(document["assignment"])})


def pack_offsets(offsets: Mapping[PartitionKey, CommittedOffset]) -> Sequence[Sequence[object]]:
    """What is to be committed."""
    return [[key, value.offset, value.leader_epoch, value.metadata] for key, value in offsets.items()]


def unpack_offsets(rows: Sequence[Sequence[Any]]) -> dict[PartitionKey, CommittedOffset]:
    """The inverse. Raises as `unpack_request`."""
    return {
        PartitionKey(int(key)): CommittedOffset(offset=offset, leader_epoch=leader_epoch, metadata=metadata)
        for key, offset, leader_epoch, metadata in rows
    }


def pack_group(group: Group) -> Document:
    """A group as its coordinator has it."""
    return {"state": group.state.value, "protocol_type": group.protocol_type, "snapshot": text(group.encode())}


def unpack_group(name: str, document: Document) -> Group:
    """The inverse: without timers, futures and ids that are expected back. Raises as `unpack_request`, and `Corrupt`."""
    group = Group.decode(name, document["protocol_type"], octets(document["snapshot"]))
    group.state = GroupState(document["state"])
    return group


def pack_refusal(refusal: GroupRefusal) -> Document:
    """Why a coordinator refuses."""
    return {"problem": refusal.problem.name, "detail": str(refusal), "member_id": refusal.member_id}


def unpack_refusal(document: Document) -> GroupRefusal:
    """The inverse. Raises as `unpack_request`."""
    return GroupRefusal(Problem[document["problem"]], document["detail"], member_id=document["member_id"])


def pack_problems(problems: Sequence[Problem | None]) -> Document:
    """What became of heartbeats."""
    return {"problems": [None if problem is None else problem.name for problem in problems]}


def unpack_problems(document: Document) -> list[Problem | None]:
    """The inverse. Raises as `unpack_request`."""
    return [None if name is None else Problem[name] for name in document["problems"]]


def text(value: bytes) -> str:
    """Bytes in JSON."""
    return base64.b64encode(value).decode()


def octets(value: str) -> bytes:
    """The inverse. Raises `TypeError`, `ValueError`."""
    return base64.b64decode(value, validate=True)


def _known(kind: type[Any], document: Document) -> Document:
    """The fields that this version knows; a newer server may send more."""
    names = kind.__dataclass_fields__
    return {name: value for name, value in document.items() if name in names}
