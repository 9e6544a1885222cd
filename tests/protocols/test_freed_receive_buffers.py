"""What clients send is read from receive buffers only while these are held: servers of tests overwrite freed ones (`poisoned_slabs.py`)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bearlake.serving.slabs import SIZES, SlabPool, SlabSettings
from fixtures.kafka_server import Make, batch_of, produce_request
from fixtures.poisoned_slabs import POISON, PoisonedSlabPool

WRITERS = 6
ROUNDS = 10
BATCH_BYTES = (40, 900, 5_000, 90_000, 900_000)
"""Batches that are copied when they are sealed and ones that stay in their buffers (decision 260); requests of all sizes of slabs."""


def checked_part(batch: bytes) -> bytes:
    """A batch without what the server writes into it: base offset and leader epoch."""
    return batch[16:]


def batches_of(records: memoryview) -> Iterator[bytes]:
    while records:
        end = 12 + int.from_bytes(records[8:12], "big")
        yield bytes(records[:end])
        records = records[end:]


async def test_a_freed_buffer_is_overwritten() -> None:
    pool = PoisonedSlabPool(SlabSettings())
    for size in SIZES:
        slab = pool.try_take(size)
        assert slab is not None
        slab.view[:4] = b"sent"
        slab.acquire()
        slab.release()
        assert slab.view[:4] == b"sent"

        slab.release()

        assert set(slab.view[:size]) == {POISON}
    assert isinstance(pool, SlabPool)


@pytest.mark.parametrize("has_folder", [False, True])
async def test_readers_get_what_was_sent_although_buffers_are_used_again_at_once(
    kafka_cluster: Make, tmp_path: Path, has_folder: bool
) -> None:
    node = (await kafka_cluster(1, folder=tmp_path) if has_folder else await kafka_cluster(1))[0]
    await node.create("t", WRITERS)
    sent = [
        [batch_of(bytes([65 + at + 10 * index]) * BATCH_BYTES[(at + index) % len(BATCH_BYTES)]) for at in range(ROUNDS)]
        for index in range(WRITERS)
    ]

    async def write(index: int) -> None:
        client = await node.client()
        for batch in sent[index]:
            client.send(produce_request("t", batch, index=index), 9)
        answers = [(await client.receive()).responses[0].partition_responses[0] for _ in range(ROUNDS)]
        assert [answer.error_code for answer in answers] == [0] * ROUNDS

    await asyncio.gather(*map(write, range(WRITERS)))

    reader = await node.client()
    for index, batches in enumerate(sent):
        found: list[bytes] = []
        while len(found) < ROUNDS:
            found += batches_of(memoryview((await reader.fetch("t", len(found), index=index)).records))
        assert list(map(checked_part, found)) == list(map(checked_part, batches))
