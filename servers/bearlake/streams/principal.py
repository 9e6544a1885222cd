"""Principals and authorization.

Protocol servers authenticate the caller and pass a `Principal` (or `ANONYMOUS`). The stream service asks its `Authorizer` once per call and
resource. `AllowAll` is the only authorizer so far; access control lists do not exist yet.

Source: the operation names are those of Kafka's ACLs (KIP-11).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from bearlake.errors import Denied, Invalid


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: `kind:name`, such as `User:alice`."""

    kind: str
    name: str
    groups: frozenset[str] = frozenset()
    """The user's groups, by the issuer of its token."""
    expires_s: float | None = field(default=None, compare=False)
    """When the proof of identity ends, in seconds since 1970; None: never."""

    def __str__(self) -> str:
        """`kind:name`, the form that Kafka prints."""
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The caller on a listener without authentication."""

INTERNAL = Principal("Server", "bearlake")
"""The server itself, for internal operations."""


def user_principal(name: str, groups: frozenset[str] = frozenset(), expires_s: float | None = None) -> Principal:
    """Return the principal of a user that has logged in. Raises `Denied` if the name stands for callers without a login."""
    try:
        check_login_name(name)
    except Invalid as error:
        raise Denied(str(error)) from None
    return Principal("User", name, groups, expires_s)


def check_login_name(name: str) -> None:
    """Raise `Invalid` if no user may log in by this name."""
    if name == ANONYMOUS.name:
        raise Invalid(f"the name {name} stands for callers who are not logged in")


class Operation(Enum):
    """Operations that a caller may request on a resource."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"


class Resource(Enum):
    """Kinds of resources."""

    STREAM = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    SUBJECT = "Subject"
    """A subject of the schema registry."""


class Authorizer(Protocol):
    """Decides by principal, operation and resource; must be pure and fast (it runs on the hot path)."""

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        """Whether `who` may do `operation` to the resource `name`."""


class AllowAll:
    """Allows every operation."""

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        """Always True."""
        return True


def require(authorizer: Authorizer, who: Principal, operation: Operation, kind: Resource, name: str) -> None:
    """Raise `Denied` unless `who` may do `operation` to the resource."""
    if not authorizer.allows(who, operation, kind, name):
        raise Denied(f"{who} may not {operation.value} {kind.value} {name!r}")
