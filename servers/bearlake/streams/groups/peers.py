"""Coordinators in other servers: what `shared.py` needs to know of the deployment, declared here and carried out above.

A group has one coordinator, in the server that holds its lease. Members live in any server: a Kafka client asks the coordinator by
itself, a member of REST or gRPC lives in a server that may be another one. `Coordination` is what it asks, the same near and far.
"""

from collections.abc import Mapping
from typing import Protocol

from bearlake.metadata.model import CommittedOffset, PartitionKey, ServerRef
from bearlake.streams.groups.model import Group, Joined, JoinRequest, Synced


class Coordination(Protocol):
    """What members ask of a coordinator. Everything raises `GroupRefusal`; NOT_COORDINATOR: it is another one by now."""

    async def join(self, name: str, request: JoinRequest) -> Joined:
        """Join or rejoin a group; waits for the round to complete."""

    async def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """Give or get assignments; waits for the leader."""

    async def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """A member is alive."""

    async def leave(self, name: str, member_id: str, instance_id: str | None) -> str:
        """A member leaves; returns its id."""

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """Commit offsets as a member, or with generation -1 and no member id as a client that manages itself."""

    async def describe(self, name: str) -> Group:
        """The group as it is now, or was a moment ago; not to be changed."""


class Peers(Protocol):
    """Which servers coordinate groups, and the way to them; no waiting."""

    def may_coordinate(self) -> bool:
        """Whether this server may take groups over now."""

    def chosen(self, group: str) -> ServerRef | None:
        """The server that shall take the group when nobody has it; None when there is none."""

    def reach(self, server: ServerRef) -> Coordination | None:
        """The way to another server; None when it is not known to be live."""


class Alone:
    """`Peers` of a server without others."""

    def __init__(self, server: ServerRef) -> None:
        self._server = server

    def may_coordinate(self) -> bool:
        """Always."""
        return True

    def chosen(self, group: str) -> ServerRef | None:
        """This server."""
        return self._server

    def reach(self, server: ServerRef) -> Coordination | None:
        """Nobody."""
        return None
