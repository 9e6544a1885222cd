"""Record batches of all compressions, blocks as Pulsar's clients compress them, and WAL objects: what readers of the log decode."""

import struct
from collections.abc import Iterator
from random import Random
from uuid import UUID

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.metadata import packing, subscriptions
from bearlake.metadata.model import Outcome, OutcomeKind, Slice
from bearlake.records import blocks, codec, compression
from bearlake.records.batch import Compression
from bearlake.records.blocks import BlockCodec
from bearlake.streams import configs
from bearlake.streams.checking import Checked, check_records
from bearlake.wal import keys, reader, v1, writer
from bearlake.wal.format import Part
from fuzz.target import Choices, Target, exact
from fuzz.targets.kernel import HEADER_BYTES, RECORDS, batches, repair

LIMIT = 256 * 1024
"""Uncompressed bytes that are allowed: the memory of an input does not depend on more."""
BOMB = bytes(1024 * 1024)
STREAM = UUID(int=7).bytes
RULES = configs.rules({})


def decode(data: bytes) -> object:
    """Decode a batch of any compression as a consumer's server does, and check it as a producer's."""
    view = exact(data)
    if isinstance(kernel.inspect(view, 0, len(view)), int):
        return None
    check_records(view, RULES, Checked.NOTHING, LIMIT)
    found = codec.decode(view, LIMIT)  # what passes the check must be readable
    assert sum(map(len, codec.parts(view, LIMIT))) == len(found)
    codec.first_at(view, found[-1].timestamp, LIMIT)
    return data[22] & 7, len(found)


def stored(data: bytes) -> object:
    """Decode a batch that was not checked, as from a stream that checks headers only."""
    if len(data) < HEADER_BYTES:
        return None
    view = exact(data)
    codec.first_at(view, 2**40, LIMIT)
    return data[22] & 7, len(codec.decode(view, LIMIT))


def _bombs() -> list[bytes]:
    made = []
    for compression_codec in Compression:
        batch = bytearray(codec.encode(RECORDS, codec=compression_codec))
        made.append(bytes(batch[:HEADER_BYTES]) + bytes(compression.compress(compression_codec, BOMB))[:4000])
    return made


def decompress(data: bytes) -> object:
    """Decompress a section with each of Kafka's codecs; one that was decompressed is compressed to the same again."""
    choices = Choices(data)
    compression_codec = choices.of(list(Compression))
    content = bytes(compression.decompress(compression_codec, exact(choices.rest), LIMIT))
    assert (
        bytes(compression.decompress(compression_codec, compression.compress(compression_codec, content), LIMIT))
        == content
    )
    return compression_codec, len(content) > 0


def decompress_block(data: bytes) -> object:
    """Decompress a block with each of Pulsar's codecs."""
    choices = Choices(data)
    block_codec, size = choices.of(list(BlockCodec)), abs(choices.number()) % LIMIT
    content = blocks.decompress(block_codec, exact(choices.rest), size)
    assert len(content) == size
    return block_codec


def _block_seeds() -> Iterator[bytes]:
    for at, block_codec in enumerate(BlockCodec):
        for content in (b"", b"value" * 20):
            yield bytes([at, 3]) + struct.pack(">h", len(content)) + bytes(blocks.compress(block_codec, content))


def wal_object(count: int) -> bytes:
    """A WAL object with slices of this many partitions."""
    parts = [Part(STREAM, at, [codec.encode(RECORDS)] * (at % 2 + 1)) for at in range(count)]
    return bytes(writer.seal(parts, node_id=3, server_epoch=9).buffer)


def wal(data: bytes) -> object:
    """Read an object from the front, from the end, and whole."""
    view = exact(data)
    answers: list[object] = []
    for read in (reader.index_range, reader.index_range_from_tail, reader.read_index, reader.verify):
        try:
            found = read(view)
            answers.append(type(found))
        except BearlakeError as error:
            answers.append(type(error))
            if read is reader.verify:
                raise
    return answers


def _wal_checksums(random: Random, data: bytearray) -> None:
    """Repair the checksums of index and trailer, and mostly the sizes."""
    if len(data) < v1.HEADER.size + v1.CRC.size + 40:
        return
    if random.random() < 0.7:
        struct.pack_into(">Q", data, 16, len(data))
    (count,) = struct.unpack_from(">I", data, 12)
    entries_end = v1.HEADER.size + v1.ENTRY.size * count
    if count < 100 and entries_end + 44 <= len(data):
        at = entries_end + v1.CRC.size
        for place in range(v1.HEADER.size, entries_end, v1.ENTRY.size):
            position, length = struct.unpack_from(">QI", data, place + 24)
            if random.random() < 0.5 and position + length <= len(data):
                repair_slice = data[position : position + length]
                repair(random, repair_slice)
                data[position : position + length] = repair_slice
                struct.pack_into(">I", data, place + 36, kernel.crc32c(repair_slice))
        crc = kernel.crc32c(data, 0, entries_end)
        v1.CRC.pack_into(data, entries_end, crc)
        trailer = len(data) - 40
        if random.random() < 0.8:
            v1.TRAILER.pack_into(data, trailer, 0, at, crc, len(data), 1, 0)
    trailer = len(data) - 40
    v1.CRC.pack_into(data, trailer + v1.TRAILER.size, kernel.crc32c(data, trailer, trailer + v1.TRAILER.size))


def index_entries(data: bytes) -> object:
    """Unpack what the metadata store keeps in blobs: slices, outcomes, acknowledged ranges; and parse keys of objects."""
    choices = Choices(data)
    kind, mark = choices.byte() % 5, choices.offset()
    blob = choices.rest
    if kind == 0:
        return len(packing.unpack_slices(blob))
    if kind == 1:
        return len(packing.unpack_outcomes(blob))
    if kind == 2:
        return len(list(packing.unpack_rows(blob, packing.PAGE_WIDTH)))
    if kind == 3:
        ranges = subscriptions.unpack_ranges(mark, blob)
        assert all(mark < start < end for start, end in ranges)
        return len(ranges)
    return keys.created_ms(blob.decode("utf-8", "replace")) > 0


def _index_seeds() -> Iterator[bytes]:
    slices = [Slice(1, 0, 3, 40, 100, 5), Slice(2, 7, 1, 140, 100, 6)]  # type: ignore[arg-type]  # keys of partitions
    yield b"\0\0\0" + packing.pack_rows(slices, packing.SLICE_WIDTH)
    yield b"\1\0\0" + packing.pack_rows([Outcome(OutcomeKind(0), 5, 0)], packing.OUTCOME_WIDTH)
    yield b"\2\0\0" + packing.pack_rows([range(6), range(6)], packing.PAGE_WIDTH)
    yield b"\3\0\5" + subscriptions.pack_ranges(5, [(7, 9), (300, 70_000)])
    yield b"\4\0\0wal/2026010100/" + b"019b76da-a800-7000-8000-000000000000"


TARGETS = [
    Target(
        name="record batches",
        seeds=lambda: [*batches(), *_bombs()],
        run=decode,
        change=repair,
        memory_bytes=4 * LIMIT,
        memory_factor=300,
        share=2,
    ),
    Target(
        name="stored batches",
        seeds=lambda: [*batches(), *_bombs()],
        run=stored,
        change=repair,
        memory_bytes=4 * LIMIT,
        memory_factor=300,
    ),
    Target(
        name="compressed sections",
        seeds=lambda: [
            bytes([at]) + bytes(compression.compress(compression_codec, content))[:4000]
            for at, compression_codec in enumerate(Compression)
            for content in (b"", b"value" * 30, BOMB)
        ],
        run=decompress,
        memory_bytes=6 * LIMIT,
        short_inputs=750,
    ),
    Target(name="compressed blocks", seeds=lambda: list(_block_seeds()), run=decompress_block, memory_bytes=3 * LIMIT),
    Target(name="WAL objects", seeds=lambda: [wal_object(1), wal_object(3)], run=wal, change=_wal_checksums),
    Target(
        name="index entries",
        seeds=lambda: list(_index_seeds()),
        run=index_entries,
        errors=(BearlakeError,),
        memory_factor=200,
    ),
]
