from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from bearlake import kernel
from bearlake.errors import Corrupt, TooLarge, Unsupported
from bearlake.records.codec import Record, encode
from bearlake.wal import reader, v1
from bearlake.wal.format import HEAD_BYTES, TRAILER_BYTES, Part
from bearlake.wal.writer import Sealed, seal

GOLDEN = Path(__file__).parent / "golden" / "v1.bin"
A, B, C = (letter * 16 for letter in (b"A", b"B", b"C"))


def batch(text: str, record_count: int = 1) -> bytes:
    return encode([Record(value=text.encode(), timestamp=1000)] * record_count)


def sealed(parts: Sequence[Part]) -> Sealed:
    return seal(parts, node_id=7, server_epoch=3)


def golden_parts() -> list[Part]:
    return [
        Part(B, 2, [batch("b2 first"), batch("b2 second", 3)]),
        Part(A, 300_000, [batch("a")]),
        Part(B, 0, [batch("b0")]),
        Part(B, 2, [batch("b2 third")]),
    ]


def test_objects_of_version_1_stay_readable() -> None:
    index = reader.verify(GOLDEN.read_bytes())

    assert index[:4] == (1, 604, 7, 3)
    assert [entry[:3] for entry in index.slices] == [(A, 300_000, 1), (B, 0, 1), (B, 2, 3)]
    assert [entry.position for entry in index.slices] == [164, 233, 303]
    view = reader.read_slice(GOLDEN.read_bytes(), index.slices[0])
    assert bytes(view) == batch("a")


def test_a_sealed_object_has_the_golden_bytes() -> None:
    assert bytes(sealed(golden_parts()).buffer) == GOLDEN.read_bytes()


def test_positions_are_those_of_the_parts_as_given() -> None:
    parts = golden_parts()

    made = sealed(parts)

    for part, position in zip(parts, made.positions, strict=True):
        content = b"".join(bytes(batch) for batch in part.batches)
        assert made.buffer[position : position + len(content)] == content


def test_batches_of_one_partition_keep_their_order_of_arrival() -> None:
    """I3."""
    parts = [Part(A, 1, [batch("one"), batch("two")]), Part(A, 0, [batch("other")]), Part(A, 1, [batch("three")])]

    made = sealed(parts)

    index = reader.verify(made.buffer)
    assert bytes(reader.read_slice(made.buffer, index.slices[1])) == batch("one") + batch("two") + batch("three")


def test_any_buffer_can_be_sealed_and_is_free_afterwards() -> None:
    arrived = bytearray(batch("text"))

    made = sealed([Part(A, 0, [memoryview(arrived), bytearray(batch("more"))])])

    arrived.extend(b"reused")
    assert reader.verify(made.buffer).slices[0].batch_count == 2


def test_a_sealed_object_can_be_rebased_in_place() -> None:
    made = sealed([Part(A, 0, [batch("one", 2), batch("two")])])
    length = sum(map(len, [batch("one", 2), batch("two")]))

    kernel.rebase(made.buffer, [(0, 50, 3, made.positions[0], length, 1000)], 0)

    start = made.positions[0]
    assert [offset for _, offset, _ in kernel.batches(made.buffer, start, start + length)] == [50, 52]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B, C]), st.integers(0, 2**20 - 1), st.lists(st.text(max_size=9), min_size=1, max_size=3)
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)
def test_sealed_batches_are_read_back(
    owners: list[tuple[bytes, int, list[str]]], node_id: int, server_epoch: int
) -> None:
    parts = [Part(stream, partition, [batch(text) for text in texts]) for stream, partition, texts in owners]
    expected: dict[tuple[bytes, int], bytes] = {}
    for stream, partition, batches in parts:
        expected[stream, partition] = expected.get((stream, partition), b"") + b"".join(batches)  # type: ignore[arg-type]

    made = seal(parts, node_id=node_id, server_epoch=server_epoch)

    index = reader.verify(made.buffer)
    assert (index.node_id, index.server_epoch, index.size) == (node_id, server_epoch, len(made.buffer))
    assert [entry[:2] for entry in index.slices] == sorted(expected)
    for entry in index.slices:
        assert bytes(reader.read_slice(made.buffer, entry)) == expected[entry[:2]]


def test_a_range_request_at_either_end_finds_the_index() -> None:
    whole = GOLDEN.read_bytes()

    from_front = reader.index_range(whole[:40])
    from_back = reader.index_range_from_tail(whole[-TRAILER_BYTES:])

    assert from_front == from_back[:2] == (0, 164)
    assert from_back[2] == len(whole)
    assert reader.read_index(whole[:164]) == reader.verify(whole)


def test_the_first_read_holds_the_index_of_1600_slices() -> None:
    assert v1.index_bytes(1600) <= HEAD_BYTES


def test_a_slice_is_read_from_a_part_of_the_object() -> None:
    whole = GOLDEN.read_bytes()
    entry = reader.read_index(whole).slices[1]

    view = reader.read_slice(memoryview(whole)[200:400], entry, 200)

    assert bytes(view) == batch("b0")
    for start, end in ((234, 400), (200, 300)):
        with pytest.raises(Corrupt):
            reader.read_slice(whole[start:end], entry, start)


def test_every_bit_is_covered_by_a_check() -> None:
    whole = GOLDEN.read_bytes()

    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        with pytest.raises((Corrupt, Unsupported)):
            reader.verify(damaged)


def test_an_object_cut_anywhere_is_corrupt() -> None:
    whole = GOLDEN.read_bytes()

    for end in range(len(whole)):
        with pytest.raises(Corrupt):
            reader.verify(whole[:end])
    with pytest.raises(Corrupt):
        reader.verify(whole + whole[-TRAILER_BYTES:])


def reseal(whole: bytearray, index_end: int = 164) -> bytearray:
    """Make the checksums of the index and the trailer hold again."""
    whole[index_end - 4 : index_end] = kernel.crc32c(whole, 0, index_end - 4).to_bytes(4, "big")
    whole[-28:-24] = whole[index_end - 4 : index_end]
    whole[-12:-8] = kernel.crc32c(whole, len(whole) - 40, len(whole) - 12).to_bytes(4, "big")
    return whole


def test_the_reseal_of_these_tests_is_right() -> None:
    assert reseal(bytearray(GOLDEN.read_bytes())) == GOLDEN.read_bytes()


@pytest.mark.parametrize(
    ("position", "value", "complaint"),
    [
        (11, b"\1", "unused field"),
        (39, b"\1", "unused field"),
        (12, b"\0\x10\0\1", "slices are impossible"),
        (12, b"\xff\xff\xff\xff", "slices are impossible"),
        (16, b"\0\0\0\0\0\0\2\x5d", "slices end at"),
        (16, b"\0\0\0\0\0\0\0\1", "slices are impossible"),
        (40, b"Z", "not sorted"),
        (60, b"\0\0\0\0", "a slice at"),
        (71, b"\0", "a slice at"),
        (72, b"\0\0\0\0", "a slice at"),
        (72, b"\xff\xff\xff\xff", "a slice at"),
        (76, b"\0\0\0\0", "checksum of the slice"),
        (63, b"\2", "has 1 batches, not 2"),
    ],
)
def test_an_index_that_contradicts_itself_is_corrupt(position: int, value: bytes, complaint: str) -> None:
    """Also when its checksum holds."""
    whole = bytearray(GOLDEN.read_bytes())
    whole[position : position + len(value)] = value

    with pytest.raises(Corrupt, match=complaint):
        reader.verify(reseal(whole))


def test_damage_inside_a_batch_is_found_when_slice_and_index_agree() -> None:
    whole = bytearray(GOLDEN.read_bytes())
    whole[164 + 66] ^= 1
    whole[76:80] = kernel.crc32c(whole, 164, 233).to_bytes(4, "big")

    with pytest.raises(Corrupt, match="164"):
        reader.verify(reseal(whole))


def test_a_newer_version_is_unsupported_from_either_end() -> None:
    whole = bytearray(GOLDEN.read_bytes())
    whole[9] = 2
    whole[-15] = 2

    for call in (reader.index_range, reader.index_range_from_tail, reader.read_index, reader.verify):
        with pytest.raises(Unsupported, match="version 2"):
            call(whole)


def test_a_slice_of_four_gigabytes_is_too_large() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**32

    with pytest.raises(TooLarge):
        sealed([Part(A, 0, [Huge()])])


@settings(deadline=None, max_examples=1000)
@given(
    st.lists(st.tuples(st.integers(0, 603), st.binary(min_size=1, max_size=12)), max_size=4),
    st.integers(0, 604),
    st.booleans(),
)
def test_whatever_the_bytes_are_only_corrupt_and_unsupported_escape(
    changes: list[tuple[int, bytes]], end: int, is_resealed: bool
) -> None:
    whole = bytearray(GOLDEN.read_bytes())
    for position, value in changes:
        whole[position : position + len(value)] = value
    if is_resealed and len(whole) >= 300:
        reseal(whole)

    for call in (reader.verify, reader.read_index, reader.index_range, reader.index_range_from_tail):
        for content in (whole, whole[:end], whole[end:]):
            try:
                call(bytes(content))
            except (Corrupt, Unsupported):
                continue
