"""Interfaces to group coordinators on other servers, for `shared.py`; a higher layer implements them.

The coordinator of a group runs on the server that holds the group's lease. Kafka clients send requests to the coordinator themselves. A
REST or gRPC member runs inside a server, possibly another one than the coordinator's. `Coordination` is the same for local and remote
coordinators.
"""

from collections.abc import Mapping
from typing import Protocol

from bearlake.metadata.model import CommittedOffset, PartitionKey, ServerRef
from bearlake.streams.groups.model import Group, Joined, JoinRequest, MemberRef, Synced


class Coordination(Protocol):
    """Requests of members to a coordinator. All methods raise `GroupRefusal`; NOT_COORDINATOR: another server coordinates the group."""

    async def join(self, name: str, request: JoinRequest) -> Joined:
        """Join or rejoin a group; waits for the round to complete."""

    async def sync(
        self,
        member: MemberRef,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """Give or get assignments; waits for the leader."""

    async def heartbeat(self, member: MemberRef) -> None:
        """Renew a member's session."""

    async def leave(self, member: MemberRef) -> str:
        """Remove a member; returns its id."""

    async def commit(
        self,
        member: MemberRef,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """Commit offsets as a member, or, with generation -1 and no member id, as a client outside the group protocol."""

    async def delete(self, name: str) -> None:
        """Delete an empty group and its offsets."""

    async def describe(self, name: str) -> Group:
        """Return the group, possibly slightly out of date; the caller must not change it."""


class Peers(Protocol):
    """Finds the servers that coordinate groups; methods never wait."""

    def may_coordinate(self) -> bool:
        """Whether this server may take groups over now."""

    def chosen(self, group: str) -> ServerRef | None:
        """Return the server that should take the group if no server has it; None if there is no such server."""

    def reach(self, server: ServerRef) -> Coordination | None:
        """Return the coordinator interface of another server; None if the server is not known to be live."""


class Alone:
    """`Peers` of a single server."""

    def __init__(self, server: ServerRef) -> None:
        self._server = server

    def may_coordinate(self) -> bool:
        """Always True."""
        return True

    def chosen(self, group: str) -> ServerRef | None:
        """Always this server."""
        return self._server

    def reach(self, server: ServerRef) -> Coordination | None:
        """Always None."""
        return None
