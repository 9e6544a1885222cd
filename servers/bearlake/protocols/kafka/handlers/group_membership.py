"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic group protocol.

Source: Kafka protocol guide; KIP-394, KIP-345, KIP-559 (protocol type and name in sync), KIP-814.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from bearlake.protocols.kafka.rights import on_group
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.model import JoinRequest, MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns

_KNOWN_ID_FROM = 4
_NULLABLE_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9
_MANY_MEMBERS_FROM = 3


def may_describe(context: KafkaContext, caller: Caller, group: str) -> bool:
    """Whether the caller may see the group."""
    return on_group(context, caller, Operation.DESCRIBE, group)


def may_read(context: KafkaContext, caller: Caller, group: str) -> bool:
    """Whether the caller may be a member of the group."""
    return on_group(context, caller, Operation.READ, group)


def by_topic(
    find: Callable[[int], StreamView | None], partitions: Iterable[PartitionKey]
) -> Iterator[tuple[StreamView, list[int]]]:
    """Yield the topics of `partitions`, each with its partitions' indexes, in ascending order. `find` gives a stream by its number.

    Topics that are gone are left out.
    """
    for number, keys in groupby(sorted(partitions), stream_number):
        view = find(number)
        if view is not None:
            yield view, [partition_index(key) for key in keys]


async def join(context: KafkaContext, caller: Caller, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join or rejoin the group; answers when the rebalance round is complete."""
    answer = JoinGroupResponse(
        generation_id=-1,
        protocol_type=None,
        protocol_name=None if caller.version >= _NULLABLE_PROTOCOL_FROM else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )
    if not may_read(context, caller, request.group_id):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    asked = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id or "",
        client_host="/" + caller.peer.rpartition(":")[0],
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if caller.version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        requires_known_id=caller.version >= _KNOWN_ID_FROM,
        can_skip_assignment=caller.version >= _SKIP_ASSIGNMENT_FROM,
    )
    try:
        joined = await context.groups.join(request.group_id, asked)
    except GroupRefusal as refusal:
        answer.error_code = code_of(refusal)
        answer.member_id = refusal.member_id or request.member_id
        return answer
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        member_id=joined.member_id,
        skip_assignment=joined.skips_assignment,
        members=[
            JoinGroupResponse.Member(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


async def sync(context: KafkaContext, caller: Caller, request: SyncGroupRequest) -> SyncGroupResponse:
    """Submit (leader) or receive the assignment; answers when the leader's assignment is saved."""
    answer = SyncGroupResponse(protocol_type=None, protocol_name=None, assignment=b"")
    if not may_read(context, caller, request.group_id):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    try:
        synced = await context.groups.sync(
            MemberRef(
                group=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id,
            ),
            (request.protocol_type, request.protocol_name),
            {item.member_id: item.assignment for item in request.assignments},
        )
    except GroupRefusal as refusal:
        answer.error_code = code_of(refusal)
        return answer
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol_name, assignment=synced.assignment
    )


async def heartbeat(context: KafkaContext, caller: Caller, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the member's session."""
    if not may_read(context, caller, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        await context.groups.heartbeat(
            MemberRef(
                group=request.group_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=request.generation_id,
            )
        )
    except GroupRefusal as refusal:
        return HeartbeatResponse(error_code=code_of(refusal))
    return HeartbeatResponse()


async def leave(context: KafkaContext, caller: Caller, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove one member, or from version 3 on several members."""
    if not may_read(context, caller, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if caller.version < _MANY_MEMBERS_FROM:
        try:
            await context.groups.leave(MemberRef(group=request.group_id, member_id=request.member_id))
        except GroupRefusal as refusal:
            return LeaveGroupResponse(error_code=code_of(refusal))
        return LeaveGroupResponse()
    members = []
    turns = Turns()
    for member in request.members:
        if turns.is_over():
            await asyncio.sleep(0)
        answer = LeaveGroupResponse.Member(member_id=member.member_id, group_instance_id=member.group_instance_id)
        members.append(answer)
        try:
            await context.groups.leave(
                MemberRef(group=request.group_id, member_id=member.member_id, instance_id=member.group_instance_id)
            )
        except GroupRefusal as refusal:
            answer.error_code = code_of(refusal)
            if answer.error_code in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.INVALID_GROUP_ID,
            ):
                return LeaveGroupResponse(error_code=answer.error_code)
    return LeaveGroupResponse(members=members)
