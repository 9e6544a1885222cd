"""Value types of the client: records, start positions and stream descriptions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from bearlake.protocols.grpc.proto import stream_pb2 as pb

Start = Literal["earliest", "latest"] | int | datetime
"""Where reading starts: the oldest record, after the newest record, an offset, or the first record at or after a time."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record read from a stream. None and empty are distinct keys and values.

    Header keys that are not valid UTF-8 contain surrogate escapes (PEP 383). `timestamp_ms` is None if the record has no timestamp.
    """

    stream: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowRecords:
    """Records of one partition as columns: offset, timestamp, key, value, headers."""

    stream: str
    partition: int
    next_offset: int
    """The offset after the last record."""
    content: bytes
    """An Arrow IPC stream with one record batch: `pyarrow.ipc.open_stream(content).read_all()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDescription:
    """A stream, with the offsets [start, end) of each partition by index.

    `readable_ends`: where readers end now, by index: at the end, or at the first record of an open transaction.
    """

    name: str
    partition_count: int
    configs: Mapping[str, str]
    bounds: Sequence[tuple[int, int]]
    readable_ends: Sequence[int]


def to_message(value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int | None) -> pb.Record:
    """Build the message for a record to write."""
    message = pb.Record(key=key, value=value, timestamp_ms=timestamp_ms)
    for name, content in headers:
        message.headers.add(key=name.encode("utf-8", "surrogateescape"), value=content)
    return message


def from_message(message: pb.Record, stream: str, partition: int) -> Record:
    """Build the record from a received message."""
    return Record(
        stream=stream,
        partition=partition,
        offset=message.offset,
        key=message.key if message.HasField("key") else None,
        value=message.value if message.HasField("value") else None,
        headers=tuple(
            (header.key.decode("utf-8", "surrogateescape"), header.value if header.HasField("value") else None)
            for header in message.headers
        ),
        timestamp_ms=message.timestamp_ms if message.HasField("timestamp_ms") else None,
    )


def position(stream: str, partition: int, start: Start) -> pb.Position:
    """Build the message for a start position."""
    place = pb.Position(stream=stream, partition=partition)
    if isinstance(start, datetime):
        place.timestamp_ms = int(start.timestamp() * 1000)
    elif isinstance(start, int):
        place.offset = start
    elif start == "earliest":
        place.earliest = True
    else:
        place.latest = True
    return place
