"""Values of the catalog for other engines. Need neither pyarrow nor pyiceberg."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

Namespace: TypeAlias = tuple[str, ...]
Name: TypeAlias = tuple[str, ...]
"""Namespace and name of a table."""

SNAPSHOTS_ALL = "all"
SNAPSHOTS_REFS = "refs"
"""Which snapshots an answer has: all, or those of branches and tags."""


READ_ONLY = "this is the current table of a stream: it can only be read. Produce records, or tombstones, to the stream"

FIELD_ID_MAX = 2_147_483_447
"""Larger field ids are Iceberg's own. Source: Iceberg table spec, "Reserved Field IDs"."""
NEW_FIELD_COUNT_MAX = 10_000
"""Fields that one commit may add to a stream's table, nested ones included."""
NAME_LENGTH_MAX = 255
"""Characters of a name: as in SQL catalogs."""


def is_plain_name(name: str) -> bool:
    """Whether a name is not empty, not too long, and can be written in one line of SQL, a log, or a terminal."""
    return 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()


def new_ids_end(last_id: int) -> int:
    """Return the end of the field ids that new columns may have, if the newest one so far is `last_id`.

    They are near it, so that nobody can use up the ids, of which compaction needs some.
    """
    return min(last_id + NEW_FIELD_COUNT_MAX, FIELD_ID_MAX) + 1


class Refused(Exception):
    """An operation that the catalog refuses, with the HTTP status and the name of the error in Iceberg's REST specification."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


def forbidden(message: str) -> Refused:
    """Return the refusal of what no client may do. Engines do not try it again."""
    return Refused(403, "ForbiddenException", message)


def invalid(message: str) -> Refused:
    """Return the refusal of a request that is wrong."""
    return Refused(400, "BadRequestException", message)


def absent(name: Name) -> Refused:
    """Return the refusal that a table does not exist."""
    return Refused(404, "NoSuchTableException", f"Table does not exist: {'.'.join(name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What decides who may use a table: the stream in its properties, None if it is no stream's table; its UUID.

    `is_current`: it is the stream's current table, which only Bearlake writes.
    """

    stream_id: UUID | None
    table_uuid: UUID
    last_column_id: int = field(default=0, compare=False)
    """The newest field id that the table had given when it was loaded."""
    is_current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A table in a list: its name, and the key of its folder in the object store; None: its folder is elsewhere."""

    name: Name
    folder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A table as JSON (LoadTableResult), its owner, a text that differs for every version of it, and its folder's location."""

    body: bytes
    owner: Owner
    version: str
    location: str


Body: TypeAlias = Mapping[str, Any]
"""A parsed request (Any: JSON)."""
OwnerCheck: TypeAlias = Callable[[Owner | None], None]
"""Raises `Refused` unless the table that the operation has loaded (None: there is none) is the one that the caller checked."""
