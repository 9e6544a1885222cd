"""Copies the schemas of a registry with their ids, versions and references, so that records keep their meaning.

Ids are part of records: a schema keeps the id that it has at the source, or is refused. Meanwhile its subject is in the mode IMPORT.
Deleted versions are copied too, and deleted here: records may name them. A second copy adds what is new.

Source: Confluent Schema Registry API (mode IMPORT, soft deletion).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bearlake.errors import BearlakeError, Corrupt, NotFound, Overloaded, Unavailable
from bearlake.importing.registry import SourceRegistry
from bearlake.metadata.schemas import VersionKey
from bearlake.streams.principal import INTERNAL
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Draft, Mode, Reference, SchemaType
from bearlake.streams.schemas.problems import ModeNotFound
from bearlake.streams.schemas.service import Schemas

_ALL_CONTEXTS = ":*:"


@dataclass(slots=True)
class SchemasCopied:
    """What was copied."""

    registered: int = 0
    """Versions that are new here."""
    present: int = 0
    """Versions that were here already, with the same id."""
    refused: dict[str, str] = field(default_factory=dict)
    """Other versions, as `subject version N`, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A version of the source."""

    subject: str
    number: int
    is_deleted: bool
    draft: Draft

    @property
    def name(self) -> str:
        return f"{self.subject} version {self.number}"


async def copy_schemas(source: SourceRegistry, schemas: Schemas) -> SchemasCopied:
    """Copy all schemas, and the compatibility level of each subject that has one.

    Raises:
        Denied: the registry refuses this user.
        Corrupt: an answer of the registry is not what its API says.
        Unavailable, Overloaded: the registry or the metadata store does not answer; repeat the copy.
    """
    copied = SchemasCopied()
    versions = await _read(source, copied)
    missing = [version for version in versions if not await _is_present(schemas, version, copied)]
    before = {subject: await _mode(schemas, subject) for subject in dict.fromkeys(item.subject for item in versions)}
    wanting = {version.subject for version in missing}
    modes = {subject: mode for subject, mode in before.items() if subject in wanting or mode is Mode.IMPORT}
    try:
        for subject in sorted(wanting):
            await schemas.set_mode(INTERNAL, subject, Mode.IMPORT, is_forced=True)
        await _register(schemas, missing, copied)
    finally:
        for subject, mode in modes.items():
            if mode in (None, Mode.IMPORT):  # IMPORT: an earlier copy was interrupted
                await schemas.unset_mode(INTERNAL, subject)
            else:
                await schemas.set_mode(INTERNAL, subject, mode, is_forced=True)
    for version in missing:
        if version.is_deleted and version.name not in copied.refused:
            await schemas.delete_version(INTERNAL, version.subject, version.number)
    await _copy_levels(source, schemas, {version.subject for version in versions if not version.is_deleted})
    return copied


async def _read(source: SourceRegistry, copied: SchemasCopied) -> list[_Version]:
    """Return all versions, those that others may reference first: by id."""
    found: list[_Version] = []
    for subject in _list(await source.get("subjects", deleted="true", subjectPrefix=_ALL_CONTEXTS), str):
        live: list[int] = []
        with suppress(NotFound):  # the whole subject is deleted
            live = _list(await source.get("subjects", subject, "versions"), int)
        for number in _list(await source.get("subjects", subject, "versions", deleted="true"), int):
            document = await source.get("subjects", subject, "versions", str(number), deleted="true")
            try:
                draft = _draft(document)
            except (KeyError, TypeError, ValueError) as error:
                copied.refused[f"{subject} version {number}"] = f"its document cannot be understood: {error!r}"
            else:
                found.append(_Version(subject=subject, number=number, is_deleted=number not in live, draft=draft))
    return sorted(found, key=lambda item: (item.draft.id or 0, item.subject, item.number))


def _draft(document: Mapping[str, Any]) -> Draft:
    """Raises `KeyError`, `TypeError`, `ValueError`."""
    references = tuple(
        Reference(name=str(item["name"]), version=VersionKey(names.parse(str(item["subject"])), int(item["version"])))
        for item in document.get("references") or ()
    )
    return Draft(
        type=SchemaType(document.get("schemaType") or SchemaType.AVRO.value),
        text=str(document["schema"]),
        references=references,
        metadata=document.get("metadata"),
        rule_set=document.get("ruleSet"),
        id=int(document["id"]),
        version=int(document["version"]),
    )


async def _is_present(schemas: Schemas, version: _Version, copied: SchemasCopied) -> bool:
    """Return whether nothing is left to do for the version."""
    if version.name in copied.refused:
        return True
    try:
        here = await schemas.version(INTERNAL, version.subject, version.number, with_deleted=True)
    except NotFound:
        return False
    if here.schema.id == version.draft.id:
        copied.present += 1
    else:
        copied.refused[version.name] = f"it has id {here.schema.id} here, and {version.draft.id} at the source"
    return True


async def _mode(schemas: Schemas, subject: str) -> Mode | None:
    try:
        return await schemas.mode(INTERNAL, subject)
    except ModeNotFound:
        return None


async def _register(schemas: Schemas, missing: list[_Version], copied: SchemasCopied) -> None:
    """Register versions; repeats those that were refused as long as others succeed, since they may reference them."""
    while missing:
        refused: dict[str, str] = {}
        left = []
        for version in missing:
            try:
                await schemas.register(INTERNAL, version.subject, version.draft)
            except (Overloaded, Unavailable):
                raise
            except BearlakeError as error:
                refused[version.name] = str(error)
                left.append(version)
            else:
                copied.registered += 1
        if len(left) == len(missing):
            copied.refused.update(refused)
            return
        missing = left


async def _copy_levels(source: SourceRegistry, schemas: Schemas, subjects: set[str]) -> None:
    for subject in sorted(subjects):
        with suppress(NotFound):
            document = await source.get("config", subject)
            if isinstance(document, dict) and isinstance(level := document.get("compatibilityLevel"), str):
                await schemas.set_config(INTERNAL, subject, {"compatibility": level})


def _list(document: Any, kind: type[Any]) -> list[Any]:
    if not isinstance(document, list) or not all(isinstance(item, kind) for item in document):
        raise Corrupt(f"the registry's answer is not a list of {kind.__name__}")
    return document
