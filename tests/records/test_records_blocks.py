"""Bare compressed blocks: interoperability with other libraries in both directions, and no trust in announced sizes."""

import os
import zlib
from collections.abc import Callable

import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.records.blocks import BlockCodec, compress, decompress

CONTENT = os.urandom(40) * 50
CODECS = [codec for codec in BlockCodec if codec is not BlockCodec.NONE]
OTHERS: dict[BlockCodec, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    BlockCodec.LZ4: (
        lambda content: lz4.block.compress(content, store_size=False),
        lambda block, size: lz4.block.decompress(block, uncompressed_size=size),
    ),
    BlockCodec.ZLIB: (zlib.compress, lambda block, size: zlib.decompress(block)),
    BlockCodec.ZSTD: (
        lambda content: zstandard.compress(content),
        lambda block, size: zstandard.decompress(block, max_output_size=size),
    ),
}


@pytest.mark.parametrize("codec", list(BlockCodec))
@pytest.mark.parametrize("content", [b"", b"x", CONTENT, bytes(10**6)])
def test_a_compressed_block_decompresses_to_the_same_bytes(codec: BlockCodec, content: bytes) -> None:
    assert bytes(decompress(codec, memoryview(compress(codec, content)), len(content))) == content


@pytest.mark.parametrize("codec", list(OTHERS))
@settings(deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.binary(max_size=9).map(lambda part: part * 1000)))
def test_other_libraries_agree(codec: BlockCodec, content: bytes) -> None:
    pack, unpack = OTHERS[codec]

    assert bytes(decompress(codec, pack(content), len(content))) == content
    assert unpack(bytes(compress(codec, content)), len(content)) == content


@pytest.mark.parametrize("codec", list(BlockCodec))
@pytest.mark.parametrize("size", [0, 1, len(CONTENT) - 1, len(CONTENT) + 1, 10**6])
def test_a_block_of_another_size_is_corrupt(codec: BlockCodec, size: int) -> None:
    block = compress(codec, CONTENT)

    with pytest.raises(Corrupt):
        decompress(codec, block, size)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", [lambda block: block[:-3], lambda block: b"\xff" * 20, lambda block: b""])
def test_damaged_blocks_are_corrupt(codec: BlockCodec, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Corrupt):
        decompress(codec, damage(bytes(compress(codec, CONTENT))), len(CONTENT))


@pytest.mark.parametrize("content", [b"", CONTENT, bytes(10**6)])
def test_a_zlib_stream_that_was_flushed_but_not_finished_decompresses(content: bytes) -> None:
    stream = zlib.compressobj()
    block = stream.compress(content) + stream.flush(
        zlib.Z_SYNC_FLUSH
    )  # as CompressionCodecZLib of Pulsar's Java client does

    assert bytes(decompress(BlockCodec.ZLIB, memoryview(block), len(content))) == content
    for damaged, size in (
        (block[:-3], len(content)),
        (block, len(content) + 1),
        (block[:2] + b"\xff" * 9 + block[-4:], len(content)),
    ):
        with pytest.raises(Corrupt):
            decompress(BlockCodec.ZLIB, damaged, size)
    if content:
        with pytest.raises(Corrupt):
            decompress(BlockCodec.ZLIB, block, len(content) - 1)
