"""Texts of the schemas that a schema refers to, from the metadata store."""

from bearlake.metadata.schemas import SchemaStore, VersionKey
from bearlake.streams.schemas.library import schema_of
from bearlake.streams.schemas.model import Schema
from bearlake.streams.schemas.problems import SchemaTooLarge

REFERENCE_COUNT_MAX = 256
"""Schemas that a schema may refer to, itself and through others."""


async def referenced_texts(store: SchemaStore, schema: Schema) -> tuple[str, ...]:
    """Return the texts of the schemas that a schema refers to, each after those that it refers to itself.

    Raises:
        SchemaTooLarge: they are more than `REFERENCE_COUNT_MAX`.
        Unavailable: the store did not answer.
    """
    found: dict[VersionKey, str] = {}
    await _add(store, schema, found, {})
    return tuple(found.values())


async def named_texts(store: SchemaStore, schema: Schema) -> dict[str, str]:
    """Return the same texts by the names by which schemas refer to them (Protobuf's imports). Raises as `referenced_texts`."""
    named: dict[str, str] = {}
    await _add(store, schema, {}, named)
    return named


async def _add(store: SchemaStore, schema: Schema, found: dict[VersionKey, str], named: dict[str, str]) -> None:
    for reference in schema.references:
        if reference.version in found:
            named.setdefault(reference.name, found[reference.version])
            continue
        if len(found) >= REFERENCE_COUNT_MAX:
            raise SchemaTooLarge(f"schema {schema.id} refers to more than {REFERENCE_COUNT_MAX} schemas")
        subject, number = reference.version
        state = await store.subject(subject)
        ids = [version.schema_id for version in state.versions if version.number == number]
        for row in await store.schemas(subject.context, ids):
            referred = schema_of(row)
            await _add(store, referred, found, named)
            found[reference.version] = referred.text
            named.setdefault(reference.name, referred.text)
