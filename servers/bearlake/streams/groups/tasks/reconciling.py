"""The next step of a member on the way to its target tasks.

                      has what it must give up
    STABLE ──target──────────────> UNREVOKED ──given up──┐
      ^  └──others still have some of it──> UNRELEASED <─┤
      └──────────────────────────────────────────────────┘

A member keeps its epoch until it has given up what its target does not contain. Then it gets the target's epoch, and with it the tasks that
are free. An active task is free if no member has it. No process has a task twice, since its members share one disk.

Source: KIP-1071 and KIP-1251 (tasks remember the epoch in which the member got them); Apache Kafka, CurrentAssignmentBuilder.
"""

from bearlake.streams.groups.consumer.model import MemberState
from bearlake.streams.groups.tasks.model import StreamsGroup, StreamsMember, TaskId, Tasks


def reconcile(group: StreamsGroup, member: StreamsMember, target: Tasks, epoch: int, owned: Tasks | None) -> bool:
    """Move the member towards `target`, the assignment of `epoch`; returns whether anything changed.

    `owned`: what the member reported, None if nothing new.
    """
    revoking = Tasks(frozenset(member.revoking_active), member.revoking_standby)
    if member.state is MemberState.UNREVOKED and _still_has(owned, revoking):
        return False
    if member.state is MemberState.STABLE and member.epoch == epoch:
        return False
    group.disown(member)
    has_moved = _advance(group, member, target, epoch, owned)
    group.own(member)
    return has_moved


def _still_has(owned: Tasks | None, revoking: Tasks) -> bool:
    return (
        owned is None or not owned.active.isdisjoint(revoking.active) or not owned.standby.isdisjoint(revoking.standby)
    )


def _advance(group: StreamsGroup, member: StreamsMember, target: Tasks, epoch: int, owned: Tasks | None) -> bool:
    kept = {task: since for task, since in member.active.items() if task in target.active}
    lost = {task: since for task, since in member.active.items() if task not in target.active}
    kept_standby = member.standby & target.standby
    lost_standby = member.standby - target.standby
    if (lost or lost_standby) and _still_has(owned, Tasks(frozenset(lost), lost_standby)):
        return _set(member, MemberState.UNREVOKED, member.epoch, (kept, kept_standby), (lost, lost_standby))
    missing = target.active - kept.keys()
    free = {task for task in missing if task not in group.owners and not _has_standby(group, member, task)}
    missing_standby = target.standby - kept_standby
    free_standby = {task for task in missing_standby if not _has(group, member, task)}
    is_done = len(free) == len(missing) and len(free_standby) == len(missing_standby)
    active = {**kept, **dict.fromkeys(sorted(free), epoch)}
    state = MemberState.STABLE if is_done else MemberState.UNRELEASED
    return _set(member, state, epoch, (active, kept_standby | free_standby), ({}, frozenset()))


def _has_standby(group: StreamsGroup, member: StreamsMember, task: TaskId) -> bool:
    """Whether another member of the process has the task as a standby; `member` itself is not counted."""
    return group.is_in_process(group.standbys.get(task, ()), member.process_id)


def _has(group: StreamsGroup, member: StreamsMember, task: TaskId) -> bool:
    """Whether another member of the process has the task; `member` itself is not counted."""
    owner = group.owners.get(task)
    is_active = owner is not None and group.members[owner].process_id == member.process_id
    return is_active or _has_standby(group, member, task)


def _set(
    member: StreamsMember,
    state: MemberState,
    epoch: int,
    assigned: tuple[dict[TaskId, int], frozenset[TaskId]],
    revoking: tuple[dict[TaskId, int], frozenset[TaskId]],
) -> bool:
    before = (
        member.state,
        member.epoch,
        (member.active, member.standby),
        (member.revoking_active, member.revoking_standby),
    )
    if before == (state, epoch, assigned, revoking):
        return False
    if epoch != member.epoch:
        member.previous_epoch = member.epoch
    member.state, member.epoch = state, epoch
    member.active, member.standby = assigned
    member.revoking_active, member.revoking_standby = revoking
    return True
