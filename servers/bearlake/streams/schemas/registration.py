"""Registers schemas: looks a schema up under a subject, checks compatibility, and assigns an id to a new schema.

Each decision uses one state of the subject. The store applies the decision only if the state is unchanged (`SchemaStore`); otherwise the
registrar decides again. Decisions of this server for one subject run one at a time, so that only other servers cause conflicts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from bearlake.errors import AlreadyExists, Conflict, Overloaded
from bearlake.metadata.schemas import Registration, SchemaStore, SubjectKey, SubjectState, VersionKey, VersionRow
from bearlake.streams.audit import AuditedChange
from bearlake.streams.schemas import names, rules
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.library import Library, body_of, content_of, fingerprint_of
from bearlake.streams.schemas.model import ENCODING, Document, Draft, Mode, Reference, Schema, SchemaVersion
from bearlake.streams.schemas.problems import (
    IdDoesNotMatch,
    Incompatible,
    InvalidSchema,
    NotPermitted,
    SchemaNotFound,
    SubjectNotFound,
)
from bearlake.streams.schemas.settings import SchemasSettings

R = TypeVar("R")


class _Prepared(NamedTuple):
    """A draft whose references name version numbers, and its compiled schema."""

    draft: Draft
    compiled: Compiled


class _Understood(NamedTuple):
    """A draft and its compiled schema, in the form to store."""

    draft: Draft
    compiled: Compiled
    text: str
    body: bytes


class _Pair(NamedTuple):
    """A comparison with an earlier schema: the schema's id, and the directions that the level requires."""

    schema_id: int
    needs_backward: bool
    needs_forward: bool


class _Compare(Exception):
    """The decision needs comparisons with these schemas, the newest first."""

    def __init__(self, pairs: Sequence[_Pair]) -> None:
        self.pairs = pairs


class Registrar:
    """Looks up, compares and registers drafts."""

    def __init__(self, store: SchemaStore, library: Library, settings: SchemasSettings) -> None:
        self._store = store
        self._library = library
        self._settings = settings
        self._locks: WeakValueDictionary[SubjectKey, asyncio.Lock] = WeakValueDictionary()

    async def deciding(self, subject: SubjectKey, decide: Callable[[], Awaitable[R]]) -> R:
        """Run `decide`, and retry after a `Conflict`. Raises what `decide` raises, and `Overloaded` after too many conflicts."""
        async with self._lock_of(subject):
            for _ in range(self._settings.attempt_count_max):
                try:
                    return await decide()
                except Conflict as conflict:
                    if isinstance(conflict, Incompatible):
                        raise
        raise _overtaken(subject)

    async def register(
        self,
        subject: SubjectKey,
        draft: Draft,
        budget: Budget,
        *,
        is_normalized: bool,
        permit: Callable[[], object],
        audited: Callable[[], AuditedChange],
    ) -> SchemaVersion:
        """Return the version with this schema; registers a new version if needed, within `audited`, which takes details.

        `permit` raises `Denied` if the caller lost its rights during a wait; it is called before each answer and each commit.

        Child processes work without the subject's lock, so that a schema that takes long to compile or compare delays no other. Under the
        lock, `_register` decides with the comparisons made so far, or says which comparisons it needs.
        """
        known: dict[_Pair, list[str]] = {}
        for _ in range(self._settings.attempt_count_max):
            prepared = await self._prepared(draft, budget)
            try:
                async with self._lock_of(subject):
                    return await self._register(subject, prepared, is_normalized, known, permit, audited)
            except _Compare as needed:
                await self._compare(subject.context, prepared.compiled, needed.pairs, known, budget)
            except Conflict as conflict:
                if isinstance(conflict, Incompatible):
                    raise
        raise _overtaken(subject)

    def _lock_of(self, subject: SubjectKey) -> asyncio.Lock:
        return self._locks.setdefault(subject, asyncio.Lock())

    async def lookup(
        self,
        subject: SubjectKey,
        draft: Draft,
        permit: Callable[[], object],
        *,
        is_normalized: bool,
        with_deleted: bool,
    ) -> SchemaVersion:
        """Find a schema under its subject; `permit` as in `register`."""
        prepared = await self._prepared(draft, Budget(self._settings))
        state, understood = await self._understand(subject, prepared, is_normalized)
        permit()
        present = [row for row in state.versions if with_deleted or not row.is_deleted]
        if not present:
            raise SubjectNotFound(f"Subject '{names.shown(subject)}' not found.")
        found = self._find(state, understood, present)
        if found is None:
            raise SchemaNotFound(f"Schema not found: no version of subject '{names.shown(subject)}' has it")
        return found

    async def check(
        self,
        subject: SubjectKey,
        draft: Draft,
        rows: Sequence[VersionRow] | None,
        permit: Callable[[], object],
        *,
        is_normalized: bool,
    ) -> list[str]:
        """Check compatibility with `rows`; None: with the versions that the subject's level requires. `permit` as in `register`."""
        budget = Budget(self._settings)
        prepared = await self._prepared(draft, budget)
        known: dict[_Pair, list[str]] = {}
        for _ in range(self._settings.attempt_count_max):
            state, understood = await self._understand(subject, prepared, is_normalized)
            policy = rules.policy(state)
            compared = rows
            if compared is None:
                live = [row for row in state.versions if not row.is_deleted]
                compared = live if policy.level.is_transitive else live[-1:]
            try:
                found = await self._incompatibilities(state, policy, understood, compared, known)
                permit()
                return found
            except _Compare as needed:
                await self._compare(subject.context, prepared.compiled, needed.pairs, known, budget)
        raise _overtaken(subject)

    async def _prepared(self, draft: Draft, budget: Budget) -> _Prepared:
        """Check the draft's form and compile it. Raises `InvalidSchema`, `SchemaTooLarge`, `Invalid`."""
        if not draft.text.strip():
            raise InvalidSchema("Empty schema: expected its text in the field schema")
        rules.check_metadata(draft.metadata)
        rules.check_rule_set(draft.rule_set)
        limit = self._settings.schema_bytes_max
        rules.check_size("the schema with its metadata and rules", limit, draft.text, draft.metadata, draft.rule_set)
        draft = replace(draft, references=tuple([await self._pinned(reference) for reference in draft.references]))
        return _Prepared(draft, await self._library.compiled(draft.type, draft.text, draft.references, budget))

    async def _understand(
        self, subject: SubjectKey, prepared: _Prepared, is_normalized: bool
    ) -> tuple[SubjectState, _Understood]:
        draft, compiled = prepared
        plain = _Understood(draft, compiled, compiled.text, body_of(draft.type, compiled.canonical, draft.references))
        normal = _Understood(
            draft, compiled, compiled.normalized, body_of(draft.type, compiled.normalized, draft.references)
        )
        understood = normal if is_normalized else plain
        state = await self._store.subject(subject, understood.body)
        if rules.policy(state).is_normalizing and understood is plain and plain.body != normal.body:
            return await self._store.subject(subject, normal.body), normal
        return state, understood

    async def _pinned(self, reference: Reference) -> Reference:
        """Replace `latest` in a reference by the version number."""
        subject, number = reference.version
        if number != names.LATEST:
            return reference
        live = [row.number for row in (await self._store.subject(subject)).versions if not row.is_deleted]
        if not live:
            raise InvalidSchema(f"Invalid schema: the reference {reference.name!r} is to a subject without versions")
        return replace(reference, version=VersionKey(subject, live[-1]))

    def _find(self, state: SubjectState, understood: _Understood, rows: Sequence[VersionRow]) -> SchemaVersion | None:
        """Return the newest version with this schema; metadata and rules must match if the draft has them."""
        draft = understood.draft
        matches = {row.id: row for row in state.matches}
        if draft.metadata is not None or draft.rule_set is not None:
            metadata, rule_set = rules.with_defaults(rules.in_scope(state), draft.metadata, draft.rule_set)
            fingerprint = fingerprint_of(understood.body, metadata, rule_set)
            matches = {row.id: row for row in state.matches if row.fingerprint == fingerprint}
        for row in reversed(rows):
            if row.schema_id in matches:
                schema = self._library.keep(matches[row.schema_id])
                return SchemaVersion(subject=state.subject, number=row.number, is_deleted=row.is_deleted, schema=schema)
        return None

    async def _register(
        self,
        subject: SubjectKey,
        prepared: _Prepared,
        is_normalized: bool,
        known: Mapping[_Pair, list[str]],
        permit: Callable[[], object],
        audited: Callable[[], AuditedChange],
    ) -> SchemaVersion:
        """Decide and store. Raises `_Compare` if `known` lacks comparisons."""
        draft = prepared.draft
        state, understood = await self._understand(subject, prepared, is_normalized)
        permit()
        live = [row for row in state.versions if not row.is_deleted]
        found = self._find(state, understood, live)
        if found is not None and draft.id in (None, found.schema.id):
            return found
        policy = rules.policy(state)
        _check_mode(subject, policy.mode, draft)
        if found is not None and draft.version in (None, found.number):
            raise IdDoesNotMatch(f"Schema already registered with id {found.schema.id} instead of input id {draft.id}")
        if policy.mode is not Mode.IMPORT:
            compared = live if policy.level.is_transitive else live[-1:]
            messages = await self._incompatibilities(state, policy, understood, compared, known)
            if messages:
                raise Incompatible(names.shown(subject), messages)
            _check_next(draft, state)
        metadata, rule_set = await self._completed(state, policy, draft, live)
        permit()  # the rights may have changed since the request arrived: nothing waits between this and the commit
        with audited() as details:
            version = await self._store_version(state, understood, metadata, rule_set)
            details.append(f"version {version.number} id {version.schema.id}")
        return version

    async def _completed(
        self, state: SubjectState, policy: rules.Policy, draft: Draft, live: Sequence[VersionRow]
    ) -> tuple[Document | None, Document | None]:
        """Return metadata and rules: the draft's, or the previous version's, merged with those of the config."""
        metadata, rule_set = draft.metadata, draft.rule_set
        if live and (metadata is None or rule_set is None):
            latest = await self._library.schema(state.subject.context, live[-1].schema_id)
            metadata = latest.metadata if metadata is None else metadata
            rule_set = latest.rule_set if rule_set is None else rule_set
        return rules.with_defaults(policy.config, metadata, rule_set)

    async def _store_version(
        self, state: SubjectState, understood: _Understood, metadata: Document | None, rule_set: Document | None
    ) -> SchemaVersion:
        draft = understood.draft
        registration = Registration(
            subject=state.subject,
            revision=state.revision,
            fingerprint=fingerprint_of(understood.body, metadata, rule_set),
            body=understood.body,
            content=content_of(draft.type, understood.text, draft.references, metadata, rule_set),
            references=[reference.version for reference in draft.references],
            schema_id=draft.id,
            version=draft.version if draft.id is not None else None,
        )
        try:
            row = await self._store.register(registration)
        except AlreadyExists as error:
            raise NotPermitted(f"Overwrite new schema is not permitted: {error}") from error
        schema = await self._library.schema(state.subject.context, row.schema_id)
        return SchemaVersion(subject=state.subject, number=row.number, is_deleted=False, schema=schema)

    async def _incompatibilities(
        self,
        state: SubjectState,
        policy: rules.Policy,
        understood: _Understood,
        rows: Sequence[VersionRow],
        known: Mapping[_Pair, list[str]],
    ) -> list[str]:
        """Return the messages for the newest incompatible version. Raises `_Compare` if `known` lacks a comparison that decides."""
        if not (policy.level.needs_backward or policy.level.needs_forward):
            return []
        missing: list[_Pair] = []
        for row in reversed(rows):
            schema = await self._library.find(state.subject.context, row.schema_id)
            if schema is None or not _is_of_group(policy, understood.draft, schema):
                continue
            pair = _Pair(row.schema_id, policy.level.needs_backward, policy.level.needs_forward)
            messages = _encoding_change(understood.draft, schema) or known.get(pair)
            if messages is None:
                missing.append(pair)
            elif messages:
                if missing:
                    break
                return [*messages, f"{{oldSchemaVersion: {row.number}}}", f"{{compatibility: '{policy.level.value}'}}"]
        if missing:
            raise _Compare(missing)
        return []

    async def _compare(
        self, context: str, new: Compiled, pairs: Sequence[_Pair], known: dict[_Pair, list[str]], budget: Budget
    ) -> None:
        """Compare with these schemas, up to the first incompatible one. Raises `SchemaTooLarge`, `Overloaded`, `Unavailable`."""
        for pair in pairs:
            schema = await self._library.find(context, pair.schema_id)
            if schema is None:
                continue  # it was deleted: the next decision does not need it
            old = await self._library.compiled_schema(schema, budget)
            messages: list[str] = []
            if pair.needs_backward:
                messages += await self._library.incompatibilities(new, old, budget)
            if pair.needs_forward:
                messages += await self._library.incompatibilities(old, new, budget)
            known[pair] = messages
            if messages:
                return


def _overtaken(subject: SubjectKey) -> Overloaded:
    return Overloaded(f"the subject {names.shown(subject)!r} is changed by others all the time, come back later")


def _check_mode(subject: SubjectKey, mode: Mode, draft: Draft) -> None:
    name = names.shown(subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise NotPermitted(f"Subject {name} is in read-only mode")
    if draft.id is not None and mode is not Mode.IMPORT:
        raise NotPermitted(f"Subject {name} is not in import mode: expected a schema without id")
    if draft.id is None and mode is Mode.IMPORT:
        raise NotPermitted(f"Subject {name} is in import mode: the schema needs its id")


def _check_next(draft: Draft, state: SubjectState) -> None:
    following = max((row.number for row in state.versions), default=0) + 1
    if draft.version is not None and draft.version != following:
        raise InvalidSchema(f"Version is not one more than previous version: {draft.version} instead of {following}")


def _is_of_group(policy: rules.Policy, draft: Draft, schema: Schema) -> bool:
    """Whether the schema and the draft are in the same compatibility group, so that they are compared."""
    group = policy.compatibility_group
    if not group:
        return True
    return _property(draft.metadata, group) == _property(schema.metadata, group)


def _encoding_change(draft: Draft, schema: Schema) -> list[str]:
    """Return messages if the two schemas' encodings differ; a draft without metadata inherits the schema's."""
    before, after = _property(schema.metadata, ENCODING), _property(draft.metadata, ENCODING)
    if draft.metadata is None or before == after:
        return []
    return [
        f"{{errorType:'SCHEMA_TYPE_CHANGED', description:'values were written as {before}, and would be as {after}'}}"
    ]


def _property(metadata: Document | None, name: str) -> object:
    properties = (metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None
