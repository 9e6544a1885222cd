from struct import Struct
from types import ModuleType

import pytest

from bearlake.errors import Corrupt
from bearlake.kernel import BatchHeader, BatchStatus, fallback

HEADER = Struct(">qiibIhiqqqhii")


def batch(
    *,
    base_offset: int = 0,
    length: int | None = None,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    delta: int = 1,
    base_timestamp: int = 1000,
    max_timestamp: int = 1500,
    producer: tuple[int, int, int] = (-1, -1, -1),
    count: int = 2,
    body: bytes = b"r" * 14,
) -> bytes:
    covered = HEADER.pack(0, 0, 0, 2, 0, attributes, delta, base_timestamp, max_timestamp, *producer, count)[21:] + body
    length = 49 + len(body) if length is None else length
    return (
        Struct(">qiibI").pack(base_offset, length, 7, magic, fallback.crc32c(covered) if crc is None else crc) + covered
    )


GOOD = batch()


def test_the_header_of_a_valid_batch_is_returned(kernel: ModuleType) -> None:
    data = b"before" + batch(attributes=0x14, producer=(9, 2, 77)) + b"behind"

    header = kernel.inspect(data, 6, len(data) - 6)

    assert header == BatchHeader(75, 0x14, 1, 1000, 1500, 9, 2, 77, 2)
    assert isinstance(header, BatchHeader)
    assert header.record_count == 2


def test_a_batch_without_producer_id_reads_minus_one_whatever_its_epoch_and_sequence_are(kernel: ModuleType) -> None:
    # kafkajs sends epoch 0 and sequence 0 with id -1
    data = batch(producer=(-1, 0, 0))

    assert kernel.inspect(data, 0, len(data))[5:8] == (-1, -1, -1)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", BatchStatus.EMPTY),
        (GOOD[:16], BatchStatus.TRUNCATED),
        (GOOD[:60], BatchStatus.TRUNCATED),
        (GOOD[:-1], BatchStatus.TRUNCATED),
        (batch(length=48), BatchStatus.TRUNCATED),
        (batch(length=-(2**31)), BatchStatus.TRUNCATED),
        (batch(length=2**31 - 1), BatchStatus.TRUNCATED),
        (batch(magic=0), BatchStatus.OLD_MAGIC),
        (batch(magic=1), BatchStatus.OLD_MAGIC),
        (batch(magic=1)[:17], BatchStatus.OLD_MAGIC),
        (batch(magic=3), BatchStatus.UNKNOWN_MAGIC),
        (batch(magic=-1), BatchStatus.UNKNOWN_MAGIC),
        (GOOD + GOOD, BatchStatus.MANY_BATCHES),
        (GOOD + b"x", BatchStatus.MANY_BATCHES),
        (GOOD[:-1] + b"x", BatchStatus.BAD_CRC),
        (batch(crc=0), BatchStatus.BAD_CRC),
        (batch(attributes=5), BatchStatus.UNKNOWN_COMPRESSION),
        (batch(attributes=7), BatchStatus.UNKNOWN_COMPRESSION),
        (batch(attributes=0x20), BatchStatus.CONTROL),
        (batch(attributes=0x30, producer=(1, 0, 0)), BatchStatus.CONTROL),
        (batch(count=0, delta=-1), BatchStatus.BAD_COUNT),
        (batch(count=-1, delta=-2), BatchStatus.BAD_COUNT),
        (batch(count=3, delta=2), BatchStatus.BAD_COUNT),
        (batch(count=2**31 - 1, delta=2**31 - 2), BatchStatus.BAD_COUNT),
        (batch(delta=0), BatchStatus.BAD_OFFSETS),
        (batch(delta=2), BatchStatus.BAD_OFFSETS),
        (batch(base_offset=1), BatchStatus.BAD_OFFSETS),
        (batch(base_offset=-1), BatchStatus.BAD_OFFSETS),
        (batch(producer=(1, -1, 0)), BatchStatus.BAD_PRODUCER),
        (batch(producer=(1, 0, -1)), BatchStatus.BAD_PRODUCER),
        (batch(base_timestamp=-2), BatchStatus.BAD_TIMESTAMP),
        (batch(max_timestamp=-2), BatchStatus.BAD_TIMESTAMP),
        (batch(attributes=0x08), BatchStatus.BAD_TIMESTAMP),
    ],
)
def test_batches_that_a_broker_refuses_have_their_status(kernel: ModuleType, data: bytes, status: BatchStatus) -> None:
    assert kernel.inspect(data, 0, len(data)) == status


@pytest.mark.parametrize(
    "data",
    [
        batch(base_timestamp=-1, max_timestamp=-1),
        batch(count=100, delta=99, attributes=4),
        batch(attributes=0x10, producer=(2**63 - 1, 2**15 - 1, 2**31 - 1)),
        batch(count=1, delta=0, body=b"r" * 7),
    ],
)
def test_batches_that_a_broker_accepts_pass(kernel: ModuleType, data: bytes) -> None:
    assert isinstance(kernel.inspect(data, 0, len(data)), BatchHeader)


def test_batches_are_listed_with_positions_and_offsets(kernel: ModuleType) -> None:
    data = b"xx" + batch(base_offset=5) + batch(base_offset=7, count=1, delta=0)

    found = kernel.batches(data, 2, len(data))

    assert [(position, offset, header.record_count) for position, offset, header in found] == [(2, 5, 2), (77, 7, 1)]
    assert kernel.batches(data, 2, 2) == []


@pytest.mark.parametrize(
    "data", [GOOD[:-1], GOOD + GOOD[:60], GOOD + batch(magic=1), batch(delta=-1), batch(length=-13)]
)
@pytest.mark.parametrize("walk", ["batches", "seek", "find_run", "rebase"])
def test_a_walk_over_damaged_batches_is_corrupt(kernel: ModuleType, data: bytes, walk: str) -> None:
    calls = {
        "batches": lambda: kernel.batches(data, 0, len(data)),
        "seek": lambda: kernel.seek(data, 0, len(data), 10**6),
        "find_run": lambda: kernel.find_run(data, 0, len(data), 10**6, 10**6, 0),
        "rebase": lambda: kernel.rebase(bytearray(data), [(0, 0, 9, 0, len(data), 0)], 0),
    }

    with pytest.raises(Corrupt, match="record batch at"):
        calls[walk]()


def test_rebased_batches_have_dense_offsets_and_their_crc_still_holds(kernel: ModuleType) -> None:
    buffer = bytearray(b"head" + GOOD + GOOD + batch(count=1, delta=0) + b"tail")
    slices = [(1, 100, 4, 4, 150, 0), (2, 7, 1, 154, 75, 0)]

    kernel.rebase(buffer, slices, 3)

    assert [offset for _, offset, _ in kernel.batches(buffer, 4, 229)] == [100, 102, 7]
    assert [buffer[at + 12 : at + 16] for at in (4, 79, 154)] == [b"\0\0\0\3"] * 3
    assert [buffer[at + 16 : at + 75] for at in (4, 79)] == [GOOD[16:]] * 2
    assert buffer[:4] == b"head"
    assert buffer[229:] == b"tail"
    again = bytes(buffer)
    kernel.rebase(memoryview(buffer), slices, 3)
    assert buffer == again


def test_a_range_of_an_object_is_rebased_with_its_origin(kernel: ModuleType) -> None:
    view = bytearray(GOOD)

    kernel.rebase(view, [(1, 100, 2, 5000, 75, 0)], 0, 5000)

    assert kernel.batches(view, 0, 75)[0][1] == 100


@pytest.mark.parametrize(
    ("entry", "origin"),
    [
        ((0, 0, 3, 0, 75, 0), 0),
        ((0, 0, 1, 0, 75, 0), 0),
        ((0, 0, 2, 0, 74, 0), 0),
        ((0, 0, 2, 0, 0, 0), 0),
        ((0, 0, 2, 1, 75, 0), 0),
        ((0, 0, 2, 0, 75, 0), 1),
        ((0, 0, 2, 0, -1, 0), 0),
        ((0, 0, 2, 2**63 - 1, 75, 0), -(2**63)),
        ((0, 0, 2, 0, 2**63 - 1, 0), 0),
    ],
)
def test_a_slice_that_its_batches_do_not_fill_is_corrupt(
    kernel: ModuleType, entry: tuple[int, int, int, int, int, int], origin: int
) -> None:
    with pytest.raises(Corrupt):
        kernel.rebase(bytearray(GOOD), [entry], 0, origin)


def test_rebasing_refuses_wrong_arguments(kernel: ModuleType) -> None:
    with pytest.raises(BufferError):
        kernel.rebase(GOOD, [], 0)
    with pytest.raises(ValueError, match="int32"):
        kernel.rebase(bytearray(GOOD), [], 2**31)
    with pytest.raises(ValueError, match="int64"):
        kernel.rebase(bytearray(GOOD), [(0, -1, 2, 0, 75, 0)], 0)
    with pytest.raises(ValueError, match="int64"):
        kernel.rebase(bytearray(GOOD), [(0, 2**63 - 2, 2, 0, 75, 0)], 0)


def three(kernel: ModuleType) -> bytearray:
    """Batches of 75 bytes with the offsets [10, 12), [12, 14), [14, 16) after 5 other bytes."""
    buffer = bytearray(b"_____" + GOOD * 3)
    kernel.rebase(buffer, [(0, 10, 6, 5, 225, 0)], 0)
    return buffer


@pytest.mark.parametrize(("offset", "position"), [(0, 5), (10, 5), (11, 5), (12, 80), (13, 80), (15, 155), (16, 230)])
def test_seek_finds_the_batch_of_an_offset_or_the_next_one(kernel: ModuleType, offset: int, position: int) -> None:
    assert kernel.seek(three(kernel), 5, 230, offset) == position


@pytest.mark.parametrize(
    ("bytes_max", "count"), [(-1, 0), (0, 0), (74, 0), (75, 1), (149, 1), (150, 2), (225, 3), (2**70, 3)]
)
def test_a_run_has_as_many_whole_batches_as_fit(kernel: ModuleType, bytes_max: int, count: int) -> None:
    data = three(kernel)

    assert kernel.find_run(data, 5, 230, 0, bytes_max, 0) == (5, 5 + 75 * count)
    assert kernel.find_run(data, 5, 230, 0, bytes_max, 1) == (5, 5 + 75 * max(count, 1))  # KIP-74


@pytest.mark.parametrize(("offset", "start"), [(0, 5), (10, 5), (11, 5), (12, 80), (13, 80), (15, 155), (16, 230)])
def test_a_run_begins_with_the_batch_of_the_offset_or_the_next_one(kernel: ModuleType, offset: int, start: int) -> None:
    data = three(kernel)

    assert kernel.find_run(data, 5, 230, offset, 1000, 0) == (start, 230)
    assert kernel.find_run(data, 5, 230, offset, 80, 0) == (start, min(start + 75, 230))


def test_an_empty_range_has_nothing_to_find(kernel: ModuleType) -> None:
    assert kernel.seek(b"ab", 1, 1, 0) == 1
    assert kernel.find_run(b"ab", 1, 1, 0, 100, 1) == (1, 1)


def test_walks_of_many_bytes_work_without_the_lock(kernel: ModuleType) -> None:
    big = batch(body=b"r" * (1 << 20))
    buffer = bytearray(big * 2)

    kernel.rebase(buffer, [(0, 10, 4, 0, len(buffer), 0)], 0)

    assert kernel.seek(buffer, 0, len(buffer), 12) == len(big)
    assert kernel.find_run(buffer, 0, len(buffer), 12, 1, 1) == (len(big), len(buffer))
