"""Converts consumed records for an answer, up to the first record that the format cannot represent.

The next answer reports that record as an error. Nothing is skipped unless the client seeks past the record; Kafka's consumer does the
same (KIP-334).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bearlake.errors import Denied
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import formats
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.proxy.consumer import Consumed
from bearlake.protocols.rest.proxy.formats import Format
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.values.model import Unfit


class Rendered(NamedTuple):
    """Content of an answer. If a record could not be represented, `problem` and the position to continue from are set."""

    records: list[dict[str, Any]]
    problem: Problem | None
    positions: dict[Partition, int]


async def render(embedded: Embedded, who: Principal, form: Format, found: Sequence[Consumed]) -> Rendered:
    """Convert records to a format."""
    records: list[dict[str, Any]] = []
    for at, one in enumerate(found):
        try:
            records.append(
                {
                    "topic": one.topic,
                    "key": await _value(embedded, who, form, one.record.key),
                    "value": await _value(embedded, who, form, one.record.value),
                    "partition": one.partition,
                    "offset": one.offset,
                }
            )
        except (Unfit, Denied) as error:
            return Rendered(records, _problem(one, form, error), _first_offsets(found[at:]))
    return Rendered(records, None, {})


async def _value(embedded: Embedded, who: Principal, form: Format, octets: bytes | None) -> Any:
    if octets is None or form.schema_type is None:
        return formats.encode(form, octets)
    return await embedded.read(who, bytes(octets), form.schema_type)


def _problem(one: Consumed, form: Format, error: Unfit | Denied) -> Problem:
    place = f"the record at offset {one.offset} of {one.topic}-{one.partition} cannot be shown as {form.value}"
    if isinstance(error, Denied):
        return Problem(403, 40301, f"{place}: {error}")
    return Problem(500, 50002, f"Kafka error: {place}: {error}. Read it in binary format, or seek behind it")


def _first_offsets(rest: Sequence[Consumed]) -> dict[Partition, int]:
    positions: dict[Partition, int] = {}
    for one in rest:
        positions.setdefault((one.topic, one.partition), one.offset)
    return positions
