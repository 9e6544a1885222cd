"""From a Fetch response to pieces: offsets, gaps, aborted transactions, hostile bytes."""

import struct

import pytest

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid, Unsupported
from bearlake.importing import batches
from bearlake.importing.batches import EMPTY_BATCH_OFFSETS_MAX, Aborted, Pieces, gap
from bearlake.kernel import crc32c, fallback
from bearlake.records.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from bearlake.records.codec import Producer, Record, encode

NOW_MS = 1_700_000_000_000


@pytest.fixture(params=["this", "fallback"], autouse=True)
def each_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the native kernel, if it is built, and with the one in Python."""
    if request.param == "fallback":
        monkeypatch.setattr(batches, "kernel", fallback)


def at(offset: int, batch: bytes) -> bytes:
    """The batch as the source stores it at an offset."""
    return struct.pack(">q", offset) + batch[8:]


def batch(*values: bytes, producer: int = -1) -> bytes:
    """A batch; transactional if it has a producer."""
    who = Producer(id=producer, epoch=0, base_sequence=0, is_transactional=True) if producer >= 0 else Producer()
    return encode([Record(value=value, timestamp=NOW_MS) for value in values], producer=who)


def marker(producer: int, *, is_commit: bool) -> bytes:
    """A control batch that ends the producer's transaction."""
    records = [Record(key=struct.pack(">hh", 0, int(is_commit)), value=bytes(6), timestamp=NOW_MS)]
    made = bytearray(encode(records, producer=Producer(id=producer, epoch=0, base_sequence=0)))
    struct.pack_into(">h", made, 21, ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
    struct.pack_into(">I", made, 17, crc32c(made, 21))
    return bytes(made)


def made(pieces: Pieces, *batches: bytes) -> list[tuple[int, int, bool]]:
    """(start, end, is empty) of each piece of a response with these batches."""
    found = list(pieces.of(memoryview(b"".join(batches))))
    for piece in found:
        ((_, _, header),) = kernel.batches(piece.batch, 0, len(piece.batch))
        assert header.last_offset_delta == piece.end - piece.start - 1
        assert piece.is_empty == (header.record_count == 0)
    return [(piece.start, piece.end, piece.is_empty) for piece in found]


def test_batches_keep_their_offsets_and_bytes() -> None:
    first, second = at(7, batch(b"a", b"b")), at(9, batch(b"c"))
    pieces = Pieces(7)

    found = list(pieces.of(memoryview(first + second)))

    assert [bytes(piece.batch) for piece in found] == [first, second]
    assert [(piece.start, piece.end) for piece in found] == [(7, 9), (9, 10)]
    assert pieces.end == 10


def test_offsets_that_the_source_no_longer_has_become_empty_batches() -> None:
    pieces = Pieces(3)

    assert made(pieces, at(10, batch(b"a")), at(15, batch(b"b"))) == [
        (3, 10, True),
        (10, 11, False),
        (11, 15, True),
        (15, 16, False),
    ]


def test_a_gap_inside_a_batch_and_after_its_last_record_stays_in_the_batch() -> None:
    sparse = bytearray(
        encode([Record(value=b"a", timestamp=NOW_MS), Record(value=b"b", timestamp=NOW_MS, offset_delta=4)])
    )
    struct.pack_into(">i", sparse, 23, 9)
    struct.pack_into(">I", sparse, 17, crc32c(sparse, 21))
    pieces = Pieces(0)

    assert made(pieces, at(0, bytes(sparse)), at(10, batch(b"c"))) == [(0, 10, False), (10, 11, False)]


def test_a_gap_of_more_than_an_int32_is_several_batches() -> None:
    found = [(piece.start, piece.end) for piece in gap(5, 5 + EMPTY_BATCH_OFFSETS_MAX + 2)]

    assert found == [(5, 5 + EMPTY_BATCH_OFFSETS_MAX), (5 + EMPTY_BATCH_OFFSETS_MAX, 7 + EMPTY_BATCH_OFFSETS_MAX)]
    assert list(gap(5, 5)) == []


def test_a_gap_beyond_the_limit_is_refused_before_anything_is_made() -> None:
    pieces = Pieces(3, gap_offsets_max=7)

    assert made(pieces, at(10, batch(b"a"))) == [(3, 10, True), (10, 11, False)]
    with pytest.raises(Invalid, match=r"no records for 8 offsets from 11 on: expected at most 7"):
        made(pieces, at(19, batch(b"b")))
    with pytest.raises(Invalid, match="gap_offsets_max"):
        made(Pieces(0), at(2**62, batch(b"a")))


def test_an_aborted_batch_becomes_empty_and_the_marker_stays() -> None:
    pieces = Pieces(0, [Aborted(4, 0)])

    assert made(
        pieces,
        at(0, batch(b"a", b"b", producer=4)),
        at(2, batch(b"other", producer=5)),
        at(3, marker(4, is_commit=False)),
        at(4, batch(b"next", producer=4)),
        at(5, marker(4, is_commit=True)),
    ) == [(0, 2, True), (2, 3, False), (3, 4, False), (4, 5, False), (5, 6, False)]


def test_a_transaction_that_began_before_the_response_is_aborted_too() -> None:
    pieces = Pieces(10, [Aborted(4, 2)])

    assert made(pieces, at(10, batch(b"a", producer=4)), at(11, marker(4, is_commit=False))) == [
        (10, 11, True),
        (11, 12, False),
    ]


def test_a_transaction_that_aborts_after_a_committed_one_hides_only_its_own_records() -> None:
    pieces = Pieces(0, [Aborted(4, 2)])

    assert made(
        pieces,
        at(0, batch(b"kept", producer=4)),
        at(1, marker(4, is_commit=True)),
        at(2, batch(b"gone", producer=4)),
        at(3, marker(4, is_commit=False)),
    ) == [(0, 1, False), (1, 2, False), (2, 3, True), (3, 4, False)]


def test_a_batch_that_the_response_cuts_off_is_left_to_the_next_response() -> None:
    first, second = at(0, batch(b"a")), at(1, batch(b"b"))

    for size in range(len(second)):
        pieces = Pieces(0)
        assert made(pieces, first, second[:size]) == [(0, 1, False)]
        assert pieces.end == 1


def test_batches_before_the_offset_are_skipped_and_a_batch_across_it_is_refused() -> None:
    assert made(Pieces(2), at(0, batch(b"a", b"b")), at(2, batch(b"c"))) == [(2, 3, False)]
    with pytest.raises(Corrupt, match="begins before the end of the target, 1"):
        made(Pieces(1), at(0, batch(b"a", b"b")))


def test_damaged_bytes_and_old_formats_are_refused() -> None:
    good = at(0, batch(b"a"))
    for place in (21, 30, len(good) - 1):
        bad = bytearray(good)
        bad[place] ^= 1
        with pytest.raises(Corrupt):
            made(Pieces(0), bytes(bad))
    old = bytearray(good)
    old[16] = 1
    with pytest.raises(Unsupported, match=r"before Kafka 0\.11"):
        made(Pieces(0), bytes(old))
    short = bytearray(good)
    struct.pack_into(">i", short, 8, 3)
    with pytest.raises(Corrupt, match="impossible length"):
        made(Pieces(0), bytes(short))


def test_a_marker_that_cannot_be_read_is_refused() -> None:
    bad = bytearray(
        encode([Record(key=b"x", value=b"", timestamp=NOW_MS)], producer=Producer(id=4, epoch=0, base_sequence=0))
    )
    struct.pack_into(">h", bad, 21, ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL)
    struct.pack_into(">I", bad, 17, crc32c(bad, 21))
    with pytest.raises(Corrupt, match="marker at offset 0"):
        made(Pieces(0, [Aborted(4, 0)]), at(0, bytes(bad)))
