"""Members that left in a rebalance which another coordinator has to finish.

A coordinator saves a group at the end of a rebalance. If it releases the group earlier, the stored snapshot still has the members that
have left since. The next coordinator would keep their partitions for them, and its rebalances would wait for them, until their sessions
expire. So the coordinator shortens their sessions in the snapshot before it releases the lease. They then expire soon after
the next coordinator has taken the group, and the others rebalance.
"""

from dataclasses import dataclass, replace

from bearlake.metadata.model import GroupSnapshot
from bearlake.streams.groups.model import Group, GroupState

DEPARTED_SESSION_MS = 100
"""Session timeout (ms) of a departed member at the next coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Who is in a group while it rebalances."""

    member_ids: frozenset[str]
    instance_ids: frozenset[str]


def present_in(group: Group) -> Present | None:
    """Return who is in a group that rebalances; None if the group does not rebalance."""
    if group.state not in (GroupState.PREPARING, GroupState.COMPLETING):
        return None
    return Present(member_ids=frozenset(group.members), instance_ids=frozenset(group.static))


def expired(stored: GroupSnapshot, present: Present) -> GroupSnapshot | None:
    """Shorten the sessions of members that are not present; None if there is no such member. Raises `Corrupt`."""
    group = Group.decode(stored.group, stored.protocol_type, stored.state)
    departed = [
        member
        for member in group.members.values()
        if member.member_id not in present.member_ids and member.instance_id not in present.instance_ids
    ]
    for member in departed:
        member.session_timeout_ms = DEPARTED_SESSION_MS
    return replace(stored, state=group.encode()) if departed else None
