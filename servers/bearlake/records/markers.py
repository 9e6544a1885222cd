"""Transaction markers: the control batches that end a transaction, and the keys of the objects that hold them.

An object of markers is never stored. Its key has everything that its bytes depend on, so every server builds the same bytes
(`objects/markers.py`):

    markers/<producer id>-<epoch>-<number>-<commit|abort>-<time, ms>-<count>

`number` makes the key unique: the version of the transactional id's row. The object is `count` equal batches of `MARKER_BYTES`, one per
partition. Each is a control batch with one record and base offset 0: readers write the offsets in, as into stored batches.

Source: KIP-98; org.apache.kafka.common.record.EndTransactionMarker (version 0) and ControlRecordType.
"""

import re
from struct import Struct
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import Invalid
from bearlake.records.batch import NO_LEADER_EPOCH

PREFIX = "markers/"

COORDINATOR_EPOCH = 0
"""There is no coordinator whose epoch could fence a marker."""

_ABORT, _COMMIT = 0, 1
_KEY = re.compile(r"markers/(\d{1,19})-(\d{1,5})-(\d{1,19})-(commit|abort)-(\d{1,19})-(\d{1,10})", re.ASCII)

_ATTRIBUTES = 0x30  # transactional and control
_FIELDS = Struct(">hiqqqhii")
"""attributes, last offset delta, base and max timestamp, producer id, epoch, base sequence, record count"""
_PREFIX = Struct(">qiibI")
_LENGTH_END = 12
_RECORD_KEY = Struct(">hh")
_RECORD_VALUE = Struct(">hi")


def _record(kind: int) -> bytes:
    key = _RECORD_KEY.pack(0, kind)
    value = _RECORD_VALUE.pack(0, COORDINATOR_EPOCH)
    # attributes, timestamp delta 0, offset delta 0, then zigzag lengths (all below 64, so one byte each), and no headers
    body = b"\0\0\0" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    return bytes([len(body) * 2]) + body


MARKER_BYTES = _PREFIX.size + _FIELDS.size + len(_record(_COMMIT))


class Markers(NamedTuple):
    """The markers of one end of a transaction. `number` is the version of the row that was ended; `time_ms` is the store's time."""

    producer_id: int
    epoch: int
    number: int
    is_commit: bool
    time_ms: int
    marker_count: int

    def key(self) -> str:
        """Return the key of the object."""
        kind = "commit" if self.is_commit else "abort"
        return f"{PREFIX}{self.producer_id}-{self.epoch}-{self.number}-{kind}-{self.time_ms}-{self.marker_count}"

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.marker_count * MARKER_BYTES

    def batch(self) -> bytes:
        """Return one marker."""
        record = _record(_COMMIT if self.is_commit else _ABORT)
        producer = (self.producer_id, self.epoch, -1)
        fields = _FIELDS.pack(_ATTRIBUTES, 0, self.time_ms, self.time_ms, *producer, 1) + record
        length = _PREFIX.size + len(fields) - _LENGTH_END
        return _PREFIX.pack(0, length, NO_LEADER_EPOCH, 2, kernel.crc32c(fields)) + fields


def parse(key: str) -> Markers:
    """Return the markers of an object's key. Raises `Invalid`."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise Invalid(f"{key!r} is not the key of transaction markers")
    producer_id, epoch, number, kind, time_ms, count = match.groups()
    return Markers(int(producer_id), int(epoch), int(number), kind == "commit", int(time_ms), int(count))
