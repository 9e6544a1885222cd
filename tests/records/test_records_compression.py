import gzip
import os
import threading

import cramjam
import hypothesis.strategies as st
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings

from bearlake.errors import Corrupt, TooLarge
from bearlake.records.batch import Compression
from bearlake.records.compression import SCRATCH_BYTES, XERIAL_MAGIC, Scratch, compress, decompress

CODED = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"the quick brown fox " * 5000


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("body", [b"", b"x", TEXT, os.urandom(100_000)], ids=["empty", "byte", "text", "noise"])
def test_compressed_bytes_decompress_within_exactly_their_limit(codec: Compression, body: bytes) -> None:
    small = compress(codec, body)

    assert bytes(decompress(codec, small, len(body))) == body
    assert bytes(decompress(codec, memoryview(bytearray(small)), 10**9)) == body


@pytest.mark.parametrize("codec", list(Compression))
def test_one_byte_over_the_limit_is_too_large(codec: Compression) -> None:
    for body in (TEXT, os.urandom(70_000)):
        with pytest.raises(TooLarge) as caught:
            decompress(codec, compress(codec, body), len(body) - 1)
        assert caught.value.bytes_max == len(body) - 1


@pytest.mark.parametrize("codec", list(Compression))
def test_memory_that_is_used_again_gives_the_same_bytes_and_the_same_limits(codec: Compression) -> None:
    scratch = Scratch()
    for body in (os.urandom(90_000), TEXT, b"x", b"", os.urandom(2 * SCRATCH_BYTES), os.urandom(SCRATCH_BYTES)):
        small = compress(codec, body)

        assert bytes(decompress(codec, small, len(body), scratch)) == body
        assert bytes(decompress(codec, small, 10**9, scratch)) == body
        if body:
            with pytest.raises(TooLarge):
                decompress(codec, small, len(body) - 1, scratch)


def test_threads_do_not_share_the_memory_that_is_used_again() -> None:
    scratch = Scratch()
    ours = decompress(Compression.ZSTD, compress(Compression.ZSTD, TEXT), 10**6, scratch)
    noise = compress(Compression.ZSTD, os.urandom(len(TEXT)))
    other = threading.Thread(target=decompress, args=(Compression.ZSTD, noise, 10**6, scratch))

    other.start()
    other.join()

    assert bytes(ours) == TEXT


def test_output_of_other_libraries_is_read() -> None:
    assert bytes(decompress(Compression.GZIP, gzip.compress(TEXT), 10**6)) == TEXT
    assert bytes(decompress(Compression.ZSTD, zstandard.ZstdCompressor().compress(TEXT), 10**6)) == TEXT
    # a stream, as Java writes it: no content size in the frame
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert bytes(decompress(Compression.ZSTD, stream.compress(TEXT) + stream.flush(), 10**6)) == TEXT
    for linked in (True, False):
        frame = lz4.frame.compress(TEXT, block_linked=linked, store_size=not linked, content_checksum=linked)
        assert bytes(decompress(Compression.LZ4, frame, 10**6)) == TEXT


def test_raw_snappy_is_read() -> None:
    """As librdkafka writes snappy."""
    assert bytes(decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), 10**6)) == TEXT


def test_other_libraries_read_what_we_write() -> None:
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    assert lz4.frame.decompress(compress(Compression.LZ4, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Compression.ZSTD, TEXT)) == TEXT


def test_lz4_blocks_are_independent() -> None:
    """The Java client: "Dependent block stream is unsupported". Bit 5 of the frame's flags; LZ4 frame format 1.6."""
    assert compress(Compression.LZ4, TEXT)[4] & 0x20


def test_snappy_is_framed_in_blocks_of_32_kib() -> None:
    body = compress(Compression.SNAPPY, TEXT)

    assert body[:16] == XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
    first = int.from_bytes(body[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(bytes(body[20 : 20 + first])) == 32 * 1024


@pytest.mark.parametrize("codec", CODED)
def test_a_bomb_is_stopped_at_its_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 << 20))

    with pytest.raises(TooLarge):
        decompress(codec, bomb, 1 << 20)


def test_a_snappy_block_that_claims_four_gigabytes_is_too_large() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"a"

    with pytest.raises(TooLarge):
        decompress(Compression.SNAPPY, claim, 1 << 20)
    with pytest.raises(TooLarge):
        decompress(Compression.SNAPPY, XERIAL_MAGIC + bytes(8) + len(claim).to_bytes(4, "big") + claim, 1 << 20)


@pytest.mark.parametrize("codec", CODED)
@pytest.mark.parametrize(
    "body", [b"\0", b"garbage", b"\xff" * 40, b"\x1f\x8b", XERIAL_MAGIC, XERIAL_MAGIC + bytes(8) + b"\0"]
)
def test_garbage_is_corrupt(codec: Compression, body: bytes) -> None:
    with pytest.raises((Corrupt, TooLarge)):
        decompress(codec, body + b"\x01", 100)


@pytest.mark.parametrize("codec", CODED)
def test_a_cut_off_body_is_corrupt(codec: Compression) -> None:
    body = compress(codec, TEXT)

    for end in (1, len(body) // 2, len(body) - 1):
        with pytest.raises(Corrupt):
            decompress(codec, body[:end], 10**6)


@settings(deadline=None, max_examples=500)
@given(
    codec=st.sampled_from(CODED),
    at=st.integers(0, 10**4),
    change=st.binary(min_size=1, max_size=5),
    text=st.binary(max_size=200),
)
def test_damage_raises_nothing_but_corrupt_and_too_large(
    codec: Compression, at: int, change: bytes, text: bytes
) -> None:
    body = bytearray(compress(codec, text))
    at %= len(body) + 1
    body[at : at + len(change)] = change

    try:
        out = decompress(codec, body, 1000)
    except (Corrupt, TooLarge):
        return
    assert len(out) <= 1000
