"""A group that this server coordinates: its lease, and its state machine."""

import asyncio

from bearlake.metadata.model import GroupSnapshot
from bearlake.streams.groups.model import Group
from bearlake.streams.groups.rebalance import Rebalancer
from bearlake.streams.groups.revisions import Revisions
from bearlake.streams.tenure import HeldLease


def lease_name(group: str) -> str:
    """Name of the lease of a group's coordinator."""
    return f"group/{group}"


class Owned:
    """A group that this server coordinates."""

    def __init__(self, held: HeldLease, rebalancer: Rebalancer, revisions: Revisions) -> None:
        self.held = held
        """What to ask before an answer: whether the group is still this server's."""
        self.lease = held.lease
        self.rebalancer = rebalancer
        self.revisions = revisions
        """Of its members and partitions; a new term with every take-over."""
        self.lock = asyncio.Lock()  # one write of the group at a time, in order
        self.last_used = asyncio.get_running_loop().time()


def restore(name: str, snapshot: GroupSnapshot | None) -> Group:
    """The group of a snapshot; without one a new group."""
    if snapshot is None:
        return Group(name=name)
    return Group.decode(name, snapshot.protocol_type, snapshot.state)
