"""Keys and values by the schemas of a registry, for commands: serialized bytes become JSON texts, and JSON texts become such bytes.

The registry may be anybody's, so child processes with limits evaluate its schemas, as servers do (decision 308). Bytes that name no schema
of the registry, or do not fit the schema that they name, are left as they are.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote

from bearlake.errors import BearlakeError, Invalid, NotFound, Overloaded, Unavailable
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit

T = TypeVar("T")

LATEST = "latest"
"""The newest version of the subject, instead of a schema's id."""

KNOWN_COUNT_MAX = 10_000
"""Schemas that are remembered, also those that cannot be used; the ones that were asked for first are forgotten."""

NOTE_COUNT_MAX = 1_000
"""Schemas about which there is a line."""

REASON_LENGTH_MAX = 256
"""Characters of the reason in such a line: a compiler's message may repeat the whole schema."""


class _Unusable(NamedTuple):
    """Why a schema cannot be used. An error would keep the values of each caller that it was raised for (`__traceback__`)."""

    kind: type[BearlakeError]
    reason: str

    def refuse(self) -> NoReturn:
        raise self.kind(self.reason)


class SchemaValues:
    """The schemas of one registry. Use it from one thread; `close` ends its child processes."""

    def __init__(self, ask: Callable[[str], Any], tell: Callable[[str], None]) -> None:
        """`ask` sends a GET request to the registry; it returns the answer's JSON, and raises `NotFound` and others.

        `tell` gets a line about a schema whose values are left as they are.
        """
        self._ask = ask
        self._tell = tell
        self._runner = asyncio.Runner()
        self._settings = SchemasSettings()
        self._pool = Pool(self._settings)
        self._known: OrderedDict[int, Compiled | _Unusable] = OrderedDict()
        """By id."""
        self._known_bytes = 0
        self._noted: set[int] = set()

    def close(self) -> None:
        """End the child processes."""
        self._pool.close()
        self._runner.close()

    def chosen(self, what: str, subject: str) -> int:
        """Return the id of the schema that an option names: an id, or `latest`.

        Raises `Invalid`, `NotFound`, `Denied`, `Unavailable`, `Overloaded`: this machine is too busy for the schema.
        """
        if what == LATEST:
            try:
                newest = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")
            except NotFound as error:
                raise NotFound(
                    f"the registry has no subject {subject}: register a schema there, or pass the id of one"
                ) from error
            schema_id = _id(newest)
        elif what.isdecimal() and len(what) <= len(str(wire.ID_MAX)) and int(what) <= wire.ID_MAX:
            schema_id = int(what)
        else:
            raise Invalid(f"schema {what!r}: expected the id of a schema, or {LATEST}")
        self._compiled(schema_id)
        return schema_id

    def written(self, schema_id: int, text: bytes) -> bytes:
        """Return a JSON text as serialized bytes, with the schema's id first. Raises `Invalid` if it does not fit, as `chosen`."""
        (found,) = self._again(partial(self._pool.written, self._compiled(schema_id), [text]))
        if isinstance(found, Unfit):
            raise found
        return wire.head(schema_id) + found

    def read(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return serialized values as JSON texts; others as they are. Raises `Denied`, `Unavailable`, `Overloaded`."""
        found = list(values)
        by_schema: dict[int, list[int]] = {}
        for place, octets in enumerate(values):
            try:
                schema_id, _ = wire.split(octets or b"")
            except Unfit:
                continue
            by_schema.setdefault(schema_id, []).append(place)
        for schema_id, places in by_schema.items():
            bodies = [wire.split(values[place] or b"")[1] for place in places]
            for place, text in zip(places, self._texts(schema_id, bodies), strict=True):
                found[place] = values[place] if text is None else text
        return found

    def _texts(self, schema_id: int, bodies: Sequence[bytes]) -> list[bytes | None]:
        """Return the JSON texts of values with one schema; None: it cannot be read."""
        texts: list[bytes | None] = []
        try:
            schema = self._compiled(schema_id)
            while len(texts) < len(bodies):  # a call returns at least one
                read = self._again(partial(self._pool.read, schema, bodies[len(texts) :]))
                texts += [None if isinstance(text, Unfit) else text for text in read]
        except NotFound:
            pass  # bytes of something else may look like an id
        except Invalid as error:  # also: the schema is too large, or its values
            if schema_id not in self._noted and len(self._noted) < NOTE_COUNT_MAX:
                self._noted.add(schema_id)
                self._tell(f"values of schema {schema_id} are left as they are: {_reason(error)}")
        return [*texts, *[None] * (len(bodies) - len(texts))]

    def _compiled(self, schema_id: int) -> Compiled:
        """Return a schema. Raises as `chosen`."""
        known = self._known.get(schema_id)
        if known is None:
            try:
                answer = self._ask(f"/schemas/ids/{schema_id}")
                known = self._again(partial(self._pool.compiled, *self._parts(answer)))
            except NotFound:
                known = _Unusable(NotFound, f"the registry has no schema {schema_id}")
            except Invalid as error:
                known = _Unusable(Invalid, _reason(error))
            self._keep(schema_id, known)
        if isinstance(known, _Unusable):
            known.refuse()
        return known

    def _keep(self, schema_id: int, found: Compiled | _Unusable) -> None:
        self._known[schema_id] = found
        self._known_bytes += _size_bytes(found)
        while len(self._known) > KNOWN_COUNT_MAX or self._known_bytes > self._settings.cache_bytes_max:
            self._known_bytes -= _size_bytes(self._known.popitem(last=False)[1])

    def _parts(self, answer: Any) -> tuple[str, str, dict[str, str]]:
        """Return a schema's type, its text, and the texts of its references by name. Raises `Unavailable`, as `chosen`."""
        references = _References(self._ask, self._settings)
        try:
            text = references.text_of(answer)
            name = answer.get("schemaType") or SchemaType.AVRO.value
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _no_registry(error) from error
        if name not in [kind.value for kind in SchemaType]:
            raise Invalid(f"schemas of type {str(name)[:32]!r} are unknown here")
        return name, text, references.texts

    def _again(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run work of the child processes, a second time if this machine was too busy for it. Raises `Overloaded`: it still is."""
        with suppress(Overloaded):
            return self._runner.run(work())
        return self._runner.run(work())


class _References:
    """The texts of what a schema references, by name; each comes after its own references."""

    def __init__(self, ask: Callable[[str], Any], settings: SchemasSettings) -> None:
        self.texts: dict[str, str] = {}
        self._ask = ask
        self._settings = settings
        self._seen: set[tuple[str, int]] = set()
        self._bytes = 0

    def text_of(self, answer: Mapping[str, Any]) -> str:
        """Return the text of a schema, and add those of its references. `answer`: the registry's JSON of the schema.

        Raises `Invalid` beyond a limit; `LookupError`, `TypeError`, `ValueError`, `AttributeError`: it is no schema.
        """
        text = _text(answer, "schema")
        self._bytes += len(text.encode())
        if self._bytes > self._settings.schema_bytes_max:
            raise Invalid(f"a schema of more than {self._settings.schema_bytes_max} bytes, with its references")
        for reference in answer.get("references") or ():
            subject, version = _text(reference, "subject"), _number(reference["version"])
            if (subject, version) not in self._seen:
                self._seen.add((subject, version))
                if len(self._seen) > self._settings.reference_count_max:
                    raise Invalid(f"a schema with more than {self._settings.reference_count_max} references")
                try:
                    found = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
                except NotFound as error:
                    raise Invalid(f"the registry lacks a schema that it references: {error}") from error
                self.texts[_text(reference, "name")] = self.text_of(found)
        return text


def _reason(error: Invalid) -> str:
    text = str(error)
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[: REASON_LENGTH_MAX - 1]}…"


def _text(answer: Mapping[str, Any], field: str) -> str:
    """Return a field that must be a text of Unicode."""
    found = answer[field]
    if not isinstance(found, str):
        raise TypeError(f"{field} is no text")
    found.encode()  # a part of a surrogate pair raises UnicodeEncodeError
    return found


def _number(found: Any) -> int:
    """Return a number of the registry (Any: JSON). Raises `ValueError`."""
    if not isinstance(found, int) or not 0 <= found <= wire.ID_MAX:
        raise ValueError(f"{str(found)[:32]!r} is no number of a schema")
    return found


def _id(answer: Any) -> int:
    """Return the id in the registry's JSON of a schema (Any). Raises `Unavailable`."""
    try:
        return _number(answer["id"])
    except (LookupError, TypeError, ValueError) as error:
        raise _no_registry(error) from error


def _no_registry(error: Exception) -> Unavailable:
    return Unavailable(f"what answers as the registry sends no schema: {type(error).__name__}: {str(error)[:200]}")


def _size_bytes(found: Compiled | _Unusable) -> int:
    return found.size_bytes if isinstance(found, Compiled) else 0
