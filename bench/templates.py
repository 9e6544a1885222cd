"""Request templates for the load generator: complete Kafka frames with real record batches.

A template is one request, size prefix included, that `loader` sends again and again; it patches only the correlation id
and, if requested, sequence numbers (with the checksum) or fetch offsets. Batches are magic 2 with JSON records whose text
compresses about 2:1 with lz4 and 3:1 with zstd. They have current timestamps: a broker deletes segments of old records at once,
and the deletion would be measured too.

Source: Kafka protocol guide (Produce v7 to v9, Fetch v4 and v12), record batch format v2 (KIP-98), KIP-482 (flexible versions).
"""

import random
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Codec = Literal["none", "lz4", "zstd"]
CODEC_BITS: dict[Codec, int] = {"none": 0, "lz4": 3, "zstd": 4}
CLIENT_ID = "load"
TIMEOUT_MS = 30_000
RECORD_PART_MAX = 65_536
"""Upper limit for the bytes of one record's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """The content of one record batch: `record_count` JSON values of `record_bytes` bytes each, compressed with `codec`."""

    record_count: int
    record_bytes: int
    codec: Codec = "none"

    @property
    def payload_bytes(self) -> int:
        """Value bytes of the batch before compression."""
        return self.record_count * self.record_bytes


def crc32c(octets: bytes) -> int:
    """CRC32C (Castagnoli) of `octets`; plain Python, about 0.1 s per MiB."""
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = _CRC_TABLE[(crc ^ octet) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def record_batch(shape: BatchShape, *, now_ms: int | None = None, seed: int = 1) -> bytes:
    """One record batch v2 from base offset 0, without producer id; timestamps count up from `now_ms` (default: now)."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    source = random.Random(seed)
    records = b"".join(_record(source, delta, shape.record_bytes, now_ms) for delta in range(shape.record_count))
    last = shape.record_count - 1
    checked = (
        struct.pack(">hiqqqhii", CODEC_BITS[shape.codec], last, now_ms, now_ms + last, -1, -1, -1, last + 1)
        + _compress(records, shape.codec)
    )  # fmt: skip
    head = struct.pack(">ibI", -1, 2, crc32c(checked))
    return struct.pack(">qi", 0, len(head) + len(checked)) + head + checked


def produce_request(
    batch: bytes, partitions: Sequence[int], *, topic: str, version: int = 9, acks: int = -1, client_id: str = CLIENT_ID
) -> bytes:
    """A Produce frame with `batch` once for each partition; `version` is 7, 8 or 9."""
    if version not in (7, 8, 9):
        raise ValueError(f"Produce v{version} is not written here, only v7 to v9")
    flexible = version >= 9
    parts = [
        struct.pack(">i", index) + _octets(batch, flexible) + _tags(flexible) for index in partitions
    ]  # fmt: skip
    body = (
        (b"\0" if flexible else b"\xff\xff")  # no transactional id
        + struct.pack(">hi", acks, TIMEOUT_MS)
        + _one_topic(topic, parts, flexible)
        + _tags(flexible)
    )
    return _frame(0, version, body, flexible, client_id)


def fetch_request(
    partitions: Sequence[int],
    *,
    topic: str,
    bytes_max: int,
    start: int = 0,
    wait_ms: int = 500,
    version: int = 12,
    client_id: str = CLIENT_ID,
) -> bytes:
    """A Fetch frame for `partitions` from offset `start`, without a session; `version` is 4 or 12.

    At most `bytes_max` bytes in the response, shared equally by the partitions.
    """
    if version not in (4, 12):
        raise ValueError(f"Fetch v{version} is not written here, only v4 and v12")
    flexible = version >= 12
    partition_bytes = bytes_max // len(partitions)
    if flexible:
        parts = [
            struct.pack(">iiqiqi", index, -1, start, -1, -1, partition_bytes) + _tags(flexible) for index in partitions
        ]
    else:
        parts = [struct.pack(">iqi", index, start, partition_bytes) for index in partitions]
    body = struct.pack(">iiiib", -1, wait_ms, 1, bytes_max, 0)
    if flexible:
        body += struct.pack(">ii", 0, -1)  # no session (KIP-227)
    body += _one_topic(topic, parts, flexible)
    if flexible:
        body += b"\x01\x01" + _tags(flexible)  # no forgotten topics, empty rack
    return _frame(1, version, body, flexible, client_id)


def partitions_of(connection: int, per_request: int) -> range:
    """The partitions that a connection writes or reads; connections share no partition."""
    return range(connection * per_request, (connection + 1) * per_request)


def write_templates(directory: Path, frames: Sequence[bytes]) -> None:
    """Write one file per connection, as `loader --templates` reads them; existing files are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    for connection, frame in enumerate(frames):
        (directory / f"{connection}.bin").write_bytes(frame)


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()
_WORDS = [bytes(random.Random(i).choices(b"abcdefghijklmnopqrstuvwxyz", k=3 + i % 8)) for i in range(2000)]


def _record(source: random.Random, delta: int, value_bytes: int, now_ms: int) -> bytes:
    key = b"key%08d" % source.randrange(10**6)
    value = _event(source, value_bytes, now_ms + delta)
    body = b"\0" + _zigzag(delta) + _zigzag(delta) + _zigzag(len(key)) + key + _zigzag(len(value)) + value + b"\0"
    return _zigzag(len(body)) + body


def _event(source: random.Random, size: int, now_ms: int) -> bytes:
    """A JSON object of exactly `size` bytes (at least 90), padded with words."""
    head = b'{"id":%d,"user":"u%d","event":"click","ts":%d,"v":%.6f,"text":"' % (
        source.randrange(10**9), source.randrange(10_000), now_ms, source.random(),
    )  # fmt: skip
    fill = size - len(head) - 2
    if not 0 <= fill <= RECORD_PART_MAX:
        raise ValueError(f"a record of {size} bytes; 90 to {RECORD_PART_MAX} are possible")
    text = b" ".join(source.choices(_WORDS, k=fill // 4 + 1))
    return head + text[:fill].ljust(fill) + b'"}'


def _compress(octets: bytes, codec: Codec) -> bytes:
    if codec == "lz4":
        import lz4.frame  # type: ignore[import-untyped]

        frame: bytes = lz4.frame.compress(octets, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
        return frame
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress(octets)
    return octets


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1)  # only used for values >= 0


def _octets(octets: bytes, flexible: bool) -> bytes:
    return (_varint(len(octets) + 1) if flexible else struct.pack(">i", len(octets))) + octets


def _string(text: str, flexible: bool) -> bytes:
    octets = text.encode()
    return (_varint(len(octets) + 1) if flexible else struct.pack(">h", len(octets))) + octets


def _tags(flexible: bool) -> bytes:
    return b"\0" if flexible else b""


def _count(number: int, flexible: bool) -> bytes:
    return _varint(number + 1) if flexible else struct.pack(">i", number)


def _one_topic(topic: str, parts: Sequence[bytes], flexible: bool) -> bytes:
    """An array with one topic and its partitions."""
    head = _count(1, flexible) + _string(topic, flexible) + _count(len(parts), flexible)
    return head + b"".join(parts) + _tags(flexible)


def _frame(api: int, version: int, body: bytes, flexible: bool, client_id: str) -> bytes:
    """Request header v1 or v2 (its client id is never compact) and the size prefix."""
    request = struct.pack(">hhi", api, version, 0) + _string(client_id, flexible=False) + _tags(flexible) + body
    return struct.pack(">i", len(request)) + request
