"""Principals and authorization.

Protocol servers authenticate the caller and pass a `Principal` (or `ANONYMOUS`). The stream service asks its `Authorizer` once per call and
resource: `access/control.py`, which decides by the deployment's access rules.

Kinds of principals: users are `User`, whatever proved who they are. `Server` stands for the server itself and for its admin API. Nothing
that a client sends can make a principal of that kind, and no access rule restricts it.

Source: the operation names are those of Kafka's ACLs (KIP-11).
"""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol

from typing_extensions import override

from bearlake.errors import Denied, Invalid
from bearlake.metadata.access_rules import CLUSTER_NAME as CLUSTER_NAME
from bearlake.metadata.access_rules import EVERYONE, WILDCARD
from bearlake.metadata.access_rules import Operation as Operation
from bearlake.metadata.access_rules import Resource as Resource

SERVER = "Server"
"""The kind of principals that stand for the server itself."""


CLIENT_ID_LENGTH_MAX = 512
"""Characters of a client id that quotas tell apart."""


class Grants:
    """What one caller may do to streams, as masks of operations by name: a cache that its authorizer fills and renews."""

    __slots__ = ("applying", "masks", "snapshot")

    def __init__(self) -> None:
        self.applying: tuple[object, Any] | None = None
        """A snapshot of the rules, and what it found for the caller once (Any: its own type). Replaced as a whole."""
        self.snapshot: object = None
        """The rules from which `masks` were computed."""
        self.masks: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: `kind:name`, such as `User:alice`."""

    kind: str
    name: str
    groups: frozenset[str] = frozenset()
    """The user's groups, by the issuer of its token."""
    expires_s: float | None = field(default=None, compare=False)
    """When the proof of identity ends, in seconds since 1970; None: never."""
    host: str = field(default="", compare=False)
    """The client's IP address; empty if it is unknown. Then rules that deny a host apply, and rules that allow one do not."""
    listener: str = field(default="", compare=False)
    """The listener that the client uses, such as `kafka:EXTERNAL`; empty: not known. For the audit log."""
    client_id: str = field(default="", compare=False)
    """How the client names itself (Kafka only), for quotas; nothing proves it."""
    grants: Grants = field(default_factory=Grants, init=False, compare=False, repr=False)
    """The authorizer's cache."""

    def __str__(self) -> str:
        """`kind:name`, the form that Kafka prints."""
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The caller on a listener without authentication."""

INTERNAL = Principal(SERVER, "bearlake")
"""The server itself, for internal operations."""


def at_host(who: Principal, address: str, listener: str = "") -> Principal:
    """Return the caller as a client at this address (an IP address, perhaps in brackets or with a zone), of this listener."""
    return replace(who, host=host_of(address), listener=listener)


def client_of(who: Principal) -> str:
    """Return what counts as one client where none may take all of something: the user, or the address of callers without a login."""
    return str(who) if who.name != ANONYMOUS.name else who.host


def with_client_id(who: Principal, client_id: str) -> Principal:
    """Return the caller as a client of this name, of which a bounded part counts, with the same grants."""
    named = replace(who, client_id=client_id[:CLIENT_ID_LENGTH_MAX])
    object.__setattr__(named, "grants", who.grants)  # they depend neither on the name nor on the object
    return named


def host_of(address: str) -> str:
    """Return the usual form of an IP address; any other text unchanged. An IPv4 address in IPv6 form is an IPv4 address."""
    try:
        parsed = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


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
    if name == WILDCARD:
        raise Invalid(f"{EVERYONE} stands for every caller")


class Authorizer(Protocol):
    """Decides by principal, operation and resource; must be pure and fast (it runs on the hot path)."""

    @abstractmethod
    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        """Whether `who` may do `operation` to the resource `name`, which a request names. The audit log notes a denial."""

    def sees(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        """As `allows`, for what a list shows, or for one of several rights: a denial is not noted."""
        return self.allows(who, operation, kind, name)

    def operations(self, who: Principal, kind: Resource, name: str) -> int:
        """Return the bits of all operations that `who` may do to the resource."""
        return sum(operation.bit for operation in Operation if self.sees(who, operation, kind, name))

    def allows_any(self, who: Principal, operation: Operation, kind: Resource) -> bool:
        """Whether `who` may do `operation` to some resource of the kind, which need not exist."""
        return self.allows(who, operation, kind, WILDCARD)

    def may_administer(self, who: Principal, operation: Operation) -> bool:
        """Whether `who` may do `operation` to the cluster without regard to what is allowed by default."""
        return self.allows(who, operation, Resource.CLUSTER, CLUSTER_NAME)

    def administers(self, who: Principal, operation: Operation) -> bool:
        """As `may_administer`, where another right serves as well: a denial is not noted."""
        return self.sees(who, operation, Resource.CLUSTER, CLUSTER_NAME)


class AllowAll(Authorizer):
    """Allows every operation."""

    @override
    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        """Always True."""
        return True


def require(authorizer: Authorizer, who: Principal, operation: Operation, kind: Resource, name: str) -> None:
    """Raise `Denied` unless `who` may do `operation` to the resource."""
    if not authorizer.allows(who, operation, kind, name):
        raise Denied(f"{who} may not {operation.value} {kind.value} {name!r}")
