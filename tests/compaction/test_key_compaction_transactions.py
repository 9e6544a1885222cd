"""Key compaction and transactions: never past a last stable offset, and aborted records neither stay nor supersede (decision 178)."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bearlake.clock import ManualClock
from bearlake.compaction.stream_index import read_index
from bearlake.metadata.model import ObjectKind
from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.codec import Producer, Record, encode
from bearlake.streams.append import Verdict
from fixtures.cleaned_stream import PARTITION_COUNT, Life, Scene, scene_of, settings
from fixtures.deployment import NOW_MS, append, deployment
from simulator.loop import virtual_time

SEED_COUNT = 12
SEEDS_PER_TEST = 3
TURN_COUNT = 10


@asynccontextmanager
async def scene(on_compaction: str = "latest", **configs: str) -> AsyncIterator[Scene]:
    """A stream with key compaction, whose object store has markers."""
    async with deployment(MarkerObjectStore(MemoryObjectStore(ManualClock(NOW_MS)))) as stores:
        yield await scene_of(stores, on_compaction, **configs)


@virtual_time
async def test_an_aborted_record_is_never_the_newest_of_its_key() -> None:
    async with scene() as made:
        await made.send(0, (b"a", b"1"), (b"b", b"1"))
        await made.send(0, (b"a", b"lost"), (b"b", None), transactional_id="t")
        await made.end("t", is_commit=False)
        await made.work(settings(), made.is_cleaned, Life())

        assert await made.read() == {(0, 0): (b"a", b"1"), (0, 1): (b"b", b"1")}
        assert await made.rows() == [(0, 0), (0, 1)]
        assert await made.read(is_committed=False) == await made.read()


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_open_transaction_holds_cleaning_back_until_it_ends(is_commit: bool) -> None:
    @virtual_time
    async def run() -> None:
        async with scene() as made:
            await made.send(0, (b"a", b"1"), (b"a", b"2"))
            await made.send(0, (b"a", b"3"), transactional_id="t")
            await made.send(0, (b"b", b"1"))
            await made.send(0, (b"b", b"2"))
            await made.work(settings(), made.is_cleaned, Life())
            held = await made.read()
            located, _ = await read_index(made.view.stream, made.stores.metadata)
            await made.end("t", is_commit=is_commit)
            await made.work(settings(), made.is_cleaned, Life())

            assert held == {(0, 1): (b"a", b"2")}
            assert [(found.slice.base_offset, found.slice.end_offset) for found in located] == [(0, 2)]
            newest = {(0, 2): (b"a", b"3")} if is_commit else {(0, 1): (b"a", b"2")}
            assert await made.read() == newest | {(0, 4): (b"b", b"2")}

    run()


@virtual_time
async def test_a_committed_tombstone_supersedes_and_goes_after_its_retention() -> None:
    async with scene(delete__retention__ms="0") as made:
        await made.send(0, (b"a", b"1"))
        await made.send(0, (b"a", None), transactional_id="t")
        await made.end("t", is_commit=True)
        await made.work(settings(), made.is_cleaned, Life())
        first = await made.read()
        await made.send(0, (b"b", b"1"))
        await made.work(settings(), made.is_cleaned, Life())

        assert first == {(0, 1): (b"a", None)}
        assert await made.read() == {(0, 3): (b"b", b"1")}


@virtual_time
async def test_tombstones_above_an_aborted_batch_that_is_kept_go() -> None:
    async with scene(delete__retention__ms="0") as made:
        await made.send(0, (b"a", b"lost"), transactional_id="t")
        await made.end("t", is_commit=False)
        await made.work(settings(), made.is_cleaned, Life())
        located, _ = await read_index(made.view.stream, made.stores.metadata)
        await made.send(0, (b"a", None))
        await made.work(settings(), made.is_cleaned, Life())
        first = await made.read()
        await made.send(0, (b"b", b"1"))
        await made.work(settings(), made.is_cleaned, Life())

        assert {found.kind for found in located} == {ObjectKind.WAL}
        assert first == {(0, 2): (b"a", None)}
        assert await made.read() == {(0, 3): (b"b", b"1")}


@virtual_time
async def test_a_batch_that_is_sent_again_after_its_records_were_removed_is_a_duplicate() -> None:
    async with scene() as made:
        producer_id = (await made.stores.metadata.producers.allocate(1)).start
        batches = [
            encode(
                [Record(key=b"a", value=b"%d" % number, timestamp=NOW_MS)],
                producer=Producer(id=producer_id, epoch=0, base_sequence=number),
            )
            for number in range(3)
        ]
        for batch in batches[:2]:
            await append(made.streams, made.view, batch)
        await made.work(settings(), made.is_cleaned, Life())
        left = await made.read()
        again = await append(made.streams, made.view, batches[0])
        new = await append(made.streams, made.view, batches[2])

        assert left == {(0, 1): (b"a", b"1")}
        assert [(Verdict(verdict), offset) for verdict, offset, _ in [*again, *new]] == [
            (Verdict.DUPLICATE, 0),
            (Verdict.ACCEPTED, 2),
        ]
        assert (await made.read())[0, 2] == (b"a", b"2")


@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_PER_TEST))
def test_transactions_that_commit_and_abort_leave_the_newest_committed_records_from(first: int) -> None:
    """Workers die at any of their calls; consumers of committed records read after each cleaning."""

    @virtual_time
    async def run(seed: int) -> None:
        randomness = random.Random(seed)
        on_compaction = randomness.choice(["latest", "history"])
        async with scene(on_compaction) as made:
            for _ in range(TURN_COUNT):
                for _ in range(randomness.randrange(1, 8)):
                    await _step(made, randomness)
                if randomness.random() < 0.5:
                    await made.work(settings(), made.is_cleaned, Life(dies_at=randomness.randrange(1, 60)))
                await made.work(settings(), made.is_cleaned, Life())
                assert await made.read() == made.newest(), f"seed {seed}"
            for name in list(made.open):
                await made.end(name, is_commit=randomness.random() < 0.5)
            await made.work(settings(), made.is_cleaned, Life())

            assert await made.read() == made.newest(), f"seed {seed}"
            assert (await made.read(is_committed=False)).items() >= made.newest().items(), f"seed {seed}"
            assert await made.rows() == sorted(made.newest() if on_compaction == "latest" else made.sent)

    for seed in range(first, first + SEEDS_PER_TEST):
        run(seed)


async def _step(made: Scene, randomness: random.Random) -> None:
    """Send a batch, in a transaction or without one, or end a transaction."""
    name = randomness.choice([None, "t", "u", "v"])
    if name in made.open and randomness.random() < 0.5:
        await made.end(name, is_commit=randomness.random() < 0.6)
        return
    records = [
        (b"k%d" % randomness.randrange(5), randomness.choice([None, randomness.randbytes(20)]))
        for _ in range(randomness.randrange(1, 5))
    ]
    await made.send(randomness.randrange(PARTITION_COUNT), *records, transactional_id=name)
