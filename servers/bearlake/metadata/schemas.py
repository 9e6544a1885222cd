"""The interface `schemas` of the metadata store: subjects, their versions, and schemas by id.

The store knows names, numbers and fingerprints. Schemas, configs and modes are opaque texts that `streams/schemas/` writes and reads.
`streams/schemas/` decides on a `SubjectState`, and its write names that state's `revision`. So if two servers decide at the same time,
one of them must read again.

- An id belongs to one context and is given once, even if nothing uses its schema.
- Registrations of equal fingerprints get the same id in a context, however many servers register at once (except imports, which
  bring their own ids).
- All writes are safe to repeat: after `Unavailable` read again; the state shows whether the step happened.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

DEFAULT_CONTEXT = "."
"""The context of subjects that name no context."""

NEW_CONTEXTS = ""
"""In place of a context in the stores: where contexts that are not there yet count from. Only restored stores have it (decision 357)."""

NUMBER_MAX = 2**31 - 1
"""The largest id and the largest version: serializers write ids in 31 bits. An import may bring either, and nothing comes after them."""

GLOBAL_SUBJECT = ""
"""Subject whose config and mode apply to its whole context; in the default context, to the registry."""


class SubjectKey(NamedTuple):
    """A subject. Contexts are separate name spaces, for subjects and for ids."""

    context: str
    name: str


class VersionKey(NamedTuple):
    """One version of a subject."""

    subject: SubjectKey
    number: int


class VersionRow(NamedTuple):
    """One version: its schema, and whether it is soft-deleted."""

    number: int
    schema_id: int
    is_deleted: bool


class SubjectVersion(NamedTuple):
    """A version together with its subject."""

    subject: SubjectKey
    number: int
    schema_id: int
    is_deleted: bool


class SchemaRow(NamedTuple):
    """A schema by id. `fingerprint` (16 bytes) covers the whole schema; `body` (16 bytes) only its type, text and references."""

    context: str
    id: int
    fingerprint: bytes
    body: bytes
    content: str


class Rules(NamedTuple):
    """Config and mode as stored texts; None: not set at this level."""

    config: str | None
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectState:
    """A subject as of one moment; a subject that never existed has no versions and no rules."""

    subject: SubjectKey
    revision: int
    """Grows with every change of the subject's versions and of all `rules`."""
    versions: Sequence[VersionRow]
    """Versions by number, including soft-deleted versions."""
    rules: tuple[Rules, Rules, Rules]
    """The rules of the subject, of its context and of the registry."""
    matches: Sequence[SchemaRow] = ()
    """The context's schemas with the requested body, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A schema for a subject, decided on the subject's `revision`."""

    subject: SubjectKey
    revision: int
    fingerprint: bytes
    body: bytes
    content: str
    references: Collection[VersionKey] = ()
    schema_id: int | None = None
    """The id of an import; None: the id of the fingerprint, or the next one."""
    version: int | None = None
    """The version of an import; None: the next."""


class Deletion(Enum):
    """Which subjects or versions to list."""

    LIVE = 0
    """Only versions that are not deleted."""
    ALL = 1
    """All versions, including soft-deleted versions."""
    DELETED = 2
    """Only soft-deleted versions; of subjects, those without other versions."""


class SchemaStore(Protocol):
    """Subjects, versions, schemas and their rules."""

    async def subject(self, subject: SubjectKey, body: bytes | None = None) -> SubjectState:
        """Return the subject as of now, with the schemas of its context that have this `body`."""

    async def schemas(self, context: str, ids: Collection[int]) -> Sequence[SchemaRow]:
        """Return the schemas, by id, that any version uses, including soft-deleted versions."""

    async def by_fingerprint(self, fingerprint: bytes) -> Sequence[SchemaRow]:
        """Return schemas of all contexts with this fingerprint that some version uses, by context and id."""

    async def register(self, registration: Registration) -> VersionRow:
        """Create a version of the subject; when this returns, all servers see the version and its schema.

        Raises:
            Conflict: the subject or its rules changed since `revision`, or a referenced version does not exist: read again.
            AlreadyExists: an imported id or version belongs to another schema.
            Invalid: there is no id or version after `NUMBER_MAX`.
        """

    async def delete(
        self, subject: SubjectKey, versions: Collection[int], *, is_permanent: bool, revision: int
    ) -> None:
        """Delete versions, softly or permanently. Raises `Conflict`: as for `register`, or a live schema references one of them."""

    async def set_config(self, subject: SubjectKey, config: str | None, *, revision: int) -> None:
        """Set (None: unset) the subject's config; see `GLOBAL_SUBJECT`. Raises `Conflict`: the state has another revision."""

    async def set_mode(self, subject: SubjectKey, mode: str | None, *, revision: int) -> None:
        """Set (None: unset) the subject's mode; see `GLOBAL_SUBJECT`. Raises `Conflict` as `set_config`."""

    async def subjects(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: SubjectKey | None = None, limit: int
    ) -> Sequence[SubjectKey]:
        """List subjects with versions whose name starts with `prefix`, of one context or all (None), by (context, name), after `after`."""

    async def versions(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        """List at most `limit` versions of those subjects, by (context, name, number), after `after`."""

    async def usages(
        self, context: str, schema_id: int, *, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        """List at most `limit` versions that have the schema, including soft-deleted ones, by subject and number, after `after`."""

    async def some_usages(self, context: str, schema_id: int, *, limit: int) -> Sequence[SubjectVersion]:
        """List at most `limit` of the versions that `usages` lists, in no order; takes no longer if the schema has more."""

    async def referrers(self, version: VersionKey) -> Sequence[int]:
        """Return ids of the schemas with a live version that reference this version."""

    async def contexts(self) -> Sequence[str]:
        """Return contexts that have had a schema, by name; always includes the default context."""

    async def last_id(self, context: str) -> int:
        """Return the largest id given in the context; 0 for none."""


def revision_of(levels: Iterable[int]) -> int:
    """Return the revision of a subject: the sum of its own and those of the levels above it, each of which only grows."""
    return sum(levels)


def is_current(*, found: int, named: int) -> bool:
    """Return whether a write that was decided on revision `named` may take effect; `found` is the subject's revision now (I12)."""
    return found == named
