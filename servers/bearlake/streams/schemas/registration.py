"""Registers schemas: looks a schema up under a subject, checks compatibility, and assigns an id to a new schema.

Each decision uses one state of the subject. The store applies the decision only if the state is unchanged (`SchemaStore`); otherwise the
registrar decides again. Calls of this server for one subject run one at a time, so only other servers can cause conflicts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from bearlake.errors import AlreadyExists, Conflict, Overloaded
from bearlake.metadata.schemas import Registration, SchemaStore, SubjectKey, SubjectState, VersionKey, VersionRow
from bearlake.streams.schemas import names, rules
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


class _Understood(NamedTuple):
    """A draft and its compiled schema."""

    draft: Draft
    compiled: Compiled
    text: str
    body: bytes


class Registrar:
    """Looks up, compares and registers drafts."""

    def __init__(self, store: SchemaStore, library: Library, settings: SchemasSettings) -> None:
        self._store = store
        self._library = library
        self._settings = settings
        self._turns: WeakValueDictionary[SubjectKey, asyncio.Lock] = WeakValueDictionary()

    async def deciding(self, subject: SubjectKey, decide: Callable[[], Awaitable[R]]) -> R:
        """Run `decide`, and retry after a `Conflict`. Raises what `decide` raises, and `Overloaded` after too many conflicts."""
        turn = self._turns.setdefault(subject, asyncio.Lock())
        async with turn:
            for _ in range(self._settings.attempt_count_max):
                try:
                    return await decide()
                except Conflict as conflict:
                    if isinstance(conflict, Incompatible):
                        raise
        raise Overloaded(f"too many concurrent changes to subject {names.shown(subject)!r}; retry later")

    async def register(self, subject: SubjectKey, draft: Draft, *, is_normalized: bool) -> SchemaVersion:
        """Return the version with this schema; registers a new version if needed."""
        return await self.deciding(subject, lambda: self._register(subject, draft, is_normalized))

    async def lookup(
        self, subject: SubjectKey, draft: Draft, *, is_normalized: bool, with_deleted: bool
    ) -> SchemaVersion:
        """Find a schema under its subject."""
        state, understood = await self._understand(subject, draft, is_normalized)
        present = [row for row in state.versions if with_deleted or not row.is_deleted]
        if not present:
            raise SubjectNotFound(f"Subject '{names.shown(subject)}' not found.")
        found = self._find(state, understood, present)
        if found is None:
            raise SchemaNotFound(f"Schema not found: no version of subject '{names.shown(subject)}' has this schema")
        return found

    async def check(
        self, subject: SubjectKey, draft: Draft, rows: Sequence[VersionRow] | None, *, is_normalized: bool
    ) -> list[str]:
        """Check compatibility with `rows`; None: with the versions that the subject's level requires."""
        state, understood = await self._understand(subject, draft, is_normalized)
        policy = rules.policy(state)
        if rows is None:
            rows = [row for row in state.versions if not row.is_deleted]
            rows = rows if policy.level.is_transitive else rows[-1:]
        return await self._incompatibilities(state, policy, understood, rows)

    async def _understand(
        self, subject: SubjectKey, draft: Draft, is_normalized: bool
    ) -> tuple[SubjectState, _Understood]:
        if not draft.text.strip():
            raise InvalidSchema("Empty schema: expected its text in the field schema")
        if any("\ud800" <= character <= "\udfff" for character in draft.text):
            raise InvalidSchema("Invalid schema: the text has an unpaired surrogate")
        rules.check_metadata(draft.metadata)
        rules.check_rule_set(draft.rule_set)
        draft = replace(draft, references=tuple([await self._pinned(one) for one in draft.references]))
        compiled = await self._library.compiled(draft.type, draft.text, draft.references)
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
            raise InvalidSchema(f"Invalid schema: the reference {reference.name!r} names a subject without versions")
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

    async def _register(self, subject: SubjectKey, draft: Draft, is_normalized: bool) -> SchemaVersion:
        state, understood = await self._understand(subject, draft, is_normalized)
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
            messages = await self._incompatibilities(state, policy, understood, compared)
            if messages:
                raise Incompatible(
                    f"Schema being registered is incompatible with an earlier schema for subject"
                    f' "{names.shown(subject)}", details: [{", ".join(messages)}]',
                    messages,
                )
            _check_next(draft, state)
        metadata, rule_set = await self._completed(state, policy, draft, live)
        return await self._store_version(state, understood, metadata, rule_set)

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
        self, state: SubjectState, policy: rules.Policy, understood: _Understood, rows: Sequence[VersionRow]
    ) -> list[str]:
        """Compare the draft with these versions, newest first; returns the messages for the first incompatible version."""
        if not (policy.level.needs_backward or policy.level.needs_forward):
            return []
        schemas = await self._library.schemas(state.subject.context, [row.schema_id for row in rows])
        for row in reversed(rows):
            schema = schemas.get(row.schema_id)
            if schema is None or not _is_of_group(policy, understood.draft, schema):
                continue
            messages = _encoding_change(understood.draft, schema)
            if not messages:
                messages = await self._between(policy, understood.compiled, await self._library.compiled_schema(schema))
            if messages:
                return [*messages, f"{{oldSchemaVersion: {row.number}}}", f"{{compatibility: '{policy.level.value}'}}"]
        return []

    async def _between(self, policy: rules.Policy, new: Compiled, old: Compiled) -> list[str]:
        messages = []
        if policy.level.needs_backward:
            messages += await self._library.incompatibilities(new, old)
        if policy.level.needs_forward:
            messages += await self._library.incompatibilities(old, new)
        return messages


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
        f"{{errorType:'SCHEMA_TYPE_CHANGED', description:'values were written as {before} and would now be written as {after}'}}"
    ]


def _property(metadata: Document | None, name: str) -> object:
    properties = (metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None
