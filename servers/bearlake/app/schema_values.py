"""Keys and values by the schemas of a registry, for commands: serialized bytes become JSON texts, and JSON texts become such bytes.

The registry may be anybody's, so child processes with limits evaluate its schemas, as servers do (decision 308). Bytes that name no schema
of the registry, or do not fit the schema that they name, are left as they are.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from bearlake.errors import Invalid, NotFound, Unavailable
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit

T = TypeVar("T")

LATEST = "latest"
"""The newest version of the subject, instead of a schema's id."""


class SchemaValues:
    """The schemas of one registry. Use it from one thread; `close` ends its child processes."""

    def __init__(self, ask: Callable[[str], Any]) -> None:
        """`ask` sends a GET request to the registry; it returns the answer's JSON, and raises `NotFound` and others."""
        self._ask = ask
        self._runner = asyncio.Runner()
        self._settings = SchemasSettings()
        self._pool = Pool(self._settings)
        self._known: dict[int, Compiled | None] = {}
        """By id; None: the registry has no such schema."""

    def close(self) -> None:
        """End the child processes."""
        self._pool.close()
        self._runner.close()

    def chosen(self, what: str, subject: str) -> int:
        """Return the id of the schema that an option names: an id, or `latest`. Raises `Invalid`, `NotFound`, `Denied`, `Unavailable`."""
        if what == LATEST:
            return int(self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest")["id"])
        if not what.isdecimal():
            raise Invalid(f"schema {what!r}: expected the id of a schema, or {LATEST}")
        if self._compiled(int(what)) is None:
            raise NotFound(f"the registry has no schema {what}")
        return int(what)

    def written(self, schema_id: int, text: bytes) -> bytes:
        """Return a JSON text as serialized bytes, with the schema's id first. Raises `Invalid` if it does not fit, as `chosen`."""
        schema = self._compiled(schema_id)
        if schema is None:
            raise NotFound(f"the registry has no schema {schema_id}")
        (found,) = self._run(self._pool.written(schema, [text]))
        if isinstance(found, Unfit):
            raise found
        return wire.head(schema_id) + found

    def read(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return serialized values as JSON texts; others as they are. Raises `Denied`, `Unavailable`."""
        found = list(values)
        by_schema: dict[int, list[int]] = {}
        for place, octets in enumerate(values):
            try:
                schema_id, _ = wire.split(octets or b"")
            except Unfit:
                continue
            by_schema.setdefault(schema_id, []).append(place)
        for schema_id, places in by_schema.items():
            schema = self._compiled(schema_id)
            if schema is None:
                continue
            bodies = [wire.split(values[place] or b"")[1] for place in places]
            for place, text in zip(places, self._texts(schema, bodies), strict=True):
                found[place] = values[place] if isinstance(text, Unfit) else text
        return found

    def _texts(self, schema: Compiled, bodies: Sequence[bytes]) -> list[bytes | Unfit]:
        texts: list[bytes | Unfit] = []
        while len(texts) < len(bodies):  # a call returns at least one
            texts += self._run(self._pool.read(schema, bodies[len(texts) :]))
        return texts

    def _compiled(self, schema_id: int) -> Compiled | None:
        if schema_id not in self._known:
            try:
                answer = self._ask(f"/schemas/ids/{schema_id}")
            except NotFound:
                self._known[schema_id] = None
            else:
                self._known[schema_id] = self._run(self._pool.compiled(*self._parts(answer)))
        return self._known[schema_id]

    def _parts(self, answer: Any) -> tuple[str, str, dict[str, str]]:
        """Return a schema's type, its text, and the texts of its references by name. Raises `Unavailable`, as `chosen`."""
        texts: dict[str, str] = {}
        try:
            self._resolve(answer, texts, set())
            return str(answer.get("schemaType", "AVRO")), str(answer["schema"]), texts
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(f"what answers as the registry sends no schema: {error!r}") from error

    def _resolve(self, answer: Any, texts: dict[str, str], seen: set[tuple[str, int]]) -> None:
        """Add the texts of a schema's references, each after its own references. `answer`: the registry's JSON of the schema."""
        for reference in answer.get("references", ()):
            version = reference["subject"], int(reference["version"])
            if version not in seen:
                seen.add(version)
                if len(seen) > self._settings.reference_count_max:
                    raise Invalid(f"a schema with more than {self._settings.reference_count_max} references")
                found = self._ask(f"/subjects/{quote(version[0], safe='')}/versions/{version[1]}")
                self._resolve(found, texts, seen)
                texts[reference["name"]] = found["schema"]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)
