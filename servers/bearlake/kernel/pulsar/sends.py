"""Parse Pulsar SENDs in a receive buffer and encode their receipts, with one call for many SENDs. `intake.py` takes them without objects.

This module takes only common SENDs: the entry is not compressed, encrypted or a chunk, and the command has no unusual fields. The
caller's slow path handles every other frame and reports its errors.

Source: Pulsar binary protocol specification (framing, CommandSend, CommandSendReceipt).
"""

from struct import Struct
from typing import NamedTuple

from bearlake.errors import Corrupt, Unsupported
from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.log import ProduceOutcome
from bearlake.kernel.pulsar import SendEntry, SendIds
from bearlake.kernel.pulsar.encode import encode_entry
from bearlake.kernel.pulsar.fields import (
    CHUNK_COUNT,
    COMPRESSION,
    Field,
    MalformedField,
    fields,
    read_property,
    write_bytes_field,
    write_varint_field,
)

_SIZE = Struct(">I")
_CHECKSUM = Struct(">HI")
_BASE_TIMESTAMP = Struct(">q")
_BASE_TIMESTAMP_AT = 27
_MAGIC = 0x0E01
_METADATA_AT = _CHECKSUM.size + _SIZE.size
_TYPE, _SEND, _SEND_RECEIPT = 1, 6, 7
_PRODUCER, _SEQUENCE, _COUNT, _HIGHEST, _MARKER = 1, 2, 3, 6, 8
_PROPERTIES, _ENCRYPTION_KEYS = 4, 13
_NONE = 2**64 - 1
_SEQUENCE_MAX = 2**63 - 1
_ACCEPTED, _DUPLICATE = 0, 1


def next_sender(frames: Buffer, start: int, end: int, /) -> int | None:
    """Return the producer id of the SEND at `start`, whose command is common; None if there is no such frame that is complete at `end`.

    Raises:
        ValueError: [start, end) is not inside `frames`.
    """
    frame = _frame(_checked(frames, start, end), start)
    return None if frame is None else frame.command[0]


def parse_sends(
    frames: Buffer, start: int, end: int, count_max: int, payload_bytes_max: int, message_bytes_max: int, /
) -> list[SendEntry]:
    """Parse consecutive SEND frames from `start` on, each into the record batch that stores it (`encode_entry`).

    Stops before the first frame that is not complete at `end`, not a common SEND, damaged or too large: `payload_bytes_max` limits the
    payload, `message_bytes_max` limits everything after the command. Takes at most `count_max` frames.

    Raises:
        ValueError: [start, end) is not inside `frames`.
    """
    view = _checked(frames, start, end)
    found: list[SendEntry] = []
    while len(found) < count_max:
        send = read_common_send(view, start, payload_bytes_max, message_bytes_max)
        encoded = None if send is None else encode_common(send)
        if send is None or encoded is None:
            break
        found.append((*send[:3], send.end, *encoded))
        start = send.end
    return found


def _checked(frames: Buffer, start: int, end: int) -> memoryview:
    view = view_of(frames)
    if not 0 <= start <= end <= len(view):
        raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(view)} bytes")
    return view[:end]


class CommonSend(NamedTuple):
    """A common SEND: its ids, its message, and the end of its frame."""

    producer_id: int
    sequence_id: int
    highest_id: int | None
    metadata: memoryview
    payload: memoryview
    end: int


def read_common_send(
    view: memoryview, at: int, payload_bytes_max: int, message_bytes_max: int, producer_id: int | None = None
) -> CommonSend | None:
    """Return the whole common SEND at `at` of `producer_id` (None: of any producer); None if there is no such frame."""
    frame = _frame(view, at)
    if frame is None or len(frame.message) > message_bytes_max or producer_id not in (None, frame.command[0]):
        return None
    parts = _message(frame.message)
    if parts is None or len(parts[1]) > payload_bytes_max or not _is_plain(parts[0]):
        return None
    # The checksum comes last, because it reads all bytes: large and compressed entries are refused without it.
    return CommonSend(*frame.command, *parts, frame.end) if _has_checksum(frame.message) else None


class _Frame(NamedTuple):
    command: tuple[int, int, int | None]
    message: memoryview
    end: int


def _frame(view: memoryview, at: int) -> _Frame | None:
    """Return the whole SEND at `at`, whose command is common."""
    if len(view) - at < 2 * _SIZE.size:
        return None
    frame_at = at + _SIZE.size
    end = frame_at + _SIZE.unpack_from(view, at)[0]
    command_at = frame_at + _SIZE.size
    message_at = command_at + _SIZE.unpack_from(view, frame_at)[0]
    command = None if end > len(view) or message_at > end else _command(view[command_at:message_at])
    return None if command is None else _Frame(command, view[message_at:end], end)


def encode_common(send: CommonSend) -> tuple[bytes, int, int, int] | None:
    """Return (batch, record_count, base_timestamp, max_timestamp) of a SEND; None if it is not common."""
    try:
        batch, record_count, max_timestamp = encode_entry(send.metadata, send.payload, False)
    except (Corrupt, Unsupported):
        return None
    (base_timestamp,) = _BASE_TIMESTAMP.unpack_from(batch, _BASE_TIMESTAMP_AT)
    return batch, record_count, base_timestamp, max_timestamp


def _command(command: memoryview) -> tuple[int, int, int | None] | None:
    """Return (producer id, sequence id, highest sequence id) of a SEND without a transaction, a chunk or a marker."""
    try:
        kind, body = fields(command)
        if (kind.number, kind.value, body.number) != (_TYPE, _SEND, _SEND) or body.content is None:
            return None
        found = {_PRODUCER: 0, _SEQUENCE: 0}
        for field in fields(body.content):
            if field.value is None or field.number > _MARKER:
                return None
            if field.number not in (_PRODUCER, _SEQUENCE, _COUNT, _HIGHEST) and field.value:
                return None
            found[field.number] = field.value
    except (MalformedField, ValueError):  # ValueError: not exactly two fields
        return None
    if found[_SEQUENCE] > _SEQUENCE_MAX or found.get(_HIGHEST, 0) > _SEQUENCE_MAX:
        return None
    return found[_PRODUCER], found[_SEQUENCE], found.get(_HIGHEST)


def _message(message: memoryview) -> tuple[memoryview, memoryview] | None:
    """Return the metadata and payload of a message; None if the frame is wrong."""
    if len(message) < _METADATA_AT:
        return None
    end = _METADATA_AT + _SIZE.unpack_from(message, _CHECKSUM.size)[0]
    magic, _ = _CHECKSUM.unpack_from(message)
    return None if magic != _MAGIC or end > len(message) else (message[_METADATA_AT:end], message[end:])


def _has_checksum(message: memoryview) -> bool:
    checksum: int = _CHECKSUM.unpack_from(message)[1]
    return checksum == crc32c(message[_CHECKSUM.size :])


def _is_plain(metadata: memoryview) -> bool:
    """Return whether the entry is not compressed, encrypted or a chunk, and all its properties are regular."""
    try:
        return all(map(_is_plain_field, fields(metadata)))
    except MalformedField:
        return False


def _is_plain_field(field: Field) -> bool:
    if field.content is not None:
        return field.number != _ENCRYPTION_KEYS and (
            field.number != _PROPERTIES or read_property(field.content) is not None
        )
    if field.value is None:
        return False
    return not (field.number == COMPRESSION and field.value) and not (field.number == CHUNK_COUNT and field.value > 1)


def encode_receipts(
    producer_id: int,
    ledger_id: int,
    partition: int,
    ids: list[SendIds],
    results: list[ProduceOutcome],
    start: int,
    /,
) -> tuple[bytes, int]:
    """Return SEND_RECEIPT frames for the SENDs from index `start` on, and the index of the next SEND.

    Encoding stops before the first SEND that is neither appended nor a duplicate. The receipt of a duplicate whose offset is unknown
    has the message id -1:-1. `partition` is the partition in message ids (-1: none).

    Raises:
        ValueError: the numbers of results and SENDs differ, or `start` is out of range.
    """
    if len(results) != len(ids) or not 0 <= start <= len(ids):
        raise ValueError("expected one result per SEND, and an index into them")
    names = (producer_id, ledger_id, partition)
    out = bytearray()
    for index in range(start, len(ids)):
        verdict, base_offset, _ = results[index]
        if not has_receipt(verdict, base_offset):
            return bytes(out), index
        out += receipt(names, ids[index], base_offset)
    return bytes(out), len(ids)


def has_receipt(verdict: int, base_offset: int) -> bool:
    """Whether a SEND with this outcome gets a receipt."""
    return verdict == _DUPLICATE or (verdict == _ACCEPTED and base_offset >= 0)


def receipt(names: tuple[int, int, int], ids: SendIds, base_offset: int) -> bytes:
    """Return the frame of a receipt; `names` are the producer id, ledger id and partition, as for `encode_receipts`."""
    producer_id, ledger_id, partition = names
    sequence_id, highest_id = ids
    body = bytearray()
    write_varint_field(body, 1, producer_id)
    write_varint_field(body, 2, sequence_id)
    write_bytes_field(body, 3, _message_id(ledger_id, base_offset, partition))
    if highest_id is not None:
        write_varint_field(body, 4, highest_id)
    command = bytearray()
    write_varint_field(command, _TYPE, _SEND_RECEIPT)
    write_bytes_field(command, _SEND_RECEIPT, body)
    return _SIZE.pack(_SIZE.size + len(command)) + _SIZE.pack(len(command)) + bytes(command)


def _message_id(ledger_id: int, base_offset: int, partition: int) -> bytes:
    out = bytearray()
    write_varint_field(out, 1, ledger_id if base_offset >= 0 else _NONE)
    write_varint_field(out, 2, base_offset if base_offset >= 0 else _NONE)
    if base_offset >= 0 and partition >= 0:
        write_varint_field(out, 3, partition)
    return bytes(out)
