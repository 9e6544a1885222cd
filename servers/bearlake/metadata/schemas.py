"""The noun `schemas` of the metadata store: subjects, their versions, and schemas by id.

The store knows names, numbers and fingerprints; what a schema says, and what configs and modes mean, are texts that
`streams/schemas/` writes and reads. Its decisions are made on a `SubjectState` and carried out with that state's `revision`, so that
of two servers which decide at the same time one has to read again.

- An id belongs to one context, is given once and never again, also when nothing uses its schema any more.
- Registrations of equal fingerprints get the same id in a context, however many servers register at once (imports excepted, which
  bring their own ids).
- All writes are safe to repeat: after `Unavailable` read again, and the state says whether the step happened.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

DEFAULT_CONTEXT = "."
"""The context of subjects that name none."""

GLOBAL_SUBJECT = ""
"""Subject whose config and mode are those of its whole context; in the default context, of the registry."""


class SubjectKey(NamedTuple):
    """A subject: contexts are separate name spaces, for subjects and for ids."""

    context: str
    name: str


class VersionKey(NamedTuple):
    """One version of a subject."""

    subject: SubjectKey
    number: int


class VersionRow(NamedTuple):
    """One version: which schema it is, and whether it was deleted softly."""

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
    """A schema by id. `fingerprint` (16 bytes) is of all it says, `body` (16 bytes) of its type, text and references alone."""

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
    """A subject as of one moment; one that never existed has no versions and no rules."""

    subject: SubjectKey
    revision: int
    """Grows with every change of the subject's versions and of all `rules`."""
    versions: Sequence[VersionRow]
    """By number, softly deleted ones too."""
    rules: tuple[Rules, Rules, Rules]
    """Of the subject, of its context, of the registry."""
    matches: Sequence[SchemaRow] = ()
    """The context's schemas with the body that was asked for, by id."""


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
    """The id that an import brings; None: the one that the fingerprint has, or the next."""
    version: int | None = None
    """The version that an import brings; None: the next."""


class Deletion(Enum):
    """Which subjects or versions a list has."""

    LIVE = 0
    """Those that were not deleted."""
    ALL = 1
    """Softly deleted ones too."""
    DELETED = 2
    """Softly deleted ones only (a subject: all of its versions)."""


class SchemaStore(Protocol):
    """Subjects, versions, schemas and their rules."""

    async def subject(self, subject: SubjectKey, body: bytes | None = None) -> SubjectState:
        """The subject as of now, with the schemas of its context that have this `body`."""

    async def schemas(self, context: str, ids: Collection[int]) -> Sequence[SchemaRow]:
        """Those of the schemas that some version has, softly deleted or not; by id."""

    async def by_fingerprint(self, fingerprint: bytes) -> Sequence[SchemaRow]:
        """Schemas of all contexts with this fingerprint that some version has, by context and id."""

    async def register(self, registration: Registration) -> VersionRow:
        """Make a version of the subject; it and its schema are there for all servers when this returns.

        Raises:
            Conflict: the subject or its rules changed since `revision`, or a referenced version is not there: read again.
            AlreadyExists: an imported id or version belongs to another schema.
        """

    async def delete(
        self, subject: SubjectKey, versions: Collection[int], *, is_permanent: bool, revision: int
    ) -> None:
        """Delete versions softly, or for good. Raises `Conflict`: as for `register`, or a live schema references one of them."""

    async def set_config(self, subject: SubjectKey, config: str | None, *, revision: int) -> None:
        """Set (None: unset) the subject's config; see `GLOBAL_SUBJECT`. Raises `Conflict`: the state's revision is another one."""

    async def set_mode(self, subject: SubjectKey, mode: str | None, *, revision: int) -> None:
        """Set (None: unset) the subject's mode; see `GLOBAL_SUBJECT`. Raises `Conflict` as `set_config`."""

    async def subjects(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: SubjectKey | None = None, limit: int
    ) -> Sequence[SubjectKey]:
        """Subjects with versions whose name starts with `prefix`, of one context or all (None), by (context, name), behind `after`."""

    async def versions(
        self, *, context: str | None, prefix: str = "", deletion: Deletion, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        """Versions of those subjects, by (context, name, number), behind `after`, at most `limit`."""

    async def usages(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        """Versions, softly deleted ones too, that have the schema; by subject and number."""

    async def referrers(self, version: VersionKey) -> Sequence[int]:
        """Ids of the schemas with a live version that reference this version."""

    async def contexts(self) -> Sequence[str]:
        """Contexts that have had a schema, by name; the default one always."""

    async def last_id(self, context: str) -> int:
        """The largest id given in the context; 0 for none."""


def revision_of(levels: Iterable[int]) -> int:
    """The revision of a subject: the sum of its own and those of the levels above it, each of which only grows."""
    return sum(levels)


def is_current(*, found: int, named: int) -> bool:
    """Whether a write may take effect that was decided on the revision `named`; `found` is the subject's now (I12)."""
    return found == named
