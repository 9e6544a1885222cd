"""A record batch as the source of a Pulsar entry: its records, and the reserved headers that show whether a Pulsar client wrote it."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from bearlake.errors import Corrupt
from bearlake.kernel.batch import HEADER_BYTES
from bearlake.kernel.batch.records import Malformed, read_record
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.pulsar.fields import (
    ALL_FLAGS,
    ENTRY_HEADER,
    IS_OPAQUE,
    MESSAGE_COUNT,
    MESSAGE_COUNT_MAX,
    MESSAGE_HEADER,
    PRODUCER_NAME,
    PUBLISH_TIME,
    SEQUENCE_ID,
    VERSION,
    Field,
    MalformedField,
    fields,
    number,
    timestamp_of,
)

_FIELDS = Struct(">hiqqqhii")
_FIELDS_AT = 21
_LOG_APPEND_TIME, _CONTROL = 0x08, 0x20

Headers = list[tuple[memoryview, memoryview | None]]
"""(name, value) of a record's headers"""


class Row(NamedTuple):
    """A record; the timestamp is None if the server set it."""

    delta: int
    timestamp: int | None
    key: memoryview | None
    value: memoryview | None
    headers: Headers


class Source:
    """A record batch."""

    def __init__(self, batch: Buffer, records: Buffer | None) -> None:
        view = view_of(batch)
        if len(view) < HEADER_BYTES:
            raise ValueError(f"{len(view)} bytes are less than the header of a record batch")
        numbers = _FIELDS.unpack_from(view, _FIELDS_AT)
        self.attributes, self.last_delta, self.base_timestamp, self.max_timestamp = numbers[:4]
        self.record_count = numbers[-1]
        self.records = view[HEADER_BYTES:] if records is None else view_of(records)

    @property
    def is_empty(self) -> bool:
        """Whether the batch is a control batch or has no records."""
        return bool(self.attributes & _CONTROL) or self.record_count == 0

    def rows(self) -> Iterator[Row]:
        """Yield the records, at least one, in ascending offset order.

        Raises:
            Corrupt: a record is malformed, its offset does not ascend, or bytes follow the last record.
        """
        is_stamped = self.attributes & _LOG_APPEND_TIME
        position, last = 0, -1
        for index in range(max(self.record_count, 1)):
            try:
                position, delta_ms, delta, key, value, headers = read_record(self.records, position)
            except Malformed:
                raise malformed(index) from None
            timestamp = self.base_timestamp + delta_ms
            if not last < delta <= self.last_delta or not -(2**63) <= timestamp < 2**63 or self.record_count < 0:
                raise malformed(index)
            last = delta
            yield Row(delta, None if is_stamped else timestamp, key, value, headers)
        if position != len(self.records):
            raise malformed(self.record_count)


def malformed(index: int) -> Corrupt:
    """Return the error for record `index`."""
    return Corrupt(f"record {index} of a batch is malformed")


class Entry(NamedTuple):
    """The content of an entry header."""

    flags: int
    fields: list[Field]
    sequence_id: int
    timestamp: int
    message_count: int | None

    @property
    def is_batch(self) -> bool:
        """Whether each message is a record of its own."""
        return self.message_count is not None and not self.flags & IS_OPAQUE


def entry_of(source: Source) -> Entry | None:
    """Return the entry header of the first record; None if it has no valid entry header."""
    first = next(source.rows())
    if not first.headers or first.delta != 0:
        return None
    name, content = first.headers[-1]
    if name != ENTRY_HEADER or content is None or len(content) < 2 or content[0] != VERSION or content[1] > ALL_FLAGS:
        return None
    try:
        found = list(fields(content[2:]))
    except MalformedField:
        return None
    named = any(field.number == PRODUCER_NAME and field.content is not None for field in found)
    sequence_id, publish_time = number(found, SEQUENCE_ID), number(found, PUBLISH_TIME)
    if not named or sequence_id is None or publish_time is None:
        return None
    entry = Entry(content[1], found, sequence_id, timestamp_of(publish_time), number(found, MESSAGE_COUNT))
    if entry.message_count is not None and not 0 < entry.message_count <= MESSAGE_COUNT_MAX:
        return None
    count = entry.message_count if entry.is_batch else 1
    return entry if count == source.last_delta + 1 else None


def present_in(headers: Headers) -> tuple[list[Field] | None, Headers]:
    """Return the fields of the message header (None if malformed), and the properties before it."""
    if not headers or headers[-1][0] != MESSAGE_HEADER:
        return [], headers
    try:
        return list(fields(headers[-1][1] or memoryview(b""))), headers[:-1]
    except MalformedField:
        return None, headers
