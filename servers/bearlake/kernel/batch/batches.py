"""Whole record batches: check one, iterate over many, and write their offsets."""

from collections.abc import Iterator, Sequence
from struct import Struct

from bearlake.errors import Corrupt
from bearlake.kernel.batch import HEADER_BYTES, RECORDS_MAX, BatchHeader, BatchStatus, SliceLike
from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.buffers import Buffer, check_bounds, view_of

_HEADER = Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, crc, attributes, last delta, base and max time, producer id, epoch, sequence, count"""
_SPAN = Struct(">qi")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_DELTA = Struct(">i")

_LENGTH_END = 12
_MAGIC_AT = 16
_CRC_START = 21
_DELTA_AT = 23
_OFFSET_MAX = 2**63 - 1
_RECORD_BYTES_MIN = 7


def inspect(buffer: Buffer, start: int, end: int, /) -> BatchHeader | int:
    """Check that `[start, end)` is exactly one record batch v2 that a producer may send.

    Returns the header, or a `BatchStatus` < 0. Records are neither decompressed nor decoded. The base offset must be 0, so stored
    batches that were rebased do not pass.
    """
    view = view_of(buffer)
    check_bounds(len(view), start, end)
    return inspect_view(view, start, end)


def inspect_view(view: memoryview, start: int, end: int) -> BatchHeader | int:
    """`inspect` for callers that have checked the bounds."""
    size = end - start
    if size == 0:
        return BatchStatus.EMPTY
    if size <= _MAGIC_AT:
        return BatchStatus.TRUNCATED
    magic = view[start + _MAGIC_AT]
    if magic != 2:
        return BatchStatus.OLD_MAGIC if magic < 2 else BatchStatus.UNKNOWN_MAGIC
    if size < HEADER_BYTES:
        return BatchStatus.TRUNCATED
    base_offset, length, _, _, crc, *fields = _HEADER.unpack_from(view, start)
    length += _LENGTH_END
    if not HEADER_BYTES <= length <= size:
        return BatchStatus.TRUNCATED
    if length < size:
        return BatchStatus.MANY_BATCHES
    if crc32c(view, start + _CRC_START, end) != crc:
        return BatchStatus.BAD_CRC
    return _check(base_offset, _header(length, *fields))


def _header(
    length: int,
    attributes: int,
    delta: int,
    base_time: int,
    max_time: int,
    pid: int,
    epoch: int,
    sequence: int,
    count: int,
) -> BatchHeader:
    if pid < 0:
        pid = epoch = sequence = -1
    return BatchHeader(length, attributes, delta, base_time, max_time, pid, epoch, sequence, count)


def _check(base_offset: int, header: BatchHeader) -> BatchHeader | int:
    codec = header.attributes & 0x07
    if codec > 4:
        return BatchStatus.UNKNOWN_COMPRESSION
    if header.attributes & 0x20:
        return BatchStatus.CONTROL
    count = header.record_count
    most = RECORDS_MAX if codec else min(RECORDS_MAX, (header.length - HEADER_BYTES) // _RECORD_BYTES_MIN)
    if not 0 < count <= most:
        return BatchStatus.BAD_COUNT
    if base_offset != 0 or header.last_offset_delta != count - 1:
        return BatchStatus.BAD_OFFSETS
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        return BatchStatus.BAD_PRODUCER
    if header.base_timestamp < -1 or header.max_timestamp < -1 or header.attributes & 0x08:
        return BatchStatus.BAD_TIMESTAMP
    return header


def _walk(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, length, base offset, last offset delta) of every batch that begins in `[start, end)`."""
    position = start
    while position < end:
        if end - position < HEADER_BYTES:
            raise Corrupt(f"record batch at {position}: {end - position} bytes are less than a header")
        base_offset, length = _SPAN.unpack_from(view, position)
        length += _LENGTH_END
        (delta,) = _DELTA.unpack_from(view, position + _DELTA_AT)
        if view[position + _MAGIC_AT] != 2 or not HEADER_BYTES <= length <= end - position or delta < 0:
            raise Corrupt(f"record batch at {position}: its magic, length or last offset delta is impossible")
        yield position, length, base_offset, delta
        position += length


def batches(buffer: Buffer, start: int, end: int, /) -> list[tuple[int, int, BatchHeader]]:
    """Return (position, base offset, header) of each batch of `[start, end)`, which holds whole batches back to back.

    The CRC is not checked.

    Raises:
        Corrupt: the batches do not fill the range exactly, or a batch does not have magic 2.
    """
    view = view_of(buffer)
    check_bounds(len(view), start, end)
    found = []
    for position, length, base_offset, _ in _walk(view, start, end):
        fields = _HEADER.unpack_from(view, position)[5:]
        found.append((position, base_offset, _header(length, *fields)))
    return found


def rebase(buffer: bytearray | memoryview, slices: Sequence[SliceLike], leader_epoch: int, origin: int = 0, /) -> None:
    """Write the base offset and leader epoch of every batch of `slices` in place.

    The slices' positions are positions in the WAL object; `buffer` (writable) holds the object's bytes from `origin` on. The first
    batch of a slice gets the slice's `base_offset`; each later batch begins where the previous batch ended. The batch's CRC covers
    neither field.

    Raises:
        Corrupt: a slice lies outside the buffer, its batches do not fill it exactly, or they do not take `record_count` offsets in
            total. Batches before the fault are already written.
        ValueError: a base offset or the leader epoch is out of range.
    """
    view = view_of(buffer)
    if view.readonly:
        raise BufferError("Object is not writable.")
    if not -(2**31) <= leader_epoch < 2**31:
        raise ValueError(f"leader epoch {leader_epoch} is not an int32")
    for _, base_offset, record_count, position, length, _ in slices:
        start = position - origin
        if base_offset < 0 or record_count < 0 or base_offset > _OFFSET_MAX - record_count:
            raise ValueError(f"offsets from {base_offset}, {record_count} records: not in the range of an int64")
        if start < 0 or length < 0 or start + length > len(view):
            raise Corrupt(f"slice at {position} with {length} bytes is outside the {len(view)} bytes from {origin} on")
        offset, offset_end = base_offset, base_offset + record_count
        for at, _, _, delta in _walk(view, start, start + length):
            if delta >= offset_end - offset:
                break
            _OFFSET.pack_into(view, at, offset)
            _EPOCH.pack_into(view, at + _LENGTH_END, leader_epoch)
            offset += delta + 1
        else:
            if offset == offset_end:
                continue
        raise Corrupt(f"slice at {position}: its batches do not hold {record_count} offsets")


def seek(buffer: Buffer, start: int, end: int, offset: int, /) -> int:
    """Return the position of the (rebased) batch in `[start, end)` that contains `offset`.

    If no batch contains `offset`, returns the position of the first batch after it, or `end`.

    Raises:
        Corrupt: the batches before the returned position are not back to back.
    """
    view = view_of(buffer)
    check_bounds(len(view), start, end)
    for position, _, base_offset, delta in _walk(view, start, end):
        if base_offset + delta >= offset:
            return position
    return end


def find_run(buffer: Buffer, start: int, end: int, offset: int, bytes_max: int, is_first: int, /) -> tuple[int, int]:
    """Return start and end of the run of whole (rebased) batches in `[start, end)` that a reader at `offset` gets.

    The run begins with the batch that contains `offset`, or else with the first batch after it. It has as many batches as fit into
    `bytes_max` bytes; if `is_first` is not 0, at least one batch (KIP-74). The run is empty if there is no such batch, or if it does not
    fit.

    Raises:
        Corrupt: the batches up to the end of the run are not back to back. Batches that fit as a whole are not walked over.
    """
    view = view_of(buffer)
    check_bounds(len(view), start, end)
    for position, _, base_offset, delta in _walk(view, start, end):
        if base_offset + delta >= offset:
            start = position
            break
    else:
        start = end
    if end - start <= bytes_max:
        return start, end
    stop = start
    for position, length, _, _ in _walk(view, start, end):
        if position + length - start > bytes_max and (stop > start or not is_first):
            break
        stop = position + length
    return start, stop
