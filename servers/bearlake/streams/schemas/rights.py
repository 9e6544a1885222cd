"""What callers may do to subjects, contexts and schemas."""

from bearlake.metadata.schemas import DEFAULT_CONTEXT, GLOBAL_SUBJECT, SchemaStore, SubjectKey
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource, require
from bearlake.streams.schemas import names
from bearlake.streams.schemas.listing import usages_of
from bearlake.streams.schemas.model import Draft


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

    def level(self, who: Principal, operation: Operation, subject: str) -> SubjectKey:
        """Return the key of a subject, a context or the registry, which have a config and a mode. Raises `InvalidSubject`, `Denied`."""
        key = names.split(subject)
        key = names.GLOBAL if key.name in names.GLOBAL_NAMES and key.context == DEFAULT_CONTEXT else key
        self.require(who, operation, key)
        return key
