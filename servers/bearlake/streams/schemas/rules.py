"""Config and mode: merges the settings of subject, context and registry.

For each config field, the nearest level that sets the field decides; the same holds for the mode. Exception: READONLY_OVERRIDE at a wider
level overrides all narrower levels.

Source: Confluent, "Schema Registry API Reference", config and mode; "Data Contracts", default and override metadata and rules.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bearlake.errors import Invalid
from bearlake.metadata.schemas import SubjectState
from bearlake.streams.schemas.model import Document, Level, Mode
from bearlake.streams.schemas.nesting import is_deeper
from bearlake.streams.schemas.problems import InvalidCompatibilityLevel, SchemaTooLarge

LEVEL = "compatibilityLevel"
"""The field's name in stored and returned configs; clients send it as `compatibility`."""

METADATA_FIELDS = ("tags", "properties", "sensitive")
DEPTH_MAX = 64
"""Objects and lists that metadata, rules and configs may nest."""
RULE_FIELDS = ("migrationRules", "domainRules", "encodingRules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The effective rules of a subject."""

    level: Level
    mode: Mode
    is_normalizing: bool
    compatibility_group: str | None
    """Metadata property; the registry compares only versions with the same value."""
    config: Document


def policy(state: SubjectState) -> Policy:
    """Return the effective rules for the subject of `state`."""
    config = in_scope(state)
    return Policy(
        level=Level(config[LEVEL]),
        mode=mode_in_scope(state),
        is_normalizing=bool(config.get("normalize")),
        compatibility_group=config.get("compatibilityGroup"),
        config=config,
    )


def in_scope(state: SubjectState) -> dict[str, Any]:
    """Return the subject's config, including fields inherited from wider levels."""
    merged: dict[str, Any] = {LEVEL: Level.BACKWARD.value}
    for rules in reversed(state.rules):
        merged |= loaded(rules.config) or {}
    return merged


def mode_in_scope(state: SubjectState) -> Mode:
    """Return the subject's effective mode."""
    modes = [Mode(rules.mode) for rules in state.rules if rules.mode is not None]
    if Mode.READONLY_OVERRIDE in modes:
        return Mode.READONLY_OVERRIDE
    return modes[0] if modes else Mode.READWRITE


def loaded(text: str | None) -> dict[str, Any] | None:
    """Parse a stored config."""
    return None if text is None else json.loads(text)


def updated(stored: str | None, update: Mapping[str, Any], bytes_max: int) -> str:
    """Apply `update` to a stored config; null unsets a field. The caller has checked the types.

    Raises:
        SchemaTooLarge: the config would have more than `bytes_max` bytes.
        InvalidCompatibilityLevel: no such level.
        Invalid: metadata or rules are malformed.
    """
    fields = {LEVEL if key == "compatibility" else key: value for key, value in update.items()}
    if LEVEL in fields and fields[LEVEL] not in Level.__members__:
        names = ", ".join(level.value.lower() for level in Level)
        raise InvalidCompatibilityLevel(f"Invalid compatibility level {fields[LEVEL]!r}. Valid values are {names}")
    for key, value in fields.items():
        if key.endswith("Metadata"):
            check_metadata(value)
        elif key.endswith("RuleSet"):
            check_rule_set(value)
    merged = (loaded(stored) or {}) | fields
    present = {key: value for key, value in merged.items() if value is not None}
    check_size("the config", bytes_max, "", present)
    return json.dumps(present)


def check_size(what: str, bytes_max: int, text: str, *documents: object) -> None:
    """Raise `SchemaTooLarge` if the text and the documents (JSON values) have more bytes, `Invalid` if they are nested too deeply."""
    for document in documents:
        _check_depth(document)
    size = len(text.encode(errors="replace")) + sum(
        len(json.dumps(document)) for document in documents if document is not None
    )
    if size > bytes_max:
        raise SchemaTooLarge(f"{what} has {size} bytes, the limit is {bytes_max}")


def with_defaults(config: Document, metadata: Document | None, rule_set: Document | None) -> tuple[Any, Any]:
    """Merge a schema's metadata and rules with the config's default and override metadata and rules."""
    for name in ("default", "override"):
        metadata = _over(config.get(f"{name}Metadata"), metadata, METADATA_FIELDS, is_forced=name == "override")
        rule_set = _over(config.get(f"{name}RuleSet"), rule_set, RULE_FIELDS, is_forced=name == "override")
    return metadata, rule_set


def check_metadata(metadata: Document | None) -> None:
    """Raise `Invalid` unless properties map names to texts, tags map paths to lists of texts, and sensitive is a list of texts."""
    if metadata is None:
        return
    properties, tags, sensitive = (metadata.get(name) for name in ("properties", "tags", "sensitive"))
    if not (properties is None or (isinstance(properties, dict) and _are_texts(properties.values()))):
        raise Invalid("metadata.properties: expected an object of strings")
    if not (
        tags is None
        or (isinstance(tags, dict) and all(isinstance(paths, list) and _are_texts(paths) for paths in tags.values()))
    ):
        raise Invalid("metadata.tags: expected an object of lists of strings")
    if not (sensitive is None or (isinstance(sensitive, list) and _are_texts(sensitive))):
        raise Invalid("metadata.sensitive: expected a list of strings")


def check_rule_set(rule_set: Document | None) -> None:
    """Raise `Invalid` unless each kind of rules is a list of objects with names."""
    for name in RULE_FIELDS:
        found = (rule_set or {}).get(name)
        if found is not None and not (
            isinstance(found, list)
            and all(isinstance(rule, dict) and isinstance(rule.get("name"), str) for rule in found)
        ):
            raise Invalid(f"ruleSet.{name}: expected a list of rules with names")


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _over(more: Document | None, own: Document | None, fields: tuple[str, ...], *, is_forced: bool) -> Document | None:
    if more is None or own is None:
        return own if more is None else more
    first, second = (own, more) if is_forced else (more, own)
    return {key: _joined(first.get(key), second.get(key)) for key in fields if key in first or key in second}


def _check_depth(document: object) -> None:
    if is_deeper(document, DEPTH_MAX):
        raise Invalid(f"metadata and rules are nested more than {DEPTH_MAX} levels deep")


def _name(rule: Any) -> str:
    """Return the name of a rule, or the text itself. (Any: both are checked when they are set.)"""
    name: str = rule["name"] if isinstance(rule, dict) else rule
    return name


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **second}
    if isinstance(first, list) and isinstance(second, list):
        names = {_name(rule) for rule in second}
        return [rule for rule in first if _name(rule) not in names] + second
    return first if second is None else second
