"""Batches of other protocols' clients as Pulsar batches. `decode.py` describes the mapping.

A header name or value that is not UTF-8 is encoded as base64, because keys and values of properties are strings.
"""

from base64 import b64encode

from bearlake.kernel.pulsar.fields import (
    MESSAGE_COUNT,
    PRODUCER_NAME,
    PUBLISH_TIME,
    SEQUENCE_ID,
    SINGLE,
    UNCOMPRESSED_SIZE,
    write_bytes_field,
    write_property,
    write_varint_field,
)
from bearlake.kernel.pulsar.known import write_known
from bearlake.kernel.pulsar.source import Row, Source

_UINT64 = 2**64


def write_foreign_message(out: bytearray, row: Row, base_offset: int) -> None:
    """Append the SingleMessageMetadata of a record."""
    for name, content in row.headers:
        _write_header(out, bytes(name), bytes(content or b""))
    write_known(
        out,
        SINGLE,
        row,
        key=row.key,
        is_base64=row.key is not None and not _is_text(bytes(row.key)),
        event_time=max(row.timestamp or 0, 0),
        sequence=base_offset + row.delta,
    )


def foreign_metadata(source: Source, base_offset: int, payload_size: int) -> bytearray:
    """Return the MessageMetadata of a batch with a payload of `payload_size` bytes."""
    metadata = bytearray()
    write_bytes_field(metadata, PRODUCER_NAME, b"")
    write_varint_field(metadata, SEQUENCE_ID, base_offset % _UINT64)
    write_varint_field(metadata, PUBLISH_TIME, max(source.max_timestamp, 0))
    write_varint_field(metadata, UNCOMPRESSED_SIZE, payload_size)
    write_varint_field(metadata, MESSAGE_COUNT, source.last_delta + 1)
    return metadata


def _write_header(out: bytearray, name: bytes, content: bytes) -> None:
    """Append a header of any bytes as a property, whose key and value must be UTF-8."""
    shown = name if _is_text(name) else b"__pulsar.name." + b64encode(name)
    if _is_text(content):
        write_property(out, SINGLE.properties, shown, content)
    else:
        write_property(out, SINGLE.properties, shown, b64encode(content))
        write_property(out, SINGLE.properties, b"__pulsar.base64." + shown, b"")


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
