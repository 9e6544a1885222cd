"""Deletes subjects and versions: first a soft delete, which registering the schema again undoes, then a permanent delete.

`Schemas.delete_subject` and `Schemas.delete_version` document the contracts. `Conflict`: the caller must decide again.
"""

from collections.abc import Sequence
from contextlib import suppress

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.schemas import Rules, SchemaStore, SubjectKey, SubjectState, VersionKey, VersionRow
from bearlake.streams.schemas import names, rules
from bearlake.streams.schemas.library import Library
from bearlake.streams.schemas.model import Mode
from bearlake.streams.schemas.problems import (
    NotPermitted,
    ReferenceExists,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)

ATTEMPTS_MAX = 16
"""Attempts to unset the rules of a deleted subject despite concurrent changes."""


class Remover:
    """Deletes subjects and versions that the rules allow to be deleted."""

    def __init__(self, store: SchemaStore, library: Library) -> None:
        self._store = store
        self._library = library

    async def subject(self, key: SubjectKey, is_permanent: bool) -> list[int]:
        """Delete all versions; returns their numbers."""
        state, name = existing(await self._store.subject(key)), names.shown(key)
        live = [row for row in state.versions if not row.is_deleted]
        if is_permanent and live:
            raise SubjectNotSoftDeleted(f"Subject '{name}' was not deleted first before being permanently deleted")
        if not is_permanent and not live:
            raise SubjectSoftDeleted(f"Subject '{name}' was soft deleted. Set permanent=true to delete permanently")
        return await self._delete(state, state.versions if is_permanent else live, is_permanent)

    async def version(self, key: SubjectKey, version: int, is_permanent: bool) -> int:
        """Delete one version; returns its number."""
        state, name = existing(await self._store.subject(key)), names.shown(key)
        row = pick(state, version, with_deleted=is_permanent or version != names.LATEST)
        if is_permanent and not row.is_deleted:
            raise VersionNotSoftDeleted(
                f"Subject '{name}' Version {row.number} was not deleted first before being permanently deleted"
            )
        if not is_permanent and row.is_deleted:
            raise VersionSoftDeleted(
                f"Subject '{name}' Version {row.number} was soft deleted. Set permanent=true to delete permanently"
            )
        return (await self._delete(state, [row], is_permanent))[0]

    async def _delete(self, state: SubjectState, rows: Sequence[VersionRow], is_permanent: bool) -> list[int]:
        key = state.subject
        if rules.mode_in_scope(state) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise NotPermitted(f"Subject {names.shown(key)} is in read-only mode")
        numbers = [row.number for row in rows]
        for number in numbers:
            if await self._store.referrers(VersionKey(key, number)):
                raise ReferenceExists(
                    f"One or more references exist to the schema {{subject={names.shown(key)},version={number}}}."
                )
        await self._store.delete(key, numbers, is_permanent=is_permanent, revision=state.revision)
        if is_permanent:
            self._library.forget(key.context, {row.schema_id for row in rows})
        elif all(row.is_deleted or row in rows for row in state.versions):
            await self._forget_rules(key)
        return numbers

    async def _forget_rules(self, key: SubjectKey) -> None:
        """Unset config and mode of a subject without versions. Raises `Unavailable`."""
        for _ in range(ATTEMPTS_MAX):
            state = await self._store.subject(key)
            if any(not row.is_deleted for row in state.versions) or state.rules[0] == Rules(None, None):
                return
            unset = self._store.set_config if state.rules[0].config is not None else self._store.set_mode
            with suppress(Conflict):
                await unset(key, None, revision=state.revision)
        raise Unavailable(f"too many concurrent changes to subject {names.shown(key)}")


def existing(state: SubjectState) -> SubjectState:
    """Return the state if the subject has versions. Raises `SubjectNotFound`."""
    if not state.versions:
        raise SubjectNotFound(f"Subject '{names.shown(state.subject)}' not found.")
    return state


def pick(state: SubjectState, version: int, *, with_deleted: bool) -> VersionRow:
    """Return the row of a version. Raises `SubjectNotFound`, `VersionNotFound`."""
    rows = [row for row in state.versions if with_deleted or not row.is_deleted]
    if not rows:
        raise SubjectNotFound(f"Subject '{names.shown(state.subject)}' not found.")
    if version == names.LATEST:
        return rows[-1]
    for row in rows:
        if row.number == version:
            return row
    raise VersionNotFound(f"Version {version} not found: the subject has {_listed([row.number for row in rows])}.")


def _listed(numbers: Sequence[int]) -> str:
    """Format numbers for a message; only the last ones if there are many."""
    shown = ", ".join(str(number) for number in numbers[-10:])
    return shown if len(numbers) <= 10 else f"… {shown}"
