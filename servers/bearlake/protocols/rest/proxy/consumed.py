"""Converts consumed records for an answer, up to the first record that the format cannot represent.

The next answer reports that record as an error. Nothing is skipped unless the client seeks past the record; Kafka's consumer does the
same (KIP-334).
"""

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

from bearlake.errors import Denied
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import formats
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.proxy.consumer import Consumed
from bearlake.protocols.rest.proxy.formats import Format
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.values.model import Unfit

_AT_ONCE_COUNT = 1_000
_AT_ONCE_BYTES = 256 * 1024
"""More values, or more bytes of values, are converted in a thread."""


class Rendered(NamedTuple):
    """Content of an answer: its records as JSON texts. Records that are not in it are read again from `positions`.

    `problem` says why the first of these cannot be represented; without a problem, it did not fit into the answer.
    """

    records: list[bytes]
    problem: Problem | None
    positions: dict[Partition, int]


async def render(embedded: Embedded, who: Principal, form: Format, found: Sequence[Consumed]) -> Rendered:
    """Convert records to a format."""
    columns = []
    count = len(found)
    error: Unfit | Denied | None = None
    for octets in ([consumed.record.key for consumed in found], [consumed.record.value for consumed in found]):
        texts, unread = await _texts(embedded, who, form, octets[:count])
        columns.append(texts)
        if len(texts) < count:
            count, error = len(texts), unread
    records = [_record(consumed, *texts) for consumed, *texts in zip(found[:count], *columns, strict=False)]
    if count == len(found):
        return Rendered(records, None, {})
    problem = None if error is None else _problem(found[count], form, error)
    return Rendered(records, problem, first_offsets(found[count:]))


async def _texts(
    embedded: Embedded, who: Principal, form: Format, values: Sequence[bytes | None]
) -> tuple[Sequence[bytes | None], Unfit | Denied | None]:
    """Return the JSON texts of values, up to the first error."""
    if form.schema_type is not None:
        octets = [None if value is None else bytes(value) for value in values]
        return await embedded.read(who, octets, form.schema_type)
    if len(values) <= _AT_ONCE_COUNT and sum(len(value or b"") for value in values) <= _AT_ONCE_BYTES:
        return _plain_texts(form, values)
    return await asyncio.to_thread(_plain_texts, form, values)


def _plain_texts(form: Format, values: Sequence[bytes | None]) -> tuple[Sequence[bytes | None], Unfit | None]:
    """As `_texts`, in a format without schemas."""
    texts: list[bytes | None] = []
    for value in values:
        try:
            texts.append(formats.encode(form, value))
        except Unfit as error:
            return texts, error
    return texts, None


def _record(consumed: Consumed, key: bytes | None, value: bytes | None) -> bytes:
    return b'{"topic": %b, "key": %b, "value": %b, "partition": %d, "offset": %d}' % (
        json.dumps(consumed.topic).encode(),
        b"null" if key is None else key,
        b"null" if value is None else value,
        consumed.partition,
        consumed.offset,
    )


def _problem(consumed: Consumed, form: Format, error: Unfit | Denied) -> Problem:
    place = f"the record at offset {consumed.offset} of {consumed.topic}-{consumed.partition} cannot be shown as {form.value}"
    if isinstance(error, Denied):
        return Problem(403, 40301, f"{place}: {error}")
    return Problem(500, 50002, f"Kafka error: {place}: {error}. Read the record in binary format, or seek past it")


def first_offsets(rest: Sequence[Consumed]) -> dict[Partition, int]:
    """Return where to read again to get these records, by partition."""
    positions: dict[Partition, int] = {}
    for consumed in rest:
        positions.setdefault((consumed.topic, consumed.partition), consumed.offset)
    return positions
