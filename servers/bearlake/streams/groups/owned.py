"""A group that this server coordinates: its lease, and its state machine."""

import asyncio

from bearlake.metadata.model import GroupSnapshot
from bearlake.streams.groups.model import Group
from bearlake.streams.groups.rebalance import Rebalancer
from bearlake.streams.groups.revisions import Revisions
from bearlake.streams.tenure import HeldLease


def lease_name(group: str) -> str:
    """Return the name of the lease that a group's coordinator holds."""
    return f"group/{group}"


class Owned:
    """A group that this server coordinates."""

    def __init__(self, held: HeldLease, rebalancer: Rebalancer, revisions: Revisions) -> None:
        self.held = held
        """Confirms, before each answer, that this server still owns the group."""
        self.lease = held.lease
        self.rebalancer = rebalancer
        self.revisions = revisions
        """Revisions of the group's members and partitions; each take-over starts a new term."""
        self.lock = asyncio.Lock()  # writes of the group run one at a time, in order
        self.last_used = asyncio.get_running_loop().time()


def restore(name: str, snapshot: GroupSnapshot | None) -> Group:
    """Restore a group from its snapshot; a new group if there is no snapshot."""
    if snapshot is None:
        return Group(name=name)
    return Group.decode(name, snapshot.protocol_type, snapshot.state)
