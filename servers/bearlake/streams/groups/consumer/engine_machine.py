"""What the machines of groups with an engine do alike: consumer groups of KIP-848 and share groups of KIP-932."""

from typing import Generic, TypeVar

from typing_extensions import override

from bearlake.streams.groups.consumer import view
from bearlake.streams.groups.consumer.engine import Engine
from bearlake.streams.groups.consumer.model import ConsumerGroup
from bearlake.streams.groups.machines import GroupMachine
from bearlake.streams.groups.model import Group, Summary
from bearlake.streams.groups.problems import GroupRefusal, Problem

G = TypeVar("G", bound=ConsumerGroup)


class EngineMachine(GroupMachine, Generic[G]):
    """A group whose engine has its members, sessions and saves. A subclass sets `group` and `engine`, and answers requests."""

    group: G
    engine: Engine

    @override
    def renew_session(self, member_id: str) -> None:
        member = self.group.members.get(member_id)
        if member is not None and not self.engine.is_closed:
            self.engine.renew(member)

    @override
    def close(self, problem: Problem) -> None:
        self.engine.close(problem)

    @override
    def saved(self, ticket: int) -> None:
        self.engine.saved(ticket)

    @override
    def save_failed(self, ticket: int) -> None:
        self.engine.save_failed(ticket)

    @override
    def view(self) -> Group:
        return view.classic_view(self.group, self.engine.settings.session_timeout_ms)

    @override
    def summary(self) -> Summary:
        group = self.group
        return Summary(
            kind=group.kind,
            protocol_type=group.protocol_type,
            state=group.state,
            generation=group.epoch,
            member_count=len(group.members),
        )

    @override
    def static_id(self, member_id: str) -> str | None:
        member = self.group.members.get(member_id)
        return None if member is None else member.instance_id

    def _check_alive(self) -> None:
        if self.engine.is_closed:  # released since the look-up
            raise GroupRefusal(Problem.NOT_COORDINATOR)
