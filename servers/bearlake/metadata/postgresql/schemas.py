"""The schema registry's state in PostgreSQL. Each write is one stored function, which checks the revision that it was decided on."""

from collections.abc import Collection, Sequence

import asyncpg
from typing_extensions import override

from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.schemas import (
    DEFAULT_CONTEXT,
    NEW_CONTEXTS,
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
)

SCHEMA_COLUMNS = "s.context, s.id, s.fingerprint, s.body, s.content"
IN_USE = "exists (select 1 from bearlake.schema_version v where v.context = s.context and v.schema_id = s.id)"
HAS_ANY = "exists (select 1 from bearlake.schema_version v where v.context = s.context and v.subject = s.subject)"
HAS_LIVE = f"{HAS_ANY[:-1]} and not v.is_deleted)"
OF_SUBJECTS = {Deletion.LIVE: HAS_LIVE, Deletion.ALL: HAS_ANY, Deletion.DELETED: f"{HAS_ANY} and not {HAS_LIVE}"}
OF_VERSIONS = {Deletion.LIVE: "not is_deleted", Deletion.ALL: "true", Deletion.DELETED: "is_deleted"}


class PostgresqlSchemas(SchemaStore):
    """`metadata.schemas.SchemaStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def subject(self, subject: SubjectKey, body: bytes | None = None) -> SubjectState:
        """Takes one round trip."""
        rows = await self._database.rows(
            *call("schema_subject_state", context=subject.context, subject=subject.name, body=body), is_read=True
        )
        rules = [Rules(None, None)] * 3
        versions, matches = [], []
        for kind, number, schema_id, is_deleted, a, b, fingerprint in rows:
            if kind in (1, 2, 3):
                rules[kind - 1] = Rules(a, b)
            elif kind == 4:
                versions.append(VersionRow(number, schema_id, is_deleted))
            elif kind == 5:
                assert body is not None
                matches.append(SchemaRow(subject.context, schema_id, fingerprint, body, a))
        return SubjectState(
            subject=subject,
            revision=rows[0]["number"],
            versions=versions,
            rules=(rules[0], rules[1], rules[2]),
            matches=matches,
        )

    @override
    async def schemas(self, context: str, ids: Collection[int]) -> Sequence[SchemaRow]:
        rows = await self._database.rows(
            f"select {SCHEMA_COLUMNS} from bearlake.schema_row s where context = $1 and id = any ($2) and {IN_USE} order by id",
            context,
            list(ids),
            is_read=True,
        )
        return [SchemaRow(*row) for row in rows]

    @override
    async def by_fingerprint(self, fingerprint: bytes) -> Sequence[SchemaRow]:
        rows = await self._database.rows(
            f"select {SCHEMA_COLUMNS} from bearlake.schema_row s where fingerprint = $1 and {IN_USE} order by context, id",
            fingerprint,
            is_read=True,
        )
        return [SchemaRow(*row) for row in rows]

    @override
    async def register(self, registration: Registration) -> VersionRow:
        # Repeatable: the second time, the revision is a newer one.
        row = await self._database.row(
            *call(
                "register_schema",
                "version, schema_id",
                context=registration.subject.context,
                subject=registration.subject.name,
                revision=registration.revision,
                fingerprint=registration.fingerprint,
                body=registration.body,
                content=registration.content,
                id=registration.schema_id,
                version=registration.version,
                contexts=[reference.subject.context for reference in registration.references],
                subjects=[reference.subject.name for reference in registration.references],
                versions=[reference.number for reference in registration.references],
            )
        )
        assert row is not None
        return VersionRow(row[0], row[1], is_deleted=False)

    @override
    async def delete(
        self, subject: SubjectKey, versions: Collection[int], *, is_permanent: bool, revision: int
    ) -> None:
        await self._database.rows(
            *call(
                "delete_schema_versions",
                context=subject.context,
                subject=subject.name,
                revision=revision,
                versions=list(versions),
                is_permanent=is_permanent,
            )
        )

    @override
    async def set_config(self, subject: SubjectKey, config: str | None, *, revision: int) -> None:
        await self._set(subject, "config", config, revision)

    @override
    async def set_mode(self, subject: SubjectKey, mode: str | None, *, revision: int) -> None:
        await self._set(subject, "mode", mode, revision)

    async def _set(self, subject: SubjectKey, what: str, value: str | None, revision: int) -> None:
        # Repeatable: the second time, the revision is a newer one.
        await self._database.rows(
            *call(
                "set_schema_rule_at",
                context=subject.context,
                subject=subject.name,
                revision=revision,
                what=what,
                value=value,
            )
        )

    @override
    async def subjects(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: SubjectKey | None = None, limit: int
    ) -> Sequence[SubjectKey]:
        first = max(after or ("", ""), (context or "", ""))
        rows = await self._database.rows(
            "select context, subject from bearlake.schema_subject s where (context, subject) > ($1, $2)"
            " and ($3::text is null or context = $3) and starts_with(subject, $4)"
            f" and {OF_SUBJECTS[deletion]} order by context, subject limit $5",
            *first,
            context,
            prefix,
            limit,
            is_read=True,
        )
        return [SubjectKey(*row) for row in rows]

    @override
    async def versions(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        first = max((*after.subject, after.number) if after else ("", "", 0), (context or "", "", 0))
        rows = await self._database.rows(
            "select * from bearlake.schema_version where (context, subject, version) > ($1, $2, $3)"
            " and ($4::text is null or context = $4) and starts_with(subject, $5)"
            f" and {OF_VERSIONS[deletion]} order by context, subject, version limit $6",
            *first,
            context,
            prefix,
            limit,
            is_read=True,
        )
        return [_usage(row) for row in rows]

    @override
    async def usages(
        self, context: str, schema_id: int, *, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        first = (after.subject.name, after.number) if after else ("", 0)
        rows = await self._database.rows(
            "select * from bearlake.schema_version where context = $1 and schema_id = $2 and (subject, version) > ($3, $4)"
            " order by subject, version limit $5",
            context,
            schema_id,
            *first,
            limit,
            is_read=True,
        )
        return [_usage(row) for row in rows]

    @override
    async def some_usages(self, context: str, schema_id: int, *, limit: int) -> Sequence[SubjectVersion]:
        rows = await self._database.rows(
            "select * from bearlake.schema_version where context = $1 and schema_id = $2 limit $3",
            context,
            schema_id,
            limit,
            is_read=True,
        )
        return [_usage(row) for row in rows]

    @override
    async def referrers(self, version: VersionKey) -> Sequence[int]:
        context, subject = version.subject
        find = call("schema_referrers", context=context, subject=subject, version=version.number)
        return [row[0] for row in await self._database.rows(*find, is_read=True)]

    @override
    async def contexts(self) -> Sequence[str]:
        rows = await self._database.rows("select context from bearlake.schema_context", is_read=True)
        return sorted({DEFAULT_CONTEXT, *(row[0] for row in rows)} - {NEW_CONTEXTS})

    @override
    async def last_id(self, context: str) -> int:
        rows = await self._database.rows(
            "select last_id from bearlake.schema_context where context = $1", context, is_read=True
        )
        return rows[0][0] if rows else 0


def _usage(row: asyncpg.Record) -> SubjectVersion:
    context, subject, version, schema_id, is_deleted = row
    return SubjectVersion(SubjectKey(context, subject), version, schema_id, is_deleted)
