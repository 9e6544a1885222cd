"""Ordinary Fetch requests and their responses, versions 4-18: what consumers send at the end of a log, and what they get.

Source: Apache Kafka, FetchRequest.json and FetchResponse.json.
"""

from collections.abc import Sequence
from struct import Struct, error

from bearlake.errors import Unsupported
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.kafka import FetchAnswer, FetchEntry

SINCE_START_OFFSET, SINCE_SESSIONS, SINCE_EPOCHS, SINCE_RACK = 5, 7, 9, 11
FLEXIBLE, SINCE_TOPIC_IDS, SINCE_REPLICA_STATE = 12, 13, 15
INLINE_BYTES_MAX = 1024
"""Views up to this size (bytes) are copied between the other fields: a separate chunk costs about as much when it is sent."""

_INT8, _INT16, _INT32 = Struct(">b"), Struct(">h"), Struct(">i")
_LIMITS = Struct(">iiib")
_SESSION = Struct(">ii")
_ANSWER = Struct(">ihqq")
_START = Struct(">q")
_NO_REPLICA = _INT32.pack(-1)


def parse_fetch(body: Buffer, version: int, count_max: int, /) -> tuple[int, int, int, list[FetchEntry]] | None:
    """Decode the body of an ordinary Fetch request: of a consumer, without a session that continues, with 1 to `count_max` partitions.

    Returns (max_wait_ms, min_bytes, max_bytes, entries). Returns None if the request is not ordinary or is malformed: the caller then
    decodes it as any message. Bytes after the body are ignored, as in Apache Kafka.

    Raises:
        Unsupported: the version is not in 4-18.
    """
    _check_version(version)
    reader = _Reader(view_of(body), version)
    try:
        return reader.request(count_max)
    except (_Unusual, IndexError, UnicodeDecodeError, error):
        return None


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
    _check_version(version)
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


def _check_version(version: int) -> None:
    if not 4 <= version <= 18:
        raise Unsupported(f"Fetch version {version}; supported: 4-18")


class _Unusual(Exception):
    """The request is not ordinary."""


class _Reader:
    """Reads the request from its beginning on; in flexible versions lengths are varints and structures end with tagged fields."""

    def __init__(self, view: memoryview, version: int) -> None:
        self.view = view
        self.position = 0
        self.version = version

    def request(self, count_max: int) -> tuple[int, int, int, list[FetchEntry]]:
        if self.version < SINCE_REPLICA_STATE and self.number(_INT32) != -1:
            raise _Unusual  # a replica
        max_wait_ms, min_bytes, max_bytes, _ = self.fields(_LIMITS)
        if self.version >= SINCE_SESSIONS and self.fields(_SESSION)[1] not in (0, -1):
            raise _Unusual  # a session that continues
        entries: list[FetchEntry] = []
        for _ in range(self.count()):
            topic = self.topic()
            for _ in range(self.count()):
                if len(entries) >= count_max:
                    raise _Unusual
                entries.append(self.entry(topic))
            self.tags()
        if self.version >= SINCE_SESSIONS and self.count() > 0:
            raise _Unusual  # a session forgets topics
        if self.version >= SINCE_RACK:
            self.skip(self.length(_INT16))
        self.tags()
        if not entries:
            raise _Unusual
        return max_wait_ms, min_bytes, max_bytes, entries

    def entry(self, topic: str | bytes) -> FetchEntry:
        index = self.number(_INT32)
        epoch = self.number(_INT32) if self.version >= SINCE_EPOCHS else -1
        (offset,) = self.fields(_START)
        self.skip((4 if self.version >= FLEXIBLE else 0) + (8 if self.version >= SINCE_START_OFFSET else 0))
        bytes_max = self.number(_INT32)
        self.tags()
        return topic, index, epoch, offset, bytes_max

    def topic(self) -> str | bytes:
        if self.version >= SINCE_TOPIC_IDS:
            at = self.skip(16)
            return bytes(self.view[at : at + 16])
        length = self.length(_INT16)
        at = self.skip(length)
        return str(self.view[at : at + length], "utf-8")

    def skip(self, size: int) -> int:
        at = self.position
        if size > len(self.view) - at:
            raise _Unusual
        self.position = at + size
        return at

    def fields(self, layout: Struct) -> tuple[int, ...]:
        return layout.unpack_from(self.view, self.skip(layout.size))

    def number(self, layout: Struct) -> int:
        return self.fields(layout)[0]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.view[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and not value >> 32:
                return value
        raise _Unusual

    def length(self, layout: Struct) -> int:
        length = self.varint() - 1 if self.version >= FLEXIBLE else self.number(layout)
        if length < 0:
            raise _Unusual
        return length

    def count(self) -> int:
        count = self.length(_INT32)
        if count > len(self.view):
            raise _Unusual
        return count

    def tags(self) -> None:
        """Skip tagged fields: none of them changes what a consumer gets."""
        if self.version < FLEXIBLE:
            return
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


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
