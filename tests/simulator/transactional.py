"""Transactional producers of a simulated deployment: they commit, abort, take too long, crash between any two steps, and are fenced.

A producer behaves as Kafka's clients do: it repeats a request of unknown outcome, through another server, until it is answered. It commits
only if all batches are acknowledged. Some transactions are those of KIP-98, others those of KIP-890. A producer that crashed begins again
with the same transactional id; its former self sometimes goes on, as a zombie.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bearlake.errors import NotFound, Overloaded, Unavailable
from bearlake.metadata.model import BATCH_TRANSACTIONAL
from bearlake.metadata.transaction_rules import Problem
from bearlake.metadata.transactions import BATCH_BEGINS
from bearlake.records import codec as record_codec
from bearlake.streams.append import Verdict
from bearlake.streams.service import Streams
from bearlake.streams.transactions import TransactionRefusal
from simulator.clients import Batches, Client, all_answers, answers_of
from simulator.nodes import AppendFields, BatchAnswer, BatchRequest, is_stored
from simulator.transaction_history import Attempt, Outcome
from simulator.truth import Sent

if TYPE_CHECKING:
    from simulator.deployment import Deployment

ROUNDS_MAX = 12
"""Attempts to send the batches of a transaction before the producer aborts it."""

_AGAIN = (Verdict.UNAVAILABLE, Verdict.NOT_STORED, Verdict.SERVER_FENCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalSettings:
    """Transactional producers of a scenario; rates are probabilities."""

    producer_count: int = 2
    timeout_ms: int = 2_000
    crash_rate: float = 0.03
    """Per step."""
    abort_rate: float = 0.2
    """Per transaction."""
    late_rate: float = 0.1
    """Per transaction: the producer pauses for longer than its timeout."""
    zombie_rate: float = 0.3
    """Per crash."""


Who = tuple[int, int]
"""A producer's id and epoch."""


class TransactionalProducer(Client):
    """Produces in transactions; see the module."""

    def __init__(
        self, deployment: "Deployment", number: int, lanes: Sequence[tuple[str, int]], settings: TransactionalSettings
    ) -> None:
        super().__init__(deployment, f"transactional {number}")
        self._settings = settings
        self._lanes = lanes
        self._batches = Batches(deployment, self.name, self.random)
        self._who: Who = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._is_sure = True
        """Whether the last request was answered at its first attempt."""

    async def run(self) -> None:
        """Produce until the deployment stops producing; no transaction stays open."""
        while self.deployment.is_producing:
            former = self._who, dict(self._sequences)
            await self._initialize()
            if former[0][0] >= 0 and self.random.random() < self._settings.zombie_rate:
                await self._haunt(*former)
            while self.deployment.is_producing and await self._transaction():
                await self.pause(self.deployment.settings.produce_pause_s)
        await self._initialize()

    # -- the steps -----------------------------------------------------------------------------------------------

    async def _initialize(self) -> None:
        timeout_ms = self._settings.timeout_ms
        self._who = await self._ask(lambda streams: streams.transactions.initialize(self.name, timeout_ms))
        self._sequences.clear()

    async def _transaction(self) -> bool:
        """Run one transaction; returns whether the producer may begin the next one without initializing."""
        history = self.deployment.transaction_history
        attempt = history.begins(self.name)
        is_v2 = self.random.random() < 0.5
        lanes = self.random.sample(self._lanes, self.random.randint(1, len(self._lanes)))
        if not is_v2 and isinstance(await self._ask(lambda streams: self._add(streams, lanes)), Problem):
            return self._counted("refused")
        is_whole = True
        for _ in range(self.random.randint(1, 3)):
            if self._crashes():
                return self._counted("crash while writing")
            found = await self._send(attempt, lanes, is_v2=is_v2)
            if found is None:
                return self._counted("refused")
            if not found:  # as in Kafka's clients: the lost batch has the next sequence number, and may still be stored
                is_whole = False
                break
        if self.random.random() < self._settings.late_rate:
            await asyncio.sleep(self._settings.timeout_ms * 1.5 / 1000)
        if self._crashes():
            return self._counted("crash before the end")
        is_commit = is_whole and self.random.random() >= self._settings.abort_rate
        attempt.outcome = Outcome.UNKNOWN if is_commit else Outcome.NOTHING_COMMITTED
        who = self._who

        async def end(streams: Streams) -> Who:
            return await streams.transactions.end(self.name, who, is_commit=is_commit, bumps=is_v2)

        if self._crashes():
            connection = await self.connection(keep_rate=0.5)
            connection.call(_guarded(end))
            return self._counted("crash in the end")
        result = await self._ask(end)
        if isinstance(result, Problem):
            if self._is_sure:
                attempt.outcome = Outcome.NOTHING_COMMITTED
            return self._counted("end refused")
        if is_commit:
            attempt.outcome = Outcome.COMMITTED
        self.deployment.events["committed" if is_commit else "aborted"] += 1
        if is_v2:
            self._who = result
            self._sequences.clear()
        return is_whole and not self._crashes()

    async def _add(self, streams: Streams, lanes: Sequence[tuple[str, int]]) -> None:
        partitions = [(await streams.catalog.find(name)).partition(index) for name, index in lanes]
        await streams.transactions.add(self.name, self._who, partitions=partitions)

    async def _send(self, attempt: Attempt, lanes: Sequence[tuple[str, int]], *, is_v2: bool) -> bool | None:
        """Send a batch to each partition until its fate is known; returns whether all are stored, None if the producer is fenced."""
        waiting: dict[BatchRequest, list[bytes]] = {}
        for lane in lanes:
            request, values = self._request(attempt, lane, self._who, is_v2=is_v2)
            waiting[request] = values
        for _ in range(ROUNDS_MAX):
            answers = await self._produce(list(waiting))
            for request, answer in answers.items():
                if answer is None or answer.partition is None or answer.result is None:
                    continue
                verdict = answer.result[0]
                if is_stored(answer):
                    self.deployment.acknowledged(answer.partition, request.sent, answer.result)
                    attempt.values.setdefault(answer.partition, []).extend(waiting.pop(request))
                    self._sequences[request.name, request.partition] += request.sent.number
                elif verdict in (Verdict.FENCED, Verdict.NO_TRANSACTION):
                    return None
                elif verdict not in _AGAIN:
                    self._lose(attempt, waiting)
                    return False
            if not waiting:
                return True
            await self.pause(0.05)
        self._lose(attempt, waiting)
        return False

    @staticmethod
    def _lose(attempt: Attempt, waiting: dict[BatchRequest, list[bytes]]) -> None:
        for values in waiting.values():
            attempt.lost += values

    def _request(
        self, attempt: Attempt, lane: tuple[str, int], who: Who, *, is_v2: bool
    ) -> tuple[BatchRequest, list[bytes]]:
        sequence = self._sequences.setdefault(lane, 0)
        producer = record_codec.Producer(id=who[0], epoch=who[1], base_sequence=sequence, is_transactional=True)
        batch, count = self._batches.make(producer)
        sent = Sent(connection=-1, number=count, producer_id=who[0])
        flags = BATCH_TRANSACTIONAL | (BATCH_BEGINS if is_v2 else 0)
        fields = AppendFields(producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, flags=flags)
        request = BatchRequest(*lane, batch, sent, fields)
        return request, self.deployment.transaction_history.sends(attempt, batch)

    async def _produce(self, requests: list[BatchRequest]) -> dict[BatchRequest, BatchAnswer | None]:
        connection = await self.connection(keep_rate=0.6)
        self.deployment.sent_in_transactions(requests)
        reply = connection.produce(requests)
        await all_answers([reply])
        return dict(zip(requests, answers_of(reply, len(requests)), strict=True))

    # -- crashes, zombies ----------------------------------------------------------------------------------------

    async def _haunt(self, who: Who, sequences: dict[tuple[str, int], int]) -> None:
        """Go on as the former producer: everything is refused."""
        self.deployment.events["zombie producer"] += 1
        attempt = self.deployment.transaction_history.begins(self.name)
        own, self._sequences = self._sequences, sequences
        request, _ = self._request(attempt, self.random.choice(self._lanes), who, is_v2=self.random.random() < 0.5)
        self._sequences = own
        answer = (await self._produce([request]))[request]
        if answer is not None and is_stored(answer):
            self.deployment.fail("a fenced producer has written")

        async def end(streams: Streams) -> Who:
            return await streams.transactions.end(self.name, who, is_commit=True, bumps=self.random.random() < 0.5)

        if not isinstance(await self._ask(end), Problem):
            self.deployment.fail("a fenced producer has committed")

    def _crashes(self) -> bool:
        return self.random.random() < self._settings.crash_rate

    def _counted(self, what: str) -> bool:
        self.deployment.events[f"transaction: {what}"] += 1
        return False

    async def _ask(self, work: Callable[[Streams], Awaitable[Any]]) -> Any:
        """Ask until there is an answer: the result, or the problem for which the request is refused."""
        self._is_sure = True
        while True:
            connection = await self.connection(keep_rate=0.6)
            try:
                return await self.call(connection, _guarded(work))
            except (Unavailable, Overloaded, NotFound):
                self._is_sure = False
                await self.pause(0.05)


def _guarded(work: Callable[[Streams], Awaitable[Any]]) -> Callable[[Streams], Awaitable[Any]]:
    async def guarded(streams: Streams) -> Any:
        try:
            return await work(streams)
        except TransactionRefusal as refusal:
            return refusal.problem

    return guarded
