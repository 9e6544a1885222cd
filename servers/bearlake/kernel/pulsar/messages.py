"""Encode MESSAGE commands for a consumer: the hot path of consumers, with one call for many deliveries.

Only common deliveries are encoded: uncompressed batches without acknowledged messages. The caller's slow path handles the rest.

Source: Pulsar binary protocol specification (framing, CommandMessage).
"""

from collections.abc import Sequence
from struct import Struct

from bearlake.errors import Corrupt, TooLarge
from bearlake.kernel.batch import HEADER_BYTES
from bearlake.kernel.pulsar import DeliveryLike
from bearlake.kernel.pulsar.decode import decode_entry
from bearlake.kernel.pulsar.fields import write_bytes_field, write_varint_field

_SIZES = Struct(">II")
_TYPE, _MESSAGE = 1, 9
_CODEC_AT, _CODEC_MASK = 22, 7
_UINT64 = 2**64


def encode_messages(
    deliveries: Sequence[DeliveryLike],
    start: int,
    consumer_id: int,
    ledger_id: int,
    partition: int,
    epoch: int | None,
    entry_bytes_max: int,
    bytes_max: int,
    /,
) -> tuple[bytes, int, int]:
    """Return MESSAGE frames for the deliveries from index `start` on, their message count, and the index of the next delivery.

    Encoding stops before the first delivery that has one of these properties: some of its messages are acknowledged; its batch is
    compressed, damaged or without messages; its entry (`decode_entry`) has more than `entry_bytes_max` bytes. It stops after the delivery
    that reaches `bytes_max` bytes.
    `partition` is the partition in message ids (-1: none). `epoch` is the consumer's epoch, or None.

    Raises:
        ValueError: `start` or `bytes_max` is out of range, or a batch is shorter than a header.
    """
    if not 0 <= start <= len(deliveries) or not 0 <= bytes_max < 2**31:
        raise ValueError("expected an index into the deliveries and a size below 2 GiB")
    out = bytearray()
    count = 0
    at = start
    while at < len(deliveries) and len(out) < bytes_max:
        base_offset, _, batch, redelivery_count, acknowledged = deliveries[at]
        if acknowledged:
            break
        found = _entry(batch, base_offset, entry_bytes_max)
        if found is None:
            break
        entry, message_count = found
        command = _command(consumer_id, _message_id(ledger_id, base_offset, partition), redelivery_count, epoch)
        out += _SIZES.pack(4 + len(command) + len(entry), len(command)) + command + entry
        count += message_count
        at += 1
    return bytes(out), count, at


def _entry(batch: memoryview, base_offset: int, bytes_max: int) -> tuple[bytes, int] | None:
    if len(batch) >= HEADER_BYTES and batch[_CODEC_AT] & _CODEC_MASK:
        return None
    try:
        entry, message_count, _ = decode_entry(batch, None, base_offset, bytes_max)
    except (Corrupt, TooLarge):
        return None
    return (entry, message_count) if 0 < len(entry) <= bytes_max else None


def _command(consumer_id: int, message_id: bytes, redelivery_count: int, epoch: int | None) -> bytes:
    body = bytearray()
    write_varint_field(body, 1, consumer_id)
    write_bytes_field(body, 2, message_id)
    if redelivery_count > 0:
        write_varint_field(body, 3, redelivery_count)
    if epoch is not None:
        write_varint_field(body, 5, epoch)
    command = bytearray()
    write_varint_field(command, _TYPE, _MESSAGE)
    write_bytes_field(command, _MESSAGE, body)
    return bytes(command)


def _message_id(ledger_id: int, base_offset: int, partition: int) -> bytes:
    out = bytearray()
    write_varint_field(out, 1, ledger_id)
    write_varint_field(out, 2, base_offset)
    write_varint_field(out, 3, partition % _UINT64)
    return bytes(out)
