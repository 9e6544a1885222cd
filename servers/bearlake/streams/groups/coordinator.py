"""The group coordinator: serves requests of members and admin clients for the groups that this server owns (`ownership.py`).

A coordinator that has lost a group never confirms a member's generation. Every answer waits for a write with the lease, or for a read of
the store that began after the request arrived (I14). Members keep their ids and generation when a group moves.
`peers.py` decides which servers take groups; `shared.py` finds the coordinator of a group on another server.

Each request that changes the group takes a revision at the moment when it changes the group or enters the queue for the store.
A forwarded request names a revision; the coordinator refuses the request if it arrives late (`revisions.py`).

Any server reads committed offsets directly from the store. Writes of offsets carry the lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from bearlake.errors import BearlakeError, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.defaults import GROUP_NAME_BYTES_MAX, is_group_name
from bearlake.metadata.model import CommittedOffset, GroupListing, Lease, PartitionKey, ServerRef
from bearlake.streams.groups.consumer.heartbeats import check_assignor
from bearlake.streams.groups.consumer.machine import ConsumerMachine
from bearlake.streams.groups.consumer.model import ConsumerGroup, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.model import Group, GroupState, Joined, JoinRequest, MemberRef, Summary, Synced
from bearlake.streams.groups.owned import Owned, lease_name
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.revisions import member_subject
from bearlake.streams.groups.tasks.machine import StreamsMachine
from bearlake.telemetry import metrics

PAGE_SIZE = 1000


class Coordinator:
    """All groups that this server coordinates. Use it from the event loop's thread only."""

    def __init__(self, metadata: Metadata, ownership: Ownership) -> None:
        """`ownership` takes and releases groups; the caller runs and closes it."""
        self._metadata = metadata
        self.ownership = ownership
        self.settings = ownership.settings

    # -- membership ----------------------------------------------------------------------------------------------

    async def join(self, name: str, request: JoinRequest, *, revision: str | None = None) -> Joined:
        """Join or rejoin a group; waits for the round to complete. Raises `GroupRefusal`.

        `revision`: named by the server that forwarded the request; None for this server's own clients. Raises `Outdated` if a later
        request of the member arrived first. The other methods treat `revision` in the same way. While the store accepts no writes of the
        group, no member can join; otherwise a generation could begin that cannot be saved.
        """
        settings = self.settings
        _require_name(name)
        if "\0" in request.protocol_type:  # PostgreSQL cannot store it
            raise GroupRefusal(Problem.INCONSISTENT_PROTOCOL, "the protocol type contains NUL")
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            raise GroupRefusal(Problem.INVALID_SESSION_TIMEOUT)
        owned = await self.ownership.open_confirmed(name, request.member_id)
        await self.ownership.abandoned_writes.finish(name)
        owned.revisions.take(_subjects(owned, request.sender(name)), revision)
        self.ownership.protocols.before_join(name, owned, request)
        joining = owned.machine.join(request)
        if joining.done():
            return joining.result()
        joined = await asyncio.shield(joining)
        await self.ownership.confirm(name, owned)  # the round may have taken long
        return joined

    async def sync(
        self,
        member: MemberRef,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        *,
        revision: str | None = None,
    ) -> Synced:
        """Give or get assignments; waits for the leader. Raises `GroupRefusal`, and `Outdated` as `join`.

        A coordinator that takes the group over reuses the number of a generation that was never saved. So the generation alone does not
        reveal a late sync.
        """
        owned = await self._open_for(member)
        if revision is not None:
            owned.revisions.check(_subjects(owned, member), revision)
        return await asyncio.shield(owned.machine.sync(member, protocol, assignments))

    async def heartbeat(self, member: MemberRef) -> None:
        """Renew a member's session. Raises `GroupRefusal`."""
        (await self._open_for(member)).machine.heartbeat(member)

    async def leave(self, member: MemberRef, *, revision: str | None = None) -> str:
        """Remove a member; returns its id. Raises `GroupRefusal`, and `Outdated` as `join`."""
        owned = await self._open_for(member)
        owned.revisions.take(_subjects(owned, member), revision)
        return owned.machine.leave(member)

    # -- members of the consumer protocol ------------------------------------------------------------------------

    async def beat(self, name: str, asked: Heartbeat) -> HeartbeatAnswer:
        """Join a consumer group, stay in it, or leave it (KIP-848); waits until what changed is saved. Raises `GroupRefusal`."""
        _check_name(name)
        protocols = self.ownership.protocols
        # First, so that a refused request creates no group and does not change a group's protocol.
        check_assignor(asked, protocols.configured(name))
        if asked.epoch == 0:
            owned = await self.ownership.open_confirmed(name, asked.member_id)
        else:
            try:
                owned = await self.ownership.open_existing(name)
            except GroupRefusal as refusal:
                if refusal.problem is not Problem.NOT_FOUND:
                    raise
                kind = "Consumer group" if asked.epoch > 0 else "Group"
                raise GroupRefusal(Problem.NOT_FOUND, f"{kind} {name} not found.") from refusal
            owned.machine.renew_session(asked.member_id)
            await self.ownership.confirm(name, owned)
        await self.ownership.abandoned_writes.finish(name)
        if asked.epoch == 0:
            await protocols.before_beat(owned)
        if self.ownership.owned.get(name) is not owned:  # lost since it was confirmed
            raise GroupRefusal(Problem.NOT_COORDINATOR)
        machine = protocols.as_consumer(name, owned, may_create=asked.epoch == 0)
        if asked.epoch <= 0:
            sender = MemberRef(group=name, member_id=asked.member_id, instance_id=asked.instance_id)
            owned.revisions.take(_subjects(owned, sender), None)
        return await asyncio.shield(machine.beat(asked))

    def pattern_of(self, name: str, member_id: str) -> str:
        """Return the topic pattern of a member of the consumer protocol, if this server knows it; else an empty one."""
        owned = self.ownership.owned.get(name)
        machine = None if owned is None else owned.machine
        member = machine.group.members.get(member_id) if isinstance(machine, ConsumerMachine) else None
        return "" if member is None else member.pattern

    async def describe_consumer(self, name: str) -> ConsumerGroup:
        """Return the current group; the caller must not change it. Raises `GroupRefusal` (NOT_FOUND: no such group, or a classic one)."""
        _check_name(name)
        try:
            owned = await self.ownership.open_existing(name)
        except GroupRefusal as refusal:
            if refusal.problem is not Problem.NOT_FOUND:
                raise
            raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} not found.") from refusal
        await self.ownership.confirm(name, owned)
        return self.ownership.protocols.as_consumer(name, owned, may_create=False).group

    async def check_fetch(self, name: str, member_id: str, epoch: int) -> None:
        """Raise `GroupRefusal` unless a member may read the group's offsets in this epoch; anyone may read those of a classic group."""
        try:
            owned = await self.ownership.open_existing(name)
        except GroupRefusal as refusal:
            if refusal.problem is Problem.NOT_FOUND:
                return
            raise
        await self.ownership.confirm(name, owned)
        if isinstance(owned.machine, ConsumerMachine | StreamsMachine):
            owned.machine.check_fetch(member_id, epoch)

    async def _open_for(self, member: MemberRef) -> Owned:
        _require_name(member.group)
        return await self.ownership.open_confirmed(member.group, member.member_id)

    def revision(self, name: str) -> str:
        """Return the group's newest revision, for another server to name; empty if this server does not coordinate the group."""
        owned = self.ownership.owned.get(name)
        return "" if owned is None else owned.revisions.newest()

    # -- offsets -------------------------------------------------------------------------------------------------

    async def commit(
        self,
        member: MemberRef,
        offsets: Mapping[PartitionKey, CommittedOffset],
        *,
        revision: str | None = None,
        knows_epochs: bool = False,
    ) -> None:
        """Commit offsets as a member, or, with generation -1 and no member id, as a client outside the group protocol.

        `knows_epochs`: the member may be one of a consumer group, and its generation is its epoch. Raises `GroupRefusal`, and `Outdated`
        as `join`.
        """
        name = member.group
        _check_name(name)
        owned = await self.ownership.open(name)
        try:
            owned.machine.check_commit(member, offsets, knows_epochs=knows_epochs)
        except GroupRefusal:
            await self.ownership.confirm(name, owned)  # I14: another coordinator may know the member
            raise
        # No await from here until the write is queued, so that writes keep the order of revisions.
        owned.revisions.take([*_subjects(owned, member), *offsets], revision)
        if not offsets:
            await self.ownership.confirm(name, owned)
        else:
            await self.ownership.write(
                owned, name, lambda: self._metadata.groups.commit_offsets(name, offsets, owned.lease)
            )
            metrics.GROUP_OFFSET_COMMITS.inc()

    async def write_offsets(
        self,
        member: MemberRef,
        offsets: Mapping[PartitionKey, CommittedOffset],
        write: Callable[[Lease], Awaitable[None]],
    ) -> None:
        """Run a write of these offsets that belong to a transaction, as a member (KIP-447).

        A client that names neither a generation nor a member is not checked, as in Kafka. Raises `GroupRefusal`.
        """
        name = member.group
        _check_name(name)
        owned = await self.ownership.open(name)
        if member.generation >= 0 or member.member_id or member.instance_id is not None:
            try:
                owned.machine.check_commit(member, offsets, knows_epochs=True)
            except GroupRefusal:
                await self.ownership.confirm(name, owned)  # I14, as in `commit`
                raise

        async def run() -> None:
            await write(owned.lease)

        await self.ownership.write(owned, name, run)

    async def pending(self, name: str) -> set[PartitionKey]:
        """Return the partitions whose offset an ongoing transaction may change (KIP-447). Raises `GroupRefusal`."""
        try:
            return await self._metadata.transactions.pending(name)
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    async def offsets(
        self, name: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        """Read committed offsets from the store; partitions without a committed offset are left out. Raises `GroupRefusal`.

        A commit that this server has already answered with an error cannot change an offset after this read.
        """
        _check_name(name)
        await self.ownership.abandoned_writes.finish(name)
        try:
            return await self._metadata.groups.offsets(name, partitions)
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    async def delete_offsets(self, name: str, partitions: Collection[PartitionKey]) -> None:
        """Delete committed offsets. Raises `GroupRefusal` (NOT_FOUND: no such group)."""
        _check_name(name)
        owned = await self.ownership.open_existing(name)
        owned.revisions.take(partitions, None)
        await self.ownership.write(
            owned, name, lambda: self._metadata.groups.delete_offsets(name, partitions, owned.lease)
        )

    # -- administration ------------------------------------------------------------------------------------------

    async def describe(self, name: str) -> Group:
        """Return the current group, a consumer group as a classic one; the caller must not change it.

        Raises `GroupRefusal` (NOT_FOUND: no such group).
        """
        _check_name(name)
        owned = await self.ownership.open_existing(name)
        await self.ownership.confirm(name, owned)
        return owned.machine.view()

    async def delete(self, name: str) -> None:
        """Delete an empty group and its offsets. Raises `GroupRefusal` (NON_EMPTY, NOT_FOUND)."""
        _check_name(name)
        owned = await self.ownership.open_existing(name)
        if owned.machine.summary().state is not GroupState.EMPTY:
            await self.ownership.confirm(name, owned)
            raise GroupRefusal(Problem.NON_EMPTY)
        try:
            await self.ownership.write(owned, name, lambda: self._metadata.groups.delete(name, owned.lease))
        except NotFound as error:
            raise GroupRefusal(Problem.NOT_FOUND) from error
        finally:
            await self.ownership.release(name, owned)

    async def all(self) -> list[GroupListing]:
        """Return every stored group of the deployment, sorted by name. Raises `GroupRefusal`."""
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
        """Groups that this server coordinates now; the caller must not change them."""
        return {name: owned.machine.view() for name, owned in self.ownership.owned.items()}

    def summaries(self) -> Mapping[str, Summary]:
        """What lists show of the groups that this server coordinates now."""
        return {name: owned.machine.summary() for name, owned in self.ownership.owned.items()}

    def has(self, name: str) -> bool:
        """Whether this server coordinates the group now."""
        return name in self.ownership.owned

    async def holder(self, name: str) -> ServerRef | None:
        """Return the live server that coordinates the group now, or None if there is none. Raises `Unavailable`."""
        return (await self.holders([name])).get(name)

    async def holders(self, names: Collection[str]) -> Mapping[str, ServerRef]:
        """Return the live servers that coordinate these groups now, by group, from one read of the store. Raises `Unavailable`."""
        leases = {lease_name(name): name for name in names if is_group_name(name)}  # every server refuses other names
        found = await self._metadata.leases.holders(leases)
        return {leases[lease]: held.holder for lease, held in found.items()}


def _subjects(owned: Owned, sender: MemberRef) -> list[str]:
    """Return the member as a subject of revisions; empty for a client outside the group protocol or without a member id."""
    if sender.is_anonymous:
        return []
    if sender.instance_id is None:  # a static member may leave by its member id alone
        sender = replace(sender, instance_id=owned.machine.static_id(sender.member_id))
    return [member_subject(sender)]


def _require_name(name: str) -> None:
    """Refuse an empty name: Kafka allows an empty name for offsets and administration, but not for membership."""
    if name == "":
        raise GroupRefusal(Problem.INVALID_GROUP_ID)
    _check_name(name)


def _check_name(name: str) -> None:
    """Refuse a name that a metadata store cannot keep. Kafka's own limit is 32,767 bytes."""
    if not is_group_name(name):
        raise GroupRefusal(
            Problem.INVALID_GROUP_ID, f"a group's name has at most {GROUP_NAME_BYTES_MAX} bytes of UTF-8, without NUL"
        )
