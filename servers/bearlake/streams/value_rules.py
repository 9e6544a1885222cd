"""Schemas of a stream's keys and values: the parsed form of the configs `table.value.*` and `schema.*`.

`table.value.subjects` and `table.value.schema_id` say what schemas values have, for the table's columns and for the checks of appends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bearlake.errors import Invalid
from bearlake.streams import configs as stream_configs
from bearlake.streams.schema_rules import PartRules, SchemaRules, Validation
from bearlake.streams.schemas import names
from bearlake.streams.schemas.problems import InvalidSubject

SUBJECT_COUNT_MAX = 100
"""Subjects of one stream: each compaction task reads all of them."""


_SUBJECT_CONFIGS = ("table.value.subjects", "schema.key.subjects")


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
    """Raise `Invalid`, naming the config, unless the subjects are few, valid and of one context, whose ids values name.

    Also if values have no ids that `schema.validation=id` could check.
    """
    for config in _SUBJECT_CONFIGS:
        _check_list(config, _subjects(configs, config))
    has_one_schema = int(stream_configs.value(configs, "table.value.schema_id")) >= 0
    if has_one_schema and _validation(configs, "schema.validation") is Validation.ID:
        raise Invalid(
            "schema.validation=id checks the schema ids of values, which have none with table.value.schema_id: expected value or none"
        )


def _check_list(config: str, subjects: Sequence[str]) -> None:
    if len(subjects) > SUBJECT_COUNT_MAX:
        raise Invalid(f"{config}: {len(subjects)} subjects; expected at most {SUBJECT_COUNT_MAX}")
    try:
        contexts = {names.parse(subject).context for subject in subjects}
    except InvalidSubject as error:
        raise Invalid(f"{config}: {error}") from error
    if len(contexts) > 1:
        raise Invalid(f"{config}: subjects of several contexts, whose ids differ: {', '.join(sorted(contexts))}")


def value_rules(stream_name: str, configs: Mapping[str, str]) -> ValueRules:
    """Parse the rules from a stream's configs, which must be checked already. A stream without a table has no typed columns."""
    mode = ValueMode(stream_configs.value(configs, "table.value.mode"))
    schema_id = int(stream_configs.value(configs, "table.value.schema_id"))
    return ValueRules(
        mode=mode if stream_configs.table_rules(stream_name, configs).is_enabled else ValueMode.RAW,
        subjects=_subjects(configs, "table.value.subjects") or (f"{stream_name}-value",),
        schema_id=None if schema_id < 0 else schema_id,
    )


def schema_rules(stream_name: str, configs: Mapping[str, str]) -> SchemaRules | None:
    """Parse the rules for schemas of appended records from a stream's configs, which must be checked already; None: there are none."""
    of_key, of_value = (_validation(configs, config) for config in ("schema.key.validation", "schema.validation"))
    if of_key is of_value is Validation.NONE:
        return None
    key_subjects = _subjects(configs, "schema.key.subjects") or (f"{stream_name}-key",)
    values = value_rules(stream_name, configs)
    return SchemaRules(
        key=None if of_key is Validation.NONE else PartRules(validation=of_key, subjects=key_subjects),
        value=None
        if of_value is Validation.NONE
        else PartRules(validation=of_value, subjects=values.subjects, schema_id=values.schema_id),
    )


def _validation(configs: Mapping[str, str], config: str) -> Validation:
    return Validation(stream_configs.value(configs, config))


def _subjects(configs: Mapping[str, str], config: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, stream_configs.value(configs, config).split(","))))
