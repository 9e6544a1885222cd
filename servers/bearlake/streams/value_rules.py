"""Schemas of a stream's keys and values: the parsed form of the configs `table.value.*`, `table.key.*` and `schema.*`.

`table.value.subjects` and `table.value.schema_id` say what schemas values have, for the table's columns and for the checks of appends;
`schema.key.subjects` and `table.key.schema_id` say the same of keys. `table.columns` declares the columns of values without a registry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from bearlake.errors import Invalid
from bearlake.streams import configs as stream_configs
from bearlake.streams.schema_rules import PartRules, SchemaRules, Validation
from bearlake.streams.schemas import names
from bearlake.streams.schemas.problems import InvalidSubject
from bearlake.table.declared import DECLARED_ID, declared_columns

SUBJECT_COUNT_MAX = 100
"""Subjects of one stream: each compaction task reads all of them."""


_SUBJECT_CONFIGS = ("table.value.subjects", "schema.key.subjects")


class ValueMode(Enum):
    """What the table has for a value, or for a key. Source: decisions 213 and 248."""

    RAW = "raw"
    """The bytes."""
    KEEP = "keep"
    """Typed columns and the bytes."""
    ELIDE = "elide"
    """Typed columns; the bytes only if encoding the columns again gives other bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRules:
    """Rules for typed columns of values, or of keys.

    `subjects` of the registry have the schemas that values may name. With a `schema_id`, all values have that schema and no header;
    `schema_id_config` names the config that says so. With `columns`, values are JSON objects with these declared columns, and `schema_id`
    is `DECLARED_ID`.
    """

    mode: ValueMode
    subjects: tuple[str, ...]
    schema_id: int | None
    schema_id_config: str = "table.value.schema_id"
    columns: str = ""


def check_subjects(configs: Mapping[str, str]) -> None:
    """Raise `Invalid`, naming the config, unless the subjects are few, valid and of one context, whose ids values name.

    Also if values have no ids that `schema.validation=id` could check.
    """
    _check_columns(configs)
    for config in _SUBJECT_CONFIGS:
        _check_list(config, _subjects(configs, config))
    for config, of_schema, what in (
        ("schema.validation", "table.value.schema_id", "values"),
        ("schema.key.validation", "table.key.schema_id", "keys"),
    ):
        has_one_schema = int(stream_configs.value(configs, of_schema)) >= 0
        if has_one_schema and _validation(configs, config) is Validation.ID:
            raise Invalid(
                f"{config}=id checks the schema ids of {what}, which have none with {of_schema}: expected value or none"
            )


def _check_columns(configs: Mapping[str, str]) -> None:
    """Raise `Invalid` unless declared columns are well formed, and the only schema of values."""
    if not (text := declared(configs)):
        return
    declared_columns(text)
    if int(stream_configs.value(configs, "table.value.schema_id")) >= 0 or _subjects(configs, "table.value.subjects"):
        raise Invalid("table.columns declares what values have: unset table.value.schema_id and table.value.subjects")
    if _validation(configs, "schema.validation") is Validation.ID:
        raise Invalid(
            "schema.validation=id checks the schema ids of values, which have none with table.columns: expected value or none"
        )


def declared(configs: Mapping[str, str]) -> str:
    """Return the text of a stream's declared columns; empty: it has none."""
    return stream_configs.value(configs, "table.columns").strip()


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
    rules = _rules(stream_name, configs, "value", _subjects(configs, "table.value.subjects"))
    if not (columns := declared(configs)):
        return rules
    is_enabled = stream_configs.table_rules(stream_name, configs).is_enabled
    mode = ValueMode.KEEP if is_enabled else ValueMode.RAW
    return replace(rules, mode=mode, schema_id=DECLARED_ID, columns=columns, schema_id_config="table.columns")


def key_rules(stream_name: str, configs: Mapping[str, str]) -> ValueRules:
    """Parse the rules for keys, as `value_rules` does those for values."""
    return _rules(stream_name, configs, "key", _subjects(configs, "schema.key.subjects"))


def _rules(stream_name: str, configs: Mapping[str, str], part: str, subjects: tuple[str, ...]) -> ValueRules:
    mode = ValueMode(stream_configs.value(configs, f"table.{part}.mode"))
    schema_id_config = f"table.{part}.schema_id"
    schema_id = int(stream_configs.value(configs, schema_id_config))
    return ValueRules(
        mode=mode if stream_configs.table_rules(stream_name, configs).is_enabled else ValueMode.RAW,
        subjects=subjects or (f"{stream_name}-{part}",),
        schema_id=None if schema_id < 0 else schema_id,
        schema_id_config=schema_id_config,
    )


def schema_rules(stream_name: str, configs: Mapping[str, str]) -> SchemaRules | None:
    """Parse the rules for schemas of appended records from a stream's configs, which must be checked already; None: there are none."""
    of_key, of_value = (_validation(configs, config) for config in ("schema.key.validation", "schema.validation"))
    if of_key is of_value is Validation.NONE:
        return None
    return SchemaRules(
        key=_part(of_key, key_rules(stream_name, configs)), value=_part(of_value, value_rules(stream_name, configs))
    )


def _part(validation: Validation, rules: ValueRules) -> PartRules | None:
    if validation is Validation.NONE:
        return None
    return PartRules(validation=validation, subjects=rules.subjects, schema_id=rules.schema_id, columns=rules.columns)


def _validation(configs: Mapping[str, str], config: str) -> Validation:
    return Validation(stream_configs.value(configs, config))


def _subjects(configs: Mapping[str, str], config: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, stream_configs.value(configs, config).split(","))))
