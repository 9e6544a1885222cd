"""The protocols of groups: makes a group's state machine, and turns a classic group into a consumer group and back (KIP-848).

A streams group and a classic group turn into each other only while they have no members (KIP-1071).

The owner of a group goes on with its lease and its order of writes; only the machine is replaced. The former machine refuses its waiting
members with REBALANCE_IN_PROGRESS, so that they ask the next one.
"""

import logging
from collections.abc import Callable

from bearlake.errors import BearlakeError, Corrupt
from bearlake.streams.groups.consumer import migration
from bearlake.streams.groups.consumer.machine import ConsumerMachine
from bearlake.streams.groups.consumer.model import ConsumerGroup
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.consumer.subscriptions import NoTopics, Topics
from bearlake.streams.groups.model import Group, GroupKind, GroupState, JoinRequest
from bearlake.streams.groups.owned import AnyGroup, Owned
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.rebalance import Rebalancer
from bearlake.streams.groups.room import Room, ServerRoom
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.share.machine import ShareMachine
from bearlake.streams.groups.share.model import ShareGroup
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.groups.tasks.machine import StreamsMachine
from bearlake.streams.groups.tasks.model import StreamsGroup
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings

log = logging.getLogger(__name__)


class Protocols:
    """Makes the machines of groups."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics | None,
        save: Callable[[str, Owned, int], None],
        may_expire: Callable[[], bool],
    ) -> None:
        """`topics`: what members may subscribe to; None: nothing. `save(name, owned, ticket)` saves a group, as `on_save` of the machines.

        `may_expire`: see `RebalanceRounds`.
        """
        self.settings = settings
        self.topics: Topics = NoTopics() if topics is None else topics
        self.configured: Callable[[str], ConsumerGroupSettings] = lambda name: settings.consumer
        """Returns the settings of a consumer group, with its own configs."""
        self.configured_share: Callable[[str], ShareGroupSettings] = lambda name: settings.share
        """Returns the settings of a share group, with its own configs."""
        self.configured_streams: Callable[[str], StreamsGroupSettings] = lambda name: settings.streams
        """Returns the settings of a streams group, with its own configs."""
        self._save = save
        self._may_expire = may_expire
        self._server_room = ServerRoom(settings.bytes_max)

    def machine(
        self, name: str, owned: Owned, group: AnyGroup
    ) -> Rebalancer | ConsumerMachine | ShareMachine | StreamsMachine:
        """Return the machine of a group."""
        if isinstance(group, StreamsGroup):
            return self.streams(name, owned, group)
        if isinstance(group, ShareGroup):
            return self.share(name, owned, group)
        if isinstance(group, ConsumerGroup):
            return self.consumer(name, owned, group)
        return self.classic(name, owned, group)

    def _room(self) -> Room:
        return Room(self._server_room, self.settings.group_bytes_max)

    def classic(self, name: str, owned: Owned, group: Group) -> Rebalancer:
        """Return the machine of a classic group."""
        return Rebalancer(
            group,
            initial_delay_ms=self.settings.initial_rebalance_delay_ms,
            size_max=self.settings.size_max,
            room=self._room(),
            on_save=lambda ticket: self._save(name, owned, ticket),
            may_expire=self._may_expire,
        )

    def consumer(self, name: str, owned: Owned, group: ConsumerGroup) -> ConsumerMachine:
        """Return the machine of a consumer group."""
        return ConsumerMachine(
            group,
            topics=self.topics,
            room=self._room(),
            settings=lambda: self.configured(name),
            on_save=lambda ticket: self._save(name, owned, ticket),
            on_downgrade=lambda: self.to_classic(name, owned),
            may_expire=self._may_expire,
        )

    def share(self, name: str, owned: Owned, group: ShareGroup) -> ShareMachine:
        """Return the machine of a share group."""
        return ShareMachine(
            group,
            topics=self.topics,
            room=self._room(),
            settings=lambda: self.configured_share(name),
            on_save=lambda ticket: self._save(name, owned, ticket),
            may_expire=self._may_expire,
        )

    def as_share(self, name: str, owned: Owned, *, may_create: bool) -> ShareMachine:
        """Return the machine of a share group. With `may_create`, a group that was never used becomes one first.

        Raises `GroupRefusal` (NOT_FOUND).
        """
        machine = owned.machine
        if isinstance(machine, ShareMachine):
            return machine
        if not may_create or not machine.summary().is_unused:
            raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} is not a share group.")
        machine.close(Problem.REBALANCE_IN_PROGRESS)
        owned.machine = changed = self.share(name, owned, ShareGroup(name=name))
        return changed

    def streams(self, name: str, owned: Owned, group: StreamsGroup) -> StreamsMachine:
        """Return the machine of a streams group."""
        return StreamsMachine(
            group,
            topics=self.topics,
            room=self._room(),
            settings=lambda: self.configured_streams(name),
            on_save=lambda ticket: self._save(name, owned, ticket),
            may_expire=self._may_expire,
        )

    def as_streams(self, name: str, owned: Owned, *, may_create: bool) -> StreamsMachine:
        """Return the machine of a streams group. With `may_create`, an empty classic group becomes one first, and keeps its offsets.

        Raises `GroupRefusal` (NOT_FOUND).
        """
        machine = owned.machine
        if isinstance(machine, StreamsMachine):
            return machine
        found = machine.summary()
        is_empty = found.kind is GroupKind.CLASSIC and found.state is GroupState.EMPTY and not found.pending_count
        if not may_create or not is_empty:
            raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} is not a streams group.")
        machine.close(Problem.REBALANCE_IN_PROGRESS)
        group = StreamsGroup(name=name, epoch=found.generation, assignment_epoch=found.generation)
        owned.machine = changed = self.streams(name, owned, group)
        return changed

    async def before_beat(self, owned: Owned) -> None:
        """Catch up with the catalog if the request could turn a classic group with members into a consumer group.

        The leader that assigned the partitions may have known newer topics than this server. Raises `GroupRefusal`.
        """
        if not isinstance(owned.machine, ConsumerMachine) and owned.machine.summary().member_count:
            try:
                await self.topics.catch_up()
            except BearlakeError as error:
                raise GroupRefusal(Problem.COORDINATOR_UNAVAILABLE, str(error)) from error

    def as_consumer(self, name: str, owned: Owned, *, may_create: bool) -> ConsumerMachine:
        """Return the machine of a consumer group. With `may_create`, a classic group becomes one first, if nothing forbids it.

        The caller has awaited `before_beat`. Raises `GroupRefusal` (NOT_FOUND).
        """
        machine = owned.machine
        if isinstance(machine, ConsumerMachine):
            return machine
        group, settings = machine.view(), self.configured(name)
        if not may_create or isinstance(machine, ShareMachine | StreamsMachine):
            raise GroupRefusal(Problem.NOT_FOUND, f"Group {name} is not a consumer group.")
        is_empty = group.state is GroupState.EMPTY and not group.pending
        obstacle = None if is_empty else _obstacle(group, settings)
        if obstacle is not None:
            text = f"Cannot upgrade classic group {name} to consumer group because {obstacle}."
            raise GroupRefusal(Problem.NOT_FOUND, text)
        try:
            converted = migration.to_consumer(group, self.topics)
        except Corrupt as error:
            text = f"Cannot upgrade classic group {name} to consumer group because the embedded consumer protocol is malformed."
            raise GroupRefusal(Problem.NOT_FOUND, text) from error
        if group.members:
            log.info("a classic group becomes a consumer group", extra={"group": name, "members": len(group.members)})
        machine.close(Problem.REBALANCE_IN_PROGRESS)
        owned.machine = changed = self.consumer(name, owned, converted)
        changed.engine.touch()
        return changed

    def to_classic(self, name: str, owned: Owned, except_id: str | None = None) -> None:
        """Turn a consumer group without members of the consumer protocol, other than `except_id`, into a classic group.

        The members of the classic protocol begin a rebalance. The new group is saved without delay, so that no later coordinator takes it
        for a consumer group.
        """
        machine = owned.machine
        assert isinstance(machine, ConsumerMachine)
        group = migration.to_classic(machine.group, self.configured(name).session_timeout_ms, except_id)
        if group.members:
            log.info("a consumer group becomes a classic group", extra={"group": name, "members": len(group.members)})
        machine.close(Problem.REBALANCE_IN_PROGRESS)
        owned.machine = changed = self.classic(name, owned, group)
        changed.rounds.save()
        if group.members:
            changed.rounds.prepare()

    def _from_streams(self, name: str, owned: Owned, group: StreamsGroup) -> None:
        """Turn a streams group without members into a classic group, which keeps its offsets."""
        owned.machine.close(Problem.REBALANCE_IN_PROGRESS)
        owned.machine = changed = self.classic(name, owned, Group(name=name, generation=group.epoch))
        changed.rounds.save()

    def before_join(self, name: str, owned: Owned, request: JoinRequest) -> None:
        """Turn a consumer group into a classic group if the member that joins would leave only members of the classic protocol in it."""
        machine = owned.machine
        if isinstance(machine, StreamsMachine) and not machine.group.members:
            self._from_streams(name, owned, machine.group)
        if not isinstance(machine, ConsumerMachine):
            return
        group = machine.group
        replaced = group.static.get(request.instance_id or "") if request.member_id == "" else None
        is_last = replaced is not None and group.members[replaced].classic is None
        if not group.members:
            self.to_classic(name, owned)
        elif (
            is_last
            and (len(group.members) == 1 or machine.may_downgrade(replaced))
            and machine.engine.settings.downgrades
        ):
            self.to_classic(name, owned, replaced)


def _obstacle(group: Group, settings: ConsumerGroupSettings) -> str | None:
    """Return why a classic group with members cannot become a consumer group; None if it can."""
    if not settings.upgrades:
        return "the online upgrade is disabled"
    if group.protocol_type != "consumer":
        return "the group does not use the consumer embedded protocol"
    if len(group.members) >= settings.size_max:
        return "the group size exceeds the consumer group maximum size"
    return None
