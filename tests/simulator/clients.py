"""Producers of a simulated deployment, and the base of all clients. They behave as Kafka's clients do and report their answers to `Truth`.

An idempotent producer has up to five batches per partition in flight. It sends each batch of unknown fate again with the same sequence,
mostly through another server. An inferring producer assumes, like librdkafka, that a success covers all earlier batches. Any other
producer sends each batch once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.records import codec as record_codec
from bearlake.streams.append import Verdict
from bearlake.streams.service import Streams
from simulator.generated_batches import generate_batch
from simulator.loop import Process
from simulator.nodes import AppendFields, BatchAnswer, BatchRequest, Connection, is_stored
from simulator.truth import Sent

if TYPE_CHECKING:
    from simulator.deployment import Deployment

IN_FLIGHT_MAX = 5
"""Requests that a producer has in flight (limit of KIP-98, so that the last five batches suffice to find duplicates)."""
REQUEST_TIMEOUT_S = 4.0
DELIVERY_TIMEOUT_S = 120.0
"""Time after which a producer reports a batch as failed and stops sending it (Kafka: `delivery.timeout.ms`)."""

_GAPS = (Verdict.OUT_OF_ORDER, Verdict.UNKNOWN_PRODUCER)
"""Verdicts that, for the oldest batch without an answer, require a new epoch."""


class Client:
    """The base of all clients: a process, a random source, and at most one connection."""

    def __init__(self, deployment: "Deployment", name: str) -> None:
        self.deployment = deployment
        self.name = name
        self.process: Process = deployment.loop.process(name)
        self.random: random.Random = deployment.randomness(name)
        self._connection: Connection | None = None

    async def connection(self, *, keep_rate: float) -> Connection:
        """Return the current connection, or with probability 1 - `keep_rate` or if it is lost, a new one to any serving server."""
        connection = self._connection
        if connection is None or connection.is_lost or self.random.random() >= keep_rate:
            self._connection = connection = await self.deployment.connect(self.random)
        return connection

    async def call(self, connection: Connection, work: Callable[[Streams], Awaitable[Any]]) -> Any:
        """Run `work` on a node. Raises `Unavailable` after the timeout, and the errors of the node."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await connection.call(work)
        except TimeoutError as error:
            raise Unavailable("no answer from the server") from error

    async def pause(self, mean_s: float) -> None:
        """Wait for a random, exponentially distributed time."""
        await asyncio.sleep(self.random.expovariate(1.0) * mean_s)


class Batches:
    """Makes batches that are all different."""

    def __init__(self, deployment: "Deployment", owner: str, randomness: random.Random) -> None:
        self._deployment = deployment
        self._owner = owner
        self._random = randomness
        self._count = 0
        self.is_undecodable = False
        """Whether the records of the last batch are garbage."""

    def make(self, producer: record_codec.Producer = record_codec.NON_IDEMPOTENT) -> tuple[bytes, int]:
        """Return a new batch and its record count."""
        draw = self._random.random
        self._count += 1
        count = 1 if draw() < 0.6 else 1 + int(draw() * 4)
        now_ms = self._deployment.clock.now_ms()
        padding = b"." * int(draw() ** 4 * self._deployment.settings.value_bytes_max)
        records = [
            record_codec.Record(
                value=b"%s %d %d %s" % (self._owner.encode(), self._count, index, padding),
                timestamp=now_ms - int(draw() * 500),
            )
            for index in range(count)
        ]
        lake = self._deployment.settings.lake
        if lake is None:
            return record_codec.encode(records, producer=producer), count
        batch, self.is_undecodable = generate_batch(
            records, producer, self._random, codec_rate=lake.codec_rate, inexact_rate=lake.inexact_rate
        )
        return batch, count


@dataclass(slots=True)
class Unknown:
    """A batch whose fate its producer does not know yet."""

    sequence: int
    batch: bytes
    sent: Sent
    made_s: float
    """Loop time at which the application handed over the batch."""

    @property
    def is_stale(self) -> bool:
        """Whether its producer has stopped sending it."""
        return asyncio.get_running_loop().time() - self.made_s > DELIVERY_TIMEOUT_S


@dataclass(slots=True)
class Lane:
    """An idempotent producer's state of one partition."""

    name: str
    index: int
    epoch: int = 0
    next_sequence: int = 0
    unknown: list[Unknown] = field(default_factory=list)


class IdempotentProducer(Client):
    """Sends each batch until its fate is known; see the module."""

    kind = "idempotent"

    def __init__(self, deployment: "Deployment", number: int, lanes: Sequence[tuple[str, int]]) -> None:
        super().__init__(deployment, f"{self.kind} {number}")
        self._batches = Batches(deployment, self.name, self.random)
        self._lanes = [Lane(name, index) for name, index in lanes]
        self._producer_id = -1

    async def run(self) -> None:
        """Produce until the deployment stops producing, then until every fate is known."""
        while self._producer_id < 0:
            try:
                self._producer_id = (await self.deployment.metadata.producers.allocate(1))[0]
            except (Unavailable, Overloaded):
                await self.pause(0.1)
        while self.deployment.is_producing or any(lane.unknown for lane in self._lanes):
            for lane in self._lanes:
                self._begin_epoch_if_due(lane)
                if self.deployment.is_producing:
                    self._fill(lane)
            await self._round()
            await self.pause(self.deployment.settings.produce_pause_s)

    def _begin_epoch_if_due(self, lane: Lane) -> None:
        """Begin a new epoch after giving up stale batches, or when the application restarts its producer."""
        rate = self.deployment.settings.renewal_rate
        is_renewed = rate > 0 and not lane.unknown and self.random.random() < rate
        if is_renewed or any(item.is_stale for item in lane.unknown):
            lane.epoch += 1
            self._forget(lane)

    def _fill(self, lane: Lane) -> None:
        while len(lane.unknown) < self.random.randint(0, IN_FLIGHT_MAX):
            producer = record_codec.Producer(id=self._producer_id, epoch=lane.epoch, base_sequence=lane.next_sequence)
            batch, count = self._batches.make(producer)
            sent = Sent(
                connection=-1,
                number=lane.next_sequence,
                producer_id=self._producer_id,
                is_undecodable=self._batches.is_undecodable,
            )
            lane.unknown.append(Unknown(lane.next_sequence, batch, sent, self.deployment.loop.time()))
            lane.next_sequence += count

    async def _round(self) -> None:
        """Send all batches of unknown fate, request by request without waiting; then process all answers."""
        connection = await self.connection(keep_rate=0.6)
        rounds: list[tuple[list[tuple[Lane, Unknown]], asyncio.Future[list[BatchAnswer]]]] = []
        for depth in range(IN_FLIGHT_MAX):
            items = [(lane, lane.unknown[depth]) for lane in self._lanes if depth < len(lane.unknown)]
            if items:
                requests = [BatchRequest(lane.name, lane.index, item.batch, item.sent) for lane, item in items]
                self.deployment.produced(requests)
                rounds.append((items, connection.produce(requests)))
        await all_answers(reply for _, reply in rounds)
        for items, reply in rounds:
            answers = answers_of(reply, len(items))
            for (lane, item), answer in zip(items, answers, strict=True):
                self._on_answer(lane, item, answer)
        for lane in self._lanes:
            self._give_up_if_stuck(lane)

    def _on_answer(self, lane: Lane, item: Unknown, answer: BatchAnswer | None) -> None:
        if answer is None or item not in lane.unknown:
            return
        if is_stored(answer):
            assert answer.partition is not None
            assert answer.result is not None
            self.deployment.acknowledged(answer.partition, item.sent, answer.result)
            self._succeeded(lane, item, answer.partition)
        elif answer.result is not None and answer.result[0] == Verdict.TERMINATED:
            assert answer.partition is not None
            self.deployment.promised_absent(answer.partition, item.sent, answer.result)
            lane.unknown.remove(item)
        elif answer.result is not None and answer.result[0] in _GAPS and item is lane.unknown[0]:
            lane.epoch += 1  # no earlier batch is unknown, so the gap stays (KIP-360: next epoch, from 0)
            self._forget(lane)
        elif answer.partition is None or (answer.result is not None and answer.result[0] == Verdict.NOT_FOUND):
            self._forget(lane)
            lane.epoch += 1

    def _succeeded(self, lane: Lane, item: Unknown, key: PartitionKey) -> None:
        lane.unknown.remove(item)

    def _forget(self, lane: Lane) -> None:
        """Report the lane's unknown batches to the application as failed."""
        self.deployment.given_up_count += len(lane.unknown)
        lane.unknown.clear()
        lane.next_sequence = 0

    def _give_up_if_stuck(self, lane: Lane) -> None:
        if not self.deployment.exists(lane.name, lane.index) and not self.deployment.is_producing:
            self._forget(lane)


class InferringProducer(IdempotentProducer):
    """Reports a batch as delivered when a later batch succeeds, because sequences have no gaps.

    Source: librdkafka, rd_kafka_handle_idempotent_Produce_success and rd_kafka_dr_implicit_ack.
    """

    kind = "inferring"

    def _succeeded(self, lane: Lane, item: Unknown, key: PartitionKey) -> None:
        while lane.unknown[0] is not item:
            implied = lane.unknown.pop(0)
            self.deployment.events["implicit acknowledgement"] += 1
            self.deployment.truth.implied(key, implied.sent)
        lane.unknown.remove(item)


class PlainProducer(Client):
    """Sends each batch once, with several requests in flight; batches of one connection must keep their order."""

    kind = "plain"

    def __init__(self, deployment: "Deployment", number: int, lanes: Sequence[tuple[str, int]]) -> None:
        super().__init__(deployment, f"{self.kind} {number}")
        self._batches = Batches(deployment, self.name, self.random)
        self._lanes = lanes
        self._number = 0

    async def run(self) -> None:
        """Produce until the deployment stops producing."""
        while self.deployment.is_producing:
            connection = await self.connection(keep_rate=0.8)
            replies = [self._send(connection) for _ in range(self.random.randint(1, IN_FLIGHT_MAX))]
            await all_answers(reply for _, reply in replies)
            for requests, reply in replies:
                for item, answer in zip(requests, answers_of(reply, len(requests)), strict=True):
                    self._on_answer(item, answer)
            await self.pause(self.deployment.settings.produce_pause_s)

    def _send(self, connection: Connection) -> "tuple[list[BatchRequest], asyncio.Future[list[BatchAnswer]]]":
        requests: list[BatchRequest] = []
        for name, index in self._lanes:
            if self.random.random() < 0.7 or not requests:
                self._number += 1
                batch = self._batches.make()[0]
                sent = Sent(
                    connection=connection.number,
                    number=self._number,
                    is_undecodable=self._batches.is_undecodable,
                )
                requests.append(BatchRequest(name, index, batch, sent, self.fields(name, index)))
        self.deployment.produced(requests)
        return requests, connection.produce(requests)

    def fields(self, name: str, index: int) -> AppendFields | None:
        """Return the `Append` fields of a batch that the batch itself does not contain."""
        return None

    def _on_answer(self, item: BatchRequest, answer: BatchAnswer | None) -> None:
        if answer is None or answer.partition is None or answer.result is None:
            return
        if is_stored(answer):
            self.deployment.acknowledged(answer.partition, item.sent, answer.result)
        elif answer.result[0] == Verdict.UNAVAILABLE:
            self.deployment.unknown_count += 1
        else:
            self.deployment.promised_absent(answer.partition, item.sent, answer.result)


async def all_answers(replies: Any) -> None:
    """Wait for all answers, or until the timeout."""
    waiting = list(replies)
    if waiting:
        await asyncio.wait(waiting, timeout=REQUEST_TIMEOUT_S)


def answers_of(reply: "asyncio.Future[list[BatchAnswer]]", count: int) -> Sequence[BatchAnswer | None]:
    """Return the answer about each batch; None where the fate is unknown."""
    if not reply.done():
        reply.cancel()
        return [None] * count
    error = reply.exception()
    if error is not None:
        assert isinstance(error, BearlakeError), error
        return [None] * count
    return reply.result()
