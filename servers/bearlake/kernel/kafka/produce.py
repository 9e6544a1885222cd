"""The body of a Produce request, versions 3-13."""

from struct import Struct

from bearlake.errors import Corrupt
from bearlake.kernel.batch import BatchStatus
from bearlake.kernel.batch.batches import inspect_view
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.kafka import ELEMENTS_MAX, ProduceEntry
from bearlake.kernel.kafka.versions import FLEXIBLE, TOPIC_IDS, ZSTD, check_version

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_UNINSPECTED = (0, 0, -1, -1, -1, -1, -1)


def parse_produce(frame: Buffer, position: int, version: int, /) -> tuple[str | None, int, int, list[ProduceEntry]]:
    """Decode the Produce request body at `position` of `frame`, and inspect each partition's batch.

    Returns (transactional_id, acks, timeout_ms, entries). An entry is a `ProduceEntry`: `topic` is a str, or from version 13 on the 16
    bytes of the topic id; `[start, end)` is the batch's position in `frame`, with start == end if the records are null or empty;
    `status` is a `BatchStatus`. Unless the status is OK, the fields after it are 0, 0, -1, -1, -1, -1, -1. Bytes after the body are
    ignored, as in Apache Kafka.

    Raises:
        Corrupt: the structure is malformed or extends beyond the frame; the message names the field and the position. Or the
            request has more than `ELEMENTS_MAX` topics, partitions and tagged fields.
        Unsupported: the version is not in 3-13.
    """
    check_version(version)
    view = view_of(frame)
    if not 0 <= position <= len(view):
        raise ValueError(f"position {position} is not inside a frame of {len(view)} bytes")
    reader = _Reader(view, position, version >= FLEXIBLE)
    transactional_id = reader.string("transactional id", is_nullable=True)
    acks = reader.number(_INT16, "acks")
    timeout_ms = reader.number(_INT32, "timeout")
    entries: list[ProduceEntry] = []
    for _ in range(reader.count("topic count")):
        reader.element()
        topic: str | bytes | None
        if version >= TOPIC_IDS:
            at = reader.skip(16, "topic id")
            topic = bytes(view[at : at + 16])
        else:
            topic = reader.string("topic name", is_nullable=False)
        assert topic is not None
        for _ in range(reader.count("partition count")):
            reader.element()
            index = reader.number(_INT32, "partition index")
            start, end = reader.records()
            entries.append(_entry(view, topic, index, start, end, version))
            reader.tags()
        reader.tags()
    reader.tags()
    return transactional_id, acks, timeout_ms, entries


def _entry(view: memoryview, topic: str | bytes, index: int, start: int, end: int, version: int) -> ProduceEntry:
    header = inspect_view(view, start, end)
    if isinstance(header, int):
        return (topic, index, start, end, int(header), *_UNINSPECTED)
    if version < ZSTD and header.attributes & 0x07 == 4:
        return (topic, index, start, end, int(BatchStatus.ZSTD_TOO_EARLY), *_UNINSPECTED)
    _, attributes, _, base_timestamp, max_timestamp, producer_id, epoch, sequence, count = header
    return topic, index, start, end, 0, attributes, count, base_timestamp, max_timestamp, producer_id, epoch, sequence


class _Reader:
    """Reads protocol primitives from `position` on; in flexible versions lengths are varints and structures end with tagged fields."""

    def __init__(self, view: memoryview, position: int, is_flexible: bool) -> None:
        self.view = view
        self.position = position
        self.is_flexible = is_flexible
        self.elements_left = ELEMENTS_MAX

    def element(self) -> None:
        """Count an element of the request's lists."""
        if self.elements_left <= 0:
            raise Corrupt(f"Produce request: more than {ELEMENTS_MAX} topics, partitions and tagged fields")
        self.elements_left -= 1

    def skip(self, size: int, what: str) -> int:
        at = self.position
        if size > len(self.view) - at:
            raise Corrupt(f"Produce request: {what} at {at} reaches beyond the end")
        self.position = at + size
        return at

    def number(self, layout: Struct, what: str) -> int:
        value: int = layout.unpack_from(self.view, self.skip(layout.size, what))[0]
        return value

    def varint(self, what: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.view[self.skip(1, what)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                return value
        raise Corrupt(f"Produce request: {what} at {self.position} is not a varint of 32 bits")

    def length(self, layout: Struct, what: str, is_nullable: bool) -> int:
        """Read a length or count; -1 stands for null."""
        at = self.position
        length = self.varint(what) - 1 if self.is_flexible else self.number(layout, what)
        if length < (-1 if is_nullable else 0):
            raise Corrupt(f"Produce request: {what} at {at} has the length {length}")
        return length

    def count(self, what: str) -> int:
        return self.length(_INT32, what, is_nullable=False)

    def string(self, what: str, *, is_nullable: bool) -> str | None:
        length = self.length(_INT16, what, is_nullable)
        if length < 0:
            return None
        at = self.skip(length, what)
        try:
            return str(self.view[at : at + length], "utf-8")
        except UnicodeDecodeError:
            raise Corrupt(f"Produce request: {what} at {at} is not UTF-8") from None

    def records(self) -> tuple[int, int]:
        length = self.length(_INT32, "records", is_nullable=True)
        start = self.skip(max(length, 0), "records")
        return start, self.position

    def tags(self) -> None:
        if not self.is_flexible:
            return
        for _ in range(self.varint("tagged field count")):
            self.element()
            self.varint("tag")
            self.skip(self.varint("tagged field size"), "tagged field")
