"""Group coordination on this server: what members and administrators ask of the groups that it owns (`ownership.py`).

No member hears that its generation goes on from a coordinator that had lost the group before: every answer waits for a write with the
lease, or for a look into the store that began after the question came (I14). Members keep their ids and generation when a group moves.
Which servers take groups is not decided here (`peers.py`), nor is the way to groups of other servers (`shared.py`).

Each request that changes the group takes a revision in the step in which it changes the group, or gets its place in the line for the
store. A request that another server forwards names a revision, and is refused if it arrives late (`revisions.py`).

Committed offsets are read from the store directly, as of now, on any server. They are written with the lease.
"""

import asyncio
from collections.abc import Collection, Mapping

from bearlake.errors import BearlakeError, NotFound
from bearlake.metadata.model import CommittedOffset, GroupListing, PartitionKey, ServerRef
from bearlake.streams.groups.model import Group, GroupState, Joined, JoinRequest, Synced
from bearlake.streams.groups.owned import Owned, lease_name
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.revisions import member_subject
from bearlake.telemetry import metrics

PAGE_SIZE = 1000


class Coordinator(Ownership):
    """All groups that this server coordinates. Used from the event loop's thread only."""

    # -- membership ----------------------------------------------------------------------------------------------

    async def join(self, name: str, request: JoinRequest, *, revision: str | None = None) -> Joined:
        """Join or rejoin a group; waits for the round to complete. Raises `GroupRefusal`.

        `revision` is the one that another server named with a request that it forwards; None for this server's own clients. Raises
        `Outdated` if a later request of the member came first. So with the others. While the store takes no writes of the group nobody
        joins a round, so that no new generation begins that could not be saved.
        """
        settings = self.settings
        _require_name(name)
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            raise GroupRefusal(Problem.INVALID_SESSION_TIMEOUT)
        owned = await self._open_confirmed(name, request.member_id)
        await self._settle(name)
        owned.revisions.take(_who(owned, request.member_id, request.instance_id), revision)
        joining = owned.rebalancer.join(request)
        if joining.done():
            return joining.result()
        joined = await asyncio.shield(joining)
        await self._confirm(name, owned)  # it may have waited for long
        return joined

    async def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        *,
        revision: str | None = None,
    ) -> Synced:
        """Give or get assignments; waits for the leader. Raises `GroupRefusal`, and `Outdated` as `join`.

        A generation that was never saved is given again by the next coordinator, so that the generation alone does not tell a late sync.
        """
        _require_name(name)
        owned = await self._open_confirmed(name, member_id)
        if revision is not None:
            owned.revisions.check(_who(owned, member_id, instance_id), revision)
        return await asyncio.shield(owned.rebalancer.sync(member_id, instance_id, generation, protocol, assignments))

    async def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """A member is alive. Raises `GroupRefusal`."""
        _require_name(name)
        (await self._open_confirmed(name, member_id)).rebalancer.heartbeat(member_id, instance_id, generation)

    async def leave(self, name: str, member_id: str, instance_id: str | None, *, revision: str | None = None) -> str:
        """A member leaves; returns its id. Raises `GroupRefusal`, and `Outdated` as `join`."""
        _require_name(name)
        owned = await self._open_confirmed(name, member_id)
        owned.revisions.take(_who(owned, member_id, instance_id), revision)
        return owned.rebalancer.leave(member_id, instance_id)

    def revision(self, name: str) -> str:
        """The group's newest revision, to be told to another server; empty when the group is not this server's."""
        owned = self._owned.get(name)
        return "" if owned is None else owned.revisions.tell()

    # -- offsets -------------------------------------------------------------------------------------------------

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[PartitionKey, CommittedOffset],
        *,
        revision: str | None = None,
    ) -> None:
        """Commit offsets as a member, or with generation -1 and no member id as a client that manages itself.

        Raises `GroupRefusal`, and `Outdated` as `join`.
        """
        owned = await self._open(name)
        try:
            owned.rebalancer.check_commit(member_id, instance_id, generation)
        except GroupRefusal:
            await self._confirm(name, owned)  # I14: another coordinator may know the member
            raise
        # From here to the line for the write nothing waits: writes keep the order of revisions.
        owned.revisions.take([*_who(owned, member_id, instance_id), *offsets], revision)
        if not offsets:
            await self._confirm(name, owned)
        else:
            await self._write(owned, name, lambda: self._metadata.groups.commit_offsets(name, offsets, owned.lease))
            metrics.GROUP_OFFSET_COMMITS.inc()

    async def offsets(
        self, name: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        """Committed offsets, the store's truth as of now; those never committed are left out. Raises `GroupRefusal`.

        What was read does not change through a commit that this server has answered with an error before.
        """
        await self._settle(name)
        try:
            return await self._metadata.groups.offsets(name, partitions)
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    async def delete_offsets(self, name: str, partitions: Collection[PartitionKey]) -> None:
        """Forget committed offsets. Raises `GroupRefusal` (NOT_FOUND: no such group)."""
        owned = await self._open_existing(name)
        owned.revisions.take(partitions, None)
        await self._write(owned, name, lambda: self._metadata.groups.delete_offsets(name, partitions, owned.lease))

    # -- administration ------------------------------------------------------------------------------------------

    async def describe(self, name: str) -> Group:
        """The group as it is now; not to be changed. Raises `GroupRefusal` (NOT_FOUND: no such group)."""
        owned = await self._open_existing(name)
        await self._confirm(name, owned)
        return owned.rebalancer.group

    async def delete(self, name: str) -> None:
        """Forget an empty group and its offsets. Raises `GroupRefusal` (NON_EMPTY, NOT_FOUND)."""
        owned = await self._open_existing(name)
        if owned.rebalancer.group.state is not GroupState.EMPTY:
            await self._confirm(name, owned)
            raise GroupRefusal(Problem.NON_EMPTY)
        try:
            await self._write(owned, name, lambda: self._metadata.groups.delete(name, owned.lease))
        except NotFound as error:
            raise GroupRefusal(Problem.NOT_FOUND) from error
        finally:
            await self._give_up(name, owned)

    async def all(self) -> list[GroupListing]:
        """Every group of the deployment that is stored, by name. Raises `GroupRefusal`."""
        found: list[GroupListing] = []
        try:
            while True:
                page = await self._metadata.groups.list(after=found[-1].group if found else "", limit=PAGE_SIZE)
                found += page
                if len(page) < PAGE_SIZE:
                    return found
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    def owned(self) -> Mapping[str, Group]:
        """Groups that this server coordinates now; not to be changed."""
        return {name: owned.rebalancer.group for name, owned in self._owned.items()}

    def has(self, name: str) -> bool:
        """Whether this server coordinates the group now."""
        return name in self._owned

    async def holder(self, name: str) -> ServerRef | None:
        """The live server that coordinates the group now, or None when nobody does. Raises `Unavailable`."""
        lease = await self._metadata.leases.holder(lease_name(name))
        return lease.holder if lease is not None else None


def _who(owned: Owned, member_id: str, instance_id: str | None) -> list[str]:
    """The member as a subject of revisions; nobody for a client that manages itself, or does not know its id yet."""
    if member_id == "" and instance_id is None:
        return []
    member = owned.rebalancer.group.members.get(member_id)
    if instance_id is None and member is not None:
        instance_id = member.instance_id  # a static member may leave by its id alone
    return [member_subject(member_id, instance_id)]


def _require_name(name: str) -> None:
    """Kafka allows an empty name for offsets and administration, but not for membership."""
    if name == "":
        raise GroupRefusal(Problem.INVALID_GROUP_ID)
