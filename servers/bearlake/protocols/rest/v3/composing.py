"""Builds the records of a v3 request: chooses partitions and encodes values with schemas."""

from typing import Any, NamedTuple

from bearlake.errors import BearlakeError
from bearlake.protocols.rest import problems
from bearlake.protocols.rest.embedded import Embedded
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.v3.parts import TYPE_NAMES, Part
from bearlake.protocols.rest.v3.record_stream import ProduceItem
from bearlake.records.codec import Record
from bearlake.streams.principal import Principal
from bearlake.streams.schemas.payloads import Choice, Writer


class Composed(NamedTuple):
    """A record, with what its report says about key and value."""

    record: Record
    key: dict[str, Any] | None
    value: dict[str, Any] | None


class Composer:
    """Builds the records that arrived together; looks up each schema once."""

    def __init__(self, embedded: Embedded, who: Principal, topic: str) -> None:
        self._embedded = embedded
        self._who = who
        self._topic = topic
        self._writers: dict[tuple[str, Choice], Writer | Problem] = {}

    async def composed(self, wanted: ProduceItem, size_bytes: int) -> Composed:
        """Build a record; `size_bytes` is the approximate size of everything that arrived together. Raises `Problem`."""
        key, key_shown = await self._part(wanted.key, "key", size_bytes)
        value, value_shown = await self._part(wanted.value, "value", size_bytes)
        record = Record(key=key, value=value, headers=wanted.headers, timestamp=wanted.timestamp)
        return Composed(record, key_shown, value_shown)

    async def _part(self, part: Part, name: str, size_bytes: int) -> tuple[bytes | None, dict[str, Any] | None]:
        if part.choice is None:
            shown = None if part.type is None else {"type": part.type, "size": len(part.octets or b"")}
            return part.octets, shown
        writer = await self._writer(part.choice, name)
        (written,) = await self._embedded.write(writer, [part.data], [f"{name}.data"], size_bytes)
        if isinstance(written, Problem):
            raise written
        shown = {"type": TYPE_NAMES[writer.schema.type], "subject": writer.subject, "schema_id": writer.schema.id}
        if writer.version is not None:
            shown["schema_version"] = writer.version
        return written, shown | {"size": len(written or b"")}

    async def _writer(self, choice: Choice, name: str) -> Writer:
        found = self._writers.get((name, choice))
        if found is None:
            try:
                found = await self._embedded.writer(self._who, choice, self._topic, name)
            except Problem as problem:
                found = problem
            except BearlakeError as error:
                found = problems.of_error(error)
            self._writers[name, choice] = found
        if isinstance(found, Problem):
            raise found
        return found
