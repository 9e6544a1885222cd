"""Builds the records of a v3 request: chooses partitions and encodes values with schemas."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import problems
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import formats
from bearlake.protocols.rest.v3.parts import TYPE_NAMES, Part
from bearlake.protocols.rest.v3.record_stream import ProduceItem
from bearlake.records.codec import Record
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.payloads import Choice


class Composed(NamedTuple):
    """A record, with what its report says about key and value."""

    record: Record
    key: dict[str, Any] | None
    value: dict[str, Any] | None


class Composer:
    """Builds the records that arrived together. Looks up each schema once, and writes all values of one schema with one call of a child."""

    def __init__(self, embedded: Embedded, who: Principal, topic: str) -> None:
        self._embedded = embedded
        self._who = who
        self._topic = topic
        self._budget = embedded.budget()

    async def composed(self, asked: Sequence[ProduceItem]) -> list[Composed | Problem]:
        """Build the records; a `Problem` stands for a record that cannot be built. Raises `Overloaded`, `Unavailable`."""
        keys = await self._parts([item.key for item in asked], "key")
        values = await self._parts([item.value for item in asked], "value")
        return [_composed(*parts) for parts in zip(asked, keys, values, strict=True)]

    async def _parts(self, parts: Sequence[Part], name: str) -> list["_Written | Problem"]:
        places: dict[Choice, list[int]] = {}
        found: dict[int, _Written | Problem] = {}
        for at, part in enumerate(parts):
            if part.choice is None:
                shown = None if part.type is None else {"type": part.type, "size": len(part.octets or b"")}
                found[at] = _Written(part.octets, shown)
            else:
                places.setdefault(part.choice, []).append(at)
        for choice, chosen in places.items():
            written = await self._by_schema(choice, [parts[at].data for at in chosen], name)
            found |= dict(zip(chosen, written, strict=True))
        return [found[at] for at in range(len(parts))]

    async def _by_schema(self, choice: Choice, values: Sequence[Any], name: str) -> list["_Written | Problem"]:
        """Return the bytes of values (Any: JSON) with one schema, or their errors."""
        try:
            writer = await self._embedded.writer(self._who, choice, self._topic, name, self._budget)
            texts = [_text(value, f"{name}.data") for value in values]
            present = [text for text in texts if not isinstance(text, Problem)]
            found = iter(await self._embedded.write(writer, present, [f"{name}.data"] * len(present), self._budget))
        except Problem as problem:
            return [problem] * len(values)
        except BearlakeError as error:
            return [problems.of_error(error)] * len(values)
        shown = {"type": TYPE_NAMES[writer.schema.type], "subject": writer.subject, "schema_id": writer.schema.id}
        if writer.version is not None:
            shown["schema_version"] = writer.version
        return [
            octets if isinstance(octets, Problem) else _Written(octets, {**shown, "size": len(octets or b"")})
            for octets in (text if isinstance(text, Problem) else next(found) for text in texts)
        ]


class _Written(NamedTuple):
    """The bytes of a key or value, and what the report says about it."""

    octets: bytes | None
    shown: dict[str, Any] | None


def _text(value: Any, place: str) -> bytes | Problem | None:
    try:
        return formats.json_in(value, place)
    except Problem as problem:
        return problem


def _composed(item: ProduceItem, key: _Written | Problem, value: _Written | Problem) -> Composed | Problem:
    if isinstance(key, Problem):
        return key
    if isinstance(value, Problem):
        return value
    record = Record(key=key.octets, value=value.octets, headers=item.headers, timestamp=item.timestamp)
    return Composed(record, key.shown, value.shown)
