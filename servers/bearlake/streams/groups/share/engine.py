"""What changes a share group: the engine of consumer groups, except that members get what they were assigned at once."""

from collections.abc import Collection
from functools import lru_cache

from typing_extensions import override

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer.engine import Engine
from bearlake.streams.groups.consumer.model import ConsumerMember
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.share import assignor
from bearlake.streams.groups.share.settings import ASSIGNOR, ShareGroupSettings


class ShareEngine(Engine):
    """The state of one group, with its timers."""

    @override
    def advance(self, member: ConsumerMember, owned: Collection[PartitionKey] | None, *, is_new: bool = False) -> None:
        self._refresh()
        self._assign()
        target = self.group.target.get(member.member_id, frozenset())
        if member.epoch != self.group.assignment_epoch or member.assigned.keys() != target:
            member.previous_epoch, member.epoch = member.epoch, self.group.assignment_epoch
            member.assigned = {key: member.assigned.get(key, member.epoch) for key in sorted(target)}
            self.touch(member)

    @override
    def check_size(self) -> None:
        if len(self.group.members) >= self.settings.size_max:
            raise GroupRefusal(
                Problem.GROUP_FULL,
                f"The share group has reached its maximum capacity of {self.settings.size_max} members.",
            )

    @override
    def _new_target(self) -> dict[str, frozenset[PartitionKey]]:
        self.group.assignor = ASSIGNOR
        return assignor.assign(list(self.group.members.values()), self.group.topics)


@lru_cache(maxsize=1_024)
def engine_settings(settings: ShareGroupSettings) -> ConsumerGroupSettings:
    """Return what the engine needs of a share group's settings."""
    return ConsumerGroupSettings(
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment_interval_ms=settings.assignment_interval_ms,
        size_max=settings.size_max,
    )
