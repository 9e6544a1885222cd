"""Compaction of what an import writes: empty batches for gaps, batches with gaps, and markers of other producers."""

from bearlake.compaction.task import run
from bearlake.importing.batches import gap
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.codec import Record, encode
from bearlake.records.markers import Markers
from fixtures.compaction_items import Wal, read_tables, workbench

TIME_MS = 1_700_000_000_000


def record(value: bytes, delta: int | None = None) -> Record:
    """A record at an offset delta."""
    return Record(key=b"k", value=value, timestamp=TIME_MS, offset_delta=delta)


async def test_a_segment_covers_the_gaps_of_an_import_and_keeps_no_object_for_them() -> None:
    store = MemoryObjectStore()
    wal = Wal(store)
    empty = [bytes(piece.batch) for piece in gap(3, 10)]
    sparse = encode([record(b"b"), record(b"c", 4)])
    marker = Markers(77, 0, 1, True, TIME_MS, 1).batch()
    await wal.put({0: [encode([record(b"a")] * 3), *empty, sparse, marker, *empty, encode([record(b"d")])]})

    result = await run(wal.item(), store, workbench())
    (table,) = await read_tables(store, result)

    assert table.column("_offset").to_pylist() == [0, 1, 2, 10, 14, 23]
    assert not result.kept_objects
    (segment,) = result.files[0].swap.slices
    assert (segment.base_offset, segment.end_offset) == (0, 24)
