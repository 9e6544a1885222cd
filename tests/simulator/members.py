"""Members of consumer groups in a simulated deployment, as Kafka's classic consumers behave: join, sync, heartbeat, commit, leave.

A member gives up its partitions before it rejoins, and when it learns that it was expelled. It writes its partitions and its
confirmations
into the history; `history/groups.py` checks whether two members owned one partition at the same time.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from simulator.clients import Client
from simulator.history.model import Answer, Call, Commit, Committed, Confirm, Hold, Log, Outcome
from simulator.loop import Process
from simulator.network import run_in

if TYPE_CHECKING:
    from simulator.deployment import Deployment

TOPIC = "consumed"
ANSWER_S = 3.0
"""Longest wait for an answer that does not depend on other members."""
FINISH_S = 300.0
"""Virtual time in which the groups of a healed deployment become stable."""
GROWTH_MAX = 3
"""Maximum number of members at the end, as a multiple of the number at the start."""
FORGOTTEN = (Problem.UNKNOWN_MEMBER, Problem.FENCED_INSTANCE)
ELSEWHERE = (Problem.NOT_COORDINATOR, Problem.COORDINATOR_UNAVAILABLE)
NANOSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The groups of a scenario; rates are probabilities per heartbeat."""

    group_count: int = 1
    member_count: int = 3
    """Per group."""
    partition_count: int = 3
    session_timeout_ms: int = 6_000
    rebalance_timeout_ms: int = 4_000
    heartbeat_ms: int = 1_500
    commit_rate: float = 0.5
    """0: members never commit, so nothing is ever written with their group's lease."""
    leave_rate: float = 0.02
    silence_rate: float = 0.02
    chaos_pause_s: float = 5.0
    makes: "Callable[..., GroupMember] | None" = None
    """Makes a member; None: `GroupMember`."""
    chaos_weights: Sequence[float] = (1, 1, 1, 1, 1, 0.3, 0.3)
    """Weights of: a server freezes, a server is cut off from the metadata store, a member freezes, a member dies, a member is added, the
    store's clock steps, months pass."""


class GroupMember(Client):
    """One member of a consumer group; see the module."""

    knows_epochs = False
    """Its generations are member epochs."""

    def __init__(self, deployment: "Deployment", settings: MemberSettings, group: str, number: int) -> None:
        super().__init__(deployment, f"{group} member {number}")
        self.group = group
        self.held: tuple[int, ...] = ()
        """The partitions that the member owns."""
        self._settings = settings
        self._member_id = ""
        self._generation = -1
        self._hold = -1
        self._number = number
        self._commit_count = 0

    async def run(self) -> None:
        """Take part until the deployment stops consuming."""
        while self.deployment.is_consuming:
            if await self._enter():
                await self._stay()
            self._give_up()
            await self.pause(0.2)

    # -- the way in ----------------------------------------------------------------------------------------------

    async def _enter(self) -> bool:
        """Join; return whether the member has an assignment."""
        joined = await self._join()
        return joined is not None and await self._sync(joined)

    async def _join(self) -> Joined | None:
        settings = self._settings
        request = JoinRequest(
            member_id=self._member_id,
            instance_id=None,
            client_id=self.name,
            client_host="/simulated",
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            protocol_type="consumer",
            protocols=(("range", TOPIC.encode()),),
            requires_known_id=True,
            can_skip_assignment=True,
        )
        wait_s = ANSWER_S + settings.rebalance_timeout_ms / 1000
        answer = await self._ask(lambda groups: groups.join(self.group, request), wait_s)
        if isinstance(answer, Joined):
            self._member_id, self._generation = answer.member_id, answer.generation
            return answer
        if isinstance(answer, GroupRefusal) and answer.problem is Problem.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        return None

    async def _sync(self, joined: Joined) -> bool:
        """Receive the assignment; the leader assigns the partitions round-robin."""
        dealt: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        for partition in range(self._settings.partition_count if dealt else 0):
            dealt[joined.members[partition % len(dealt)].member_id].append(partition)
        assignments = {member: json.dumps(partitions).encode() for member, partitions in dealt.items()}
        asked, member = self.deployment.now_ns(), self._ref()
        wait_s = ANSWER_S + self._settings.rebalance_timeout_ms / 1000
        answer = await self._ask(
            lambda groups: groups.sync(member, (None, None), assignments),
            wait_s,
        )
        if not isinstance(answer, Synced):
            return False
        self._take(tuple(json.loads(answer.assignment or b"[]")), asked)
        return True

    def _take(self, partitions: tuple[int, ...], asked: int) -> None:
        """Own partitions, by the answer to a request that was sent at `asked`."""
        self.held = partitions
        timeout_ms = min(self._settings.session_timeout_ms, self._settings.rebalance_timeout_ms)
        hold = Hold(
            group=self.group,
            member=self.name,
            generation=self._generation,
            partitions=tuple(Log(TOPIC, partition) for partition in partitions),
            asked=asked,
            timeout=timeout_ms * NANOSECONDS,
        )
        self._hold = self._begin(hold)
        self.deployment.events["assignment"] += 1

    # -- as a member ---------------------------------------------------------------------------------------------

    async def _stay(self) -> None:
        """Send heartbeats and commits until the group rebalances or the member is expelled."""
        settings, draw = self._settings, self.random.random
        confirmed_s = self.deployment.loop.time()
        while self.deployment.is_consuming:
            await asyncio.sleep(settings.heartbeat_ms / 1000 * (0.5 + draw()))
            if self.deployment.is_producing and draw() < settings.silence_rate:
                await asyncio.sleep(2 * draw() * settings.session_timeout_ms / 1000)
            if self.deployment.is_producing and draw() < settings.leave_rate:
                await self._leave()
                return
            if draw() < settings.commit_rate:
                await self._commit()
            asked_s = self.deployment.loop.time()
            problem = await self._heartbeat()
            if problem is None:
                confirmed_s = asked_s
            elif problem not in ELSEWHERE or asked_s - confirmed_s > settings.session_timeout_ms / 1000:
                return

    async def _heartbeat(self) -> Problem | None:
        """Send one heartbeat; return why membership is not confirmed, or None if it is."""
        member = self._ref()
        number = self._begin(Confirm(group=self.group, member=self.name, generation=member.generation))
        answer = await self._ask(
            lambda groups: groups.heartbeat(member),
            ANSWER_S,
        )
        if answer is None:
            self._end(number, Outcome.OK)
            self.deployment.events["heartbeat confirmed"] += 1
            return None
        self._end(number, Outcome.FAIL if isinstance(answer, GroupRefusal) else Outcome.UNKNOWN)
        return answer.problem if isinstance(answer, GroupRefusal) else Problem.COORDINATOR_UNAVAILABLE

    async def _commit(self) -> None:
        """Commit an offset of one partition, or look one up."""
        if not self.held:
            return
        partition = self.random.choice(self.held)
        key = PartitionKey((1 << 20) + partition)
        log = Log(TOPIC, partition)
        if self.random.random() < 0.4:
            number = self._begin(Committed(group=self.group, log=log))
            found = await self._ask(lambda groups: groups.offsets(self.group, [key]), ANSWER_S)
            if isinstance(found, dict):
                offset = found[key].offset if key in found else None
                self._end(number, Outcome.OK, Answer(offset=offset))
            return
        self._commit_count += 1
        offset = self._commit_count * 100 + self._number
        member = self._ref()
        offsets = {key: CommittedOffset(offset=offset)}
        number = self._begin(Commit(group=self.group, log=log, offset=offset))
        answer = await self._ask(
            lambda groups: groups.commit(member, offsets, knows_epochs=self.knows_epochs),
            ANSWER_S,
        )
        if answer is None:
            self._end(number, Outcome.OK)
            self.deployment.events["offset committed"] += 1
        elif isinstance(answer, GroupRefusal) and answer.problem is not Problem.COORDINATOR_UNAVAILABLE:
            self._end(number, Outcome.FAIL)
        else:
            self._end(number, Outcome.UNKNOWN, Answer(is_answered=isinstance(answer, GroupRefusal)))

    def _ref(self) -> MemberRef:
        return MemberRef(group=self.group, member_id=self._member_id, generation=self._generation)

    async def _leave(self) -> None:
        self._give_up()
        member_id, self._member_id = self._member_id, ""
        await self._ask(lambda groups: groups.leave(MemberRef(group=self.group, member_id=member_id)), ANSWER_S)
        self._connection = None  # it returns as a new client of any server
        self.deployment.events["member leaves"] += 1
        await self.pause(1.0)

    def _give_up(self) -> None:
        """Give up all partitions."""
        if self._hold >= 0:
            self._end(self._hold, Outcome.OK)
        self._hold, self.held = -1, ()

    # -- inside --------------------------------------------------------------------------------------------------

    async def _ask(self, work: Callable[[Coordinator], Awaitable[Any]], wait_s: float) -> Any:
        """Return the coordinator's answer, its refusal, or an error if there is no answer."""

        async def guarded(streams: Any) -> Any:
            try:
                return await work(streams.coordinator)
            except GroupRefusal as refusal:
                return refusal

        connection = await self.connection(keep_rate=1.0)
        answer: Any
        try:
            async with asyncio.timeout(wait_s):
                answer = await connection.call(guarded)
        except (BearlakeError, TimeoutError) as error:
            self._connection = None
            return error
        if isinstance(answer, GroupRefusal):
            if answer.problem in ELSEWHERE:
                self._connection = None
                await asyncio.sleep(0.05)
            elif answer.problem in FORGOTTEN:
                self._member_id = ""
        return answer

    def _begin(self, call: Call) -> int:
        return self.deployment.client_history.recorder.invoke(self.name, call)

    def _end(self, number: int, outcome: Outcome, answer: Answer | None = None) -> None:
        self.deployment.client_history.recorder.complete(number, outcome, answer or Answer())


class Members:
    """All groups of one deployment, and their faults."""

    def __init__(self, deployment: "Deployment", settings: MemberSettings) -> None:
        self._deployment = deployment
        self._settings = settings
        self._random = deployment.randomness("groups")
        self._members: dict[int, GroupMember] = {}
        self._gone: list[GroupMember] = []
        self._running: list[tuple[GroupMember, asyncio.Task[Any]]] = []
        self._trouble: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the members and the faults."""
        for number in range(self._settings.group_count * self._settings.member_count):
            self._start_member(number)
        self._trouble = asyncio.create_task(self._run_troubles())

    def _start_member(self, number: int) -> None:
        # A restarted process is a new member: it does not know its earlier member id.
        life = len(self._gone)
        group = f"group-{number % self._settings.group_count}"
        make = self._settings.makes or GroupMember
        member = self._members[number] = make(self._deployment, self._settings, group, 1_000 * life + number)
        self._running.append((member, run_in(member.process, self._deployment.loop, member.run())))

    async def _run_troubles(self) -> None:
        deeds = [
            self._freeze_server,
            self._cut_server,
            self._freeze_member,
            self._kill_member,
            self._add_member,
            self._step_clock,
            self._pass_months,
        ]
        while True:
            await asyncio.sleep(self._random.expovariate(1.0) * self._settings.chaos_pause_s)
            self._random.choices(deeds, self._settings.chaos_weights)[0]()

    def _freeze_server(self) -> None:
        """Freeze a server long enough that peers consider it dead."""
        if nodes := self._deployment.serving():
            node = self._random.choice(nodes)
            self._pause("server", node.process, 30, lambda: node.is_gone)

    def _freeze_member(self) -> None:
        if members := self._live():
            member = self._random.choice(members)[1]
            self._pause("member", member.process, 15, lambda: member in self._gone)

    def _pause(self, what: str, process: Process, seconds_max: float, is_gone: Callable[[], bool]) -> None:
        self._deployment.events[f"{what} freezes"] += 1
        self._deployment.trace("freezes", node=process.name)
        self._deployment.loop.pause(process)

        def resume() -> None:
            if not is_gone():
                self._deployment.loop.resume(process)

        self._deployment.loop.call_later(self._random.random() * seconds_max, resume)

    def _live(self) -> list[tuple[int, GroupMember]]:
        return [(number, member) for number, member in self._members.items() if member not in self._gone]

    def _cut_server(self) -> None:
        """Drop a server's metadata store calls for a while; its members still reach it."""
        if nodes := self._deployment.serving():
            self._deployment.network.cut(self._random.choice(nodes).process.name, self._random.uniform(5, 45))

    def _kill_member(self) -> None:
        if not (members := self._live()):
            return
        number, member = self._random.choice(members)
        self._deployment.events["member killed"] += 1
        self._deployment.trace("is killed", node=member.process.name)
        self._deployment.loop.pause(member.process)
        self._gone.append(member)
        self._deployment.loop.call_later(self._random.random() * 5, self._start_member, number)

    def _add_member(self) -> None:
        if len(self._members) < GROWTH_MAX * self._settings.group_count * self._settings.member_count:
            self._deployment.events["member added"] += 1
            self._start_member(len(self._members))

    def _step_clock(self) -> None:
        """Step the store's clock by up to an hour in either direction."""
        seconds = self._random.choice((-1, 1)) * 3_600 * self._random.random() ** 4
        self._deployment.events["step of the store's clock"] += 1
        self._deployment.trace("the store's clock steps", seconds=seconds)
        self._deployment.clock.offset_ms += int(seconds * 1000)

    def _pass_months(self) -> None:
        """Suspend all machines for months between two steps; perhaps one server resumes later than the others."""
        self._deployment.events["months pass"] += 1
        if self._random.random() < 0.5:
            self._freeze_server()
        self._deployment.loop.skip(self._random.uniform(30, 120) * 86_400)
        self._deployment.trace("months have passed")

    # -- the end -------------------------------------------------------------------------------------------------

    async def wait_until_stable(self) -> None:
        """Check that without faults all partitions of each group are owned; then stop the members."""
        deployment = self._deployment
        if self._trouble is not None:
            self._trouble.cancel()
        for _, member in self._live():
            deployment.loop.resume(member.process)
        for _ in range(int(FINISH_S)):
            await asyncio.sleep(1)
            if all(self._is_stable(group) for group in {member.group for member in self._members.values()}):
                break
        else:
            deployment.fail(f"a healed group is not stable after {FINISH_S} s")
        deployment.is_consuming = False
        live = [task for member, task in self._running if member not in self._gone]
        await asyncio.wait(live, timeout=FINISH_S)
        for task in live:
            if not task.done():
                deployment.fail("a member does not stop")
            else:
                task.result()

    def _is_stable(self, group: str) -> bool:
        held = [partition for member in self._members.values() if member.group == group for partition in member.held]
        return sorted(held) == list(range(self._settings.partition_count))
