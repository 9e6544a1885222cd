"""DescribeGroups, ListGroups, DeleteGroups.

Clients ask every server for its groups and merge the responses. This server lists the groups that it coordinates, and the groups
without a coordinator that it would take. Source: KIP-518 (state filter), KIP-848 (types), KIP-1043 (errors of DescribeGroups).
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import share_offsets
from bearlake.protocols.kafka.handlers.coordinators import coordinator_for
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import may_describe
from bearlake.protocols.kafka.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from bearlake.protocols.kafka.rendered import Rendered, render
from bearlake.protocols.kafka.rights import NO_OPERATIONS, group_operations, on_group, sees_group
from bearlake.streams.groups.model import Group, GroupKind, GroupState, Summary
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.principal import Operation, Resource
from bearlake.streams.turns import in_turns

_NOT_FOUND_FROM = 6
_AT_ONCE = 16


async def describe(context: KafkaContext, caller: Caller, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """The state and members of each group; an unknown group is "Dead"."""
    return DescribeGroupsResponse(
        groups=[
            await _describe(context, caller, name, request.include_authorized_operations)
            async for part in in_turns(request.groups)
            for name in part
        ]
    )


async def _describe(
    context: KafkaContext, caller: Caller, name: str, with_operations: bool
) -> DescribeGroupsResponse.Group:
    answer = DescribeGroupsResponse.Group(
        group_id=name,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
        error_message=None,
        authorized_operations=group_operations(context, caller, name) if with_operations else NO_OPERATIONS,
    )
    if not may_describe(context, caller, name):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer
    missing = f"Group {name} not found."
    try:
        group = await context.groups.describe(name)
        if group.kind is GroupKind.CLASSIC:
            _fill(answer, group)
            return answer
        missing = f"Group {name} is not a classic group."
    except GroupRefusal as refusal:
        if refusal.problem is not Problem.NOT_FOUND:
            answer.error_code = code_of(refusal)
            return answer
    answer.group_state = GroupState.DEAD.value
    if caller.version >= _NOT_FOUND_FROM:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = missing
    return answer


def _fill(answer: DescribeGroupsResponse.Group, group: Group) -> None:
    answer.group_state = group.state.value
    answer.protocol_type = group.protocol_type
    is_stable = group.state is GroupState.STABLE
    answer.protocol_data = group.protocol_name if is_stable else ""
    for member in group.members.values():
        answer.members.append(
            DescribeGroupsResponse.Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
        )


async def list_groups(
    context: KafkaContext, caller: Caller, request: ListGroupsRequest
) -> ListGroupsResponse | Rendered:
    """The groups that this server coordinates or would take, filtered by state and type."""
    answer = ListGroupsResponse(groups=[])
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    sees_all = context.streams.authorizer.administers(caller.who, Operation.DESCRIBE)
    owned = context.groups.summaries()
    found: dict[str, _Listed] = {
        name: _listed(group) for name, group in owned.items() if group.generation or group.member_count
    }
    try:
        own: list[str] = []
        async for part in in_turns(await context.groups.all()):
            for listing in part:
                if listing.group not in owned:
                    if coordinator_for(context, caller, listing.group).ref.node_id == context.node_id:
                        own.append(listing.group)
                elif listing.group not in found:
                    found[listing.group] = _Listed(listing.protocol_type, GroupState.EMPTY.value, GroupKind.CLASSIC)
        found |= await _states_of(context, own)
    except GroupRefusal as refusal:
        answer.error_code = code_of(refusal)
        return answer
    async for several in in_turns(sorted(found.items())):
        for name, (protocol_type, state, kind) in several:
            is_listed = (not states or state.lower() in states) and (not types or kind.value in types)
            if is_listed and (sees_all or sees_group(context, caller, name)):
                answer.groups.append(
                    ListGroupsResponse.Group(
                        group_id=name, protocol_type=protocol_type, group_state=state, group_type=kind.value
                    )
                )
    return await render(context.workers, codec.ApiKey.LIST_GROUPS, caller.version, len(answer.groups), lambda: answer)


class _Listed(NamedTuple):
    """A group in a list."""

    protocol_type: str
    state: str
    kind: GroupKind


def _listed(group: Summary) -> _Listed:
    return _Listed(group.protocol_type, group.state.value, group.kind)


async def _states_of(context: KafkaContext, names: Sequence[str]) -> dict[str, _Listed]:
    """Protocol types, states and kinds of groups that may have no coordinator; omits deleted groups and groups of other coordinators."""
    found: dict[str, _Listed] = {}

    async def look(name: str) -> None:
        try:
            group = await context.groups.describe(name)
        except GroupRefusal as refusal:
            if refusal.problem not in (Problem.NOT_COORDINATOR, Problem.NOT_FOUND):
                raise
        else:
            found[name] = _Listed(group.protocol_type, group.state.value, group.kind)

    for start in range(0, len(names), _AT_ONCE):
        await asyncio.gather(*(look(name) for name in names[start : start + _AT_ONCE]))
    return found


async def delete(context: KafkaContext, caller: Caller, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete empty groups and their offsets."""
    results = []
    for name in request.groups_names:
        answer = DeleteGroupsResponse.Group(group_id=name)
        results.append(answer)
        if not on_group(context, caller, Operation.DELETE, name):
            answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            continue
        try:
            with context.streams.audit.change(caller.who, Operation.DELETE, Resource.GROUP.value, name):
                if (await context.groups.describe(name)).kind is GroupKind.SHARE:
                    await share_offsets.delete_group(context, name)
                else:
                    await context.groups.delete(name)
        except GroupRefusal as refusal:
            answer.error_code = code_of(refusal)
    return DeleteGroupsResponse(results=results)
