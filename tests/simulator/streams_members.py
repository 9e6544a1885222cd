"""Members of streams groups (KIP-1071) in a simulated deployment, as Kafka Streams behaves: heartbeats join, report tasks, and bring tasks.

A member gives up what an answer takes away before it reports that, and works at once on what an answer brings. After an error it reports
all that it has. The history is that of the other members: `history/groups.py` checks whether two members owned one task at the same time.
"""

from typing import Any

from typing_extensions import override

from bearlake.streams.groups.consumer.model import LEAVES
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.streams_groups import StreamsCoordinator
from bearlake.streams.groups.tasks.model import StreamsAnswer, StreamsHeartbeat, TaskId, Tasks
from bearlake.streams.groups.tasks.topology import Subtopology, Topology
from simulator.history.model import Confirm, Outcome
from simulator.members import ANSWER_S, TOPIC, GroupMember

SUBTOPOLOGY = "0"
TOPOLOGY = Topology(epoch=0, subtopologies=(Subtopology(subtopology_id=SUBTOPOLOGY, sources=(TOPIC,)),))


class StreamsMember(GroupMember):
    """One member of a streams group; see the module. Its generation is its member epoch."""

    knows_epochs = True
    _has_told = False
    """Whether the coordinator has confirmed the tasks that the member has."""

    @override
    async def _enter(self) -> bool:
        self._member_id, self._generation, self._has_told = self.name, 0, False
        return await self._heartbeat() is None

    @override
    async def _heartbeat(self) -> Problem | None:
        deployment, epoch, held = self.deployment, self._generation, self.held
        is_joining = epoch == 0
        tasks = Tasks(frozenset(TaskId(SUBTOPOLOGY, partition) for partition in held))
        asked = StreamsHeartbeat(
            member_id=self.name,
            epoch=epoch,
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms if is_joining else None,
            topology=TOPOLOGY if is_joining else None,
            process_id=self.name if is_joining else None,
            owned=tasks if is_joining or not self._has_told else None,
            client_id=self.name,
            client_host="/simulated",
        )
        number = None if is_joining else self._begin(Confirm(group=self.group, member=self.name, generation=epoch))
        asked_ns = deployment.now_ns()
        answer = await self._beat(asked)
        if isinstance(answer, StreamsAnswer):
            if number is not None:
                self._end(number, Outcome.OK)
            deployment.events["heartbeat confirmed"] += 1
            self._has_told = True
            self._obey(answer, asked_ns)
            return None
        self._has_told = False
        if number is not None:
            self._end(number, Outcome.FAIL if isinstance(answer, GroupRefusal) else Outcome.UNKNOWN)
        return answer.problem if isinstance(answer, GroupRefusal) else Problem.COORDINATOR_UNAVAILABLE

    def _obey(self, answer: StreamsAnswer, asked_ns: int) -> None:
        held = self.held
        if answer.tasks is not None:
            held = tuple(sorted(task.partition for task in answer.tasks.active))
        if held == self.held and answer.epoch == self._generation:
            return
        self._has_told = self._has_told and held == self.held
        self._give_up()
        self._generation = answer.epoch
        self._take(held, asked_ns)

    @override
    async def _leave(self) -> None:
        self._give_up()
        await self._beat(StreamsHeartbeat(member_id=self.name, epoch=LEAVES))
        self._connection = None
        self.deployment.events["member leaves"] += 1
        await self.pause(1.0)

    async def _beat(self, asked: StreamsHeartbeat) -> Any:
        return await self._ask(lambda groups: StreamsCoordinator(groups.ownership).beat(self.group, asked), ANSWER_S)
