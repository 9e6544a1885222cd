"""Validates batches by the schemas of their stream: what a server needs for it, besides `Checks` itself.

Loaded and built with the first batch of a stream that validates (`streams/checking.py`, decision 362).
"""

from collections.abc import Awaitable, Callable
from typing import Any

from bearlake.metadata.schemas import SchemaStore
from bearlake.streams.schema_rules import SchemaRules
from bearlake.streams.schemas.compiled import SchemaCompiler, ValueChecker
from bearlake.streams.validation.examining import Examination, Views
from bearlake.streams.validation.known import KnownSchemas
from bearlake.streams.validation.obstacles import Missing
from bearlake.streams.validation.outside import Outside
from bearlake.streams.validation.settings import ValidationSettings

_AT_ONCE_SCHEMA_COUNT_MAX = 8
"""Schemas of a batch that is validated on the event loop: 4 ms if they are large."""
_PROBLEM_COUNT_MAX = 100
"""Records with problems that are listed for the client of a batch."""


class Validator:
    """Use it from the event loop's thread only; an examination may run in any thread."""

    def __init__(
        self,
        schemas: SchemaStore,
        settings: ValidationSettings,
        off_loop: Callable[..., Awaitable[Any]],
        compiler: SchemaCompiler | None,
        checker: ValueChecker | None,
        thread_count: int,
    ) -> None:
        """The arguments are those of `Checks`. `off_loop`: `Checks.off_loop` (Any: what its work returns)."""
        self._settings = settings
        self.known = KnownSchemas(schemas, settings, off_loop, compiler, has_outside=checker is not None)
        """What this server knows of the schemas."""
        self.outside = None if checker is None else Outside(checker, thread_count, settings.wait_ms_max)
        """Checks values outside of this process; None: nobody does."""

    def close(self) -> None:
        """Discard pending look-ups."""
        self.known.close()

    def at_once(self, rules: SchemaRules) -> Examination:
        """Return an examination that ends early: with too much work for the event loop, or a problem, whose reason a thread finds."""
        return Examination(rules, self.views(rules), _AT_ONCE_SCHEMA_COUNT_MAX, 1, is_at_once=True)

    def examination(self, rules: SchemaRules, views: Views, *, holds: bool = True) -> Examination:
        """Return an examination of a batch."""
        return Examination(rules, views, self._settings.batch_schema_count_max, _PROBLEM_COUNT_MAX, holds=holds)

    def of_records(self, rules: SchemaRules, views: Views, record_count: int) -> Examination:
        """Return an examination of records that do not depend on each other."""
        return Examination(rules, views, self._settings.batch_schema_count_max, record_count)

    def views(self, rules: SchemaRules) -> Views:
        """Return what this server knows now."""
        key, value = (None if part is None else self.known.view(part) for part in (rules.key, rules.value))
        return Views(key=key, value=value)

    async def found(self, rules: SchemaRules, missing: Missing, since: float) -> Views:
        """Return views that are complete for the ids of a batch. Raises `Unavailable`, `Overloaded`."""
        wanted = (rules.key, missing.key_ids), (rules.value, missing.value_ids)
        found = iter(await self.known.find([(part, ids) for part, ids in wanted if part is not None], since))
        key, value = (None if part is None else next(found) for part, _ in wanted)
        return Views(key=key, value=value, is_final=True)
