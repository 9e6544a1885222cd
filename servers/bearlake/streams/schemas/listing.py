"""Parts of lists: which versions a list has, and which of its entries a page shows."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from bearlake.metadata.schemas import Deletion, SchemaStore, SubjectVersion, VersionKey, VersionRow
from bearlake.streams.schemas.library import Library
from bearlake.streams.schemas.model import SchemaVersion
from bearlake.streams.turns import in_turns

T = TypeVar("T")

PAGE_COUNT = 1_000
"""Rows of one read of the store."""

USAGES_PAGE_COUNT = 5_000
"""Usages of a schema of one read of the store, which takes 10 ms of the event loop. PostgreSQL sorts all later usages for each page."""

LOADED_COUNT = 16
"""Schemas of one read of the store, each up to `schema_bytes_max` large."""


def is_listed(row: VersionRow, deletion: Deletion) -> bool:
    """Return whether a list of versions with this `deletion` has the version."""
    return deletion is Deletion.ALL or row.is_deleted is (deletion is Deletion.DELETED)


async def usages_of(store: SchemaStore, context: str, schema_id: int) -> AsyncIterator[Sequence[SubjectVersion]]:
    """Yield the versions that have the schema, by subject and number, in turns of the event loop. Raises `Unavailable`."""
    after: VersionKey | None = None
    while True:
        page = await store.usages(context, schema_id, after=after, limit=USAGES_PAGE_COUNT)
        async for part in in_turns(page):
            yield part
        if len(page) < USAGES_PAGE_COUNT:
            return
        after = VersionKey(page[-1].subject, page[-1].number)
        await asyncio.sleep(0)  # a store in memory does not wait


def bounded(limit: int, limit_max: int) -> int:
    """Return the length of a page; a limit below 0 asks for the longest."""
    return limit_max if limit < 0 else min(limit, limit_max)


def sliced(found: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """Return the page that begins at `offset`; a limit below 0 asks for all."""
    return found[offset:] if limit < 0 else found[offset : offset + limit]


async def with_schemas(library: Library, found: Sequence[SubjectVersion], bytes_max: int) -> list[SchemaVersion]:
    """Return the versions with their schemas, up to `bytes_max` and at least one. Loads a few schemas at a time."""
    listed: list[SchemaVersion] = []
    size_bytes = 0
    for start in range(0, len(found), LOADED_COUNT):
        page = found[start : start + LOADED_COUNT]
        ids: dict[str, set[int]] = {}
        for version in page:
            ids.setdefault(version.subject.context, set()).add(version.schema_id)
        schemas = {context: await library.schemas(context, several) for context, several in ids.items()}
        for version in page:
            schema = schemas[version.subject.context].get(version.schema_id)
            if schema is None:
                continue
            size_bytes += schema.size_bytes
            if listed and size_bytes > bytes_max:
                return listed
            subject, number, is_deleted = version.subject, version.number, version.is_deleted
            listed.append(SchemaVersion(subject=subject, number=number, is_deleted=is_deleted, schema=schema))
    return listed
