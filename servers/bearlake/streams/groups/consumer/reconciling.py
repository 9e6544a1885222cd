"""The next step of a member on the way to its target assignment.

                      owns what it must give up
    STABLE ──target──────────────> UNREVOKED ──given up──┐
      ^  └──others still have some of it──> UNRELEASED <─┤
      └──────────────────────────────────────────────────┘

A member keeps its epoch until it has given up what its target does not contain. Then it gets the target's epoch, and with it the
partitions that are free. So a partition never belongs to two members.

Source: KIP-848 and KIP-1251 (partitions remember the epoch in which the member got them); Apache Kafka, CurrentAssignmentBuilder.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.streams.groups.consumer.model import ConsumerMember, MemberState


def reconcile(
    member: ConsumerMember,
    *,
    target: AbstractSet[PartitionKey],
    epoch: int,
    owners: Mapping[PartitionKey, str],
    owned: Collection[PartitionKey] | None,
    subscribed: AbstractSet[int] | None,
) -> bool:
    """Move the member towards `target`, the assignment of `epoch`; returns whether anything changed.

    `owners` maps partitions to the member that has them. `owned`: what the member reported, None if nothing new. `subscribed`: the
    streams (numbers) of the member's topics if `target` may be older than the subscription, else None; the member loses partitions of
    other streams at once.
    """
    if member.state is MemberState.UNREVOKED and _still_owns(owned, member.revoking):
        return subscribed is not None and _strip(member, subscribed, owned)
    if member.state is MemberState.STABLE and member.epoch == epoch:
        return subscribed is not None and _strip(member, subscribed, owned)
    return _advance(member, target, epoch, owners, owned, subscribed)


def _still_owns(owned: Collection[PartitionKey] | None, revoking: Collection[PartitionKey]) -> bool:
    return owned is None or any(key in revoking for key in owned)


def _strip(member: ConsumerMember, subscribed: AbstractSet[int], owned: Collection[PartitionKey] | None) -> bool:
    """Take the partitions of topics that the member does not subscribe to anymore; its epoch stays."""
    lost = {key: epoch for key, epoch in member.assigned.items() if stream_number(key) not in subscribed}
    if not lost:
        return False
    member.assigned = {key: epoch for key, epoch in member.assigned.items() if key not in lost}
    revoking = {**member.revoking, **lost}
    if _still_owns(owned, revoking):
        member.state = MemberState.UNREVOKED
        member.revoking = revoking
    return True


def _advance(
    member: ConsumerMember,
    target: AbstractSet[PartitionKey],
    epoch: int,
    owners: Mapping[PartitionKey, str],
    owned: Collection[PartitionKey] | None,
    subscribed: AbstractSet[int] | None,
) -> bool:
    wanted = target
    if subscribed is not None:
        wanted = {key for key in target if stream_number(key) in subscribed}
    kept = {key: since for key, since in member.assigned.items() if key in wanted}
    revoking = {key: since for key, since in member.assigned.items() if key not in wanted}
    if revoking and _still_owns(owned, revoking):
        return _set(member, MemberState.UNREVOKED, member.epoch, kept, revoking)
    missing = [key for key in wanted if key not in kept]
    free = [key for key in missing if owners.get(key, member.member_id) == member.member_id]
    state = MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED
    return _set(member, state, epoch, {**kept, **dict.fromkeys(sorted(free), epoch)}, {})


def _set(
    member: ConsumerMember,
    state: MemberState,
    epoch: int,
    assigned: dict[PartitionKey, int],
    revoking: dict[PartitionKey, int],
) -> bool:
    before = (member.state, member.epoch, member.assigned, member.revoking)
    if before == (state, epoch, assigned, revoking):
        return False
    if epoch != member.epoch:
        member.previous_epoch = member.epoch
    member.state, member.epoch, member.assigned, member.revoking = state, epoch, assigned, revoking
    return True
