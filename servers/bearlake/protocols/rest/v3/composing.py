"""Builds the records of a v3 request: chooses partitions and encodes values with schemas; of many records in a thread."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import starmap
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

Worked = Callable[..., Awaitable[Any]]
"""`Writing.worked` (Any: what its work returns)."""


class Composed(NamedTuple):
    """A record, with what its report says about key and value."""

    record: Record
    key: dict[str, Any] | None
    value: dict[str, Any] | None


class Composer:
    """Builds the records that arrived together. Looks up each schema once, and writes all values of one schema with one call of a child."""

    def __init__(self, embedded: Embedded, who: Principal, topic: str, worked: Worked) -> None:
        """`worked` does work on so many records (`Writing.worked`)."""
        self._embedded = embedded
        self._worked = worked
        self._who = who
        self._topic = topic
        self._budget = embedded.budget()

    async def composed(self, asked: Sequence[ProduceItem]) -> list[Composed | Problem]:
        """Build the records; a `Problem` stands for a record that cannot be built. Raises `Overloaded`, `Unavailable`."""
        keys = await self._parts([item.key for item in asked], "key")
        values = await self._parts([item.value for item in asked], "value")
        items = zip(asked, keys, values, strict=True)
        composed: list[Composed | Problem] = await self._worked(len(asked), lambda: list(starmap(_composed, items)))
        return composed

    async def _parts(self, parts: Sequence[Part], name: str) -> Sequence["_Written | Problem"]:
        chosen: _Chosen = await self._worked(len(parts), _chosen, parts)
        for choice, places in chosen.places.items():
            written = await self._by_schema(choice, [parts[at].data for at in places], name)
            await self._worked(len(places), chosen.put, places, written)
        return chosen.found

    async def _by_schema(self, choice: Choice, values: Sequence[Any], name: str) -> list["_Written | Problem"]:
        """Return the bytes of values (Any: JSON) with one schema, or their errors."""
        try:
            writer = await self._embedded.writer(self._who, choice, self._topic, name, self._budget)
            texts = await self._worked(len(values), lambda: [_text(value, f"{name}.data") for value in values])
            present = [text for text in texts if not isinstance(text, Problem)]
            found = iter(await self._embedded.write(writer, present, [f"{name}.data"] * len(present), self._budget))
        except Problem as problem:
            return [problem] * len(values)
        except BearlakeError as error:
            return [problems.of_error(error)] * len(values)
        shown = {"type": TYPE_NAMES[writer.schema.type], "subject": writer.subject, "schema_id": writer.schema.id}
        if writer.version is not None:
            shown["schema_version"] = writer.version
        written: list[_Written | Problem] = await self._worked(len(values), _written, texts, found, shown)
        return written


class _Written(NamedTuple):
    """The bytes of a key or value, and what the report says about it."""

    octets: bytes | None
    shown: dict[str, Any] | None


class _Chosen(NamedTuple):
    """Keys or values, of which those with a schema are not written yet; `places` has their indexes, by schema."""

    found: list["_Written | Problem"]
    places: dict[Choice, list[int]]

    def put(self, places: Sequence[int], written: Sequence["_Written | Problem"]) -> None:
        """Note the values at these places."""
        for at, value in zip(places, written, strict=True):
            self.found[at] = value


def _chosen(parts: Sequence[Part]) -> _Chosen:
    chosen = _Chosen([], {})
    for at, part in enumerate(parts):
        shown = None
        if part.choice is not None:
            chosen.places.setdefault(part.choice, []).append(at)
        elif part.type is not None:
            shown = {"type": part.type, "size": len(part.octets or b"")}
        chosen.found.append(_Written(part.octets, shown))
    return chosen


def _written(
    texts: Sequence[bytes | Problem | None], found: Iterator[bytes | Problem | None], shown: Mapping[str, Any]
) -> list["_Written | Problem"]:
    """Put the bytes of the values in place of their texts."""
    return [
        octets if isinstance(octets, Problem) else _Written(octets, {**shown, "size": len(octets or b"")})
        for octets in (text if isinstance(text, Problem) else next(found) for text in texts)
    ]


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
