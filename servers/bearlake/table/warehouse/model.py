"""Values of the catalog for other engines. Need neither pyarrow nor pyiceberg."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

Namespace: TypeAlias = tuple[str, ...]
Name: TypeAlias = tuple[str, ...]
"""Namespace and name of a table."""

SNAPSHOTS_ALL = "all"
SNAPSHOTS_REFS = "refs"
"""Which snapshots an answer has: all, or those of branches and tags."""


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
    """What decides who may use a table: the stream in its properties, None if it is no stream's table; its UUID."""

    stream_id: UUID | None
    table_uuid: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A table in a list: its name, and the key of its folder in the object store; None: its folder is elsewhere."""

    name: Name
    folder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A table as JSON (LoadTableResult), its owner, and a text that differs for every version of it."""

    body: bytes
    owner: Owner
    version: str


Body: TypeAlias = Mapping[str, Any]
"""A parsed request (Any: JSON)."""
OwnerCheck: TypeAlias = Callable[[Owner | None], None]
"""Raises `Refused` unless the table that the operation has loaded (None: there is none) is the one that the caller checked."""
