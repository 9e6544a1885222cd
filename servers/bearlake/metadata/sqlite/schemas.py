"""The schema registry's state in SQLite. Each write checks, inside its transaction, the revision that it was decided on."""

import json
import sqlite3
from collections.abc import Collection, Sequence

from typing_extensions import override

from bearlake.errors import AlreadyExists, Conflict, Invalid
from bearlake.metadata.schemas import (
    DEFAULT_CONTEXT,
    GLOBAL_SUBJECT,
    NEW_CONTEXTS,
    NUMBER_MAX,
    Deletion,
    Registration,
    Rules,
    SchemaRow,
    SchemaStore,
    SubjectKey,
    SubjectState,
    SubjectVersion,
    VersionKey,
    VersionRow,
    is_current,
    revision_of,
)
from bearlake.metadata.sqlite.database import Database

SCHEMA_COLUMNS = "context, id, fingerprint, body, content"
IN_USE = "EXISTS (SELECT 1 FROM schema_versions v WHERE v.context = s.context AND v.schema_id = s.id)"
HAS_LIVE = "EXISTS (SELECT 1 FROM schema_versions v WHERE (v.context, v.subject) = (s.context, s.subject) AND NOT v.is_deleted)"
HAS_ANY = "EXISTS (SELECT 1 FROM schema_versions v WHERE (v.context, v.subject) = (s.context, s.subject))"
OF_SUBJECTS = {Deletion.LIVE: HAS_LIVE, Deletion.ALL: HAS_ANY, Deletion.DELETED: f"{HAS_ANY} AND NOT {HAS_LIVE}"}
OF_VERSIONS = {Deletion.LIVE: "NOT is_deleted", Deletion.ALL: "1", Deletion.DELETED: "is_deleted"}


class SqliteSchemas(SchemaStore):
    """`metadata.schemas.SchemaStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def subject(self, subject: SubjectKey, body: bytes | None = None) -> SubjectState:
        return await self._database.run_read(self._subject, subject, body)

    @override
    async def schemas(self, context: str, ids: Collection[int]) -> Sequence[SchemaRow]:
        find = (
            f"SELECT {SCHEMA_COLUMNS} FROM schemas s WHERE context = ? AND id IN (SELECT value FROM json_each(?))"
            f" AND {IN_USE} ORDER BY id"
        )
        rows = await self._rows(find, context, json.dumps(list(ids)))
        return [SchemaRow._make(row) for row in rows]

    @override
    async def by_fingerprint(self, fingerprint: bytes) -> Sequence[SchemaRow]:
        find = f"SELECT {SCHEMA_COLUMNS} FROM schemas s WHERE fingerprint = ? AND {IN_USE} ORDER BY context, id"
        return [SchemaRow._make(row) for row in await self._rows(find, fingerprint)]

    @override
    async def register(self, registration: Registration) -> VersionRow:
        return await self._database.run(self._register, registration)

    @override
    async def delete(
        self, subject: SubjectKey, versions: Collection[int], *, is_permanent: bool, revision: int
    ) -> None:
        await self._database.run(self._delete, subject, versions, is_permanent, revision)

    @override
    async def set_config(self, subject: SubjectKey, config: str | None, *, revision: int) -> None:
        await self._database.run(self._set, subject, "config", config, revision)

    @override
    async def set_mode(self, subject: SubjectKey, mode: str | None, *, revision: int) -> None:
        await self._database.run(self._set, subject, "mode", mode, revision)

    @override
    async def subjects(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: SubjectKey | None = None, limit: int
    ) -> Sequence[SubjectKey]:
        find = (
            "SELECT context, subject FROM schema_subjects s WHERE (context, subject) > (?1, ?2) AND (?3 IS NULL OR context = ?3)"
            f" AND substr(subject, 1, length(?4)) = ?4 AND {OF_SUBJECTS[deletion]} ORDER BY context, subject LIMIT ?5"
        )
        first = max(after or ("", ""), (context or "", ""))
        return [SubjectKey._make(row) for row in await self._rows(find, *first, context, prefix, limit)]

    @override
    async def versions(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        find = (
            "SELECT context, subject, version, schema_id, is_deleted FROM schema_versions"
            " WHERE (context, subject, version) > (?1, ?2, ?3) AND (?4 IS NULL OR context = ?4)"
            f" AND substr(subject, 1, length(?5)) = ?5 AND {OF_VERSIONS[deletion]}"
            " ORDER BY context, subject, version LIMIT ?6"
        )
        first = max((*after.subject, after.number) if after else ("", "", 0), (context or "", "", 0))
        return [_usage(row) for row in await self._rows(find, *first, context, prefix, limit)]

    @override
    async def usages(
        self, context: str, schema_id: int, *, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        find = (
            "SELECT context, subject, version, schema_id, is_deleted FROM schema_versions"
            " WHERE context = ? AND schema_id = ? AND (subject, version) > (?, ?) ORDER BY subject, version LIMIT ?"
        )
        first = (after.subject.name, after.number) if after else ("", 0)
        return [_usage(row) for row in await self._rows(find, context, schema_id, *first, limit)]

    @override
    async def some_usages(self, context: str, schema_id: int, *, limit: int) -> Sequence[SubjectVersion]:
        find = (
            "SELECT context, subject, version, schema_id, is_deleted FROM schema_versions"
            " WHERE context = ? AND schema_id = ? LIMIT ?"
        )
        return [_usage(row) for row in await self._rows(find, context, schema_id, limit)]

    @override
    async def referrers(self, version: VersionKey) -> Sequence[int]:
        return [row[0] for row in await self._rows(LIVE_REFERRERS, *version.subject, version.number)]

    @override
    async def contexts(self) -> Sequence[str]:
        return [
            row[0]
            for row in await self._rows(
                "SELECT ? UNION SELECT context FROM schema_contexts WHERE context <> ?", DEFAULT_CONTEXT, NEW_CONTEXTS
            )
        ]

    @override
    async def last_id(self, context: str) -> int:
        rows = await self._rows("SELECT last_id FROM schema_contexts WHERE context = ?", context)
        return rows[0][0] if rows else 0

    async def _rows(self, statement: str, *values: object) -> list[sqlite3.Row]:
        return await self._database.run_read(self._read, statement, values)

    def _read(self, statement: str, values: Sequence[object]) -> list[sqlite3.Row]:
        with self._database.reading() as connection:
            return connection.execute(statement, values).fetchall()

    def _subject(self, subject: SubjectKey, body: bytes | None) -> SubjectState:
        with self._database.reading() as connection:
            revision, rules = _rules(connection, subject)
            versions = connection.execute(
                "SELECT version, schema_id, is_deleted FROM schema_versions WHERE context = ? AND subject = ? ORDER BY version",
                subject,
            ).fetchall()
            matches = connection.execute(
                f"SELECT {SCHEMA_COLUMNS} FROM schemas WHERE context = ? AND body = ? ORDER BY id",
                (subject.context, body),
            ).fetchall()
        return SubjectState(
            subject=subject,
            revision=revision,
            versions=[VersionRow(number, schema_id, bool(is_deleted)) for number, schema_id, is_deleted in versions],
            rules=rules,
            matches=[SchemaRow._make(row) for row in matches],
        )

    def _register(self, registration: Registration) -> VersionRow:
        subject = registration.subject
        with self._database.writing() as connection:
            _check_revision(connection, subject, registration.revision)
            for referenced in registration.references:
                if not _is_live(connection, referenced):
                    raise Conflict(f"version {referenced.number} of {referenced.subject.name!r} no longer exists")
            schema_id = _schema_id(connection, registration)
            version = registration.version or _next_version(connection, subject)
            if max(schema_id, version) > NUMBER_MAX:
                raise Invalid(
                    f"the subject {subject.name!r} needs an id or a version after {NUMBER_MAX}, the largest one"
                )
            connection.execute(
                "INSERT INTO schema_versions VALUES (?, ?, ?, ?, 0)"
                " ON CONFLICT DO UPDATE SET is_deleted = 0 WHERE schema_id = excluded.schema_id",
                (*subject, version, schema_id),
            )
            present = connection.execute(
                "SELECT schema_id FROM schema_versions WHERE context = ? AND subject = ? AND version = ?",
                (*subject, version),
            ).fetchone()
            if present[0] != schema_id:
                raise AlreadyExists(f"version {version} of {subject.name!r} has the schema with id {present[0]}")
            _touch(connection, subject)
        return VersionRow(version, schema_id, is_deleted=False)

    def _delete(self, subject: SubjectKey, versions: Collection[int], is_permanent: bool, revision: int) -> None:
        with self._database.writing() as connection:
            _check_revision(connection, subject, revision)
            for version in versions:
                if connection.execute(LIVE_REFERRERS, (*subject, version)).fetchone():
                    raise Conflict(f"version {version} of {subject.name!r} is referenced")
            change = "DELETE FROM schema_versions" if is_permanent else "UPDATE schema_versions SET is_deleted = 1"
            connection.executemany(
                f"{change} WHERE context = ? AND subject = ? AND version = ?",
                [(*subject, version) for version in versions],
            )
            _touch(connection, subject)

    def _set(self, subject: SubjectKey, column: str, value: str | None, revision: int) -> None:
        with self._database.writing() as connection:
            _check_revision(connection, subject, revision)
            _touch(connection, subject)
            connection.execute(
                f"UPDATE schema_subjects SET {column} = ? WHERE context = ? AND subject = ?", (value, *subject)
            )


LIVE_REFERRERS = (
    "SELECT DISTINCT referrer_id FROM schema_references r WHERE context = ? AND subject = ? AND version = ? AND EXISTS ("
    "SELECT 1 FROM schema_versions v WHERE v.context = referrer_context AND v.schema_id = referrer_id AND NOT v.is_deleted)"
    " ORDER BY referrer_id"
)


def _rules(connection: sqlite3.Connection, subject: SubjectKey) -> tuple[int, tuple[Rules, Rules, Rules]]:
    """Return the sum of the three levels' revisions (each only grows), and their rules."""
    found = []
    revisions = []
    for key in (subject, (subject.context, GLOBAL_SUBJECT), (DEFAULT_CONTEXT, GLOBAL_SUBJECT)):
        row = connection.execute(
            "SELECT revision, config, mode FROM schema_subjects WHERE context = ? AND subject = ?", key
        ).fetchone() or (0, None, None)
        revisions.append(row[0])
        found.append(Rules(row[1], row[2]))
    return revision_of(revisions), (found[0], found[1], found[2])


def _check_revision(connection: sqlite3.Connection, subject: SubjectKey, revision: int) -> None:
    if not is_current(found=_rules(connection, subject)[0], named=revision):
        raise Conflict(f"the subject {subject.name!r} changed concurrently")


def _touch(connection: sqlite3.Connection, subject: SubjectKey) -> None:
    connection.execute(
        "INSERT INTO schema_subjects VALUES (?, ?, 1, NULL, NULL) ON CONFLICT DO UPDATE SET revision = revision + 1",
        subject,
    )


def _is_live(connection: sqlite3.Connection, version: VersionKey) -> bool:
    find = "SELECT 1 FROM schema_versions WHERE context = ? AND subject = ? AND version = ? AND NOT is_deleted"
    return connection.execute(find, (*version.subject, version.number)).fetchone() is not None


def _next_version(connection: sqlite3.Connection, subject: SubjectKey) -> int:
    find = "SELECT coalesce(max(version), 0) + 1 FROM schema_versions WHERE context = ? AND subject = ?"
    version: int = connection.execute(find, subject).fetchone()[0]
    return version


def _schema_id(connection: sqlite3.Connection, registration: Registration) -> int:
    """Return the id of the schema, which exists when this returns."""
    context, given = registration.subject.context, registration.schema_id
    present: list[tuple[int, bytes]] = connection.execute(
        "SELECT id, fingerprint FROM schemas WHERE context = ? AND (CASE WHEN ?2 IS NULL THEN body = ?3 AND fingerprint = ?4"
        " ELSE id = ?2 END) ORDER BY id LIMIT 1",
        (context, given, registration.body, registration.fingerprint),
    ).fetchall()
    if present:
        if present[0][1] != registration.fingerprint:
            raise AlreadyExists(f"the id {given} belongs to another schema")
        return present[0][0]
    (schema_id,) = connection.execute(
        "INSERT INTO schema_contexts SELECT ?1, CASE WHEN ?2 IS NULL THEN last_id + 1 ELSE max(last_id, ?2) END"
        " FROM (SELECT coalesce(max(last_id), 0) AS last_id FROM schema_contexts WHERE context = ?3) WHERE true"
        " ON CONFLICT DO UPDATE SET last_id = CASE WHEN ?2 IS NULL THEN last_id + 1 ELSE max(last_id, ?2) END"
        " RETURNING coalesce(?2, last_id)",
        (context, given, NEW_CONTEXTS),
    ).fetchone()
    connection.execute(
        "INSERT INTO schemas VALUES (?, ?, ?, ?, ?)",
        (context, schema_id, registration.fingerprint, registration.body, registration.content),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO schema_references VALUES (?, ?, ?, ?, ?)",
        [(*reference.subject, reference.number, context, schema_id) for reference in registration.references],
    )
    return int(schema_id)


def _usage(row: sqlite3.Row) -> SubjectVersion:
    context, subject, version, schema_id, is_deleted = row
    return SubjectVersion(SubjectKey(context, subject), version, schema_id, bool(is_deleted))
