"""Groups that this server owns: takes leases, loads groups, confirms ownership (I14), writes, and releases groups.

This server owns a group through a lease (`group/<name>`), which lasts as long as the server's registration. The first request for a group
takes the lease, if no live server holds it, and loads the last snapshot. Every write carries the lease: if another server has taken the
group, the store fences the write, and this server forgets the group and answers NOT_COORDINATOR. An answer without a write waits for a
read of the store that began after the request arrived; concurrent requests share that read (`streams/tenure.py`).

A write that this server abandoned may still take effect until the next write begins (I12, `abandoned_writes.py`). While a group has
an abandoned write, this server does not return its offsets and lets no member join.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from bearlake.errors import BearlakeError, Conflict, Corrupt, Fenced, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import GroupSnapshot, Lease, ServerRef
from bearlake.streams.groups import departures
from bearlake.streams.groups.abandoned_writes import AbandonedWrites
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.machines import GroupMachine
from bearlake.streams.groups.model import Group, GroupKind, GroupState
from bearlake.streams.groups.owned import AnyGroup, Owned, lease_name, restore
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.protocols import Protocols
from bearlake.streams.groups.revisions import Revisions
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.tenure import HeldLease, Tenure
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import fault, noticed

log = logging.getLogger(__name__)

DRAIN_COUNT = 32
"""Groups released concurrently."""
_RESTORED_AT_ONCE_BYTES = 131_072
"""Size of a snapshot that is decoded on the event loop: about 10 ms."""


class Ownership:
    """The groups that this server owns. Use it from the event loop's thread only."""

    def __init__(
        self,
        metadata: Metadata,
        server: ServerRef,
        settings: GroupSettings,
        may_take: Callable[[], bool] = lambda: True,
        tenure: Tenure | None = None,
        topics: Topics | None = None,
    ) -> None:
        """`may_take` says whether this server may take groups now; the server keeps the groups it owns until `hand_over`.

        The caller closes `tenure`; None: this object creates its own and closes it. `topics`: what members may subscribe to.
        """
        self._tenure = tenure or Tenure(metadata.servers, server)
        self._own_tenure = self._tenure if tenure is None else None
        self._metadata = metadata
        self.server = server
        self._may_take = may_take
        self.settings = settings
        self.protocols = Protocols(settings, topics, self._save, self._tenure.is_sure)
        """Makes the groups' machines."""
        self.owned: dict[str, Owned] = {}
        """The groups that this server owns now, by name; only this object changes it."""
        self._opening: dict[str, asyncio.Task[Owned]] = {}
        self._releasing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.abandoned_writes = AbandonedWrites(metadata)
        self._is_draining = False
        metrics.GROUPS_OWNED.set_function(lambda: len(self.owned))
        metrics.GROUP_REVISIONS.set_function(lambda: sum(len(owned.revisions) for owned in self.owned.values()))
        metrics.GROUP_MEMBERS.set_function(
            lambda: sum(owned.machine.summary().member_count for owned in self.owned.values())
        )

    async def run(self) -> None:
        """Release groups that have been empty for long; runs until cancelled."""
        while True:
            await asyncio.sleep(min(self.settings.idle_ms / 4, 60_000) / 1000)
            await self.release_idle()

    async def release_idle(self) -> None:
        """One round of `run`."""
        await self.abandoned_writes.try_to_finish_all()
        now = asyncio.get_running_loop().time()
        for name, owned in list(self.owned.items()):
            try:
                await self._release_if_idle(name, owned, now)
            except Exception as error:  # noqa: BLE001 - boundary: one group
                fault(log, "release an idle group", error)

    async def _release_if_idle(self, name: str, owned: Owned, now: float) -> None:
        group = owned.machine.summary()
        is_idle = group.state is GroupState.EMPTY and not group.pending_count and not owned.lock.locked()
        if is_idle and (now - owned.last_used) * 1000 > self.settings.idle_ms:
            async with owned.lock:
                await self._delete_unused(name, owned)
                await self.release(name, owned)

    async def _delete_unused(self, name: str, owned: Owned) -> None:
        """Delete an empty group without offsets; console consumers create such a group on every run."""
        if owned.machine.summary().kind is GroupKind.SHARE:  # its state in partitions is kept elsewhere
            return
        try:
            if not await self._metadata.groups.offsets(name):
                await self._metadata.groups.delete(name, owned.lease)
        except NotFound:
            return
        except BearlakeError as error:
            log.warning("cannot delete an unused group", extra={"group": name, "error": repr(error)})

    def refuse(self) -> None:
        """Stop taking groups."""
        self._is_draining = True

    async def drain(self) -> None:
        """Stop taking groups and release all: see `release_all`."""
        self.refuse()
        await self.release_all()

    async def hand_over(self) -> None:
        """Release all groups if this server may no longer coordinate groups."""
        if self.owned and not self._may_take():
            log.info("handing over groups", extra={"groups": len(self.owned)})
            await self.release_all()

    async def release_all(self) -> None:
        """Release all groups: members get NOT_COORDINATOR and find the next coordinator, keeping their generation."""
        for start in range(0, len(names := list(self.owned)), DRAIN_COUNT):
            await asyncio.gather(*(self._release_named(name) for name in names[start : start + DRAIN_COUNT]))

    async def _release_named(self, name: str) -> None:
        owned = self.owned.get(name)
        if owned is not None:
            async with owned.lock:  # finish the write in progress first
                if self.owned.get(name) is owned:
                    await self.release(name, owned)

    async def close(self) -> None:
        """Stop all timers and tasks."""
        for owned in self.owned.values():
            owned.machine.close(Problem.NOT_COORDINATOR)
        self.owned.clear()
        tasks = [*self._tasks, *self._opening.values(), *self._releasing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.abandoned_writes.close()
        if self._own_tenure is not None:
            await self._own_tenure.close()

    # -- confirming ownership (I14) ------------------------------------------------------------------------------

    async def confirm(self, name: str, owned: Owned) -> None:
        """Return if this server owned the group at some moment after the call. Raises `GroupRefusal`."""
        try:
            await owned.held.confirm()
        except Fenced as error:
            self._lose(name, owned)
            raise GroupRefusal(Problem.NOT_COORDINATOR, str(error)) from error
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
        if self.owned.get(name) is not owned:
            raise GroupRefusal(Problem.NOT_COORDINATOR)

    async def verify(self) -> None:
        """After a lapse, look all leases up without waiting for requests, so that members waiting in a round learn of a new coordinator."""
        unverified = [(name, owned) for name, owned in self.owned.items() if owned.held.is_unverified]
        for start in range(0, len(unverified), DRAIN_COUNT):
            part = unverified[start : start + DRAIN_COUNT]
            results = await asyncio.gather(*(self.confirm(name, owned) for name, owned in part), return_exceptions=True)
            for error in results:
                if isinstance(error, Exception) and not isinstance(error, GroupRefusal):
                    fault(log, "verify a group", error)

    # -- ownership -----------------------------------------------------------------------------------------------

    async def open_existing(self, name: str) -> Owned:
        """Return a group that has a generation, members or offsets. Raises `GroupRefusal` (NOT_FOUND: there is no such group)."""
        owned = await self.open(name)
        if owned.machine.summary().is_unused:
            try:
                is_stored = bool(await self._metadata.groups.offsets(name))
            except BearlakeError as error:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
            if not is_stored:
                await self.confirm(name, owned)
                if owned.machine.summary().is_unused:
                    await self.release(name, owned)  # a request for a group that does not exist must not leave a lease
                raise GroupRefusal(Problem.NOT_FOUND)
        return owned

    async def open(self, name: str) -> Owned:
        """Return the group; takes it over if no live server has it. Raises `GroupRefusal`."""
        owned = self.owned.get(name)
        if owned is None:
            if self._is_draining or not self._may_take():
                raise GroupRefusal(Problem.NOT_COORDINATOR)
            if len(self.owned) + len(self._opening) >= self.settings.count_max:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, "this server coordinates too many groups")
            task = self._opening.get(name)
            if task is None:
                task = self._opening[name] = asyncio.get_running_loop().create_task(self._take(name))
                task.add_done_callback(noticed(log, "take a group", GroupRefusal))
                task.add_done_callback(lambda _: self._opening.pop(name, None))
            owned = await asyncio.shield(task)
        owned.last_used = asyncio.get_running_loop().time()
        return owned

    async def open_confirmed(self, name: str, member_id: str) -> Owned:
        """Renew the member's session, confirm ownership, and return the group. Raises `GroupRefusal`."""
        owned = await self.open(name)
        owned.machine.renew_session(member_id)
        await self.confirm(name, owned)
        return owned

    async def _take(self, name: str) -> Owned:
        releasing = self._releasing.get(name)
        if releasing is not None:
            await asyncio.wait([releasing])  # otherwise that release would free the lease that we take now
        try:
            held = await HeldLease.take(self._tenure, self._metadata.leases, lease_name(name))
            group = await self._load(name, held.lease)
            if not isinstance(group, Group):
                # After the load: the former coordinator may have known newer topics.
                await self.protocols.topics.catch_up()
        except (Conflict, Fenced) as error:
            metrics.LEASE_ACQUIRES.labels("refused").inc()
            raise GroupRefusal(Problem.NOT_COORDINATOR, str(error)) from error
        except BearlakeError as error:
            log.warning("cannot load a group", extra={"group": name, "error": repr(error)})
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
        metrics.LEASE_ACQUIRES.labels("taken").inc()
        owned = Owned(held, Revisions(self.settings.revision_count_max))
        owned.machine = self.protocols.machine(name, owned, group)
        self.owned[name] = owned
        if self._is_draining:
            await self.release(name, owned)  # closes the machine, which has timers and takes room
            raise GroupRefusal(Problem.NOT_COORDINATOR)
        return owned

    async def _load(self, name: str, lease: Lease) -> AnyGroup:
        """Load the last snapshot. If this version cannot read it, give the lease back: a server of a newer version may."""
        try:
            snapshot = await self._metadata.groups.load(name)
            if snapshot is not None and len(snapshot.state) > _RESTORED_AT_ONCE_BYTES:
                return await asyncio.to_thread(restore, name, snapshot)
            return restore(name, snapshot)
        except Corrupt:
            with suppress(BearlakeError):
                await self._metadata.leases.release(lease)
            raise

    # -- saves ---------------------------------------------------------------------------------------------------

    def _save(self, name: str, owned: Owned, ticket: int) -> None:
        """Save the group's current state, then answer the members that wait for the save."""
        machine = owned.machine
        protocol_type, state = machine.encode()
        snapshot = GroupSnapshot(group=name, protocol_type=protocol_type, state=state)
        task = asyncio.get_running_loop().create_task(self._save_snapshot(owned, machine, snapshot, ticket))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(noticed(log, "answer members after a save"))

    async def _save_snapshot(self, owned: Owned, machine: GroupMachine, snapshot: GroupSnapshot, ticket: int) -> None:
        name = snapshot.group
        try:
            await self.write(owned, name, lambda: self._metadata.groups.save(snapshot, owned.lease))
        except GroupRefusal as refusal:
            log.warning("cannot save a group", extra={"group": name, "why": str(refusal)})
            machine.save_failed(ticket)
        except Exception as error:  # noqa: BLE001 - boundary: one group, whose members wait for an answer
            fault(log, "save a group", error)
            machine.save_failed(ticket)
        else:
            machine.saved(ticket)

    async def write(self, owned: Owned, name: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one write with the lease. Raises `GroupRefusal`; passes `NotFound` on."""
        try:
            async with owned.lock:
                if self.owned.get(name) is not owned:  # released or deleted while this write waited
                    raise GroupRefusal(Problem.NOT_COORDINATOR)
                await self._written(owned, name, write)
        except Fenced as error:
            self._lose(name, owned)
            raise GroupRefusal(Problem.NOT_COORDINATOR, str(error)) from error
        except NotFound:
            raise
        except BearlakeError as error:
            await self.abandoned_writes.try_to_finish(name)
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    async def _written(self, owned: Owned, name: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await write()
        except (Fenced, NotFound):
            raise
        except BaseException:  # also after a cancellation or a bug, the write may still take effect
            self.abandoned_writes.add(name, owned.lease)
            raise
        self.abandoned_writes.remove(name)  # writes run one at a time: this one began after all abandoned writes

    # -- releasing -----------------------------------------------------------------------------------------------

    async def release(self, name: str, owned: Owned) -> None:
        """Forget the group and release its lease; returns once the store has answered or failed."""
        is_classic = owned.machine.summary().kind is GroupKind.CLASSIC  # consumer groups are saved after each change
        present = departures.present_in(owned.machine.view()) if is_classic else None
        self._forget(name, owned)
        release = self._release_lease(name, owned.lease, present)
        task = self._releasing[name] = asyncio.get_running_loop().create_task(release)
        task.add_done_callback(noticed(log, "release a group"))
        await asyncio.wait([task])

    async def _release_lease(self, name: str, lease: Lease, present: departures.Present | None) -> None:
        try:
            if present is not None:
                await self._expire_departed(name, lease, present)
            await self._metadata.leases.release(lease)
        except BearlakeError as error:
            log.warning("cannot release a lease; it ends with this server", extra={"group": name, "error": repr(error)})
        finally:
            if self._releasing.get(name) is asyncio.current_task():
                del self._releasing[name]

    async def _expire_departed(self, name: str, lease: Lease, present: departures.Present) -> None:
        try:
            stored = await self._metadata.groups.load(name)
            snapshot = None if stored is None else departures.expired(stored, present)
            if snapshot is not None:
                await self._metadata.groups.save(snapshot, lease)
        except BearlakeError as error:
            log.warning("members that left stay until they expire", extra={"group": name, "error": repr(error)})

    def _lose(self, name: str, owned: Owned) -> None:
        """Forget the group: another server holds the lease, so the store refuses every further write under this one."""
        self._forget(name, owned)
        self.abandoned_writes.remove(name, owned.lease)

    def _forget(self, name: str, owned: Owned) -> None:
        if self.owned.get(name) is owned:
            del self.owned[name]
            owned.machine.close(Problem.NOT_COORDINATOR)
