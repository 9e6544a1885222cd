"""Members of share groups in a simulated deployment: they acquire records through changing servers, and acknowledge them in any way: in
parts, late, twice, through another server, or never. `share_truth.py` checks what they get.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError, Unavailable
from bearlake.metadata.model import PARTITION_COUNT_MAX, PartitionKey, stream_number
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.service import Streams
from bearlake.streams.shares import Shares
from bearlake.streams.subscriptions.share.acknowledgements import AckType, ShareAck
from bearlake.streams.subscriptions.share.acquiring import Acquired
from bearlake.streams.subscriptions.share.in_flight import InFlight
from bearlake.streams.subscriptions.share.terms import ShareAnswer, ShareAsk, cursor_name
from simulator.clients import Client
from simulator.network import run_in
from simulator.nodes import Connection
from simulator.share_dispatchers import Dispatchers
from simulator.share_truth import Place

if TYPE_CHECKING:
    from simulator.deployment import Deployment

ANSWER_S = 6.0
"""Longest wait for an answer, beyond the wait for records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """The share groups of a scenario; rates are probabilities per round, or per acquired run of records.

    Locks and limits are those of `StreamsSettings.groups.share`.
    """

    groups: Sequence[str] = ("group",)
    member_count: int = 3
    pause_s: float = 0.1
    record_count_max: int = 20
    bytes_max: int = 10_000
    wait_ms_max: int = 500
    strict_rate: float = 0.3
    release_rate: float = 0.2
    reject_rate: float = 0.05
    renew_rate: float = 0.1
    forget_rate: float = 0.1
    """The member never acknowledges."""
    late_rate: float = 0.1
    """The member acknowledges about when its lock expires."""
    twice_rate: float = 0.1
    """The member sends its acknowledgements a second time."""
    leave_rate: float = 0.05
    lost_rate: float = 0.0
    """A request of a server to another one is lost."""


class ShareMember(Client):
    """One client, and one member after another."""

    def __init__(
        self, deployment: "Deployment", settings: ShareSettings, dispatchers: Dispatchers, number: int
    ) -> None:
        super().__init__(deployment, f"share member {number}")
        self._settings = settings
        self._dispatchers = dispatchers
        self._group = settings.groups[number % len(settings.groups)]
        self._life = 0
        self._lock_s = deployment.settings.streams.groups.share.record_lock_duration_ms / 1000
        self._later: set[asyncio.Task[None]] = set()

    @property
    def _member(self) -> str:
        return f"{self.name}.{self._life}"

    async def run(self) -> None:
        """Consume until nothing more can be stored and the group is done with everything."""
        while True:
            can_more_be_stored = self.deployment.can_more_be_stored
            keys = self._all() if self.deployment.is_producing else await self._undone()
            if not keys and not can_more_be_stored:
                break
            if keys:
                await self._round(self.random.sample(keys, self.random.randint(1, len(keys))))
            await self.pause(self._settings.pause_s)
        if self._later:
            await asyncio.wait(self._later)

    def _all(self) -> list[PartitionKey]:
        return [key for stream in self.deployment.truth.active() for key in self.deployment.keys(stream)]

    async def _undone(self) -> list[PartitionKey]:
        """Return the partitions whose stored state is not at the end."""
        undone = []
        name = cursor_name(self._group)
        for key in self._all():
            stored = [cursor for cursor in await self.deployment.metadata.cursors.load(key) if cursor.name == name]
            if (
                not stored
                or InFlight.unpack(stored[0].mark_delete, stored[0].acknowledged).mark_delete
                < self.deployment.truth.partition(key).end
            ):
                undone.append(key)
        return undone

    async def _round(self, keys: Sequence[PartitionKey]) -> None:
        settings, draw = self._settings, self.random.random
        if not await self._note(keys):
            return
        connection = await self.connection(keep_rate=0.7)
        ask = ShareAsk(
            group=self._group,
            member=self._member,
            partitions=keys,
            bytes_max=settings.bytes_max,
            record_count_max=self.random.randint(1, settings.record_count_max),
            is_strict=draw() < settings.strict_rate,
            wait_ms=self.random.choice([0, settings.wait_ms_max]),
            via=connection.node.process.name,
        )
        answers: list[ShareAnswer]
        try:
            answers = await self._ask(connection, lambda shares: shares.acquire(ask), ask.wait_ms / 1000)
        except BearlakeError:
            self.deployment.events["share fetch without an answer"] += 1
            return
        for answer in answers:
            if answer.error is not None:
                self.deployment.events[f"share fetch: {type(answer.error).__name__}"] += 1
            if answer.acquired:
                self._dispatchers.share_truth.received(answer.partition, answer.acquired, answer.views)
                await self._decide(answer.partition, answer.acquired)
        if self.deployment.is_producing and draw() < settings.leave_rate:
            await self._leave(keys)

    async def _note(self, keys: Sequence[PartitionKey]) -> bool:
        """Let the group's coordinator save that the group may have state in these streams; returns whether it has."""
        numbers = {stream_number(key) for key in keys}
        if numbers <= self._dispatchers.noted[self._group]:
            return True
        connection = await self.connection(keep_rate=0.0)

        async def there(streams: Streams) -> bool:
            try:
                counts = dict.fromkeys(numbers, PARTITION_COUNT_MAX)
                await self._dispatchers.coordinator(connection.node, streams).note_streams(self._group, counts)
            except GroupRefusal:
                return False
            return True

        try:
            if not await self.call(connection, there):
                return False
        except BearlakeError:
            return False
        self._dispatchers.noted[self._group] |= numbers
        return True

    async def _decide(self, partition: PartitionKey, runs: Sequence[Acquired]) -> None:
        settings, draw = self._settings, self.random.random
        if self.deployment.is_producing and draw() < settings.forget_rate:
            return
        place = partition, self._group
        acks = [ShareAck(run.start, run.end, self._types(run.end - run.start)) for run in runs]
        if not self.deployment.is_producing or draw() >= settings.late_rate:
            await self._acknowledge(place, self._member, acks)
            return
        task = asyncio.create_task(self._acknowledge_late(place, self._member, acks))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _types(self, count: int) -> list[int]:
        if not self.deployment.is_producing:
            return [AckType.ACCEPT]
        return [self._type() for _ in range(count)] if self.random.random() < 0.5 else [self._type()]

    def _type(self) -> int:
        settings, drawn = self._settings, self.random.random()
        for rate, kind in (
            (settings.release_rate, AckType.RELEASE),
            (settings.reject_rate, AckType.REJECT),
            (settings.renew_rate, AckType.RENEW),
        ):
            if drawn < rate:
                return kind
            drawn -= rate
        return AckType.ACCEPT

    async def _acknowledge_late(self, place: Place, member: str, acks: Sequence[ShareAck]) -> None:
        await asyncio.sleep(self._lock_s * self.random.uniform(0.5, 1.2))
        await self._acknowledge(place, member, acks)

    async def _acknowledge(self, place: Place, member: str, acks: Sequence[ShareAck]) -> None:
        share_truth = self._dispatchers.share_truth
        for _ in range(2 if self.random.random() < self._settings.twice_rate else 1):
            connection = await self.connection(keep_rate=0.8)
            share_truth.asked(place, acks)
            try:
                await self._ask(connection, lambda shares: shares.acknowledge(place[1], place[0], member, acks))
            except BearlakeError as error:
                self.deployment.events[f"share acknowledgement: {type(error).__name__}"] += 1
            else:
                share_truth.answered(place, acks)
                self.deployment.events["share acknowledgement"] += 1

    async def _leave(self, keys: Sequence[PartitionKey]) -> None:
        """Release everything, and go on as another member."""
        member = self._member
        self._life += 1
        connection = await self.connection(keep_rate=0.8)

        async def release(shares: Shares) -> None:
            for key in keys:
                await shares.release(self._group, key, member, connection.node.process.name)

        try:
            await self._ask(connection, release)
        except BearlakeError:
            self.deployment.events["share member left without an answer"] += 1

    async def _ask(self, connection: Connection, work: Callable[[Shares], Awaitable[Any]], wait_s: float = 0.0) -> Any:
        """Run `work` on the connection's server. Raises its errors, and `Unavailable`."""

        async def there(streams: Streams) -> Any:
            return await work(self._dispatchers.shares(connection.node, streams))

        try:
            async with asyncio.timeout(ANSWER_S + wait_s):
                return await connection.call(there)
        except TimeoutError as error:
            raise Unavailable("no answer from the server") from error


def start(deployment: "Deployment") -> "list[asyncio.Task[None]]":
    """Start the scenario's members of share groups, if it has any."""
    settings, share_truth = deployment.settings.shares, deployment.share_truth
    if settings is None or share_truth is None:
        return []
    dispatchers = Dispatchers(deployment, share_truth, settings.lost_rate)
    members = [ShareMember(deployment, settings, dispatchers, number) for number in range(settings.member_count)]
    return [run_in(member.process, deployment.loop, member.run()) for member in members]
