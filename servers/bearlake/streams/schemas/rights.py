"""What callers may do to subjects, contexts and schemas."""

import asyncio

from bearlake.metadata.schemas import DEFAULT_CONTEXT, GLOBAL_SUBJECT, SchemaStore, SubjectKey
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource, require
from bearlake.streams.schemas import names
from bearlake.streams.schemas.listing import usages_of
from bearlake.streams.schemas.model import Draft

SOME_USAGES_COUNT = 100
"""Usages of a schema at which a caller's rights are looked at first; the store need not sort all of them to find these."""


class SubjectRights:
    """Asks the authorizer about subjects, by the names that clients write."""

    def __init__(self, store: SchemaStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def may(self, who: Principal, operation: Operation, key: SubjectKey) -> bool:
        """Whether `who` may do `operation` to a subject, a context or the registry."""
        return self._authorizer.allows(who, operation, Resource.SUBJECT, names.resource(key))

    def sees(self, who: Principal, operation: Operation, key: SubjectKey) -> bool:
        """As `may`, for what a list shows, or for one of several rights: the audit log notes no denial."""
        return self._authorizer.sees(who, operation, Resource.SUBJECT, names.resource(key))

    async def may_read_schema(self, who: Principal, context: str, schema_id: int) -> bool:
        """Whether `who` may read a schema: by a right on its context, or on a subject with a version of it, which may be deleted."""
        if self.sees(who, Operation.READ, SubjectKey(context, GLOBAL_SUBJECT)):
            return True
        usages = await self._store.some_usages(context, schema_id, limit=SOME_USAGES_COUNT)
        if any(self.sees(who, Operation.READ, version.subject) for version in usages):
            return True
        if len(usages) < SOME_USAGES_COUNT:
            return False
        await asyncio.sleep(0)  # a store in memory does not wait
        async for part in usages_of(self._store, context, schema_id):
            if any(self.sees(who, Operation.READ, version.subject) for version in part):
                return True
        return False

    def require(self, who: Principal, operation: Operation, key: SubjectKey) -> None:
        """Raise `Denied` unless `who` may do `operation`."""
        require(self._authorizer, who, operation, Resource.SUBJECT, names.resource(key))

    def subject(self, who: Principal, operation: Operation, subject: str) -> SubjectKey:
        """Return the key of a subject that can have versions. Raises `InvalidSubject`, `Denied`."""
        key = names.parse(subject)
        self.require(who, operation, key)
        return key

    def subject_of_draft(self, who: Principal, operation: Operation, subject: str, draft: Draft) -> SubjectKey:
        """Return the key of a draft's subject. Raises `InvalidSubject`; `Denied`, also if `who` may not read what the draft references."""
        key = self.subject(who, operation, subject)
        for reference in draft.references:
            self.require(who, Operation.READ, reference.version.subject)
        return key

    def subject_to_register(self, who: Principal, subject: str, draft: Draft) -> SubjectKey:
        """As `subject_of_draft`, to register it. `Denied` also if the draft has an id and `who` may not write in the context."""
        key = self.subject_of_draft(who, Operation.WRITE, subject, draft)
        if draft.id is not None:  # the next ids of the context follow the largest one
            self.require(who, Operation.WRITE, SubjectKey(key.context, GLOBAL_SUBJECT))
        return key

    def level(self, who: Principal, operation: Operation, subject: str) -> SubjectKey:
        """Return the key of a subject, a context or the registry, which have a config and a mode. Raises `InvalidSubject`, `Denied`."""
        key = names.split(subject)
        key = names.GLOBAL if key.name in names.GLOBAL_NAMES and key.context == DEFAULT_CONTEXT else key
        self.require(who, operation, key)
        return key
