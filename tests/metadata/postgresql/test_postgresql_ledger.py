"""The stored function decides as the pure ledger does, for random histories, even if it is called as before named producers existed."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import (
    BATCH_CONTROL,
    BATCH_IN_STEP,
    BATCH_NAMED,
    BatchCommit,
    ObjectCommit,
    ObjectCommitted,
    OutcomeKind,
    PartitionKey,
    StreamSpec,
    stream_number,
)
from bearlake.metadata.partition_state import PartitionState, StreamState
from fixtures import by_name

SEQUENCE_COUNT = 1 << 31
FROZEN_MS = 1_700_000_000_000
FLOORS = {5: 1, 6: 40, 7: 20}
"""States that the names of some producers inherit from former producers."""


class EmptyCheckpoint:
    """A ledger whose only knowledge is what it has adopted. The named producers are registered in all partitions except one."""

    def __init__(self, streams: dict[int, StreamState], unregistered: PartitionKey) -> None:
        self.streams = streams
        self.unregistered = unregistered

    def stream(self, number: int) -> StreamState | None:
        return self.streams.get(number)

    def partition(self, key: PartitionKey, stream: StreamState) -> PartitionState:
        return PartitionState(stream)

    def floor_of(self, key: PartitionKey, producer_id: int) -> int | None:
        return None if key == self.unregistered else FLOORS.get(producer_id, 0)


class History:
    """Strategy: batches as producers make them: mostly correct, often repeated, sometimes out of order or of an older or newer epoch.

    Some expect to begin at the end that their partition had before the object. Producers 0 to 3 are idempotent; 4 to 6 are named, may skip
    sequences, and write with their partition's epoch; 7 is named and skips none.
    """

    def __init__(self, seed: int, partitions: list[PartitionKey]) -> None:
        self.chance = random.Random(seed)
        self.partitions = partitions
        self.next_sequence: dict[tuple[int, int], int] = {}
        self.ends: dict[PartitionKey, int] = {}
        self.epochs = dict.fromkeys((0, 1, 2, 3, 7), 1)
        self.partition_epochs = dict.fromkeys(partitions, 0)
        self.sent: list[BatchCommit] = []

    def object(self) -> list[BatchCommit]:
        chosen = self.chance.sample(self.partitions, self.chance.randint(1, len(self.partitions)))
        batches: list[BatchCommit] = []
        position = 0
        for partition in chosen:
            for _ in range(self.chance.randint(1, 5)):
                position += self.chance.choice((0, 0, 0, 7))
                expected = -1 if self.chance.random() < 0.8 else self.ends.get(partition, 0)
                batches.append(self.batch(partition)._replace(position=position, expected_offset=expected))
                position += batches[-1].length
        return batches

    def batch(self, partition: PartitionKey) -> BatchCommit:
        chance = self.chance
        length, count, timestamp = chance.randint(1, 500), chance.randint(1, 9), chance.randint(0, 10_000)
        kind = chance.random()
        if kind < 0.25:
            return BatchCommit(partition, 0, length, count, timestamp)
        if kind < 0.4 and self.sent:
            return chance.choice(self.sent[-12:])._replace(partition=partition)
        producer = chance.randrange(8)
        if 4 <= producer < 7:
            return self.skipping(BatchCommit(partition, 0, length, count, timestamp, producer, flags=BATCH_NAMED))
        if kind < 0.45:
            self.epochs[producer] += 1
            self.next_sequence = {pair: 0 if pair[1] == producer else n for pair, n in self.next_sequence.items()}
        epoch = self.epochs[producer] - (chance.random() < 0.05)
        start = chance.choice((0, 0, 0, SEQUENCE_COUNT - 20, 5)) if producer < 4 else 0
        sequence = self.next_sequence.get((partition, producer), start)
        if kind > 0.95:
            sequence = (sequence + chance.randint(-10, 10)) % SEQUENCE_COUNT
        flags = BATCH_CONTROL if chance.random() < 0.03 else 0
        if producer == 7:
            flags, count = BATCH_NAMED | BATCH_IN_STEP, 1
        self.next_sequence[partition, producer] = (sequence + count) % SEQUENCE_COUNT
        self.sent.append(BatchCommit(partition, 0, length, count, timestamp, producer, epoch, sequence, flags))
        return self.sent[-1]

    def skipping(self, batch: BatchCommit) -> BatchCommit:
        pair = (batch.partition, batch.producer_id)
        sequence = self.next_sequence.get(pair, 0) + self.chance.choice((-2, -1, 0, 0, 0, 0, 1, 1 << 40))
        self.next_sequence[pair] = sequence + 1
        epoch = self.partition_epochs[batch.partition] - (self.chance.random() < 0.1)
        after = self.chance.choice((-1, sequence - 1, sequence - 2))
        self.sent.append(batch._replace(base_sequence=sequence, producer_epoch=epoch, after_sequence=after))
        return self.sent[-1]


@pytest.mark.parametrize("seed", range(12))
async def test_random_commits_are_decided_as_the_ledger_decides(
    seed: int,
    postgresql_backend: Any,
    writer_on: Any,
    commit_as_before: Callable[[Metadata, ObjectCommit], Awaitable[ObjectCommitted]],
) -> None:
    metadata = await postgresql_backend.open()
    writer = await writer_on.on(metadata)
    streams = [await metadata.streams.create(StreamSpec(name=f"s{i}", partition_count=40)) for i in range(3)]
    await by_name.delete(metadata, "s2")
    known = {stream.number: StreamState(stream.partition_count, is_deleted=stream.name == "s2") for stream in streams}
    partitions = [streams[0].partition(i) for i in (0, 31, 32, 39)] + [streams[1].partition(3), streams[2].partition(0)]
    partitions += [PartitionKey(streams[1].partition(39) + 1), PartitionKey(99 << 20)]
    known[streams[1].number].former_producer_id = 1
    await postgresql_backend.execute(
        f"update bearlake.stream set former_producer_id = 1 where number = {streams[1].number}"
    )
    ledger = Ledger(EmptyCheckpoint(known, partitions[1]))
    for key in partitions[:1] + partitions[2:]:
        for producer in range(4, 8):
            await postgresql_backend.execute(
                f"insert into bearlake.producer_name (partition, name, producer_id, floor)"
                f" values ({key}, 'p{producer}', {producer}, {FLOORS.get(producer, 0)})"
            )
    history = History(seed, partitions)
    lease = await metadata.leases.acquire("dispatch", writer.server)
    for turn in range(40):
        batches = history.object()
        if turn % 3 == 0:
            batches = [batch._replace(expected_offset=-1) for batch in batches if not batch.flags & BATCH_NAMED]
        if turn % 7 == 6:
            raised = partitions[turn % 5]
            ledger.partitions[raised].epoch = await metadata.producers.raise_epoch(raised, lease)
            history.partition_epochs[raised] = ledger.partitions[raised].epoch
        if turn % 9 == 5:  # as if the states of producers up to this id had expired on another server
            ledger.expired_id += 1
            ledger.position_floor = await metadata.log.head()
            await postgresql_backend.execute(
                f"update bearlake.cluster set producer_id_expired = {ledger.expired_id}, position_floor = {ledger.position_floor}"
            )
        ledger.applied = await metadata.log.head()
        seen = max(0, ledger.position_floor - (turn % 2)) if turn % 3 else 0
        decision = ledger.decide(batches, FROZEN_MS, seen=seen)
        commit = ObjectCommit(token=f"wal/{turn}", server=writer.server, size=1 << 20, batches=batches, seen=seen)
        is_as_before = turn % 3 == 0 and all(outcome.kind is not OutcomeKind.UNSURE for outcome in decision.outcomes)
        committed = await (commit_as_before(metadata, commit) if is_as_before else metadata.log.commit(commit))

        assert committed.outcomes == decision.outcomes
        assert list(committed.slices) == decision.slices
        assert await metadata.log.commit(commit) == committed
        if decision.slices:
            assert committed.position == ledger.applied + 1
            entry = (await metadata.log.follow(ledger.applied, limit=1)).entries[0]
            assert list(entry.slices) == decision.slices
            ledger.adopt(decision, committed.position)
            history.ends = {key: state.end for key, state in ledger.partitions.items()}
    for partition in partitions:
        state = ledger.existing(partition) if stream_number(partition) in known else None
        if state is not None:
            assert (await metadata.log.bounds([partition]))[partition] == state.bounds()
            idempotent = [producer for producer in ledger.producers(state) if producer.producer_id < 4]
            assert [
                producer for producer in await metadata.log.producers(partition) if producer.producer_id < 4
            ] == idempotent
