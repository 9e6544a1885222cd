"""Group coordination on this server: which groups it owns, their state machines, and their storage.

A group is owned through a lease (`group/<name>`), which lives as long as this server's registration. The first request for a group
takes the lease if nobody live has it and loads the last snapshot; every write carries the lease, so a coordinator that was overtaken
is fenced, forgets the group and answers NOT_COORDINATOR. What needs no write is confirmed (I14): the answer waits for a look into the
store that began after the question came, shared by all questions of that moment (`streams/tenure.py`). So no member hears that its
generation goes on from a coordinator that had lost the group before. Members keep their ids and generation across the change.
Which servers take groups is not decided here (`peers.py`), nor is the way to groups of other servers (`shared.py`).

Committed offsets are read from the store directly, as of now, on any server. They are written with the lease.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from bearlake.errors import BearlakeError, Conflict, Fenced, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import (
    CommittedOffset,
    GroupListing,
    GroupSnapshot,
    Lease,
    PartitionKey,
    ServerRef,
)
from bearlake.streams.groups.model import Group, GroupState, Joined, JoinRequest, Synced
from bearlake.streams.groups.owned import Owned, lease_name, restore
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.rebalance import Rebalancer
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.tenure import HeldLease, Tenure
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

PAGE_SIZE = 1000
DRAIN_COUNT = 32
"""Groups that are given up at once."""


class Coordinator:
    """All groups that this server coordinates. Used from the event loop's thread only."""

    def __init__(
        self,
        metadata: Metadata,
        server: ServerRef,
        settings: GroupSettings,
        may_take: Callable[[], bool] = lambda: True,
        tenure: Tenure | None = None,
    ) -> None:
        """`may_take` says whether this server may take groups over now; those that it has it keeps until `hand_over`."""
        self._tenure = tenure or Tenure(metadata.servers, server)
        self._metadata = metadata
        self.server = server
        self._may_take = may_take
        self.settings = settings
        self._owned: dict[str, Owned] = {}
        self._opening: dict[str, asyncio.Task[Owned]] = {}
        self._releasing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False
        metrics.GROUPS_OWNED.set_function(lambda: len(self._owned))
        metrics.GROUP_MEMBERS.set_function(
            lambda: sum(len(owned.rebalancer.group.members) for owned in self._owned.values())
        )

    async def run(self) -> None:
        """Give up groups that have been empty for long; ends only by cancellation."""
        while True:
            await asyncio.sleep(min(self.settings.idle_ms / 4, 60_000) / 1000)
            await self.give_up_idle()

    async def give_up_idle(self) -> None:
        """One round of `run`."""
        now = asyncio.get_running_loop().time()
        for name, owned in list(self._owned.items()):
            group = owned.rebalancer.group
            is_idle = group.state is GroupState.EMPTY and not group.pending and not owned.lock.locked()
            if is_idle and (now - owned.last_used) * 1000 > self.settings.idle_ms:
                async with owned.lock:
                    await self._delete_unused(name, owned)
                    await self._give_up(name, owned)

    async def _delete_unused(self, name: str, owned: Owned) -> None:
        """Forget an empty group that has no offsets: nobody would miss it (consoles make a group for each run)."""
        try:
            if not await self._metadata.groups.offsets(name):
                await self._metadata.groups.delete(name, owned.lease)
        except NotFound:
            return
        except BearlakeError as error:
            log.warning("unused group not deleted", extra={"group": name, "error": repr(error)})

    async def drain(self) -> None:
        """Take no groups any more, and give up all: see `give_up_all`."""
        self._is_draining = True
        await self.give_up_all()

    async def hand_over(self) -> None:
        """Give up all groups if other servers shall have them."""
        if self._owned and not self._may_take():
            log.info("groups are handed over", extra={"groups": len(self._owned)})
            await self.give_up_all()

    async def give_up_all(self) -> None:
        """Give up all groups: members are told NOT_COORDINATOR and find the next one, with their generation."""
        for start in range(0, len(names := list(self._owned)), DRAIN_COUNT):
            await asyncio.gather(*(self._give_up_named(name) for name in names[start : start + DRAIN_COUNT]))

    async def _give_up_named(self, name: str) -> None:
        owned = self._owned.get(name)
        if owned is not None:
            async with owned.lock:  # what is being written is finished first
                if self._owned.get(name) is owned:
                    await self._give_up(name, owned)

    async def close(self) -> None:
        """Stop all timers and tasks."""
        for owned in self._owned.values():
            owned.rebalancer.close(Problem.NOT_COORDINATOR)
        self._owned.clear()
        tasks = [*self._tasks, *self._opening.values(), *self._releasing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._tenure.close()

    # -- membership ----------------------------------------------------------------------------------------------

    async def join(self, name: str, request: JoinRequest) -> Joined:
        """Join or rejoin a group; waits for the round to complete. Raises `GroupRefusal`."""
        settings = self.settings
        _require_name(name)
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            raise GroupRefusal(Problem.INVALID_SESSION_TIMEOUT)
        owned = await self._open_confirmed(name, request.member_id)
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
    ) -> Synced:
        """Give or get assignments; waits for the leader. Raises `GroupRefusal`."""
        _require_name(name)
        rebalancer = (await self._open_confirmed(name, member_id)).rebalancer
        return await asyncio.shield(rebalancer.sync(member_id, instance_id, generation, protocol, assignments))

    async def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """A member is alive. Raises `GroupRefusal`."""
        _require_name(name)
        (await self._open_confirmed(name, member_id)).rebalancer.heartbeat(member_id, instance_id, generation)

    async def leave(self, name: str, member_id: str, instance_id: str | None) -> str:
        """A member leaves; returns its id. Raises `GroupRefusal`."""
        _require_name(name)
        return (await self._open_confirmed(name, member_id)).rebalancer.leave(member_id, instance_id)

    # -- offsets -------------------------------------------------------------------------------------------------

    async def commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """Commit offsets as a member, or with generation -1 and no member id as a client that manages itself. Raises `GroupRefusal`."""
        owned = await self._open(name)
        owned.rebalancer.check_commit(member_id, instance_id, generation)
        if not offsets:
            await self._confirm(name, owned)
        else:
            await self._write(owned, name, lambda: self._metadata.groups.commit_offsets(name, offsets, owned.lease))
            metrics.GROUP_OFFSET_COMMITS.inc()

    async def offsets(
        self, name: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        """Committed offsets, the store's truth as of now; those never committed are left out. Raises `GroupRefusal`."""
        try:
            return await self._metadata.groups.offsets(name, partitions)
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    async def delete_offsets(self, name: str, partitions: Collection[PartitionKey]) -> None:
        """Forget committed offsets. Raises `GroupRefusal` (NOT_FOUND: no such group)."""
        owned = await self._open_existing(name)
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

    # -- being sure (I14) ----------------------------------------------------------------------------------------

    async def _confirm(self, name: str, owned: Owned) -> None:
        """Return if the group was this server's at a moment after the call. Raises `GroupRefusal`."""
        try:
            await owned.held.confirm()
        except Fenced as error:
            self._forget(name, owned)
            raise GroupRefusal(Problem.NOT_COORDINATOR, str(error)) from error
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
        if self._owned.get(name) is not owned:
            raise GroupRefusal(Problem.NOT_COORDINATOR)

    async def verify(self) -> None:
        """After a lapse: look all leases up without being asked, so that members who wait in a round learn of a new coordinator."""
        doubted = [(name, owned) for name, owned in self._owned.items() if owned.held.is_doubted]
        for start in range(0, len(doubted), DRAIN_COUNT):
            part = doubted[start : start + DRAIN_COUNT]
            await asyncio.gather(*(self._confirm(name, owned) for name, owned in part), return_exceptions=True)

    # -- ownership -----------------------------------------------------------------------------------------------

    async def _open_existing(self, name: str) -> Owned:
        owned = await self._open(name)
        group = owned.rebalancer.group
        if group.generation == 0 and not group.members and not group.pending:
            try:
                is_stored = bool(await self._metadata.groups.offsets(name))
            except BearlakeError as error:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
            if not is_stored:
                if group.state is GroupState.EMPTY and not group.pending:
                    await self._give_up(name, owned)  # whoever asks for names that do not exist leaves nothing behind
                raise GroupRefusal(Problem.NOT_FOUND)
        return owned

    async def _open(self, name: str) -> Owned:
        """The group, taken over if nobody live has it. Raises `GroupRefusal`."""
        owned = self._owned.get(name)
        if owned is None:
            if self._is_draining or not self._may_take():
                raise GroupRefusal(Problem.NOT_COORDINATOR)
            if len(self._owned) + len(self._opening) >= self.settings.count_max:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, "this server coordinates too many groups")
            task = self._opening.get(name)
            if task is None:
                task = self._opening[name] = asyncio.get_running_loop().create_task(self._take(name))
                task.add_done_callback(lambda done: self._opened(name, done))
            owned = await asyncio.shield(task)
        owned.last_used = asyncio.get_running_loop().time()
        return owned

    async def _open_confirmed(self, name: str, member_id: str) -> Owned:
        """The group, certainly this server's after the call. The session of a known member goes on while it waits for that."""
        owned = await self._open(name)
        owned.rebalancer.heard(member_id)
        await self._confirm(name, owned)
        return owned

    def _opened(self, name: str, task: asyncio.Task[Owned]) -> None:
        self._opening.pop(name, None)
        if not task.cancelled():
            task.exception()  # everybody who waited may have gone

    async def _take(self, name: str) -> Owned:
        releasing = self._releasing.get(name)
        if releasing is not None:
            await asyncio.wait([releasing])  # else that would release what we take now
        try:
            held = await HeldLease.take(self._tenure, self._metadata.leases, lease_name(name))
            group = restore(name, await self._metadata.groups.load(name))
        except (Conflict, Fenced) as error:
            metrics.LEASE_ACQUIRES.labels("refused").inc()
            raise GroupRefusal(Problem.NOT_COORDINATOR, str(error)) from error
        except BearlakeError as error:
            log.warning("group not loaded", extra={"group": name, "error": repr(error)})
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
        metrics.LEASE_ACQUIRES.labels("taken").inc()
        rebalancer = Rebalancer(
            group,
            initial_delay_ms=self.settings.initial_rebalance_delay_ms,
            size_max=self.settings.size_max,
            on_save=lambda ticket: self._save(name, owned, ticket),
            may_expire=self._tenure.is_sure,
        )
        owned = Owned(held, rebalancer)
        if self._is_draining:
            await self._give_up(name, owned)
            raise GroupRefusal(Problem.NOT_COORDINATOR)
        self._owned[name] = owned
        return owned

    def _save(self, name: str, owned: Owned, ticket: int) -> None:
        """Save the group as it is now; those who wait for that are answered then."""
        group = owned.rebalancer.group
        snapshot = GroupSnapshot(group=name, protocol_type=group.protocol_type, state=group.encode())
        task = asyncio.get_running_loop().create_task(self._save_snapshot(owned, snapshot, ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _save_snapshot(self, owned: Owned, snapshot: GroupSnapshot, ticket: int) -> None:
        name = snapshot.group
        try:
            await self._write(owned, name, lambda: self._metadata.groups.save(snapshot, owned.lease))
        except GroupRefusal as refusal:
            log.warning("group not saved", extra={"group": name, "why": str(refusal)})
            owned.rebalancer.save_failed(ticket)
        else:
            owned.rebalancer.saved(ticket)

    async def _write(self, owned: Owned, name: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One write with the lease. Raises `GroupRefusal`; `NotFound` passes."""
        async with owned.lock:
            if self._owned.get(name) is not owned:  # given up or deleted while this write waited
                raise GroupRefusal(Problem.NOT_COORDINATOR)
            try:
                await write()
            except Fenced as error:
                self._forget(name, owned)
                raise GroupRefusal(Problem.NOT_COORDINATOR, str(error)) from error
            except NotFound:
                raise
            except BearlakeError as error:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    async def _give_up(self, name: str, owned: Owned) -> None:
        self._forget(name, owned)
        task = self._releasing[name] = asyncio.get_running_loop().create_task(self._release(name, owned.lease))
        await asyncio.wait([task])

    async def _release(self, name: str, lease: Lease) -> None:
        try:
            await self._metadata.leases.release(lease)
        except BearlakeError as error:
            log.warning("lease not released, it ends with this server", extra={"group": name, "error": repr(error)})
        finally:
            if self._releasing.get(name) is asyncio.current_task():
                del self._releasing[name]

    def _forget(self, name: str, owned: Owned) -> None:
        if self._owned.get(name) is owned:
            del self._owned[name]
            owned.rebalancer.close(Problem.NOT_COORDINATOR)


def _require_name(name: str) -> None:
    """Kafka allows an empty name for offsets and administration, but not for membership."""
    if name == "":
        raise GroupRefusal(Problem.INVALID_GROUP_ID)
