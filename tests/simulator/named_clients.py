"""Producers of a simulated deployment as in protocols other than Kafka: named producers, and a producer that names expected offsets.

A named producer behaves as Pulsar's clients and servers do together: a session registers the name, then sends the batches of unknown
fate in order, each naming its predecessor; any answer other than stored ends the session. Sometimes another instance takes over: it
raises the partition's epoch and continues after the stored batches; batches of the earlier instance that were not stored by then never
are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError, Conflict, NotFound
from bearlake.metadata.model import BATCH_NAMED, NamedProducer, PartitionKey
from bearlake.streams.append import Verdict
from simulator.clients import IN_FLIGHT_MAX, Batches, Client, PlainProducer, Unknown, all_answers, answers_of
from simulator.nodes import AppendFields, BatchAnswer, BatchRequest, Connection, is_stored
from simulator.truth import Sent

if TYPE_CHECKING:
    from simulator.deployment import Deployment

TAKE_OVER_RATE = 0.1
"""Probability that a new session belongs to another instance."""


@dataclass(slots=True)
class Lane:
    """A named producer's state of one partition. `session` is None if the next round must first register the name."""

    name: str
    index: int
    next_sequence: int = 0
    key: PartitionKey | None = None
    session: NamedProducer | None = None
    unknown: list[Unknown] = field(default_factory=list)


class NamedClient(Client):
    """Sends each batch until its fate is known; see the module."""

    def __init__(self, deployment: "Deployment", number: int, lanes: Sequence[tuple[str, int]]) -> None:
        super().__init__(deployment, f"named {number}")
        self._batches = Batches(deployment, self.name, self.random)
        self._lanes = [Lane(name, index) for name, index in lanes]
        self._last: Connection | None = None

    async def run(self) -> None:
        """Produce until the deployment stops producing, then until every fate is known."""
        while self.deployment.is_producing or any(lane.unknown for lane in self._lanes):
            connection = await self.connection(keep_rate=0.8)
            for lane in self._lanes:
                if any(item.is_stale for item in lane.unknown):
                    self._forget(lane)
                    lane.session = None
                if lane.session is None or connection is not self._last:
                    await self._open(lane, connection)
                if self.deployment.is_producing:
                    self._fill(lane)
            self._last = connection
            await self._round(connection, [lane for lane in self._lanes if lane.session is not None])
            await self.pause(self.deployment.settings.produce_pause_s)

    async def _open(self, lane: Lane, connection: Connection) -> None:
        """Open a new session, if the store answers."""
        lane.session = None
        stream = next((stream for stream in self.deployment.truth.active() if stream.name == lane.name), None)
        key = stream.partition(lane.index) if stream is not None and lane.index < stream.partition_count else None
        if key is None or key != lane.key:
            self._forget(lane)
            lane.key, lane.next_sequence = key, 0
        if key is None:
            return
        try:
            if self.random.random() < TAKE_OVER_RATE and connection.node.server is not None:
                await self._take_over(lane, key, connection)
            lane.session = await self.deployment.metadata.producers.named(key, self.name)
        except BearlakeError as error:
            self.deployment.truth.expect(
                not isinstance(error, NotFound) or not self.deployment.truth.exists(key),
                "what exists is found",
                error=error,
            )
            return
        if not lane.unknown:
            lane.next_sequence = max(lane.next_sequence, lane.session.last_sequence + 1)

    async def _take_over(self, lane: Lane, key: PartitionKey, connection: Connection) -> None:
        assert connection.node.server is not None
        try:
            lease = await self.deployment.metadata.leases.acquire(f"alone/{key}", connection.node.server)
        except Conflict:
            return
        await self.deployment.metadata.producers.raise_epoch(key, lease)
        for item in lane.unknown:
            item.sent.is_promised_absent = not self.deployment.truth.is_stored(key, item.sent)
        self._forget(lane)

    def _fill(self, lane: Lane) -> None:
        while lane.session is not None and len(lane.unknown) < self.random.randint(0, IN_FLIGHT_MAX):
            sequence = lane.next_sequence + (self.random.randint(0, 3) if self.random.random() < 0.3 else 0)
            batch, _ = self._batches.make()
            sent = Sent(connection=-1, number=sequence, is_undecodable=self._batches.is_undecodable)
            lane.unknown.append(Unknown(sequence, batch, sent, self.deployment.loop.time()))
            lane.next_sequence = sequence + 1

    async def _round(self, connection: Connection, lanes: Sequence[Lane]) -> None:
        """Send all batches of unknown fate, request by request without waiting; then process all answers."""
        rounds = []
        for depth in range(IN_FLIGHT_MAX):
            items = [(lane, lane.unknown[depth]) for lane in lanes if depth < len(lane.unknown)]
            if items:
                requests = [self._request(lane, depth) for lane, _ in items]
                self.deployment.produced(requests)
                rounds.append((items, connection.produce(requests)))
        await all_answers(reply for _, reply in rounds)
        for items, reply in rounds:
            for (lane, item), answer in zip(items, answers_of(reply, len(items)), strict=True):
                self._on_answer(lane, item, answer)

    def _request(self, lane: Lane, depth: int) -> BatchRequest:
        session, item = lane.session, lane.unknown[depth]
        assert session is not None
        before = lane.unknown[depth - 1].sequence if depth else session.last_sequence
        fields = AppendFields(
            producer_id=session.producer_id,
            producer_epoch=session.partition_epoch,
            base_sequence=item.sequence,
            flags=BATCH_NAMED,
            after_sequence=max(before, session.last_sequence),
            partition=lane.key,
        )
        return BatchRequest(lane.name, lane.index, item.batch, item.sent, fields)

    def _on_answer(self, lane: Lane, item: Unknown, answer: BatchAnswer | None) -> None:
        if answer is not None and answer.result is not None and answer.result[0] == Verdict.TERMINATED:
            assert answer.partition is not None
            self.deployment.promised_absent(answer.partition, item.sent, answer.result)
            lane.unknown.remove(item)
            return
        if answer is None or answer.result is None or not is_stored(answer):
            lane.session = None
            return
        assert answer.partition is not None
        verdict, base, _ = answer.result
        if verdict == Verdict.DUPLICATE and base < 0:
            self.deployment.acks[Verdict.DUPLICATE.name] += 1
            stored = self.deployment.truth.is_stored(answer.partition, item.sent)
            self.deployment.client_history.acknowledged(answer.partition, item.sent, base)
            self.deployment.truth.expect(stored, "I1: a batch reported as a duplicate is stored", sent=item.sent)
        else:
            self.deployment.acknowledged(answer.partition, item.sent, answer.result)
        lane.unknown.remove(item)

    def _forget(self, lane: Lane) -> None:
        """Drop the lane's unknown batches: their application learns that they failed, or is gone."""
        self.deployment.given_up_count += len(lane.unknown)
        lane.unknown.clear()


class ConditionalProducer(PlainProducer):
    """Sends each batch once, with an expected offset at or near the believed end of the partition."""

    kind = "conditional"

    def fields(self, name: str, index: int) -> AppendFields | None:
        """Return the expected offset, mostly the true end offset as of now."""
        ends = [
            self.deployment.truth.partition(stream.partition(index)).end
            for stream in self.deployment.truth.active()
            if stream.name == name and index < stream.partition_count
        ]
        return AppendFields(expected_offset=max(0, ends[0] + self.random.choice((0, 0, 0, -1, 1)))) if ends else None
