"""Encode the responses to ordinary Fetch requests, versions 4-18.

Source: Apache Kafka, FetchResponse.json.
"""

from collections.abc import Sequence
from struct import Struct, error

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.kafka import FetchAnswer, FetchEntry
from bearlake.kernel.kafka.fetch import (
    FLEXIBLE,
    SINCE_RACK,
    SINCE_SESSIONS,
    SINCE_START_OFFSET,
    SINCE_TOPIC_IDS,
    check_fetch_version,
)

INLINE_BYTES_MAX = 1024
"""Views up to this size (bytes) are copied between the other fields: a separate chunk costs about as much when it is sent."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_ANSWER = Struct(">ihqq")
_START = Struct(">q")
_NO_REPLICA = _INT32.pack(-1)


def encode_fetch(
    version: int, correlation_id: int, entries: Sequence[FetchEntry], answers: Sequence[FetchAnswer], /
) -> list[Buffer]:
    """Return the response frame to a request whose partitions are all answered without an error, as chunks.

    Consecutive entries with equal topics share one topic entry. Views of more than `INLINE_BYTES_MAX` bytes are chunks of their own,
    not copies. The response has session id 0, no aborted transactions, no preferred replica and no tagged fields.

    Raises:
        Unsupported: the version is not in 4-18.
        ValueError: a number does not fit its field, a topic is not a name (from version 13 on: not a 16-byte id), or the numbers of
            entries and answers differ.
    """
    check_fetch_version(version)
    if len(entries) != len(answers):
        raise ValueError("Fetch response: expected one answer per entry")
    groups: list[tuple[str | bytes, list[tuple[int, FetchAnswer]]]] = []
    for entry, answer in zip(entries, answers, strict=True):
        if not groups or groups[-1][0] != entry[0]:
            groups.append((entry[0], []))
        groups[-1][1].append((entry[1], answer))
    is_flexible = version >= FLEXIBLE
    try:
        out = _Writer(_INT32.pack(0) + _INT32.pack(correlation_id) + (b"\0" if is_flexible else b""))
        out += b"\0\0\0\0" + (b"\0\0\0\0\0\0" if version >= SINCE_SESSIONS else b"") + _count(len(groups), is_flexible)
        for topic, parts in groups:
            out += _topic(topic, version) + _count(len(parts), is_flexible)
            for index, (start, end, last_stable, views) in parts:
                out += _ANSWER.pack(index, 0, end, last_stable)
                out += _START.pack(start) if version >= SINCE_START_OFFSET else b""
                out += _count(0, is_flexible)  # aborted transactions
                out += (_NO_REPLICA if version >= SINCE_RACK else b"") + _count(sum(map(len, views)), is_flexible)
                for view in views:
                    out.refer(view)
                out += b"\0" if is_flexible else b""
            out += b"\0" if is_flexible else b""
        out += b"\0" if is_flexible else b""
    except error as cause:
        raise ValueError(f"Fetch response: {cause}") from None
    return out.chunks()


class _Writer:
    """A frame under construction, as chunks."""

    def __init__(self, head: bytes) -> None:
        self.done: list[Buffer] = []
        self.last = bytearray(head)

    def __iadd__(self, more: bytes) -> "_Writer":
        self.last += more
        return self

    def refer(self, view: memoryview) -> None:
        if len(view) <= INLINE_BYTES_MAX:
            self.last += view
            return
        if self.last:
            self.done.append(self.last)
        self.done.append(view)
        self.last = bytearray()

    def chunks(self) -> list[Buffer]:
        chunks = [*self.done, self.last] if self.last else self.done
        size = sum(map(len, chunks)) - 4
        if size > 2**31 - 1:
            raise ValueError("Fetch response: 2 GiB or more")
        return [
            _INT32.pack(size) + bytes(chunks[0])[4:],
            *(part if isinstance(part, memoryview) else bytes(part) for part in chunks[1:]),
        ]


def _count(count: int, is_flexible: bool) -> bytes:
    return _varint(count + 1) if is_flexible else _INT32.pack(count)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _topic(topic: str | bytes, version: int) -> bytes:
    if version >= SINCE_TOPIC_IDS:
        if isinstance(topic, bytes) and len(topic) == 16:
            return topic
        raise ValueError("Fetch response: a topic id has 16 bytes")
    if isinstance(topic, str) and len(name := topic.encode()) <= 0x7FFF:
        return (_varint(len(name) + 1) if version >= FLEXIBLE else _INT16.pack(len(name))) + name
    raise ValueError("Fetch response: a topic name is a str of at most 32767 bytes")
