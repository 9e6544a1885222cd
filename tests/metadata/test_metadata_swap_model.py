"""Random histories of compaction on every store against a naive model: what readers find never has a gap, and no count is off.

Commits, compactions (also quarantined, with kept objects, and repeated), merges, trims, retention, deletions, sweeps and maintenance in
any order. After each step: the index covers `[start, end)` densely, usage equals the committed bytes, and exactly those
objects are unused that no offset needs any more.
"""

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bearlake.metadata.compaction import DataFileEntry, OffsetRange, SwapObject, TaskKind
from bearlake.metadata.model import EntryKind, ObjectKind, PartitionKey, Slice, stream_number
from fixtures import by_name
from fixtures.compaction_scene import Compaction, joined
from fixtures.depth import DEPTH

STEPS = (
    ["commit"] * 6
    + ["compact"] * 5
    + ["merge"] * 3
    + ["trim", "trim", "retain", "quarantined", "maintain", "maintain", "truncate", "sweep", "cancel", "delete"]
)


class Model:
    """The committed state: per partition its start, and (base, count, length, timestamp) of each batch."""

    def __init__(self) -> None:
        self.starts: dict[PartitionKey, int] = {}
        self.batches: defaultdict[PartitionKey, list[tuple[int, int, int, int]]] = defaultdict(list)
        self.compacted: defaultdict[PartitionKey, int] = defaultdict(int)

    def end(self, key: PartitionKey) -> int:
        return sum(count for _, count, _, _ in self.batches[key])

    def bytes_between(self, key: PartitionKey, start: int, end: int) -> int:
        return sum(length for base, count, length, _ in self.batches[key] if start <= base and base + count <= end)


class History:
    """One random history."""

    def __init__(self, compaction: Compaction, keys: list[PartitionKey], seed: int) -> None:
        self.compaction = compaction
        self.scene = compaction.scene
        self.model = Model()
        self.random = random.Random(seed)
        self.model.starts = dict.fromkeys(keys, 0)
        self.deleted: set[int] = set()
        self.swept: set[str] = set()
        self.sizes: dict[PartitionKey, int] = {}
        self.last = 0
        self.ends: dict[PartitionKey, int] = {}

    @property
    def log(self) -> Any:
        return self.compaction.metadata.log

    async def commit(self) -> None:
        keys = sorted(self.random.sample(sorted(self.model.starts), self.random.randint(1, len(self.model.starts))))
        batches = [
            self.scene.batch(
                key,
                self.random.randint(1, 4),
                length=self.random.randint(1, 99),
                timestamp=self.random.randint(0, 50),
            )
            for key in keys
        ]
        await self.scene.commit(*batches)
        for batch in batches:
            end = self.model.end(batch.partition)
            self.model.batches[batch.partition].append((end, batch.record_count, batch.length, batch.max_timestamp))

    async def _claim(self, kind: TaskKind) -> tuple[Any, list[OffsetRange]] | None:
        """Offer what waits (of one stream), or files to merge, and claim it."""
        metadata = self.compaction.metadata
        if kind is TaskKind.MERGE:
            streams = sorted({stream_number(key) for key in self.model.starts})
            files = await self._files_with_rows(self.random.choice(streams)) if streams else []
            if not files:
                return None
            chosen = self.random.sample(list(files), self.random.randint(1, min(3, len(files))))
            number = stream_number(chosen[0].segments[0].partition)
            offer = self.compaction.merge(number, *(file.object.key for file in chosen))
            keys = [file.object.key for file in chosen]
            ranges = sorted(
                OffsetRange(segment.partition, segment.base_offset, segment.end_offset)
                for file in chosen
                for segment in file.segments
            )
            assert keys
        else:
            waiting = await metadata.tasks.uncompacted(after=PartitionKey(0), limit=100)
            if not waiting:
                return None
            number = stream_number(self.random.choice(list(waiting)).partition)
            ranges = []
            for uncompacted in waiting:
                if stream_number(uncompacted.partition) == number:
                    located = await self.log.locate(
                        uncompacted.partition, uncompacted.compacted, limit=self.random.randint(1, 5)
                    )
                    ranges.append(
                        OffsetRange(uncompacted.partition, uncompacted.compacted, located.slices[-1].slice.end_offset)
                    )
            offer = self.compaction.compact(*ranges)
        made = await self.compaction.offer(offer)
        if not made:
            return None
        return await self.compaction.claim(), ranges

    async def _files_with_rows(self, number: int) -> list[DataFileEntry]:
        """The data files of a stream that a worker merges: of the others all that is left are trimmed rows, not forgotten yet. An
        earlier merge has taken the rest, so that their ranges are another file's (`compaction/worker.py`, `_read_inputs`)."""
        files = await self.compaction.metadata.objects.data_files(number)
        ranges = [
            (segment.partition, segment.base_offset, segment.end_offset) for file in files for segment in file.segments
        ]
        named = {found.object_key for found in await self.compaction.slices(*ranges)}
        return [file for file in files if file.object.key in named]

    async def _swap(self, kind: TaskKind, *, is_final: bool = True) -> None:
        claimed = await self._claim(kind)
        if claimed is None:
            return
        claim, ranges = claimed
        slices = [located_slice.slice for located_slice in await self.compaction.slices(*ranges)]
        if kind is TaskKind.MERGE:
            slices = [
                slice_
                for slice_ in slices
                if any(r.partition == slice_.partition and r.start <= slice_.base_offset < r.end for r in ranges)
            ]
        for interference in ("trim", "commit", "maintain"):  # between the work and the swap
            if self.random.random() < 0.3:
                await getattr(self, interference)()
        before = await self.log.usage(sorted(self.model.starts))
        swap = await self.compaction.prepared(claim, *self._files(slices, is_final=is_final), is_final=is_final)
        position = await self.log.swap(swap)
        assert await self.log.usage(sorted(self.model.starts)) == before, "a swap changes no usage"
        if self.random.random() < 0.5:
            assert await self.log.swap(swap) == position
        if is_final and kind is TaskKind.COMPACT:
            for key, _, end in ranges:
                self.model.compacted[key] = max(self.model.compacted[key], end)
        if not is_final:
            await self.compaction.metadata.tasks.cancel(claim)

    def _files(self, slices: list[Slice], *, is_final: bool) -> list[SwapObject]:
        if not is_final:
            return [self.compaction.file(slices, kind=ObjectKind.WAL)]
        segments = joined(slices, self.random.randint(1, 4))
        cuts = sorted(self.random.sample(range(len(segments) + 1), min(len(segments), self.random.randint(0, 2))))
        parts = [segments[start:end] for start, end in zip([0, *cuts], [*cuts, len(segments)], strict=True)]
        kinds = [ObjectKind.PARQUET, ObjectKind.PARQUET, ObjectKind.WAL]
        return [self.compaction.file(part, kind=self.random.choice(kinds)) for part in parts if part]

    async def compact(self) -> None:
        await self._swap(TaskKind.COMPACT)

    async def merge(self) -> None:
        await self._swap(TaskKind.MERGE)

    async def quarantined(self) -> None:
        await self._swap(TaskKind.COMPACT, is_final=False)

    async def cancel(self) -> None:
        claimed = await self._claim(TaskKind.COMPACT)
        if claimed is not None:
            await self.compaction.metadata.tasks.cancel(claimed[0])

    async def trim(self) -> None:
        key = self.random.choice(sorted(self.model.starts))
        start = self.random.randint(0, self.model.end(key))
        self.model.starts[key] = max(start, self.model.starts[key])
        assert (await self.log.trim(key, start)).start == self.model.starts[key]

    async def retain(self) -> None:
        keys = sorted(self.model.starts)
        moved = await by_name.retain(
            self.compaction.metadata, keys, before_ms=None, size_max=self.random.randint(0, 600)
        )
        for key, bounds in moved.items():
            assert bounds.start > self.model.starts[key]
            self.model.starts[key] = bounds.start

    async def maintain(self) -> None:
        await self.log.maintain(entry_count_min=1_000_000)

    async def truncate(self) -> None:
        await self.log.maintain(entry_count_min=0)

    async def sweep(self) -> None:
        objects = self.compaction.metadata.objects
        for kind in ObjectKind:
            keys = [unused_object.object.key for unused_object in await objects.unused(kind, unused_ms=0)]
            await objects.deleted(keys)
            assert not self.swept & set(keys), "what is deleted is not told again"
            self.swept |= set(keys)

    async def delete(self) -> None:
        numbers = {stream_number(key) for key in self.model.starts}
        if len(numbers) > 1 and self.random.random() < 0.5:
            await by_name.delete(self.compaction.metadata, "s1")
            for key in [key for key in self.model.starts if stream_number(key) == max(numbers)]:
                del self.model.starts[key]

    async def compare(self) -> None:
        keys = sorted(self.model.starts)
        usage = await self.log.usage(keys)
        assert await self.compaction.metadata.tasks.compacted(keys) == {key: self.model.compacted[key] for key in keys}
        for key in keys:
            start, end = self.model.starts[key], self.model.end(key)
            located = await self.log.locate(key, 0, limit=1_000)
            assert located.bounds == (start, end, end)
            assert located.slices == await self.compaction.slices((key, 0, end + 10))
            self._check_cover(
                key, [located_slice.slice for located_slice in located.slices], start, end, usage[key].size_bytes
            )
            assert not self.swept & {located_slice.object_key for located_slice in located.slices}, (
                "I7: what is named is not swept"
            )
            probe = self.random.randint(start, end)
            found = (await self.log.locate(key, probe, limit=1)).slices
            assert [located_slice.slice for located_slice in found] == [
                located_slice.slice for located_slice in located.slices if located_slice.slice.end_offset > probe
            ][:1]
            for timestamp in (0, 25, 51):
                first = (await self.log.locate_timestamp(key, timestamp)).slices
                assert (
                    first
                    == [
                        located_slice
                        for located_slice in located.slices
                        if located_slice.slice.max_timestamp >= timestamp
                    ][:1]
                )

    def _check_cover(self, key: PartitionKey, slices: list[Slice], start: int, end: int, size: int) -> None:
        assert [slice_.base_offset for slice_ in slices[1:]] == [slice_.end_offset for slice_ in slices[:-1]]
        assert (slices[-1].end_offset if slices else start) == end
        assert not slices or slices[0].base_offset <= start < slices[0].end_offset
        for slice_ in slices[1:]:
            assert slice_.length == self.model.bytes_between(key, slice_.base_offset, slice_.end_offset)
        assert size >= self.model.bytes_between(key, start, end)
        if start == end:
            assert size == 0

    async def check_unused(self) -> None:
        """In the end: exactly what no offset needs is unused."""
        for _ in range(2):
            await self.scene.maintain(entry_count_min=0)
        for _ in range(50):  # deleted streams are swept in rounds of their own
            await self.log.maintain(entry_count_min=0)
        named = {
            located_slice.object_key
            for key in sorted(self.model.starts)
            for located_slice in (await self.log.locate(key, 0, limit=1_000)).slices
        }
        objects = self.compaction.metadata.objects
        unused = {
            unused_object.object.key for kind in ObjectKind for unused_object in await objects.unused(kind, unused_ms=0)
        }
        made = {f"wal/{number:08}" for number in range(1, self.scene.object_count + 1)}
        assert unused - made | named - made <= {
            f"data/{number:06}" for number in range(1, self.compaction.file_count + 1)
        }
        assert not named & (unused | self.swept)
        assert made <= named | unused | self.swept
        files = {
            file.object.key
            for number in {stream_number(key) for key in self.model.starts}
            for file in await objects.data_files(number)
        }
        assert files <= named


@pytest.mark.slow
@settings(
    max_examples=15 * DEPTH,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=15, max_size=50),
    seed=st.integers(0, 1 << 32),
    page=st.sampled_from([2, 3, 4, 6, 100]),
)
async def test_random_histories_leave_no_gap_and_no_wrong_count(
    backend: Any, new_scene: Any, steps: list[str], seed: int, page: int
) -> None:
    scene = await new_scene(await backend.fresh(page_slice_count_max=page))
    first, second = await scene.stream("s0", 2), await scene.stream("s1", 1)
    history = History(await Compaction.on(scene), [first.partition(0), first.partition(1), second.partition(0)], seed)
    for step in steps:
        await getattr(history, step)()
        await history.compare()
    await history.check_unused()
    await history.compare()


async def test_a_follower_that_reads_the_whole_log_sees_no_offset_change(compaction: Compaction, peer: Any) -> None:
    scene = compaction.scene
    keys = [(await scene.stream()).partition(0)]
    history = History(compaction, keys, seed=5)
    for step in ["commit", "commit", "compact", "commit", "merge", "trim", "compact", "merge"] * 4:
        await getattr(history, step)()
    ends = {keys[0]: 0}
    kinds = set()
    for entry in (await peer.log.follow(0, limit=10_000)).entries:
        kinds.add(entry.kind)
        for slice_ in entry.slices:
            assert slice_.base_offset == ends[slice_.partition], "I2: dense"
            ends[slice_.partition] = slice_.end_offset
        for key, start, end in entry.ranges:
            assert entry.kind is EntryKind.SWAP
            assert 0 <= start < end <= ends[key]

    assert ends == {keys[0]: history.model.end(keys[0])}
    assert kinds == set(EntryKind) - {EntryKind.POLICY}
