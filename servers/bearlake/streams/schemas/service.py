"""The schema registry of one server process: the interface for protocol servers.

Any server can serve any call, because the metadata store applies all decisions. A server caches only schemas by id, which never change;
it reads subjects, versions, configs and modes from the store for every call.

    register, lookup, check       register a schema under a subject, find it, check compatibility
    schema, version, versions …   read what is registered
    delete_subject, delete_version
    config, set_config, mode, set_mode
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from bearlake.metadata.schemas import (
    DEFAULT_CONTEXT,
    GLOBAL_SUBJECT,
    Deletion,
    SchemaStore,
    SubjectKey,
    SubjectState,
    SubjectVersion,
    VersionKey,
    VersionRow,
)
from bearlake.streams.audit import Audit, AuditedChange
from bearlake.streams.principal import AllowAll, Authorizer, Operation, Principal, Resource
from bearlake.streams.schemas import names, rules
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.deletion import Remover, existing, pick
from bearlake.streams.schemas.library import Library
from bearlake.streams.schemas.listing import PAGE_COUNT, bounded, is_listed, sliced, usages_of, with_schemas
from bearlake.streams.schemas.model import Document, Draft, Mode, Schema, SchemaType, SchemaVersion
from bearlake.streams.schemas.problems import (
    ConfigNotFound,
    Incompatible,
    ModeNotFound,
    SchemaNotFound,
    SubjectNotFound,
    VersionNotFound,
)
from bearlake.streams.schemas.registration import Registrar
from bearlake.streams.schemas.rights import SubjectRights
from bearlake.streams.schemas.ruling import Ruler
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values.model import Unfit
from bearlake.streams.turns import in_turns

R = TypeVar("R")


class Schemas:
    """The registry. Every call may raise `Unavailable`, `Overloaded` and `Denied`; calls with a subject may raise `InvalidSubject`.

    Lists contain only entries that the caller may see. Callers may read a schema by its id or guid if they may read its context, or
    one of the subjects that use it. A draft may reference only what its caller may read.
    """

    def __init__(
        self,
        store: SchemaStore,
        settings: SchemasSettings | None = None,
        authorizer: Authorizer | None = None,
        audit: Audit | None = None,
    ) -> None:
        """`authorizer` None: every operation is allowed."""
        self._audit = audit or Audit()
        self.settings = settings or SchemasSettings()
        self._store = store
        self._rights = SubjectRights(store, authorizer or AllowAll())
        self._library = Library(store, self.settings)
        self._registrar = Registrar(store, self._library, self.settings)
        self._remover = Remover(store, self._library)
        self._ruler = Ruler(store, self.settings)

    def close(self) -> None:
        """Stop the child processes. The store stays open; it belongs to the caller."""
        self._library.close()

    # -- registering ---------------------------------------------------------------------------------------------

    async def register(
        self,
        who: Principal,
        subject: str,
        draft: Draft,
        *,
        is_normalized: bool = False,
        budget: Budget | None = None,
    ) -> SchemaVersion:
        """Return the subject's version with this schema; registers it if needed. Equal schemas have the same id within a context.

        Raises:
            InvalidSchema, SchemaTooLarge: the text or a reference is invalid.
            Incompatible: the subject's level forbids the schema, given earlier versions.
            NotPermitted, IdDoesNotMatch: the subject's mode forbids the change, or the imported id does not match.
            Denied: also if the draft has an id, which belongs to the context, and `who` may not write in the context.
        """
        permit = partial(self._rights.subject_to_register, who, subject, draft)
        key = permit()
        audited = partial(self._changing, who, Operation.WRITE, key)
        budget = budget or Budget(self.settings)
        try:
            return await self._registrar.register(
                key, draft, budget, is_normalized=is_normalized, permit=permit, audited=audited
            )
        except Incompatible as error:
            if self._rights.sees(who, Operation.READ, key):
                raise
            raise error.without_details() from None

    async def lookup(
        self, who: Principal, subject: str, draft: Draft, *, is_normalized: bool = False, with_deleted: bool = False
    ) -> SchemaVersion:
        """Return the subject's version with this schema. Raises `SubjectNotFound`, `SchemaNotFound`, `InvalidSchema`."""
        permit = partial(self._rights.subject_of_draft, who, Operation.READ, subject, draft)
        key = permit()
        return await self._registrar.lookup(key, draft, permit, is_normalized=is_normalized, with_deleted=with_deleted)

    async def check(
        self, who: Principal, subject: str, draft: Draft, version: int | None = None, *, is_normalized: bool = False
    ) -> list[str]:
        """Check the draft against one version, or (None) against the versions that the subject's level requires.

        Returns the incompatibilities; empty: compatible. Raises `InvalidSchema`, and for one version `SubjectNotFound`, `VersionNotFound`.
        """
        permit = partial(self._rights.subject_of_draft, who, Operation.READ, subject, draft)
        key = permit()
        rows: Sequence[VersionRow] | None = None
        if version is not None:
            state = await self._store.subject(key)
            if not state.versions and version == names.LATEST:
                return []
            rows = [pick(state, version, with_deleted=False)]
        return await self._registrar.check(key, draft, rows, permit, is_normalized=is_normalized)

    # -- reading -------------------------------------------------------------------------------------------------

    async def schema(self, who: Principal, schema_id: int, subject: str | None = None) -> Schema:
        """Return the schema with this id, in the context of `subject`. Raises `SchemaNotFound`."""
        context = DEFAULT_CONTEXT if subject is None else names.split(subject).context
        if not await self._rights.may_read_schema(who, context, schema_id):
            self._rights.require(who, Operation.READ, SubjectKey(context, GLOBAL_SUBJECT))
        return await self._library.schema(context, schema_id)

    async def compiled(self, schema: Schema, budget: Budget | None = None) -> Compiled:
        """Compile a schema. Raises `InvalidSchema`, `SchemaTooLarge`, `Overloaded`, `Unavailable`."""
        return await self._library.compiled_schema(schema, budget)

    async def exported(self, who: Principal, schema: Schema, form: str) -> str:
        """Return a schema's text as `serialized` (Protobuf) or `resolved` (Avro), which contains what it references; else as stored.

        Raises as `compiled`; `Denied` if the caller may not read what `resolved` contains.
        """
        for subject in await self._library.referenced(schema) if form == "resolved" else ():
            self._rights.require(who, Operation.READ, subject)
        return (await self.compiled(schema)).exports.get(form, schema.text)

    async def compiled_text(self, type_: SchemaType, text: str, budget: Budget) -> Compiled:
        """Compile a text without references. Raises as `compiled`."""
        return await self._library.compiled(type_, text, (), budget)

    async def written(self, schema: Schema, texts: Sequence[bytes], budget: Budget) -> list[bytes | Unfit]:
        """Serialize JSON texts, each after the schema's id; an `Unfit` stands for a value that does not fit. Raises as `compiled`."""
        return await self._library.written(schema, texts, budget)

    async def read(self, schema: Schema, values: Sequence[bytes], budget: Budget) -> list[bytes | Unfit]:
        """Return the JSON texts of the bytes after a schema's id; see `Pool.read` for what is missing. Raises as `compiled`."""
        return await self._library.read(schema, values, budget)

    async def last_id(self, who: Principal, subject: str | None = None) -> int:
        """Return the largest schema id in the context of `subject`."""
        context = DEFAULT_CONTEXT if subject is None else names.split(subject).context
        self._rights.require(who, Operation.READ, SubjectKey(context, GLOBAL_SUBJECT))
        return await self._store.last_id(context)

    async def by_guid(self, who: Principal, guid: UUID) -> list[Schema]:
        """Return the schema with this guid, from every context that has it. Raises `SchemaNotFound`."""
        rows = await self._store.by_fingerprint(guid.bytes)
        rows = [row for row in rows if await self._rights.may_read_schema(who, row.context, row.id)]
        if not rows:
            raise SchemaNotFound(f"Schema {guid} not found")
        return [self._library.keep(row) for row in rows]

    async def usages(
        self, who: Principal, schema_id: int, subject: str | None = None, *, with_deleted: bool = False
    ) -> list[SubjectVersion]:
        """Return the versions with this schema; if `subject` names more than a context, only its versions. Raises `SchemaNotFound`."""
        key = SubjectKey(DEFAULT_CONTEXT, GLOBAL_SUBJECT) if subject is None else names.split(subject)
        is_used = is_seen = False
        found: list[SubjectVersion] = []
        async for part in usages_of(self._store, key.context, schema_id):
            seen = [version for version in part if self._rights.sees(who, Operation.DESCRIBE, version.subject)]
            is_used, is_seen = is_used or bool(part), is_seen or bool(seen)
            listed = [version for version in seen if with_deleted or not version.is_deleted]
            found += [version for version in listed if key.name in (GLOBAL_SUBJECT, version.subject.name)]
        may_know = is_seen or self._rights.may(who, Operation.READ, SubjectKey(key.context, GLOBAL_SUBJECT))
        if not is_used or not may_know:
            raise SchemaNotFound(f"Schema {schema_id} not found")
        return found

    async def contexts(self, who: Principal, *, offset: int = 0, limit: int = -1) -> Sequence[str]:
        """Return the contexts, sorted by name."""
        seen: list[str] = []
        async for part in in_turns(await self._store.contexts()):
            seen += [
                name for name in part if self._rights.sees(who, Operation.DESCRIBE, SubjectKey(name, GLOBAL_SUBJECT))
            ]
        return sliced(seen, offset, limit)

    async def subjects(
        self, who: Principal, prefix: str, deletion: Deletion, *, offset: int = 0, limit: int = -1
    ) -> list[str]:
        """Return subjects whose name starts with `prefix` (see `names.parse_prefix`), sorted by context and name."""
        context, start = names.parse_prefix(prefix)
        limit = bounded(limit, self.settings.subject_list_count_max)
        found: list[SubjectKey] = []
        after: SubjectKey | None = None
        while len(found) < offset + limit:
            page = await self._store.subjects(
                context=context, prefix=start, deletion=deletion, after=after, limit=PAGE_COUNT
            )
            found += [key for key in page if self._rights.sees(who, Operation.DESCRIBE, key)]
            if len(page) < PAGE_COUNT:
                break
            after = page[-1]
        return [names.shown(key) for key in sliced(found, offset, limit)]

    async def all_versions(
        self,
        who: Principal,
        prefix: str,
        deletion: Deletion,
        *,
        is_latest_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[SchemaVersion]:
        """Return versions, with their schemas, of all subjects whose name starts with `prefix`."""
        context, start = names.parse_prefix(prefix)
        limit = bounded(limit, self.settings.schema_list_count_max)
        found: list[SubjectVersion] = []
        after: VersionKey | None = None
        while len(found) <= offset + limit:
            page = await self._store.versions(
                context=context, prefix=start, deletion=deletion, after=after, limit=PAGE_COUNT
            )
            for version in page:
                if not self._rights.sees(who, Operation.READ, version.subject):
                    continue
                if is_latest_only and found and found[-1].subject == version.subject:
                    found.pop()
                found.append(version)
            if len(page) < PAGE_COUNT:
                break
            after = VersionKey(page[-1].subject, page[-1].number)
        return await with_schemas(self._library, sliced(found, offset, limit), self.settings.schema_list_bytes_max)

    async def versions(
        self, who: Principal, subject: str, deletion: Deletion, *, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the numbers of the subject's versions. Raises `SubjectNotFound`."""
        state = await self._existing(who, Operation.DESCRIBE, subject)
        found = [row.number for row in state.versions if is_listed(row, deletion)]
        if not found:
            raise SubjectNotFound(f"Subject '{subject}' not found.")
        return list(sliced(found, offset, limit))

    async def version(self, who: Principal, subject: str, version: int, *, with_deleted: bool = False) -> SchemaVersion:
        """Return a version (or `names.LATEST`) with its schema. Raises `SubjectNotFound`, `VersionNotFound`."""
        state = await self._existing(who, Operation.READ, subject)
        key = state.subject
        if not with_deleted and all(row.is_deleted for row in state.versions):
            raise SubjectNotFound(f"Subject '{subject}' not found.")
        row = pick(state, version, with_deleted=with_deleted)
        schema = await self._library.schema(key.context, row.schema_id)
        return SchemaVersion(subject=key, number=row.number, is_deleted=row.is_deleted, schema=schema)

    async def latest_with_metadata(
        self, who: Principal, subject: str, properties: Document, *, with_deleted: bool = False
    ) -> SchemaVersion:
        """Return the newest version whose metadata has all these properties. Raises `SubjectNotFound`, `VersionNotFound`."""
        state = await self._existing(who, Operation.READ, subject)
        for row in reversed(state.versions):
            if row.is_deleted and not with_deleted:
                continue
            schema = await self._library.find(state.subject.context, row.schema_id)
            own = ((schema.metadata if schema else None) or {}).get("properties") or {}
            if schema and properties.items() <= own.items():
                return SchemaVersion(subject=state.subject, number=row.number, is_deleted=row.is_deleted, schema=schema)
        raise VersionNotFound("Version not found: no version has this metadata")

    async def referrers(self, who: Principal, subject: str, version: int) -> Sequence[int]:
        """Return the ids of schemas with live versions that reference this version. Raises `SubjectNotFound`, `VersionNotFound`."""
        state = await self._existing(who, Operation.READ, subject)
        row = pick(state, version, with_deleted=True)
        return await self._store.referrers(VersionKey(state.subject, row.number))

    # -- deleting ------------------------------------------------------------------------------------------------

    async def delete_subject(self, who: Principal, subject: str, *, is_permanent: bool = False) -> list[int]:
        """Delete a subject. Soft: its live versions, config and mode. Permanent: all versions, which must be soft-deleted already.

        Raises:
            SubjectNotFound, SubjectSoftDeleted, SubjectNotSoftDeleted, ReferenceExists, NotPermitted
        """
        key = self._rights.subject(who, Operation.DELETE, subject)
        decide = partial(self._remover.subject, key, is_permanent)
        return await self._change(who, Operation.DELETE, key, f"permanent={is_permanent}", decide)

    async def delete_version(self, who: Principal, subject: str, version: int, *, is_permanent: bool = False) -> int:
        """Soft-delete one version (or `names.LATEST`), or permanently delete a soft-deleted version.

        Raises:
            SubjectNotFound, VersionNotFound, VersionSoftDeleted, VersionNotSoftDeleted, ReferenceExists, NotPermitted
        """
        key = self._rights.subject(who, Operation.DELETE, subject)
        decide = partial(self._remover.version, key, version, is_permanent)
        return await self._change(who, Operation.DELETE, key, f"version {version} permanent={is_permanent}", decide)

    # -- config and mode -----------------------------------------------------------------------------------------

    async def config(self, who: Principal, subject: str = "", *, is_in_scope: bool = False) -> Document:
        """Return the config of a subject, of a context (`:.context:`) or of the registry (empty).

        `is_in_scope`: include fields inherited from wider levels; otherwise only its own. Raises `ConfigNotFound`.
        """
        key = self._rights.level(who, Operation.DESCRIBE, subject)
        state = await self._store.subject(key)
        own = rules.loaded(state.rules[0].config)
        if is_in_scope or key == names.GLOBAL:
            return rules.in_scope(state)
        if own is None:
            raise ConfigNotFound(f"Subject '{subject}' does not have subject-level compatibility configured")
        return own

    async def set_config(self, who: Principal, subject: str, update: Document) -> Document:
        """Change fields of a config; see `rules.updated`. Returns the applied update. Raises `NotPermitted`."""
        key = self._rights.level(who, Operation.ALTER, subject)
        decide = partial(self._ruler.set_config, key, update)
        return await self._change(who, Operation.ALTER, key, f"config {','.join(update)}", decide)

    async def unset_config(self, who: Principal, subject: str = "") -> Document:
        """Unset a config; returns the previous config. Raises `ConfigNotFound`, `NotPermitted`."""
        before = await self.config(who, subject)
        key = self._rights.level(who, Operation.ALTER, subject)
        await self._change(who, Operation.ALTER, key, "config unset", partial(self._ruler.unset_config, key))
        return before

    async def mode(self, who: Principal, subject: str = "", *, is_in_scope: bool = False) -> Mode:
        """Return the mode of a subject, a context or the registry; see `config`. Raises `ModeNotFound`."""
        key = self._rights.level(who, Operation.DESCRIBE, subject)
        state = await self._store.subject(key)
        if is_in_scope or key == names.GLOBAL:
            return rules.mode_in_scope(state)
        if state.rules[0].mode is None:
            raise ModeNotFound(f"Subject '{subject}' does not have subject-level mode configured")
        return Mode(state.rules[0].mode)

    async def set_mode(self, who: Principal, subject: str, mode: Mode, *, is_forced: bool = False) -> None:
        """Set a mode. Raises `NotPermitted`: unless forced, IMPORT requires a subject (or context) without schemas."""
        key = self._rights.level(who, Operation.ALTER, subject)
        decide = partial(self._ruler.set_mode, key, mode, is_forced=is_forced)
        await self._change(who, Operation.ALTER, key, f"mode {mode.value}", decide)

    async def unset_mode(self, who: Principal, subject: str = "") -> Mode:
        """Unset a mode; returns the previous mode. Raises `ModeNotFound`."""
        before = await self.mode(who, subject)
        key = self._rights.level(who, Operation.ALTER, subject)
        await self._change(who, Operation.ALTER, key, "mode unset", partial(self._ruler.set_mode, key, None))
        return before

    # -- internals -----------------------------------------------------------------------------------------------

    async def _change(
        self, who: Principal, operation: Operation, key: SubjectKey, detail: str, decide: Callable[[], Awaitable[R]]
    ) -> R:
        """Make a change. The right is asked again for each attempt: a change waits for earlier changes of its subject."""

        async def permitted() -> R:
            self._rights.require(who, operation, key)
            return await decide()

        with self._changing(who, operation, key, detail):
            return await self._registrar.deciding(key, permitted)

    def _changing(self, who: Principal, operation: Operation, key: SubjectKey, *details: str) -> AuditedChange:
        return self._audit.change(who, operation, Resource.SUBJECT.value, names.resource(key), *details)

    async def _existing(self, who: Principal, operation: Operation, subject: str) -> SubjectState:
        """Return the state of a subject that has versions, or of the subject that its config names as alias."""
        state = await self._store.subject(self._rights.subject(who, operation, subject))
        alias = (rules.loaded(state.rules[0].config) or {}).get("alias")
        if alias:
            aliased = names.within(alias, state.subject.context)
            state = await self._store.subject(self._rights.subject(who, operation, names.shown(aliased)))
        return existing(state)
