"""What changes a consumer group, whichever protocol a member uses: members, epochs, the target assignment, and sessions.

Each change is in memory at once; answers wait for saves (`saving.py`).
"""

from collections.abc import Callable, Collection

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.consumer import assignors
from bearlake.streams.groups.consumer.deadlines import Deadlines
from bearlake.streams.groups.consumer.model import ConsumerGroup, ConsumerMember, MemberState, octets
from bearlake.streams.groups.consumer.reconciling import reconcile
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.consumer.subscriptions import Subscriptions, Topics
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.room import Room
from bearlake.streams.groups.saving import Saving
from bearlake.telemetry import metrics


class Engine(Saving):
    """The state of one group, with its timers."""

    def __init__(
        self,
        group: ConsumerGroup,
        *,
        topics: Topics,
        room: Room,
        settings: Callable[[], ConsumerGroupSettings],
        on_save: Callable[[int], None],
        may_expire: Callable[[], bool],
        on_expired: Callable[[ConsumerMember], None],
    ) -> None:
        """`settings` returns those of this group now. `on_save`: see `Saving`. `on_expired` gets a member whose session or rebalance
        timeout has passed, and removes it."""
        super().__init__(on_save)
        self.group = group
        self.room = room
        self._settings = settings
        self._on_expired = on_expired
        self.subscriptions = Subscriptions(group, topics)
        self.sessions = Deadlines(self._expired, may_expire)
        self.rebalances = Deadlines(self._expired, may_expire)
        """Members that must give up partitions, or join again, in their rebalance timeout."""
        self._assigned_at: float | None = None
        self._is_due = False
        """A member or a subscription has changed, and the group's epoch has not yet."""
        for member in group.members.values():
            room.restore(member.member_id, octets(member))
            self.renew(member)
            if member.state is MemberState.UNREVOKED:
                self.rebalances.set(member.member_id, member.rebalance_timeout_ms)

    @property
    def settings(self) -> ConsumerGroupSettings:
        """The settings of this group now."""
        return self._settings()

    def close(self, problem: Problem) -> None:
        """Stop all timers and refuse all waiting members."""
        self.is_closed = True
        self.sessions.close()
        self.rebalances.close()
        self.room.close()
        self.refuse_all(problem)

    # -- members and subscriptions -------------------------------------------------------------------------------

    def add(self, member: ConsumerMember) -> None:
        """Add a new member, which has all its fields; the group gets a new epoch when the member advances. Raises `GroupRefusal`."""
        self.make_room(member)
        self.group.add(member)
        self.subscriptions.add(member)
        self._is_due = True

    def make_room(self, member: ConsumerMember) -> None:
        """Count what a member will say of itself; `member` is a copy that says so. Raises `GroupRefusal`."""
        self.room.take(member.member_id, octets(member))

    def subscribe(self, member: ConsumerMember, topics: Collection[str], pattern: str, matches: frozenset[str]) -> bool:
        """Change the member's subscription; returns whether it now subscribes to other topics.

        Then the group gets a new epoch when the member advances.
        """
        before = member.subscribed()
        names = member.topics if topics is member.topics else tuple(sorted(set(topics)))
        if (names, pattern, matches) == (member.topics, member.pattern, member.matches):
            return False
        self.subscriptions.remove(member)
        member.topics, member.pattern, member.matches = names, pattern, matches
        self.subscriptions.add(member)
        self.touch(member)
        if member.subscribed() == before:
            return False
        self._is_due = True
        return True

    def rename(self, member: ConsumerMember, described: ConsumerMember) -> None:
        """Give a static member a new id; it starts anew in epoch 0 with what it had.

        `described` is a copy with the new id that says what the member is about to say. Raises `GroupRefusal`, and changes nothing then.
        """
        group, member_id = self.group, described.member_id
        target = group.target.get(member.member_id, frozenset())
        self.room.check(member.member_id, octets(described))
        self.forget(member)
        self.room.restore(member_id, octets(described))
        member.member_id, member.epoch, member.previous_epoch = member_id, 0, 0
        group.add(member)
        group.target[member_id] = target
        self.subscriptions.add(member)
        self.touch(member)

    def remove(self, member: ConsumerMember) -> None:
        """Remove the member; the group gets a new epoch."""
        self.forget(member)
        self.subscriptions.refresh()
        self._bump()

    def forget(self, member: ConsumerMember) -> None:
        """Remove the member without a new epoch."""
        self.sessions.cancel(member.member_id)
        self.rebalances.cancel(member.member_id)
        self.subscriptions.remove(member)
        self.group.remove(member)
        self.room.leave(member.member_id)
        self.touch()

    def check_size(self) -> None:
        """Raise `GroupRefusal` if the group is full."""
        if len(self.group.members) >= self.settings.size_max:
            raise GroupRefusal(
                Problem.GROUP_FULL,
                f"The consumer group has reached its maximum capacity of {self.settings.size_max} members.",
            )

    def _bump(self) -> None:
        """Begin a new group epoch."""
        self._is_due = False
        self.group.epoch += 1
        metrics.GROUP_REBALANCES.inc()
        self.touch()

    def touch(self, member: ConsumerMember | None = None) -> None:
        """Record a change of the group, or of the member."""
        if member is not None:
            member.encoded = None
        self.count_change()

    # -- assignment ----------------------------------------------------------------------------------------------

    def advance(self, member: ConsumerMember, owned: Collection[PartitionKey] | None, *, is_new: bool = False) -> None:
        """Assign if it is time, then move the member towards its target. `is_new`: its subscription has just changed."""
        group = self.group
        self._refresh()
        self._assign()
        assigned, revoking = member.assigned, member.revoking
        is_behind = is_new or group.epoch > group.assignment_epoch
        has_moved = reconcile(
            member,
            target=group.target.get(member.member_id, frozenset()),
            epoch=group.assignment_epoch,
            owners=group.owners,
            owned=owned,
            subscribed=member.streams if is_behind else None,
        )
        if has_moved:
            for key in (*assigned, *revoking):
                if key not in member.assigned and key not in member.revoking:
                    del group.owners[key]
            group.own(member)
            self.touch(member)
            if member.classic is None:
                if member.state is MemberState.UNREVOKED:
                    self.rebalances.set(member.member_id, member.rebalance_timeout_ms)
                else:
                    self.rebalances.cancel(member.member_id)

    def _refresh(self) -> None:
        """Begin a new group epoch if members, subscriptions or topics have changed."""
        if self.subscriptions.refresh() or self._is_due:
            self._bump()

    def _assign(self) -> None:
        """Compute the target assignment of the group's epoch, if it is time."""
        group, now = self.group, self._loop.time()
        if group.epoch <= group.assignment_epoch:
            return
        interval_ms = self.settings.assignment_interval_ms
        if self._assigned_at is not None and (now - self._assigned_at) * 1000 < interval_ms:
            return
        target = self._new_target()
        for member_id, keys in target.items():
            if group.target.get(member_id) != keys:
                group.members[member_id].encoded = None
        group.target = target
        group.assignment_epoch = group.epoch
        self._assigned_at = now
        self.touch()

    def _new_target(self) -> dict[str, frozenset[PartitionKey]]:
        group, settings = self.group, self.settings
        name = group.preferred_assignor(settings.assignors[0])
        group.assignor = name if name in settings.assignors else settings.assignors[0]
        members = [
            assignors.Subscriber(member.member_id, _place(member), member.streams) for member in group.members.values()
        ]
        topics = {topic.number: topic for topic in group.topics.values()}
        return assignors.BY_NAME[group.assignor](members, topics, group.target)

    # -- sessions ------------------------------------------------------------------------------------------------

    def renew(self, member: ConsumerMember) -> None:
        """Start a new session timeout for the member."""
        classic = member.classic
        timeout_ms = self.settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.sessions.set(member.member_id, timeout_ms)

    def _expired(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        if member is not None:
            self._on_expired(member)
            self.save()


def _place(member: ConsumerMember) -> str:
    """Static members first, by instance id: their places outlive their member ids."""
    return f"1{member.member_id}" if member.instance_id is None else f"0{member.instance_id}"
