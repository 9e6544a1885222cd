"""Contexts for zstd that are used again: what they decode, what they leave to new ones, and what they keep."""

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import cramjam
import pytest
import zstandard

from bearlake.kernel.batch import zstd_frames as zstd

MIB = 1024 * 1024
CONTENT = Random(4).randbytes(500) * 9
RAW_BLOCK = (len(CONTENT) << 3 | 1).to_bytes(3, "little") + CONTENT
"""A last block that is not compressed."""
WORDS = b"".join(Random(1).choices((b"order", b"boat", b"alpha-", b"1234567"), k=50_000))[:50_000]
"""The content of one compressed block."""
MAGIC = b"\x28\xb5\x2f\xfd"


def frame(content: bytes = CONTENT, *, window_log: int = 17, says_size: bool = True, checksum: bool = False) -> bytes:
    """One frame; a window needs content that is larger, or a frame that does not say its size."""
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window_log, write_content_size=says_size, write_checksum=checksum
    )
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj(len(content) if says_size else -1)
    return writer.compress(content) + writer.flush()


@pytest.fixture
def opened_anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the sections that were left to a new context."""
    sizes: list[int] = []
    ordinary = zstd._anew  # noqa: SLF001

    def counting(section: bytes, room: int) -> memoryview | None:
        sizes.append(len(section))
        return ordinary(section, room)

    monkeypatch.setattr(zstd, "_anew", counting)
    return sizes


@pytest.mark.parametrize("says_size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("window_log", [13, 17, 21, 23])
def test_ordinary_frames_are_decoded_by_a_kept_context(
    opened_anew: list[int], says_size: bool, checksum: bool, window_log: int
) -> None:
    made = frame(window_log=window_log, says_size=says_size, checksum=checksum)

    for _ in range(3):
        assert zstd.decompress(made, MIB) == CONTENT
        assert zstd.decompress(memoryview(made), len(CONTENT)) == CONTENT
    assert opened_anew == []


def test_frames_with_a_large_window_are_decoded_and_their_memory_is_not_kept(opened_anew: list[int]) -> None:
    for window_log in (24, 27):
        made = frame(window_log=window_log, says_size=False)
        assert zstd.decompress(made, MIB) == CONTENT
    assert len(opened_anew) == 2


def test_damage_of_any_byte_that_a_checksum_covers_is_found() -> None:
    made = frame(checksum=True)
    for at in range(len(made)):
        damaged = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
        assert zstd.decompress(damaged, MIB) in (None, CONTENT)
        assert zstd.decompress(made[:at], MIB) is None
    assert zstd.decompress(made, MIB) == CONTENT  # a context is as good as new after errors


@pytest.mark.parametrize("size", [0, 1, len(CONTENT) - 1, len(CONTENT) + 1, 2**40, 2**64 - 3])
def test_a_frame_that_says_another_size_than_it_has_is_refused(size: int) -> None:
    made = MAGIC + b"\xc0\x58" + size.to_bytes(8, "little") + RAW_BLOCK
    good = MAGIC + b"\xc0\x58" + len(CONTENT).to_bytes(8, "little") + RAW_BLOCK

    assert zstd.decompress(good, MIB) == CONTENT
    assert zstd.decompress(made, MIB) is None


@pytest.mark.parametrize("says_size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("content", [CONTENT, b"a", b"a" * 500_000])
def test_bytes_behind_a_frame_are_refused(says_size: bool, checksum: bool, content: bytes) -> None:
    made = frame(content, says_size=says_size, checksum=checksum)

    for rest in (b"\0", b"garbage", MAGIC, made[:-1]):
        assert zstd.decompress(made + rest, MIB) is None
    assert zstd.decompress(made, MIB) == content


@pytest.mark.parametrize("says_size", [True, False])
def test_all_frames_of_a_section_count(says_size: bool) -> None:
    skippable = b"\x50\x2a\x4d\x18\3\0\0\0abc"
    made = frame(says_size=says_size)

    assert zstd.decompress(made + made, MIB) == CONTENT * 2
    assert zstd.decompress(skippable + made + skippable + made, MIB) == CONTENT * 2
    assert zstd.decompress(made + made, len(CONTENT)) is None


def compressed_block(content: bytes) -> bytes:
    """The only block of a frame with the content, as a last block."""
    made = frame(content)
    return made[zstandard.frame_header_size(made) :]


@pytest.mark.parametrize(
    ("window", "content_bytes", "block"),
    [
        pytest.param(
            0x00, 100_000, (100_000 << 3 | 3).to_bytes(3, "little") + b"r", id="a-repeated-byte-above-the-window"
        ),
        pytest.param(
            0x50, 131_073, (131_073 << 3 | 3).to_bytes(3, "little") + b"r", id="a-repeated-byte-above-128-KiB"
        ),
        pytest.param(0x28, 50_000, compressed_block(WORDS), id="a-compressed-block-above-the-window"),
        pytest.param(0xA8, 50_000, compressed_block(WORDS), id="a-window-of-2-GiB"),
    ],
)
def test_frames_that_say_their_size_are_checked_as_those_that_do_not(
    window: int, content_bytes: int, block: bytes
) -> None:
    says_size = MAGIC + b"\x80" + bytes([window]) + content_bytes.to_bytes(4, "little") + block
    says_none = MAGIC + b"\x00" + bytes([window]) + block

    assert zstd.decompress(says_size, MIB) is None
    assert zstd.decompress(says_none, MIB) is None


def test_frames_of_many_blocks_are_decoded_anew(opened_anew: list[int]) -> None:
    writer = zstandard.ZstdCompressor().compressobj()
    pieces = [CONTENT[at : at + 40] for at in range(0, len(CONTENT), 40)]
    blocks = [writer.compress(piece) + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for piece in pieces]
    made = b"".join(blocks) + writer.flush()

    assert zstd.decompress(made, MIB) == CONTENT
    assert zstd.decompress(made + b"\0", MIB) is None
    assert opened_anew == [len(made), len(made) + 1]


def test_content_above_the_room_is_refused() -> None:
    for says_size in (True, False):
        made = frame(bytes(MIB), says_size=says_size)
        assert zstd.decompress(made, MIB) == bytes(MIB)
        assert zstd.decompress(made, MIB - 1) is None
        assert zstd.decompress(made, 0) is None


def test_an_empty_frame_must_be_whole_too() -> None:
    empty = frame(b"")

    assert zstd.decompress(empty, MIB) == b""
    assert [zstd.decompress(made, MIB) for made in (empty[:-1], empty + b"\0", empty + b"garbage")] == [None] * 3


def test_a_dictionary_is_refused() -> None:
    dictionary = zstandard.ZstdCompressionDict(CONTENT, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    trained = zstandard.train_dictionary(2000, [Random(at).randbytes(40) * 5 for at in range(60)])

    assert zstd.decompress(zstandard.ZstdCompressor(dict_data=trained).compress(CONTENT), MIB) is None
    assert zstd.decompress(zstandard.ZstdCompressor(dict_data=dictionary).compress(CONTENT), MIB) != CONTENT


def test_what_is_no_frame_is_refused() -> None:
    for section in (b"", b"\0", MAGIC, CONTENT, bytes(cramjam.gzip.compress(CONTENT))):
        assert zstd.decompress(section, MIB) is None


def test_threads_do_not_share_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads are within `decompress` of their contexts at the same time."""
    together = threading.Barrier(8)
    used: list[zstandard.ZstdDecompressor] = []

    class Watched:
        def __init__(self) -> None:
            self.context = zstandard.ZstdDecompressor()

        def decompress(self, section: bytes, **options: Any) -> bytes:
            used.append(self.context)
            together.wait(60)
            return self.context.decompress(section, **options)

    contents = [Random(at).randbytes(100) * 500 for at in range(8)]
    monkeypatch.setattr(zstd, "_idle", [])
    monkeypatch.setattr(zstd, "_new_context", Watched)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda content: zstd.decompress(frame(content), MIB), contents)) == contents

    assert len({id(context) for context in used}) == 8
    assert len(zstd._idle) == zstd.IDLE_MAX  # noqa: SLF001
