"""Random histories on every store against a naive model: a dictionary of lists of records' owners.

Commits of several servers (idempotent and named producers that repeat, skip and go back, batches that expect an offset), repeated
tokens, trims, deletions, terminations, growth, raised epochs, maintenance at any moment, and a store that is closed and opened again
in between. After each step the whole state is compared.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bearlake.metadata import Metadata
from bearlake.metadata.model import (
    BATCH_IN_STEP,
    BATCH_NAMED,
    BatchCommit,
    EntryKind,
    Outcome,
    OutcomeKind,
    PartitionKey,
    partition_key,
)
from fixtures import by_name
from fixtures.depth import DEPTH

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)
WRAP = 2**31
PARTITIONS = 4
SKIPPING, IN_STEP = "skipping", "in step"
"""Names of producers."""


@dataclass
class ModelPartition:
    start: int = 0
    slices: list[tuple[int, int, int, str]] = field(default_factory=list)
    """(base, count, timestamp, object) of each accepted batch."""
    producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    """id -> (epoch, (sequence, count, base) of every batch of that epoch)."""
    named: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: {SKIPPING: [], IN_STEP: []})
    """name -> (epoch, sequence, base) of every batch."""
    names: dict[int, str] = field(default_factory=dict)
    """id -> name."""
    epoch: int = 0
    is_terminated: bool = False

    @property
    def end(self) -> int:
        return sum(count for _, count, _, _ in self.slices)

    def decide(self, batch: BatchCommit) -> tuple[OutcomeKind, int]:
        kind, base = self.decide_named(batch) if batch.flags & BATCH_NAMED else self.decide_idempotent(batch)
        if self.is_terminated and kind is not DUPLICATE:
            return TERMINATED, -1
        if kind is ACCEPTED and batch.expected_offset not in (-1, self.end):
            return UNEXPECTED_OFFSET, self.end
        return kind, base

    def decide_named(self, batch: BatchCommit) -> tuple[OutcomeKind, int]:
        name = self.names[batch.producer_id]
        history = self.named[name]
        newest = max((epoch for epoch, _, _ in history), default=0)
        if batch.producer_epoch < (newest if name == IN_STEP else max(newest, self.epoch)):
            return FENCED, -1
        if name == IN_STEP:
            history = [batch_ for batch_ in history if batch_[0] == batch.producer_epoch]
        sent = [sequence for _, sequence, _ in history]
        if batch.base_sequence <= max(sent, default=-1):
            bases = [base for _, sequence, base in history[-5:] if sequence == batch.base_sequence]
            return DUPLICATE, bases[0] if bases else -1
        if name == IN_STEP and batch.base_sequence != len(sent):
            return OUT_OF_ORDER, -1
        if name == SKIPPING and batch.after_sequence > max(sent, default=-1):
            return OUT_OF_ORDER, -1
        return ACCEPTED, self.end

    def decide_idempotent(self, batch: BatchCommit) -> tuple[OutcomeKind, int]:
        if batch.producer_id < 0:
            return ACCEPTED, self.end
        epoch, batches = self.producers.get(batch.producer_id, (-1, []))
        for sequence, count, base in batches[-5:]:
            if (batch.producer_epoch, batch.base_sequence, batch.record_count) == (epoch, sequence, count):
                return DUPLICATE, base
        if batch.producer_epoch < epoch:
            return FENCED, -1
        if batch.producer_epoch > epoch:
            is_next = batch.base_sequence == 0
        else:
            is_next = batch.base_sequence == (batches[-1][0] + batches[-1][1]) % WRAP
        return (ACCEPTED, self.end) if is_next else (OUT_OF_ORDER, -1)

    def add(self, batch: BatchCommit, token: str) -> Outcome:
        kind, base = self.decide(batch)
        if kind is ACCEPTED:
            if batch.flags & BATCH_NAMED:
                name = self.names[batch.producer_id]
                self.named[name].append((batch.producer_epoch, batch.base_sequence, base))
            elif batch.producer_id >= 0:
                epoch, batches = self.producers.get(batch.producer_id, (-1, []))
                kept = batches if epoch == batch.producer_epoch else []
                new = (batch.base_sequence, batch.record_count, base)
                self.producers[batch.producer_id] = (batch.producer_epoch, [*kept, new])
            self.slices.append((base, batch.record_count, batch.max_timestamp, token))
        return Outcome(kind, base, self.start)


class Model:
    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, ModelPartition] = {}
        self.results: dict[str, list[Outcome]] = {}

    def commit(self, token: str, batches: list[BatchCommit]) -> list[Outcome]:
        if token not in self.results:
            outcomes = [
                self.partitions[batch.partition].add(batch, token)
                if batch.partition in self.partitions
                else Outcome(NOT_FOUND, -1, -1)
                for batch in batches
            ]
            self.results[token] = outcomes  # I8: also if nothing was accepted
        return self.results[token]


batch_kind = st.tuples(
    st.sampled_from([0, 0, 0, 1, 2, 3]),
    st.integers(1, 3),
    st.sampled_from([-1, 0, 0, 0, 1, SKIPPING, SKIPPING, IN_STEP]),
    st.sampled_from([0] * 15 + [1]),
    st.sampled_from(["next", "next", "next", "next", "repeat", "repeat", "skip", "zero", "wrap"]),
    st.integers(0, 7),
    st.sampled_from([None] * 15 + [0, 0, 1]),
)
commits = st.lists(batch_kind, min_size=1, max_size=6)
others = st.one_of(
    st.just(("nothing",)),
    st.tuples(st.just("repeat"), st.integers(0, 20)),
    st.tuples(st.just("trim"), st.integers(0, PARTITIONS - 1), st.integers(0, 12)),
    st.tuples(st.just("maintain"), st.sampled_from([1_000, 1_000, 3, 0])),
    st.tuples(st.just("maintain"), st.sampled_from([1_000, 1_000, 3, 0])),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("delete")),
    st.tuples(st.just("terminate")),
    st.tuples(st.just("grow")),
    st.tuples(st.just("raise_epoch"), st.integers(0, PARTITIONS - 1)),
)


class Run:
    """One random history on a store and on the model."""

    def __init__(self, scene: Any, keys: list[PartitionKey]) -> None:
        self.scene = scene
        self.keys = keys
        self.model = Model()
        self.sent: list[tuple[str, list[BatchCommit]]] = []
        self.is_truncated = False

    async def batch(
        self, index: int, count: int, producer: int | str, epoch: int, how: str, timestamp: int, ahead: int | None
    ) -> BatchCommit:
        key = self.keys[index]
        partition = self.model.partitions.get(key, ModelPartition())
        made = BatchCommit(key, 0, 10, count, timestamp, expected_offset=-1 if ahead is None else partition.end + ahead)
        if isinstance(producer, str):
            return await self.named(made, producer, epoch, how)
        if producer < 0:
            return made
        newest, known = partition.producers.get(producer, (-1, []))
        follow = (known[-1][0] + known[-1][1]) % WRAP if known and epoch == newest else 0
        sequence = {"next": follow, "skip": follow + 2, "zero": 0, "wrap": WRAP - 2, "repeat": follow}[how]
        if how == "repeat" and known:
            sequence, count, _ = known[max(0, len(known) - 1 - timestamp)]
        return made._replace(
            record_count=count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence % WRAP
        )

    async def named(self, made: BatchCommit, name: str, epoch: int, how: str) -> BatchCommit:
        """The batch with a named producer; without a producer if there is no partition."""
        partition = self.model.partitions.get(made.partition)
        if partition is None:
            return made
        found = await self.scene.metadata.producers.named(made.partition, name)
        partition.names[found.producer_id] = name
        history = partition.named[name]
        newest = history[-1][0] if history else 0
        assert found[1:4] == (*(history[-1][:2] if history else (-1, -1)), partition.epoch)
        if name == SKIPPING:
            epoch = max(partition.epoch - epoch, 0)
        follow = history[-1][1] + 1 if history and (name == SKIPPING or epoch == newest) else 0
        sequence = {"next": follow, "skip": follow + 2, "zero": 0, "wrap": 2**40, "repeat": max(follow - 2, 0)}[how]
        return made._replace(
            producer_id=found.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            flags=BATCH_NAMED | (BATCH_IN_STEP if name == IN_STEP else 0),
            after_sequence=follow - (how != "skip") if name == SKIPPING and made.max_timestamp % 2 else -1,
        )

    async def raise_epoch(self, index: int) -> None:
        partition = self.model.partitions.get(self.keys[index])
        if partition is not None:
            lease = await self.scene.metadata.leases.acquire("dispatch", self.scene.server)
            partition.epoch += 1
            assert await self.scene.metadata.producers.raise_epoch(self.keys[index], lease) == partition.epoch

    async def commit(self, kinds: list[Any]) -> None:
        batches = [await self.batch(*kind) for kind in kinds]
        by_partition = sorted(batches, key=lambda batch: batch.partition)
        commit = self.scene.object(*by_partition)
        self.sent.append((commit.token, commit.batches))
        await self.send(commit.token, commit.batches)

    async def send(self, token: str, batches: list[BatchCommit]) -> None:
        committed = await self.scene.commit(*batches, token=token)
        expected = self.model.commit(token, batches)
        assert [outcome[:2] for outcome in committed.outcomes] == [outcome[:2] for outcome in expected]

    async def repeat(self, back: int) -> None:
        if self.sent:
            await self.send(*self.sent[-1 - back % len(self.sent)])

    async def nothing(self) -> None:
        pass

    async def trim(self, index: int, start: int) -> None:
        partition = self.model.partitions.get(self.keys[index])
        if partition is not None:
            partition.start = max(partition.start, min(start, partition.end))
            await self.scene.metadata.log.trim(self.keys[index], partition.start)

    async def maintain(self, entry_count_min: int) -> None:
        self.is_truncated |= entry_count_min < 1_000
        await self.scene.metadata.log.maintain(entry_count_min=entry_count_min)

    async def reopen(self) -> None:
        former, self.scene.metadata = self.scene.metadata, await self.scene.backend.open()
        if former is not self.scene.metadata:
            await former.close()

    async def delete(self) -> None:
        names = {stream.name for stream in await self.scene.metadata.streams.list()}
        if "s1" in names:
            stream = await by_name.delete(self.scene.metadata, "s1")
            for key in [key for key in self.model.partitions if key >> 20 == stream.number]:
                del self.model.partitions[key]

    async def terminate(self) -> None:
        names = {stream.name for stream in await self.scene.metadata.streams.list()}
        if "s1" in names:
            stream = await by_name.terminate(self.scene.metadata, "s1")
            for key, partition in self.model.partitions.items():
                partition.is_terminated |= key >> 20 == stream.number

    async def grow(self) -> None:
        streams = {stream.name: stream for stream in await self.scene.metadata.streams.list()}
        if "s1" in streams and streams["s1"].partition_count == 1 and not streams["s1"].is_terminated:
            await by_name.add_partitions(self.scene.metadata, "s1", 2)
            self.model.partitions[self.keys[3]] = ModelPartition()

    async def compare(self) -> None:
        log = self.scene.metadata.log
        model = self.model.partitions
        assert await log.bounds(self.keys) == {
            key: (partition.start, partition.end, partition.end) for key, partition in model.items()
        }
        for key, partition in model.items():
            located = await log.locate(key, 0, limit=1_000)
            spans = [
                (located_slice.slice.base_offset, located_slice.slice.end_offset, located_slice.object_key)
                for located_slice in located.slices
            ]
            assert [span[0] for span in spans[1:]] == [span[1] for span in spans[:-1]]
            visible = [slice_ for slice_ in partition.slices if slice_[0] + slice_[1] > partition.start]
            for base, count, _, token in visible:
                assert any(start <= base and base + count <= end and key_ == token for start, end, key_ in spans)
            assert (spans[-1][1] if spans else partition.end) == partition.end
            described = await log.producers(key)
            assert {
                producer.producer_id: (producer.producer_epoch, producer.last_sequence) for producer in described
            } == {
                producer: (epoch, (batches[-1][0] + batches[-1][1] - 1) % WRAP)
                for producer, (epoch, batches) in partition.producers.items()
            }


@pytest.mark.slow
@settings(
    max_examples=25 * DEPTH,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking takes minutes; a failing history is short enough to read
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps=st.lists(st.tuples(commits, others), min_size=8, max_size=40))
async def test_random_histories_agree_with_the_naive_model(
    backend: Any, new_scene: Any, steps: list[tuple[Any, tuple[Any, ...]]]
) -> None:
    scene = await new_scene(await backend.fresh())
    first, second = await scene.stream("s0", 2), await scene.stream("s1", 1)
    keys = [first.partition(0), first.partition(1), second.partition(0), partition_key(second.number, 1)]
    await scene.metadata.producers.allocate(4)  # of the idempotent producers
    run = Run(scene, keys)
    run.model.partitions = {key: ModelPartition() for key in keys[:3]}
    for batches, (name, *arguments) in steps:
        await run.commit(batches)
        await getattr(run, name)(*arguments)
        await run.compare()

    await assert_log_agrees(scene.metadata, run)


async def assert_log_agrees(metadata: Metadata, run: Run) -> None:
    """A follower that has read the whole log (when nothing is truncated) knows every partition's end."""
    if run.is_truncated:
        return
    ends: dict[int, int] = {}
    for entry in (await metadata.log.follow(0, limit=1_000)).entries:
        for slice_ in entry.slices:
            assert entry.kind is EntryKind.COMMIT
            assert slice_.base_offset == ends.get(slice_.partition, 0), "I2: dense"
            ends[slice_.partition] = slice_.end_offset
    for key, partition in run.model.partitions.items():
        assert ends.get(key, 0) == partition.end
