"""All groups of the deployment, whichever server coordinates them; serves members that run inside this server.

    request → coordinated here? → last known server → holder of the lease → the server that should take the group

This module passes a coordinator's answer on, except NOT_COORDINATOR and timeouts: then it looks for the coordinator again until the
caller's time has passed. A failed coordinator is replaced when its registration lapses (`server.timeout_ms`); members keep their ids and
generation.

Retries are safe: a new member gets its id before it joins (KIP-394), so a lost answer leaves no second member behind. A repeated commit
writes the same offsets in the same generation. But the last answer does not reveal the outcome of earlier attempts. If a commit gets no
answer, the member may be removed before the retry; then the outcome of the commit is unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from bearlake.errors import BearlakeError
from bearlake.metadata.model import CommittedOffset, GroupListing, PartitionKey, ServerRef
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import Group, Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.peers import Coordination, Peers
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings

AWAY = frozenset({Problem.NOT_COORDINATOR, Problem.COORDINATOR_UNAVAILABLE})
"""Problems that say nothing about the member: the coordinator moved or does not answer."""
HAND_OVER_MS = 500
"""Pause (ms) between two checks whether groups should move to other servers."""
BEAT_WAIT_MS = 1_000
"""Time (ms) that a heartbeat or leave request looks for the coordinator: the next heartbeat comes soon, or the session expires."""
_PAUSE_MIN_MS = 20
_PAUSE_MAX_MS = 500

T = TypeVar("T")


class Groups:
    """All groups of the deployment. Use it from the event loop's thread only."""

    def __init__(self, own: Coordinator, server: ServerRef, peers: Peers) -> None:
        """`own` is this server's coordinator."""
        self._own = own
        self._server = server
        self._peers = peers
        self._known: dict[str, ServerRef] = {}  # last known coordinators, bounded by `count_max`

    @property
    def settings(self) -> GroupSettings:
        """Limits of groups."""
        return self._own.settings

    async def run(self) -> None:
        """Hand groups over to the servers that should have them, and drop groups that other servers took; runs until cancelled."""
        while True:
            await asyncio.sleep(HAND_OVER_MS / 1000)
            await self._own.ownership.verify()
            await self._own.ownership.hand_over()

    # -- membership ----------------------------------------------------------------------------------------------

    async def join(self, name: str, request: JoinRequest) -> Joined:
        """Join or rejoin a group; waits for the round to complete. Raises `GroupRefusal`."""
        if request.member_id == "" and request.instance_id is None:
            request = replace(request, requires_known_id=True)
        try:
            return await self._ask(name, lambda coordinator: coordinator.join(name, request))
        except GroupRefusal as refusal:
            if refusal.problem is not Problem.MEMBER_ID_REQUIRED:
                raise
            known = replace(request, member_id=refusal.member_id)
        return await self._ask(name, lambda coordinator: coordinator.join(name, known))

    async def sync(
        self,
        member: MemberRef,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """Give or get assignments; waits for the leader. Raises `GroupRefusal`."""
        return await self._ask(member.group, lambda coordinator: coordinator.sync(member, protocol, assignments))

    async def heartbeat(self, member: MemberRef) -> None:
        """Renew a member's session. Raises `GroupRefusal`; a problem in `AWAY` says nothing about the member."""
        await self._ask(member.group, lambda coordinator: coordinator.heartbeat(member), BEAT_WAIT_MS)

    async def leave(self, member: MemberRef) -> str:
        """Remove a member; returns its id. Raises `GroupRefusal`."""
        return await self._ask(member.group, lambda coordinator: coordinator.leave(member), BEAT_WAIT_MS)

    async def commit(
        self,
        member: MemberRef,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> None:
        """Commit offsets as a member, or, with generation -1 and no member id, as a client outside the group protocol.

        Raises `GroupRefusal`. COORDINATOR_UNAVAILABLE: the offsets may or may not be committed; any other refusal: they are not.
        """
        is_unsure = False

        async def ask(coordinator: Coordination) -> None:
            nonlocal is_unsure
            try:
                await coordinator.commit(member, offsets)
            except GroupRefusal as refusal:
                is_unsure = is_unsure or refusal.problem is Problem.COORDINATOR_UNAVAILABLE
                raise

        try:
            await self._ask(member.group, ask)
        except GroupRefusal as refusal:
            if not is_unsure:
                raise
            raise GroupRefusal(
                Problem.COORDINATOR_UNAVAILABLE, f"commit outcome unknown; last answer: {refusal}"
            ) from refusal

    async def delete(self, name: str) -> None:
        """Delete an empty group and its offsets.

        Raises `GroupRefusal` (NON_EMPTY, NOT_FOUND). COORDINATOR_UNAVAILABLE: the group may or may not be deleted.
        """
        is_unsure = False

        async def ask(coordinator: Coordination) -> None:
            nonlocal is_unsure
            try:
                await coordinator.delete(name)
            except GroupRefusal as refusal:
                if is_unsure and refusal.problem is Problem.NOT_FOUND:  # by the request before, whose answer was lost
                    return
                is_unsure = is_unsure or refusal.problem is Problem.COORDINATOR_UNAVAILABLE
                raise

        await self._ask(name, ask)

    # -- reading -------------------------------------------------------------------------------------------------

    async def describe(self, name: str) -> Group:
        """Return the current group; the caller must not change it. Raises `GroupRefusal` (NOT_FOUND: no such group)."""
        return await self._ask(name, lambda coordinator: coordinator.describe(name))

    async def offsets(
        self, name: str, partitions: Collection[PartitionKey] | None = None
    ) -> dict[PartitionKey, CommittedOffset]:
        """Read committed offsets from the store; partitions without a committed offset are left out. Raises `GroupRefusal`."""
        return await self._own.offsets(name, partitions)

    async def all(self) -> list[GroupListing]:
        """Return every stored group of the deployment, sorted by name. Raises `GroupRefusal`."""
        return await self._own.all()

    # -- finding the coordinator ---------------------------------------------------------------------------------

    async def _ask(self, name: str, ask: Callable[[Coordination], Awaitable[T]], wait_ms: int | None = None) -> T:
        """Ask the group's coordinator; if it moved or does not answer, look for it for at most `wait_ms` (None: as in the settings)."""
        loop = asyncio.get_running_loop()
        wait_s = (self.settings.coordinator_wait_ms if wait_ms is None else wait_ms) / 1000
        pause_s = _PAUSE_MIN_MS / 1000
        until = 0.0
        while True:
            try:
                return await ask(await self._coordination(name))
            except GroupRefusal as refusal:
                if refusal.problem not in AWAY:
                    raise
                self._known.pop(name, None)
                until = until or loop.time() + wait_s  # starts at the first failure: a join may have waited long before
                if loop.time() + pause_s > until:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_MS / 1000)

    async def _coordination(self, name: str) -> Coordination:
        """Return the group's coordinator, or the server that should become it. Raises `GroupRefusal` (COORDINATOR_UNAVAILABLE)."""
        if self._own.has(name):
            return self._own
        server = self._known.get(name) or await self._find(name)
        if server == self._server:
            return self._own
        there = self._peers.reach(server) if server is not None else None
        if server is None or there is None:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, f"no known server coordinates group {name!r}")
        if len(self._known) >= self.settings.count_max:
            self._known.clear()
        self._known[name] = server
        return there

    async def _find(self, name: str) -> ServerRef | None:
        try:
            return await self._own.holder(name) or self._peers.chosen(name)
        except BearlakeError as error:
            raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
