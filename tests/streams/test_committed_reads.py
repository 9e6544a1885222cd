"""What is left of a read for readers of committed records (decision 131)."""

from collections.abc import Sequence

from bearlake import kernel
from bearlake.metadata.aborted import NOTHING_ABORTED, Aborted, AbortedTransactions
from bearlake.metadata.model import PartitionKey, Slice
from bearlake.records import codec
from bearlake.records.batch import NO_LEADER_EPOCH
from bearlake.records.codec import Producer, Record
from bearlake.records.markers import Markers
from bearlake.streams.committed import View, keep_committed
from bearlake.streams.fetched import Fetched, FetchRange

P = PartitionKey(1 << 20)


def batch(count: int, *, producer: int = -1) -> bytes:
    records = [Record(value=b"v", timestamp=1_000) for _ in range(count)]
    if producer < 0:
        return codec.encode(records)
    return codec.encode(records, producer=Producer(id=producer, epoch=0, base_sequence=0, is_transactional=True))


def marker(producer: int, *, is_commit: bool) -> bytes:
    return Markers(producer, 0, 1, is_commit, 1_000, 1).batch()


def answer(*runs: Sequence[bytes], offset: int = 0) -> Fetched:
    """An answer with these runs of batches, from offset 0 on; the range begins at `offset`."""
    views, base = [], 0
    for run in runs:
        buffer = bytearray(b"".join(run))
        count = sum(header.last_offset_delta + 1 for _, _, header in kernel.batches(buffer, 0, len(buffer)))
        kernel.rebase(buffer, (Slice(P, base, count, 0, len(buffer), 0),), NO_LEADER_EPOCH)
        views.append(memoryview(buffer))
        base += count
    fetched = Fetched(FetchRange(P, offset, 1 << 20), 0, base, base, views)
    fetched.size_bytes = sum(map(len, views))
    return fetched


def left(fetched: Fetched) -> list[tuple[int, int, int]]:
    """Base offset, offsets and records of each batch."""
    assert fetched.size_bytes == sum(map(len, fetched.views))
    assert all(fetched.views)
    return [
        (base, header.last_offset_delta + 1, header.record_count)
        for view in fetched.views
        for _, base, header in kernel.batches(view, 0, len(view))
    ]


def view(last_stable: int, end: int, *aborted: tuple[int, int, int]) -> View:
    known = AbortedTransactions(Aborted(*found) for found in aborted) if aborted else NOTHING_ABORTED
    return View(0, end, last_stable, known)


def test_a_partition_without_transactions_is_returned_as_it_is() -> None:
    fetched = answer([batch(2), batch(3)])
    views = list(fetched.views)
    keep_committed(fetched, view(5, 5), 5)

    assert fetched.views == views


def test_a_read_ends_at_the_last_stable_offset_inside_a_run() -> None:
    fetched = answer([batch(2), batch(3, producer=5), batch(1)], [batch(4)])
    keep_committed(fetched, view(2, 10), 10)

    assert left(fetched) == [(0, 2, 2)]


def test_nothing_is_left_if_the_first_batch_is_open() -> None:
    fetched = answer([batch(2, producer=5)])
    keep_committed(fetched, view(0, 2), 2)

    assert left(fetched) == []


def test_aborted_batches_become_empty_ones_with_the_same_offsets() -> None:
    runs = [batch(1), batch(2, producer=5), batch(3, producer=6)], [batch(1, producer=5), marker(5, is_commit=False)]
    fetched = answer(*runs, [batch(2, producer=5), marker(5, is_commit=True), marker(6, is_commit=True)])
    keep_committed(fetched, view(12, 12, (5, 1, 7)), 12)

    assert left(fetched) == [
        (0, 1, 1),
        (1, 2, 0),
        (3, 3, 3),
        (6, 1, 0),
        (7, 1, 1),
        (8, 2, 2),
        (10, 1, 1),
        (11, 1, 1),
    ]


def test_aborted_batches_in_a_row_become_one_empty_batch() -> None:
    """An answer of very many small ones would otherwise keep the event loop for long."""
    runs = [batch(1, producer=5) for _ in range(4)], [batch(2, producer=5), batch(3, producer=6), batch(1, producer=7)]
    fetched = answer([batch(1), *runs[0]], runs[1], [batch(1, producer=6)])
    keep_committed(fetched, view(10, 12, (5, 1, 7), (6, 7, 10), (7, 10, 11)), 12)

    assert left(fetched) == [(0, 1, 1), (1, 4, 0), (5, 5, 0)]


def test_batches_without_a_transaction_of_an_aborting_producer_stay() -> None:
    plain = codec.encode([Record(value=b"v", timestamp=1)], producer=Producer(id=5, epoch=0, base_sequence=0))
    fetched = answer([batch(1, producer=5), plain])
    keep_committed(fetched, view(2, 2, (5, 0, 9)), 2)

    assert left(fetched) == [(0, 1, 0), (1, 1, 1)]


def test_records_after_the_view_are_left_out() -> None:
    """The records were read after the view, in the middle of further commits."""
    fetched = answer([batch(2), batch(3)])
    keep_committed(fetched, view(2, 2), 5)

    assert left(fetched) == [(0, 2, 2)]
