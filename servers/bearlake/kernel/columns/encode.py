"""Columns to record batches: the reverse of `ColumnBuilder`.

The batches are uncompressed and have the form that most producers write: minimal varints, the first record's timestamp as base
timestamp, the largest timestamp as max timestamp. A batch of this form that `ColumnBuilder` decoded with the status OK comes back byte
for byte, except for the codec bits, the leader epoch (-1) and the base offset (already assigned). `builder.py` says what other batches
lose.
"""

from enum import Enum
from struct import Struct
from typing import Any, Final

from bearlake.errors import Corrupt
from bearlake.kernel.batch import HEADER_BYTES
from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.buffers import view_of
from bearlake.kernel.columns import Columns, EncodedBatch

_PREFIX = Struct(">qiibI")
_FIELDS = Struct(">hiqqqhii")
_LENGTH_END = 12
_CODEC = 0x07
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_INT16 = range(-(2**15), 2**15)
_MICROSECONDS = 1000

_INT32_COLUMNS = frozenset({"partition_id", "attributes", "producer_epoch", "base_sequence"})
_INT64_COLUMNS = frozenset({"offset", "timestamp", "base_offset", "producer_id"})
_ROW_OFFSETS = frozenset({"key_offsets", "header_list_offsets", "value_offsets"})
_HEADER_OFFSETS = frozenset({"header_key_offsets", "header_value_offsets"})
_ROW_BITMAPS = frozenset({"key_validity", "value_validity"})


def encode_columns(columns: Columns, row_start: int, row_end: int, /) -> tuple[bytearray, list[EncodedBatch]]:
    """Encode the rows [row_start, row_end): consecutive rows with the same partition id and base offset become one batch.

    A batch takes its header fields from its first row. The buffers may be longer than `row_count` requires; None stands for an empty
    buffer. If the range cuts through a batch, the result has only the rows in the range. The native kernel releases the GIL while it
    encodes large inputs.

    Raises:
        ValueError: the range is not inside the columns, or a buffer is shorter than `row_count` requires.
        Corrupt: the columns are inconsistent, or a batch would have 2 GiB; names the first such row.
    """
    source = Source(Columns(*columns), has_values=True)
    if not 0 <= row_start <= row_end <= columns.row_count:
        raise ValueError(f"rows [{row_start}, {row_end}) are not inside columns of {columns.row_count} rows")
    out = bytearray()
    encoded: list[EncodedBatch] = []
    start = row_start
    while start < row_end:
        batch = source.batch_of(start)
        end = start + 1
        source.check_header(start)
        records = bytearray()
        deltas = [source.append_record(records, start, start, -1)]
        while end < row_end and source.batch_of(end) == batch:
            deltas.append(source.append_record(records, start, end, deltas[-1]))
            end += 1
        length, max_timestamp = source.append_batch(out, records, start, end, deltas[-1])
        position = len(out) - length
        attributes = source.attributes[start]
        encoded.append(EncodedBatch(*batch, batch[1] + deltas[-1] + 1, position, length, attributes, max_timestamp))
        start = end
    return out, encoded


class Missing(Enum):
    """No value is given, which is not a null value."""

    MISSING = 0


MISSING: Final = Missing.MISSING


class Source:
    """The columns, each a memoryview of its numbers."""

    def __init__(self, columns: Columns, *, has_values: bool) -> None:
        if not has_values:
            columns = columns._replace(value_offsets=b"", value_data=b"", value_validity=None)
        rows = columns.row_count
        if rows < 0:
            raise ValueError(f"row count {rows} is negative")
        views = {
            name: _column(name, buffer, rows if has_values or name != "value_offsets" else 0)
            for name, buffer in zip(columns._fields[1:], columns[1:], strict=True)
        }
        self.partition_id, self.offset, self.timestamp = views["partition_id"], views["offset"], views["timestamp"]
        self.base_offset, self.attributes = views["base_offset"], views["attributes"]
        self.producer_id, self.producer_epoch = views["producer_id"], views["producer_epoch"]
        self.base_sequence = views["base_sequence"]
        self.keys = (views["key_offsets"], views["key_data"], _bitmap(views, columns, "key_validity"))
        self.values = (views["value_offsets"], views["value_data"], _bitmap(views, columns, "value_validity"))
        self.header_lists = views["header_list_offsets"]
        self.header_keys = (views["header_key_offsets"], views["header_key_data"], None)
        validity = _bitmap(views, columns, "header_value_validity")
        self.header_values = (views["header_value_offsets"], views["header_value_data"], validity)
        counts = [len(self.header_keys[0]) - 1, len(self.header_values[0]) - 1]
        if validity is not None:
            counts.append(8 * len(validity))
        self.header_count = max(min(counts), 0)

    def batch_of(self, row: int) -> tuple[int, int]:
        """Return what names the batch of a row: its partition and base offset."""
        return self.partition_id[row], self.base_offset[row]

    def check_header(self, row: int) -> None:
        """Raise `Corrupt` unless a batch can begin at `row`."""
        if self.base_offset[row] < 0 or self.attributes[row] not in _INT16 or self.producer_epoch[row] not in _INT16:
            raise _impossible(row)

    def append_record(
        self, out: bytearray, first: int, row: int, last_delta: int, value: "memoryview | Missing | None" = MISSING
    ) -> int:
        """Append the record of `row`, whose batch begins at row `first`; return its offset delta, which exceeds `last_delta`.

        `value`: that of the record, if the columns have no values.
        """
        delta = self.offset[row] - self.base_offset[row]
        if not last_delta < delta <= _INT32_MAX or self.offset[row] == _INT64_MAX:
            raise _impossible(row)
        inner = bytearray(1)
        _write_zigzag(inner, self.timestamp[row] // _MICROSECONDS - self.timestamp[first] // _MICROSECONDS)
        _write_zigzag(inner, delta)
        _write_text(inner, self.keys, row, row)
        if isinstance(value, Missing):
            _write_text(inner, self.values, row, row)
        else:
            _write_value(inner, value)
        start, end = self.header_lists[row], self.header_lists[row + 1]
        if not 0 <= start <= end <= self.header_count:
            raise _impossible(row)
        _write_zigzag(inner, end - start)
        for header in range(start, end):
            _write_text(inner, self.header_keys, header, row)
            _write_text(inner, self.header_values, header, row)
        _write_zigzag(out, len(inner))
        out += inner
        if HEADER_BYTES - _LENGTH_END + len(out) > _INT32_MAX:
            raise _impossible(row)
        return delta

    def append_batch(
        self, out: bytearray, records: bytearray, start: int, end: int, last_delta: int
    ) -> tuple[int, int]:
        """Append the batch of rows [start, end); return its length and max timestamp."""
        base_timestamp = self.timestamp[start] // _MICROSECONDS
        max_timestamp = max(self.timestamp[row] for row in range(start, end)) // _MICROSECONDS
        fields = _FIELDS.pack(
            self.attributes[start] & ~_CODEC,
            last_delta,
            base_timestamp,
            max_timestamp,
            self.producer_id[start],
            self.producer_epoch[start],
            self.base_sequence[start],
            end - start,
        )
        covered = fields + records
        length = HEADER_BYTES + len(records)
        out += _PREFIX.pack(self.base_offset[start], length - _LENGTH_END, -1, 2, crc32c(covered)) + covered
        return length, max_timestamp


# Any: any object with the buffer protocol; Python before 3.12 has no type for it
def _column(name: str, buffer: Any, rows: int) -> memoryview:
    view = view_of(b"" if buffer is None else buffer)
    width, least = 1, 0
    if name in _INT32_COLUMNS:
        width, least = 4, 4 * rows
    elif name in _INT64_COLUMNS:
        width, least = 8, 8 * rows
    elif name in _ROW_OFFSETS:
        width, least = 4, 4 * (rows + 1) if rows else 0
    elif name in _HEADER_OFFSETS:
        width = 4
    elif name in _ROW_BITMAPS and buffer is not None:
        least = (rows + 7) // 8
    if len(view) < least:
        raise ValueError(f"column {name} has {len(view)} bytes, {least} are needed")
    whole = view[: len(view) // width * width]
    return whole.cast("q") if width == 8 else whole.cast("i") if width == 4 else whole


def _bitmap(views: dict[str, memoryview], columns: Columns, name: str) -> memoryview | None:
    return None if getattr(columns, name) is None else views[name]


def _impossible(row: int) -> Corrupt:
    return Corrupt(f"row {row} of the columns is impossible")


def _write_text(out: bytearray, column: tuple[memoryview, memoryview, memoryview | None], index: int, row: int) -> None:
    offsets, content, validity = column
    start, end = offsets[index], offsets[index + 1]
    if not 0 <= start <= end <= len(content):
        raise _impossible(row)
    if validity is not None and not validity[index >> 3] >> (index & 7) & 1:
        out.append(1)
        return
    _write_zigzag(out, end - start)
    out += content[start:end]


def _write_value(out: bytearray, value: memoryview | None) -> None:
    if value is None:
        out.append(1)
    else:
        _write_zigzag(out, len(value))
        out += value


def _write_zigzag(out: bytearray, value: int) -> None:
    value = value << 1 ^ value >> 63
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
