"""A group that this server coordinates: its lease, and its state machine."""

import asyncio

from bearlake.metadata.model import GroupSnapshot
from bearlake.streams.groups.consumer import snapshot as consumer_snapshot
from bearlake.streams.groups.consumer import view
from bearlake.streams.groups.consumer.model import ConsumerGroup
from bearlake.streams.groups.machines import GroupMachine
from bearlake.streams.groups.model import Group
from bearlake.streams.groups.revisions import Revisions
from bearlake.streams.groups.share import snapshot as share_snapshot
from bearlake.streams.groups.share.model import ShareGroup
from bearlake.streams.groups.tasks import snapshot as streams_snapshot
from bearlake.streams.groups.tasks import view as streams_view
from bearlake.streams.groups.tasks.model import StreamsGroup
from bearlake.streams.tenure import HeldLease


def lease_name(group: str) -> str:
    """Return the name of the lease that a group's coordinator holds."""
    return f"group/{group}"


class Owned:
    """A group that this server coordinates."""

    machine: GroupMachine
    """Runs the group's protocol; replaced when the group changes its protocol."""

    def __init__(self, held: HeldLease, revisions: Revisions) -> None:
        """The caller sets `machine`."""
        self.held = held
        """Confirms, before each answer, that this server still owns the group."""
        self.lease = held.lease
        self.revisions = revisions
        """Revisions of the group's members and partitions; each take-over starts a new term."""
        self.lock = asyncio.Lock()  # writes of the group run one at a time, in order
        self.last_used = asyncio.get_running_loop().time()


AnyGroup = Group | ConsumerGroup | StreamsGroup
"""A group of any kind; share groups are consumer groups here."""


def restore(name: str, snapshot: GroupSnapshot | None) -> AnyGroup:
    """Restore a group from its snapshot; a new classic group if there is no snapshot. Raises `Corrupt`."""
    if snapshot is None:
        return Group(name=name)
    if snapshot.protocol_type == ShareGroup.protocol_type:
        return share_snapshot.decode(name, snapshot.state)
    if snapshot.protocol_type == StreamsGroup.protocol_type and streams_snapshot.is_streams(snapshot.state):
        return streams_snapshot.decode(name, snapshot.state)
    if consumer_snapshot.is_consumer(snapshot.state):
        return consumer_snapshot.decode(name, snapshot.state)
    return Group.decode(name, snapshot.protocol_type, snapshot.state)


def viewed(name: str, snapshot: GroupSnapshot | None, session_timeout_ms: int) -> Group:
    """Return a stored group as a classic one, for readers; `session_timeout_ms` as in `classic_view`. Raises `Corrupt`."""
    group = restore(name, snapshot)
    if isinstance(group, StreamsGroup):
        return streams_view.classic_view(group, session_timeout_ms)
    return view.classic_view(group, session_timeout_ms) if isinstance(group, ConsumerGroup) else group
