"""Parse ordinary Fetch requests, versions 4-18: what consumers send at the end of a log.

Source: Apache Kafka, FetchRequest.json.
"""

from struct import Struct, error

from bearlake.errors import Unsupported
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.kafka import FetchEntry

SINCE_START_OFFSET, SINCE_SESSIONS, SINCE_EPOCHS, SINCE_RACK = 5, 7, 9, 11
FLEXIBLE, SINCE_TOPIC_IDS, SINCE_REPLICA_STATE = 12, 13, 15

_INT16, _INT32 = Struct(">h"), Struct(">i")
_LIMITS = Struct(">iiib")
_SESSION = Struct(">ii")
_START = Struct(">q")


def parse_fetch(body: Buffer, version: int, count_max: int, /) -> tuple[int, int, int, list[FetchEntry]] | None:
    """Decode the body of an ordinary Fetch request: of a consumer, without a session that continues, with 1 to `count_max` partitions.

    Returns (max_wait_ms, min_bytes, max_bytes, entries). Returns None if the request is not ordinary or is malformed: the caller then
    decodes it as any message. Bytes after the body are ignored, as in Apache Kafka.

    Raises:
        Unsupported: the version is not in 4-18.
    """
    check_fetch_version(version)
    reader = _Reader(view_of(body), version)
    try:
        return reader.request(count_max)
    except (_Unusual, IndexError, UnicodeDecodeError, error):
        return None


def check_fetch_version(version: int) -> None:
    """Raise `Unsupported` unless the version is in 4-18."""
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
