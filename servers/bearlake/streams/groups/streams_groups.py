"""The coordinator of streams groups: serves requests of members and admin clients for the streams groups that this server owns (KIP-1071).

A streams group is owned, saved and released like every group (`coordinator.py`). Its offsets are those of every group, too.
"""

import asyncio

from bearlake.errors import BearlakeError
from bearlake.metadata.defaults import GROUP_NAME_BYTES_MAX, is_group_name
from bearlake.streams.groups.owned import Owned
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.tasks import configuring
from bearlake.streams.groups.tasks.model import StreamsAnswer, StreamsGroup, StreamsHeartbeat
from bearlake.streams.groups.tasks.topology import Topology


class StreamsCoordinator:
    """All streams groups that this server coordinates. All methods raise `GroupRefusal`. Use it from the event loop's thread only."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    @property
    def settings(self) -> GroupSettings:
        """Limits of groups."""
        return self._ownership.settings

    async def beat(self, name: str, asked: StreamsHeartbeat) -> StreamsAnswer:
        """Join a group, stay in it, or leave it; waits until what changed is saved."""
        _check_name(name)
        protocols = self._ownership.protocols
        if asked.topology is not None:
            await _check(asked.topology)
        if asked.epoch == 0:
            owned = await self._ownership.open_confirmed(name, asked.member_id)
        else:
            owned = await self._existing(name)
            owned.machine.renew_session(asked.member_id)
            await self._ownership.confirm(name, owned)
        await self._ownership.abandoned_writes.finish(name)
        if asked.topology is not None:
            try:
                await protocols.topics.catch_up()  # a topic that a client has just created elsewhere is no missing one
            except BearlakeError as error:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error
        self._check_owned(name, owned)
        machine = protocols.as_streams(name, owned, may_create=asked.epoch == 0)
        async with machine.engine.prepared(asked.topology):
            answer = machine.beat(asked)
        return await asyncio.shield(answer)

    async def describe(self, name: str) -> StreamsGroup:
        """Return the current group; the caller must not change it. NOT_FOUND: there is no such streams group."""
        _check_name(name)
        owned = await self._existing(name)
        await self._ownership.confirm(name, owned)
        machine = self._ownership.protocols.as_streams(name, owned, may_create=False)
        async with machine.engine.prepared():
            self._check_owned(name, owned)
            if owned.machine is not machine:  # the group has another protocol since
                raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} is not a streams group.")
            machine.engine.refresh()
        return machine.group

    def _check_owned(self, name: str, owned: Owned) -> None:
        """Raise `GroupRefusal` if the group was lost since it was confirmed."""
        if self._ownership.owned.get(name) is not owned:
            raise GroupRefusal(Problem.NOT_COORDINATOR)

    async def _existing(self, name: str) -> Owned:
        try:
            return await self._ownership.open_existing(name)
        except GroupRefusal as refusal:
            if refusal.problem is not Problem.NOT_FOUND:
                raise
            raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} not found.") from refusal


async def _check(topology: Topology) -> None:
    """Check a topology before anything else, so that a refused request creates no group and does not change a group's protocol."""
    if topology.size() > configuring.AT_ONCE_MAX:
        await asyncio.to_thread(configuring.check, topology)
    else:
        configuring.check(topology)


def _check_name(name: str) -> None:
    """Refuse a name that the stores cannot keep. Kafka's own limit is 32,767 bytes."""
    if name == "" or not is_group_name(name):
        text = f"a group's name has 1 to {GROUP_NAME_BYTES_MAX} bytes of UTF-8, without NUL"
        raise GroupRefusal(Problem.INVALID_GROUP_ID, text)
