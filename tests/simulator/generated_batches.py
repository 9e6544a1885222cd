"""Batches as real producers send them, and some that no producer should send: compressed, with headers, null keys, garbage."""

import random

from bearlake import kernel
from bearlake.records import codec as record_codec
from bearlake.records.batch import HEADER_BYTES, Compression

CRC_AT = 17
CRC_START = 21
CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace", b"1"),),
    (("a", None), ("a", b""), ("b", b"x")),
)
NOT_UTF8 = (("\udcff\udcfe", b"header key"),)


def generate_batch(
    records: list[record_codec.Record],
    producer: record_codec.Producer,
    randomness: random.Random,
    *,
    codec_rate: float,
    inexact_rate: float,
) -> tuple[bytes, bool]:
    """A batch of the records, with keys and headers, perhaps compressed; and whether its records are garbage."""
    draw = randomness.random
    kind = draw()
    made = [
        record_codec.Record(
            key=randomness.choice([None, b"", b"key"]),
            value=record.value if draw() < 0.9 else None,
            headers=NOT_UTF8 if kind < inexact_rate / 2 else randomness.choice(HEADERS),
            timestamp=record.timestamp,
        )
        for record in records
    ]
    codec = randomness.choice(CODECS) if draw() < codec_rate else Compression.NONE
    batch = record_codec.encode(made, codec=codec, producer=producer)
    # A value that is null for each record would make two batches of one producer without idempotence the same bytes.
    if all(record.value is None for record in made):
        batch = record_codec.encode(records, codec=codec, producer=producer)
    if inexact_rate / 2 <= kind < inexact_rate:
        return corrupt_records(batch), True
    return batch, False


def corrupt_records(batch: bytes) -> bytes:
    """Return the batch with the bits of its records inverted and a matching CRC."""
    changed = bytearray(batch)
    changed[HEADER_BYTES:] = bytes(byte ^ 0xFF for byte in batch[HEADER_BYTES:])
    changed[CRC_AT:CRC_START] = kernel.crc32c(changed, CRC_START, len(changed)).to_bytes(4, "big")
    return bytes(changed)
