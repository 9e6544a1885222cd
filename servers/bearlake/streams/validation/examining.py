"""Examines the keys and values of one batch, by what a server knows of their schemas. Pure; runs in any thread.

Records are added in parts, so that a batch of a million records needs no object for each at the same time. Values that have one schema are
decoded together. Values of JSON Schema are held until `outside` has them checked.

    0       1           5
    ┌───────┬───────────┬───────
    │ magic │ schema id │ value        Source: Confluent, "Formats, Serializers, and Deserializers", wire format.
    │ 0     │ uint32 BE │
    └───────┴───────────┴───────
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bearlake.streams.schema_rules import PartRules, SchemaRules, Validation
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.validation.known import Found, OutsideSchema, SchemaView
from bearlake.streams.validation.obstacles import Missing, NeedsOutside, TooManySchemas

HEAD_BYTES = 5
_GATHERED_BYTES_MAX = 4 * 1024 * 1024
"""Values that are held back to be decoded together, each with `_VALUE_BYTES` for its object."""
_VALUE_BYTES = 64
REASON_COUNT_MAX = 10
"""Problems of a batch whose reason is told in full; it takes a second look at the value."""
NOT_A_VALUE = "not a value of the schema that it names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """What is known for the keys and values of one stream. `is_final`: an id that is missing here does not exist."""

    key: SchemaView | None
    value: SchemaView | None
    is_final: bool = False


class Held(NamedTuple):
    """Values of one schema that must be checked outside of this process, and the indexes of their records."""

    name: str
    """`key` or `value`."""
    schema: Compiled
    places: Sequence[int]
    values: Sequence[bytes]


class Examination:
    """The examination of one batch: `add` all records in order, then `problems`."""

    def __init__(
        self,
        rules: SchemaRules,
        views: Views,
        schema_count_max: int,
        problem_count_max: int,
        *,
        is_at_once: bool = False,
        holds: bool = True,
    ) -> None:
        """At most `problem_count_max` records are reported.

        `is_at_once`: on the event loop: values are looked at once, and schemas whose check may take long are `Missing`. Without `holds`,
        `problems` raises `NeedsOutside` instead of holding values.
        """
        self._found = _Problems(problem_count_max, 0 if is_at_once else REASON_COUNT_MAX)
        parts = ("key", rules.key, views.key), ("value", rules.value, views.value)
        self._key, self._value = (
            None
            if part_rules is None or view is None
            else _Part(
                name,
                part_rules,
                view,
                schema_count_max,
                self._found,
                is_final=views.is_final,
                is_at_once=is_at_once,
                holds=holds,
            )
            for name, part_rules, view in parts
        )

    @property
    def is_over(self) -> bool:
        """Whether no more problems are reported."""
        return self._found.is_full

    def add(self, start: int, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Examine records, the first of which has the index `start`. Raises `TooManySchemas`."""
        if self._key:
            self._key.add(start, keys)
        if self._value:
            self._value.add(start, values)

    def problems(self) -> dict[int, str]:
        """Return what is wrong with which record, by its index, ascending.

        Values that are `held` are not among them before `note` was called.

        Raises:
            Missing: not all schemas are known. The records may be good.
            NeedsOutside: see the constructor.
        """
        parts = self._key, self._value
        if not self.is_over and any(part is not None and part.is_incomplete for part in parts):
            # The ids of both parts: a schema that is known now may be forgotten before the next examination.
            raise Missing(*(frozenset(part.ids) if part else frozenset() for part in parts))
        for part in parts:
            if part is not None:
                part.decode()
        if any(part is not None and part.lacks_values for part in parts):
            raise NeedsOutside
        return dict(sorted(self._found.by_place.items()))

    def held(self) -> Iterator[Held]:
        """Yield the values that must be checked outside of this process."""
        for part in (self._key, self._value):
            if part is not None:
                yield from part.held()

    def note(self, held: Held, at: int, reason: str) -> None:
        """Note what is wrong with one of the held values."""
        self._found.note(held.places[at], f"{held.name}: {reason}")


class _Problems:
    """What is wrong with which record: the first problem of each of the first records that have one."""

    def __init__(self, count_max: int, reason_count_max: int) -> None:
        self._count_max = count_max
        self._reason_count_max = reason_count_max
        self.by_place: dict[int, str] = {}

    @property
    def is_full(self) -> bool:
        return len(self.by_place) >= self._count_max

    @property
    def has_reasons(self) -> bool:
        """Whether the reason of the next problem is told in full."""
        return len(self.by_place) < self._reason_count_max

    def note(self, place: int, problem: str) -> None:
        if not self.is_full:
            self.by_place.setdefault(place, problem)


@dataclass(slots=True)
class _Group:
    """Values with the same head. `refusal`: what is wrong with all of them; without, `found` checks them."""

    refusal: str | None
    found: Found | None = None
    places: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)


class _Part:
    """Examines the keys, or the values."""

    def __init__(
        self,
        name: str,
        rules: PartRules,
        view: SchemaView,
        schema_count_max: int,
        problems: _Problems,
        *,
        is_final: bool,
        is_at_once: bool,
        holds: bool,
    ) -> None:
        self._is_at_once = is_at_once
        self._holds = holds
        self.lacks_values = False
        """Whether there were values to hold, which it does not."""
        self._name = name
        self._rules = rules
        self._view = view
        self._is_final = is_final
        self._problems = problems
        self._schema_count_max = schema_count_max
        self._skip = HEAD_BYTES if rules.schema_id is None else 0
        self._groups: dict[bytes, _Group] = {}
        self._headless = _Group(f"{name}: expected a schema id in front (0 and four bytes)")
        self.ids: set[int] = set()
        """The ids that were named so far."""
        self.is_incomplete = False
        """Whether a schema must be looked up."""
        self._bytes = 0

    def add(self, start: int, values: Sequence[bytes | None]) -> None:
        """Sort values by their heads. Raises `TooManySchemas`."""
        skip = self._skip
        heads = {b"" if value is None else value[:skip] for value in values}
        if len(heads) == 1 and None not in values:
            self._gather(self._group(heads.pop()), range(start, start + len(values)), values)
            return
        for place, value in enumerate(values, start):
            if value is not None:
                self._gather(self._group(value[:skip]), (place,), (value,))

    def _gather(self, group: _Group, places: Sequence[int], values: Sequence[bytes | None]) -> None:
        if group.refusal is not None:
            for place in places:
                self._problems.note(place, group.refusal)
        elif isinstance(group.found, OutsideSchema) and not self.is_incomplete:
            self.lacks_values = self.lacks_values or not self._holds
            if self._holds:
                group.places += places
                group.values += [value[self._skip :] for value in values if value is not None]
        elif group.found is not None and not self.is_incomplete:
            group.places += places
            group.values += values  # type: ignore[arg-type]  # there is no null among them
            self._bytes += sum(map(len, values)) + _VALUE_BYTES * len(values)  # type: ignore[arg-type]
            if self._bytes > _GATHERED_BYTES_MAX:
                self.decode()

    def _group(self, head: bytes) -> _Group:
        found = self._groups.get(head)
        if found is None:
            if self._rules.schema_id is not None:
                schema_id = self._rules.schema_id
            elif len(head) < HEAD_BYTES or head[0]:
                return self._headless
            else:
                schema_id = int.from_bytes(head[1:], "big")
            if len(self._groups) >= self._schema_count_max:
                raise TooManySchemas(self._schema_count_max)
            self.ids.add(schema_id)
            found = self._groups[head] = self._judged(schema_id)
        return found

    def _judged(self, schema_id: int) -> _Group:
        """Return the group of the values with this schema."""
        if schema_id not in self._view.ids:
            if self._is_final:
                return _Group(
                    f"{self._name}: schema {schema_id} is not registered under {', '.join(self._rules.subjects)[:200]}"
                )
            self.is_incomplete = True
            return _Group(None)
        if self._rules.validation is Validation.ID:
            return _Group(None)
        found = self._view.found(schema_id)
        if isinstance(found, str):
            return _Group(f"{self._name}: schema {schema_id} cannot be checked: {found}")
        is_known = found is not None and (found.is_light or not self._is_at_once)
        self.is_incomplete = self.is_incomplete or not is_known
        return _Group(None, found)

    def held(self) -> Iterator[Held]:
        """Yield the values that were held."""
        for group in self._groups.values():
            if isinstance(group.found, OutsideSchema) and group.values:
                yield Held(self._name, group.found.compiled, group.places, group.values)

    def decode(self) -> None:
        """Decode what was held back."""
        for group in self._groups.values():
            validator = group.found
            if isinstance(validator, OutsideSchema):
                continue
            if group.values and validator is not None and not isinstance(validator, str):
                for at in validator.failures(group.values, self._skip):
                    has_reason = self._problems.has_reasons
                    reason = validator.reason(group.values[at], self._skip) if has_reason else NOT_A_VALUE
                    self._problems.note(group.places[at], f"{self._name}: {reason}")
            group.places, group.values = [], []
        self._bytes = 0
