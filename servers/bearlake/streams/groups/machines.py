"""What the owner of a group asks of its state machine, whichever protocol the group uses."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.model import Group, Joined, JoinRequest, MemberRef, Summary, Synced
from bearlake.streams.groups.problems import Problem


class GroupMachine(Protocol):
    """Runs one group. Requests raise `GroupRefusal`."""

    def join(self, request: JoinRequest) -> asyncio.Future[Joined]:
        """Join or rejoin with the classic protocol."""

    def sync(
        self, ref: MemberRef, protocol: tuple[str | None, str | None], assignments: Mapping[str, bytes]
    ) -> asyncio.Future[Synced]:
        """Give or get assignments of the classic protocol."""

    def heartbeat(self, ref: MemberRef) -> None:
        """Renew a session of the classic protocol."""

    def leave(self, ref: MemberRef) -> str:
        """Remove a member; returns its id."""

    def check_commit(
        self, ref: MemberRef, partitions: Collection[PartitionKey] = (), *, knows_epochs: bool = False
    ) -> None:
        """Raise `GroupRefusal` unless the member may commit offsets of these partitions now. `knows_epochs`: it sent a member epoch."""

    def renew_session(self, member_id: str) -> None:
        """Renew the member's session: it sent a request, whatever its outcome."""

    def close(self, problem: Problem) -> None:
        """Stop all timers and refuse all waiting members."""

    def saved(self, ticket: int) -> None:
        """The save with this ticket succeeded."""

    def save_failed(self, ticket: int) -> None:
        """The save with this ticket failed."""

    def encode(self) -> tuple[str, bytes]:
        """Return the protocol type and the snapshot of the group."""

    def view(self) -> Group:
        """Return the group as a classic one; the caller must not change it."""

    def summary(self) -> Summary:
        """Return what lists show."""

    def static_id(self, member_id: str) -> str | None:
        """Return the member's group instance id; None if it has none, or is unknown."""
