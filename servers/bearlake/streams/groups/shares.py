"""The coordinator of share groups: serves requests of members and admin clients for the share groups that this server owns (KIP-932).

A share group is owned, saved and released like every group (`coordinator.py`). Which member gets which record is decided elsewhere
(`streams/subscriptions`); here are the members, and the streams in which the group has state.
"""

import asyncio
from collections.abc import Mapping

from bearlake.errors import BearlakeError
from bearlake.metadata import Metadata
from bearlake.metadata.defaults import is_group_name
from bearlake.metadata.names import is_name
from bearlake.streams.groups.consumer.model import Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.owned import Owned
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.share.machine import ShareMachine
from bearlake.streams.groups.share.model import ShareGroup

NAME_BYTES_MAX = 1_000
"""Length (bytes) of a share group's name, which is a part of its cursors' names."""


class ShareCoordinator:
    """All share groups that this server coordinates. All methods raise `GroupRefusal`. Use it from the event loop's thread only."""

    def __init__(self, metadata: Metadata, ownership: Ownership) -> None:
        self._metadata = metadata
        self._ownership = ownership

    async def beat(self, name: str, asked: Heartbeat) -> HeartbeatAnswer:
        """Join a group, stay in it, or leave it; waits until what changed is saved."""
        _check_name(name)
        if asked.epoch == 0:
            owned = await self._ownership.open_confirmed(name, asked.member_id)
        else:
            owned = await self._existing(name)
            owned.machine.renew_session(asked.member_id)
            await self._ownership.confirm(name, owned)
        machine = await self._machine(name, owned, may_create=asked.epoch == 0)
        return await asyncio.shield(machine.beat(asked))

    async def describe(self, name: str) -> ShareGroup:
        """Return the current group; the caller must not change it. NOT_FOUND: there is no such share group."""
        owned = await self._existing(name)
        await self._ownership.confirm(name, owned)
        return self._ownership.protocols.as_share(name, owned, may_create=False).group

    async def note_streams(self, name: str, partition_counts: Mapping[int, int]) -> None:
        """Record that the group will have state in these streams, given by number with their partition counts.

        Creates the group if needed. NON_EMPTY: it has members.
        """
        _check_name(name)
        owned = await self._ownership.open_confirmed(name, "")
        machine = await self._machine(name, owned, may_create=True)
        self._check_empty(machine)
        await asyncio.shield(machine.note_topics(partition_counts))

    async def forget_stream(self, name: str, number: int) -> None:
        """Record that the group has no state in this stream any more."""
        owned = await self._existing(name)
        machine = await self._machine(name, owned, may_create=False)
        await asyncio.shield(machine.forget_topic(number))

    async def check_empty(self, name: str) -> ShareGroup:
        """Return the group if it has no members; raise NON_EMPTY otherwise."""
        owned = await self._existing(name)
        await self._ownership.confirm(name, owned)
        machine = self._ownership.protocols.as_share(name, owned, may_create=False)
        self._check_empty(machine)
        return machine.group

    @staticmethod
    def _check_empty(machine: ShareMachine) -> None:
        if machine.group.members:
            raise GroupRefusal(Problem.NON_EMPTY, f"Group {machine.group.name} is not empty.")

    async def _existing(self, name: str) -> Owned:
        if not is_group_name(name):
            raise GroupRefusal(Problem.INVALID_GROUP_ID)
        try:
            return await self._ownership.open_existing(name)
        except GroupRefusal as refusal:
            if refusal.problem is not Problem.NOT_FOUND:
                raise
            raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} not found.") from refusal

    async def _machine(self, name: str, owned: Owned, *, may_create: bool) -> ShareMachine:
        """Return the group's machine; with `may_create`, a group that was never used and has no offsets becomes a share group."""
        protocols = self._ownership.protocols
        await self._ownership.abandoned_writes.finish(name)
        if may_create and owned.machine.summary().is_unused:
            try:
                has_offsets = bool(await self._metadata.groups.offsets(name))
            except BearlakeError as error:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
            may_create = not has_offsets
        if self._ownership.owned.get(name) is not owned:  # lost since it was confirmed
            raise GroupRefusal(Problem.NOT_COORDINATOR)
        return protocols.as_share(name, owned, may_create=may_create)


def _check_name(name: str) -> None:
    """Refuse a name that the stores cannot keep. Kafka's own limit is 32,767 bytes."""
    if not is_name(name, NAME_BYTES_MAX):
        text = f"a share group's name has 1 to {NAME_BYTES_MAX} bytes of UTF-8, without NUL"
        raise GroupRefusal(Problem.INVALID_GROUP_ID, text)
