"""Whole batches whose records are checked, compressed or not, native and in Python; and requests that are taken with such batches."""

import struct
from random import Random
from types import ModuleType
from typing import Any

import cramjam
import lz4.block
import lz4.frame
import pytest

from bearlake.kernel import Append, BatchStatus, PartitionKey, fallback
from bearlake.kernel.batch.compressed import SECTION_BYTES_MAX
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from kernel.test_kernel_intake import KEY, STREAM, Admission, framed, lead_of
from kernel.test_kernel_produce import request

ALL = 1 << 30
LZ4, ZSTD = 3, 4
COUNT_AT, HEADER_BYTES = 57, 61


def records(count: int = 50, size: int = 100, seed: int = 1) -> list[Record]:
    """Records of words, which compress well, and of bytes, which do not."""
    random = Random(seed)
    words = [random.randbytes(random.randrange(1, 40)) for _ in range(30)]
    return [Record(value=b"".join(random.choices(words, k=size // 20)), timestamp=at) for at in range(count)]


def section_of(count: int = 50, size: int = 100, seed: int = 1) -> bytes:
    return encode(records(count, size, seed))[HEADER_BYTES:]


def batch(codec: int, section: bytes, count: int) -> bytes:
    """A batch with this section; only what `check_batch` reads of its header is set."""
    header = bytearray(HEADER_BYTES)
    struct.pack_into(">i", header, 8, HEADER_BYTES - 12 + len(section))
    struct.pack_into(">h", header, 21, codec)
    struct.pack_into(">i", header, COUNT_AT, count)
    return bytes(header) + section


def lz4_frame(content: bytes, **options: Any) -> bytes:
    return bytes(lz4.frame.compress(content, **{"block_linked": False, **options}))


def zstd_frame(content: bytes, level: int = 3) -> bytes:
    return bytes(cramjam.zstd.compress(content, level))


@pytest.mark.parametrize("count", [1, 2, 50, 2000])
@pytest.mark.parametrize("size", [0, 20, 100, 300])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_good_records_are_known_as_good_with_their_size(
    kernel: ModuleType, codec: Compression, count: int, size: int
) -> None:
    made = encode(records(count, size), codec=codec)

    assert kernel.check_batch(made, ALL) == len(section_of(count, size))
    assert kernel.check_batch(bytearray(made), len(section_of(count, size))) == len(section_of(count, size))


@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames_of_all_block_sizes_are_known(kernel: ModuleType, block_size: int, level: int) -> None:
    for content, count in ((section_of(2000, 300), 2000), (section_of(2, 40), 2), (section_of(600, 60, 7), 600)):
        for store_size in (False, True):
            frame = lz4_frame(content, block_size=block_size, compression_level=level, store_size=store_size)
            assert kernel.check_batch(batch(LZ4, frame, count), ALL) == len(content)


def test_lz4_that_javas_client_does_not_read_is_not_known(kernel: ModuleType) -> None:
    content = section_of(2000, 300)
    for section in (
        lz4_frame(content, block_linked=True),
        lz4_frame(content[:700]) + lz4_frame(content[700:]),
        lz4_frame(content) + lz4_frame(b""),
    ):
        assert kernel.check_batch(batch(LZ4, section, 2000), ALL) == -1


def test_lz4_matches_of_every_distance_and_length_are_copied(native: ModuleType) -> None:
    random = Random(5)
    for period in (*range(1, 70), 255, 256, 1000):
        for length in (4, 5, 17, 18, 19, 31, 32, 33, 64, 65, 300, 5000):
            value = (random.randbytes(period) * (length // period + 2))[: period + length] + random.randbytes(9)
            content = encode([Record(value=value)])[HEADER_BYTES:]
            # a wrong copy shows: the value's bytes are checked by a second record, whose length lies behind them
            content += encode([Record(), Record(value=b"z")])[HEADER_BYTES:][8:]
            frame = lz4_frame(content)
            expected = fallback.check_batch(batch(LZ4, frame, 2), ALL)
            assert native.check_batch(batch(LZ4, frame, 2), ALL) == expected


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_bad_records_are_not_known_as_good(kernel: ModuleType, codec: Compression) -> None:
    made = bytearray(encode(records(), codec=codec))
    for count in (49, 51, 0, -1, 2**31 - 1):
        struct.pack_into(">i", made, COUNT_AT, count)
        assert kernel.check_batch(made, ALL) == -1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_sections_above_the_limit_are_not_known(kernel: ModuleType, codec: Compression) -> None:
    size = len(section_of())
    made = encode(records(), codec=codec)

    assert [kernel.check_batch(made, limit) for limit in (size - 1, 1, 0, -1, -(2**63))] == [-1] * 5


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_compressed_sections_have_a_limit_of_their_own(kernel: ModuleType, codec: Compression) -> None:
    room = SECTION_BYTES_MAX - 60
    fitting = encode([Record(value=bytes(room))], codec=codec)

    assert kernel.check_batch(fitting, ALL) > room
    assert kernel.check_batch(encode([Record(value=bytes(room + 60))], codec=codec), ALL) == -1
    assert kernel.check_batch(encode([Record(value=bytes(2 * room))]), ALL) > 2 * room


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_other_codecs_are_not_known(kernel: ModuleType, codec: Compression) -> None:
    assert kernel.check_batch(encode(records(), codec=codec), ALL) == -1
    for unknown in (5, 6, 7):
        assert kernel.check_batch(batch(unknown, section_of(), 50), ALL) == -1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4, Compression.ZSTD])
def test_cut_and_extended_batches_are_not_known(kernel: ModuleType, codec: Compression) -> None:
    made = encode(records(5), codec=codec)

    for length in range(len(made)):
        assert kernel.check_batch(made[:length], ALL) == -1
        section = made[HEADER_BYTES:length]
        assert kernel.check_batch(batch(codec, section, 5), ALL) == -1
    assert kernel.check_batch(made + b"\0", ALL) == -1
    assert kernel.check_batch(batch(codec, made[HEADER_BYTES:] + b"\1", 5), ALL) == -1


@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
def test_checksums_of_lz4_frames_are_checked(kernel: ModuleType, block_checksum: bool, content_checksum: bool) -> None:
    for content, count in ((section_of(), 50), (section_of(2000, 300), 2000), (section_of(1, 0), 1)):
        frame = lz4_frame(content, block_checksum=block_checksum, content_checksum=content_checksum)
        assert kernel.check_batch(batch(LZ4, frame, count), ALL) == len(content)
        if block_checksum or content_checksum:
            at = len(frame) - (4 if content_checksum else 8)  # behind the last block, or behind the frame's end
            damaged = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
            assert kernel.check_batch(batch(LZ4, damaged, count), ALL) == -1


def test_other_lz4_frames_are_left_to_the_caller(native: ModuleType) -> None:
    content = section_of()
    frame = bytearray(lz4_frame(content))
    for at, value in ((0, 0), (4, 0x61), (4, 0x62), (4, 0xA0), (5, 0x30), (5, 0xC0), (5, 0x41), (6, frame[6] ^ 1)):
        changed = bytearray(frame)
        changed[at] = value
        assert native.check_batch(batch(LZ4, bytes(changed), 50), ALL) == -1


def test_a_wrong_content_size_is_not_accepted(kernel: ModuleType) -> None:
    content = section_of()
    frame = lz4_frame(content[:-1], store_size=True)[:15] + lz4_frame(content)[7:]

    assert kernel.check_batch(batch(LZ4, frame, 50), ALL) == -1


def test_empty_lz4_blocks_are_left_to_the_caller(native: ModuleType) -> None:
    content = section_of()
    stored = struct.pack("<I", 1 << 31 | len(content)) + content

    assert native.check_batch(batch(LZ4, HEAD + struct.pack("<I", 1 << 31) + stored + bytes(4), 50), ALL) == -1


HEAD = b"\x04\x22\x4d\x18\x60\x40\x82"


def blocks(*parts: bytes) -> bytes:
    return HEAD + b"".join(struct.pack("<I", len(part)) + part for part in parts) + bytes(4)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x10",
        b"\xf0",
        b"\xf0\xff",
        b"\x10a",  # good LZ4, but no record
        b"\x10a\x01",
        b"\x10a\x01\x00",
        b"\x10a\x01\x00\x50abcd",
        b"\x10a\x01\x00\x50abcde",  # the last match begins less than 12 bytes before the end
        b"\x14a\x02\x00\x50abcde",  # the distance is above the output
        b"\x14a\x00\x00\x50abcde",
        b"\x1fa\x01\x00",
        b"\x1fa\x01\x00\xff\xff",
        b"\x1fa\x01\x00" + b"\xff" * 300 + b"\0\x50abcde",  # above 64 KiB
        b"\x14a\x01\x00\x40abcd",  # four last literals
    ],
)
def test_damaged_lz4_blocks_are_not_known(kernel: ModuleType, block: bytes) -> None:
    assert kernel.check_batch(batch(LZ4, blocks(block), 1), ALL) == -1


def test_what_is_not_a_frame_is_not_known(kernel: ModuleType) -> None:
    content = section_of()
    for frame in (
        HEAD + struct.pack("<I", 1 << 31 | len(content) + 1) + content + bytes(4),
        HEAD + struct.pack("<I", 70_000) + bytes(70_000) + bytes(4),
        HEAD + struct.pack("<I", 1 << 31 | len(content)) + content,
        HEAD + struct.pack("<I", 1 << 31 | len(content)) + content + bytes(3),
        HEAD[:6],
        HEAD,
    ):
        assert kernel.check_batch(batch(LZ4, frame, 50), ALL) == -1
    assert kernel.check_batch(batch(LZ4, blocks(lz4.block.compress(content, store_size=False)), 50), ALL) == len(
        content
    )
    stored = HEAD + struct.pack("<I", 1 << 31 | len(content)) + content + bytes(4)
    assert kernel.check_batch(batch(LZ4, stored, 50), ALL) == len(content)


@pytest.mark.parametrize(
    ("window", "is_known"), [(1 << 3, True), (17 << 3, True), (17 << 3 | 1, False), (31 << 3, False)]
)
def test_zstd_frames_with_a_window_that_consumers_refuse_are_not_known(
    kernel: ModuleType, window: int, is_known: bool
) -> None:
    content = section_of(5)
    block = struct.pack("<I", len(content) << 3 | 1)[:3] + content  # a last block that is not compressed
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + block

    assert kernel.check_batch(batch(ZSTD, frame, 5), ALL) == (len(content) if is_known else -1)


def test_a_section_may_be_several_zstd_frames(kernel: ModuleType) -> None:
    content = section_of()
    frames = zstd_frame(content[:90]) + zstd_frame(content[90:])

    assert kernel.check_batch(batch(ZSTD, frames, 50), ALL) == len(content)


def test_damaged_sections_are_known_only_if_the_twin_knows_them(native: ModuleType) -> None:
    random = Random(3)
    for codec, frame in (
        (LZ4, lz4_frame(section_of())),
        (LZ4, lz4_frame(section_of(300), block_linked=True)),
        (ZSTD, zstd_frame(section_of())),
    ):
        for _ in range(3000):
            damaged = bytearray(frame)
            for _ in range(random.randrange(1, 4)):
                damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
            made = batch(codec, bytes(damaged), 50)
            found = native.check_batch(made, ALL)
            assert found in (-1, fallback.check_batch(made, ALL))


# -- requests ----------------------------------------------------------------------------------------------------


def take(kernel: ModuleType, batches: list[bytes], check_max: int, **changes: int) -> tuple[Any, int, Admission]:
    """Take one request per batch; returns the call, the bytes that were checked, and the admission."""
    frames = b"".join(framed(7, at, request(7, [("t", [made])])) for at, made in enumerate(batches))
    admission = Admission(**{"checks": 1, "bytes_max": ALL} | changes)
    call = kernel.ProduceResults((8, -1, -1))
    found = kernel.take_produces(
        kernel.WriteBuffer(ALL), call, frames, None, 0, len(frames), 7, lead_of(7), ALL, 10, check_max, admission, 0
    )
    return call, found[2], admission


def test_compressed_batches_are_taken_while_the_budget_lasts(kernel: ModuleType) -> None:
    made = encode(records(), codec=Compression.LZ4)
    size = len(section_of())

    for check_max, taken in ((0, 0), (-5, 0), (1, 1), (size, 1), (size + 1, 2), (3 * size, 3), (ALL, 4)):
        call, checked, admission = take(kernel, [made] * 4, check_max)
        assert (call.request_count, checked, len(admission.entries)) == (taken, taken * size, int(taken < 4))


def test_plain_batches_do_not_use_the_budget(kernel: ModuleType) -> None:
    call, checked, _ = take(kernel, [encode(records())] * 3, 0)
    assert (call.request_count, checked) == (3, 0)
    call, checked, _ = take(kernel, [encode(records(), codec=Compression.LZ4)] * 3, 0, checks=0)
    assert (call.request_count, checked) == (3, 0)


def test_a_compressed_batch_that_is_not_known_as_good_uses_the_budget_and_is_asked_about(kernel: ModuleType) -> None:
    bad = bytearray(encode(records(), codec=Compression.LZ4))
    bad[-8] ^= 0xFF
    struct.pack_into(">I", bad, 17, kernel.crc32c(bad, 21))

    call, checked, admission = take(kernel, [bytes(bad)], ALL)

    assert (call.request_count, checked, len(admission.entries)) == (0, SECTION_BYTES_MAX, 1)


def test_a_compressed_batch_that_breaks_the_rules_is_not_decompressed(kernel: ModuleType) -> None:
    made = encode(records(), codec=Compression.LZ4)
    for changes in ({"partitions": 0}, {"bytes_max": len(made) - 1}, {"latest": -1}, {"earliest": ALL}):
        call, checked, admission = take(kernel, [made], ALL, **changes)
        assert (call.request_count, checked, len(admission.entries)) == (0, 0, 1)
    call, checked, admission = take(kernel, [encode(records(), codec=Compression.GZIP)], ALL)
    assert (call.request_count, checked, len(admission.entries)) == (0, 0, 1)


@pytest.mark.parametrize("size", [1, 100, 36_000, 36_900, 150_000, 300_000])
@pytest.mark.parametrize("place", [0, 1, 2, -1])
def test_a_bad_record_is_found_wherever_it_is(kernel: ModuleType, size: int, place: int) -> None:
    """The native kernel looks at the records while it computes the checksum, 36 KiB at a time."""
    values = [Record(value=bytes(size), timestamp=at) for at in range(3)] + [Record(value=bytes(10))] * 300
    good = encode(values)
    position = HEADER_BYTES
    for record in values[:place]:
        position += len(encode([record])) - HEADER_BYTES
    bad = bytearray(good)
    bad[position if place >= 0 else -1] ^= 0x40  # the length of the record, or the header count of the last one
    struct.pack_into(">I", bad, 17, kernel.crc32c(bad, 21))

    call, _, admission = take(kernel, [good], 0)
    assert (call.request_count, len(admission.entries)) == (1, 0)
    call, _, admission = take(kernel, [bytes(bad)], 0)
    assert (call.request_count, admission.entries[0][4]) == (0, 0)  # the batch itself is valid
    bad[-1] ^= 1
    call, _, admission = take(kernel, [bytes(bad)], 0)
    assert admission.entries[0][4] == BatchStatus.BAD_CRC


def test_the_checksum_of_a_slice_covers_all_its_batches(kernel: ModuleType) -> None:
    """The native kernel joins the checksums of batches that it has checked, and reads others."""
    sizes = (0, 1, 7, 100, 4096, 12_345, 65_536, 300_001)
    batches = [encode([Record(value=bytes([at]) * size)]) for at, size in enumerate(sizes)]
    topics = [("t", batches[at:] + batches[:at]) for at in range(0, len(batches), 3)]
    frames = b"".join(framed(7, at, request(7, [topic])) for at, topic in enumerate(topics))
    for others in ([], [(3, batches[5])], [(at, batches[at]) for at in range(8)]):
        buffer = kernel.WriteBuffer(ALL)
        call, admission = kernel.ProduceResults((8, -1, -1)), Admission(partitions=8, bytes_max=ALL)
        kernel.take_produces(buffer, call, frames, None, 0, len(frames), 7, lead_of(7), ALL, 10, 0, admission, 0)
        appends = [Append(PartitionKey(KEY + at), STREAM, made, None, 1, 0, -1, -1, -1, 0) for at, made in others]
        buffer.add(kernel.Results(len(appends), (8, -1, -1)), appends, 0, 0)
        count = buffer.count
        joined = buffer.join(40 * 8, 0)
        entries = list(struct.Struct(">16sIIQII").iter_unpack(buffer.index(joined)))

        assert len(entries) == 8
        assert sum(entry[2] for entry in entries) == count == 24 + len(others)
        for _, _, _, position, length, checksum in entries:
            assert checksum == fallback.crc32c(joined, position, position + length)
