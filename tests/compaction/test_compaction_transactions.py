"""Compaction and transactions: tasks end at last stable offsets, and aborted records never become rows (decision 131)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bearlake.clock import ManualClock
from bearlake.compaction import encoding
from bearlake.compaction.aborted import aborted_ranges, of_slices, stable
from bearlake.compaction.model import AbortedRange
from bearlake.compaction.task import run
from bearlake.metadata import Metadata, transaction_rules
from bearlake.metadata.compaction import OffsetRange, TaskKind, TaskOffer
from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ObjectCommit,
    PartitionKey,
    ServerRef,
    StreamSpec,
)
from bearlake.metadata.open import open_metadata
from bearlake.metadata.transactions import BATCH_BEGINS, End, Transaction
from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records import codec
from bearlake.records.codec import Producer, Record
from bearlake.records.markers import Markers
from fixtures.compaction_items import Wal, key_of, read_tables, workbench

TIME_MS = 1_700_000_000_000


def batch(*values: bytes, producer_id: int = -1) -> bytes:
    records = [Record(key=b"k", value=value, timestamp=TIME_MS) for value in values]
    if producer_id < 0:
        return codec.encode(records)
    return codec.encode(records, producer=Producer(id=producer_id, epoch=0, base_sequence=0, is_transactional=True))


def marker(producer_id: int, *, is_commit: bool) -> bytes:
    return Markers(producer_id, 0, 1, is_commit, TIME_MS, 1).batch()


async def test_aborted_batches_have_no_rows_and_no_offset_is_lost() -> None:
    store = MarkerObjectStore(MemoryObjectStore())
    wal = Wal(store)
    await wal.put(
        {
            0: [
                batch(b"a"),
                batch(b"lost", b"lost", producer_id=5),
                batch(b"kept", producer_id=6),
                marker(5, is_commit=False),
                marker(6, is_commit=True),
                batch(b"again", producer_id=5),
            ]
        }
    )
    item = replace(wal.item(), aborted=[AbortedRange(key_of(0), 5, 1, 4)])
    result = await run(encoding.decode_item(encoding.encode_item(item)), store, workbench())
    (table,) = await read_tables(store, result)

    assert table.column("_value").to_pylist() == [b"a", b"kept", b"again"]
    assert table.column("_offset").to_pylist() == [0, 3, 6]
    (segment,) = result.files[0].swap.slices
    assert (segment.base_offset, segment.end_offset) == (0, 7)


async def test_an_item_of_aborted_batches_only_has_no_file() -> None:
    store = MemoryObjectStore()
    wal = Wal(store)
    await wal.put({0: [batch(b"lost", producer_id=5), marker(5, is_commit=False)]})
    result = await run(replace(wal.item(), aborted=[AbortedRange(key_of(0), 5, 0, 1)]), store, workbench())

    assert result.files == []
    assert result.kept_counts == {"lonely_control": 2}


class Store:
    """A metadata store with a partition and a producer."""

    def __init__(self, metadata: Metadata, server: ServerRef, partition: PartitionKey) -> None:
        self.metadata, self.server, self.partition = metadata, server, partition
        self.count = 0

    async def commit(self, *batches: BatchCommit) -> None:
        """Commit batches that lie back to back."""
        self.count += 1
        laid = [item._replace(position=100 * at) for at, item in enumerate(batches)]
        commit = ObjectCommit(
            token=f"wal/{self.count:08}",
            server=self.server,
            size=100 * len(laid),
            batches=laid,
            is_transactional=any(item.flags & BATCH_TRANSACTIONAL for item in laid),
        )
        assert not any(outcome.kind for outcome in (await self.metadata.log.commit(commit)).outcomes)

    def plain(self, count: int) -> BatchCommit:
        return BatchCommit(self.partition, 0, 100, count, TIME_MS)

    def transactional(self, row: Transaction, count: int) -> BatchCommit:
        flags = BATCH_TRANSACTIONAL | BATCH_BEGINS
        return BatchCommit(self.partition, 0, 100, count, TIME_MS, row.producer_id, row.epoch, 0, flags)

    async def begin(self, name: str) -> Transaction:
        """A new transactional id."""
        new_id = (await self.metadata.producers.allocate(1)).start
        step = transaction_rules.initialize(None, name, 60_000, new_id)
        assert not isinstance(step, transaction_rules.Problem)
        return await self.metadata.transactions.put(step.after, 0)

    async def abort(self, name: str) -> None:
        """Abort its transaction."""
        row = await self.metadata.transactions.get(name)
        assert row is not None
        step: End = transaction_rules.expire(row, -1)
        await self.metadata.transactions.end(step.after, row.version, is_commit=False)

    def offer(self, start: int, end: int) -> TaskOffer:
        return TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=self.partition >> 20,
            ranges=[OffsetRange(self.partition, start, end)],
            size_bytes=1_000,
            record_count=end - start,
            age_ms=0,
        )


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    metadata = await open_metadata("memory:///", clock=ManualClock())
    endpoints = {"kafka": "127.0.0.1:9092"}
    registration = await metadata.servers.register(
        "server-0", zone=None, endpoints=endpoints, version="1", timeout_ms=10_000
    )
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    yield Store(metadata, registration.server, stream.partition(0))
    await metadata.close()


async def test_a_task_ends_where_the_slice_with_the_last_stable_offset_begins(store: Store) -> None:
    row = await store.begin("copier")
    await store.commit(store.plain(5))
    await store.commit(store.plain(2), store.transactional(row, 3))  # one slice
    whole = store.offer(0, 10)
    (cut,) = await stable(store.metadata, [whole])
    nothing = await stable(store.metadata, [store.offer(5, 10)])
    below = await stable(store.metadata, [store.offer(0, 5)])
    await store.abort("copier")

    assert cut.ranges == [(store.partition, 0, 5)]
    assert (cut.record_count, cut.size_bytes) == (5, 500)
    assert nothing == []
    assert below == [store.offer(0, 5)]
    assert await stable(store.metadata, [whole]) == [whole]


async def test_an_item_gets_the_aborted_transactions_of_its_range(store: Store) -> None:
    for name in ("a", "b"):
        await store.commit(store.transactional(await store.begin(name), 2))
        await store.abort(name)
    found = await aborted_ranges(store.metadata, [OffsetRange(store.partition, 0, 3)])
    located = await store.metadata.log.locate(store.partition, 0, limit=10)

    assert found == {store.partition: [AbortedRange(store.partition, 0, 0, 2)]}
    assert of_slices(found, located.slices) == found[store.partition]
    assert of_slices(found, []) == []
