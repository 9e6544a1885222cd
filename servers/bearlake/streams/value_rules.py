"""How a stream's values become columns of its table: the parsed form of the configs `table.value.*`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bearlake.errors import Invalid
from bearlake.streams import configs as stream_configs
from bearlake.streams.schemas import names
from bearlake.streams.schemas.problems import InvalidSubject


class ValueMode(Enum):
    """What the table has for a value. Source: decision 213."""

    RAW = "raw"
    """The bytes."""
    KEEP = "keep"
    """Typed columns and the bytes."""
    ELIDE = "elide"
    """Typed columns; the bytes only if encoding the columns again gives other bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRules:
    """Rules for typed columns.

    `subjects` of the registry have the schemas that values may name. With a `schema_id`, all values have that schema and no header.
    """

    mode: ValueMode
    subjects: tuple[str, ...]
    schema_id: int | None


def check_subjects(configs: Mapping[str, str]) -> None:
    """Raise `Invalid`, naming the config, unless the subjects are valid and of one context, whose ids values name."""
    try:
        contexts = {names.parse(subject).context for subject in _subjects(configs)}
    except InvalidSubject as error:
        raise Invalid(f"table.value.subjects: {error}") from error
    if len(contexts) > 1:
        raise Invalid(
            f"table.value.subjects: subjects of several contexts, whose ids differ: {', '.join(sorted(contexts))}"
        )


def value_rules(stream_name: str, configs: Mapping[str, str]) -> ValueRules:
    """Parse the rules from a stream's configs, which must be checked already. A stream without a table has no typed columns."""
    mode = ValueMode(stream_configs.value(configs, "table.value.mode"))
    schema_id = int(stream_configs.value(configs, "table.value.schema_id"))
    return ValueRules(
        mode=mode if stream_configs.table_rules(stream_name, configs).is_enabled else ValueMode.RAW,
        subjects=_subjects(configs) or (f"{stream_name}-value",),
        schema_id=None if schema_id < 0 else schema_id,
    )


def _subjects(configs: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, stream_configs.value(configs, "table.value.subjects").split(","))))
