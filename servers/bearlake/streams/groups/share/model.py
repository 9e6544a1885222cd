"""A share group: a consumer group whose members may have the same partitions.

Source: KIP-932; Apache Kafka 4.3, whose state names clients see.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from typing_extensions import override

from bearlake.streams.groups.consumer.model import ConsumerGroup, ConsumerMember
from bearlake.streams.groups.model import GroupKind, GroupState


@dataclass(slots=True, kw_only=True)
class ShareGroup(ConsumerGroup):
    """One group in its coordinator's memory. Nobody owns a partition alone."""

    kind: ClassVar[GroupKind] = GroupKind.SHARE
    protocol_type: ClassVar[str] = "share"

    known: dict[int, int] = field(default_factory=dict)
    """The streams in whose partitions the group may have state, those that were ever subscribed or given offsets, by their numbers: how
    many partitions each had when the group came to know it. The group begins at the start of partitions that were added later."""

    @property
    @override
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @override
    def own(self, member: ConsumerMember) -> None:
        """Do nothing."""

    @override
    def disown(self, member: ConsumerMember) -> None:
        """Do nothing."""
