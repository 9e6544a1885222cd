"""The fields of an entry that a dispatcher needs."""

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.pulsar.fields import (
    CHUNK_COUNT,
    CHUNK_ID,
    DELIVER_AT,
    ORDERING_KEY,
    SINGLE_ORDERING_KEY,
    UUID,
    Field,
    number,
)
from bearlake.kernel.pulsar.source import Source, entry_of, present_in


def entry_routing(batch: Buffer, records: Buffer | None, /) -> tuple[bytes, int, bytes, int, int]:
    """Return (ordering key, deliver-at time in ms, uuid, chunk id, chunk count) of the entry that `decode_entry` makes of a batch.

    The ordering key (bytes) is that of the entry, else that of its first message, else the partition key of the first message. Missing or
    negative values are empty or 0.

    Raises:
        ValueError: `batch` is shorter than a header.
        Corrupt: the first record is malformed, or its offset does not fit.
    """
    source = Source(batch, records)
    if source.is_empty:
        return b"", 0, b"", 0, 0
    first = next(source.rows())
    key = b"" if first.key is None else bytes(first.key)
    entry = entry_of(source)
    if entry is None:
        return key, 0, b"", 0, 0
    present, _ = present_in(first.headers[:-1]) if entry.is_batch else ([], [])
    for found, name in ((present or [], SINGLE_ORDERING_KEY), (entry.fields, ORDERING_KEY)):
        key = _content(found, name, key)
    deliver_at, chunk_id, chunk_count = (_natural(entry.fields, name) for name in (DELIVER_AT, CHUNK_ID, CHUNK_COUNT))
    return key, deliver_at, _content(entry.fields, UUID, b""), chunk_id, chunk_count


def _content(found: list[Field], name: int, otherwise: bytes) -> bytes:
    contents = [field.content for field in found if field.number == name and field.content is not None]
    return bytes(contents[-1]) if contents else otherwise


def _natural(found: list[Field], name: int) -> int:
    value = number(found, name) or 0
    return value if value < 2**63 else 0
