"""The fields of a message that follow from its record."""

from base64 import b64encode

from bearlake.kernel.pulsar.fields import Roles, write_bytes_field, write_varint_field
from bearlake.kernel.pulsar.source import Row

_UINT64 = 2**64


def write_known(
    out: bytearray,
    roles: Roles,
    row: Row,
    *,
    key: memoryview | None,
    is_base64: bool,
    event_time: int,
    sequence: int | None,
) -> None:
    """Append the fields in ascending field order as clients do; omits `key` None, `event_time` 0 and `sequence` None."""
    if key is not None:
        write_bytes_field(out, roles.key, b64encode(key) if is_base64 else key)
    if roles.size:
        write_varint_field(out, roles.size, 0 if row.value is None else len(row.value))
    if event_time:
        write_varint_field(out, roles.event_time, event_time)
    if key is not None and is_base64:
        write_varint_field(out, roles.base64, 1)
    if sequence is not None and roles.sequence:
        write_varint_field(out, roles.sequence, sequence % _UINT64)
    if row.value is None:
        write_varint_field(out, roles.null_value, 1)
