"""Users and their SCRAM credentials.

A server can check a login with a credential, but the credential does not suffice to log in: the client proves that it knows the salted
password, and the credential contains only hashes of that password. The store keeps no passwords.

All users share one revision, which grows with every change and never repeats. A change names the revision that its caller read, so a late
change of any process cannot bring back a credential that was replaced or deleted in the meantime (I12). Changes are rare.

Source: RFC 5802 section 3; KIP-554.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bearlake.errors import BearlakeError, Invalid
from bearlake.metadata.names import check_name

SCRAM_HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanisms of credentials, and their hash functions as `hashlib` names them."""

USER_NAME_BYTES_MAX = 256

MECHANISM_BYTES_MAX = 256

CREDENTIAL_CHANGES_MAX = 1_000
"""Maximum number of credentials that one change replaces or deletes."""

DECOY_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's credential for one mechanism. Its text shows no key."""

    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


class User(NamedTuple):
    """A user: a name with at least one credential."""

    name: str
    credentials: Sequence[ScramCredential]
    """At most one for each mechanism, by mechanism. Later versions may store mechanisms that are not in `SCRAM_HASHES`."""


class CredentialChange(NamedTuple):
    """The change of one user's credential for one mechanism."""

    user: str
    mechanism: str
    credential: ScramCredential | None
    """Replaces the credential; None: deletes it."""


class UserStore(Protocol):
    """Users by name. A user exists while it has a credential."""

    async def get(self, name: str) -> User | None:
        """Return the user as of now; None if there is no such user, or if no user can have this name."""

    async def list(self, *, after: str = "", limit: int = 1000) -> Sequence[User]:
        """List at most `limit` users whose name sorts after `after` (by code point), by name."""

    async def revision(self) -> int:
        """Return how often users were changed. Users that are read after this call are at least as new as the revision."""

    async def change(self, changes: Sequence[CredentialChange], *, revision: int) -> int:
        """Make all changes, or none; returns the new revision. Deleting a credential that does not exist changes nothing.

        Raises:
            Conflict: the users have another revision; they were changed after the caller read it.
            Invalid: a name or a mechanism that no credential can have, two changes of one credential, or more than
                `CREDENTIAL_CHANGES_MAX` changes.
        """

    async def decoy_key(self) -> bytes:
        """Return the deployment's secret of `DECOY_KEY_BYTES` random bytes, from which decoys for unknown users are derived.

        The first call creates it; later calls of any process return the same bytes.
        """


def check_user_name(name: str) -> None:
    """Raise `Invalid` unless a user may have this name: 1 to `USER_NAME_BYTES_MAX` bytes of UTF-8, without NUL."""
    check_name("a user's name", name, USER_NAME_BYTES_MAX)


def is_user_name(name: str) -> bool:
    """Return whether a user may have this name."""
    try:
        check_user_name(name)
    except BearlakeError:
        return False
    return True


def check_changes(changes: Sequence[CredentialChange]) -> None:
    """Raise `Invalid` as `UserStore.change` does."""
    if len(changes) > CREDENTIAL_CHANGES_MAX:
        raise Invalid(f"{len(changes)} changes of credentials at once; the limit is {CREDENTIAL_CHANGES_MAX}")
    if len({(change.user, change.mechanism) for change in changes}) < len(changes):
        raise Invalid("two changes of one credential")
    for user, mechanism, credential in changes:
        check_user_name(user)
        if credential is None:  # a credential of any mechanism can be deleted, also one that a later version stored
            check_name("a mechanism", mechanism, MECHANISM_BYTES_MAX)
        elif mechanism not in SCRAM_HASHES:
            raise Invalid(f"unknown SCRAM mechanism {mechanism!r}, expected {' or '.join(SCRAM_HASHES)}")
        if credential is not None and credential.mechanism != mechanism:
            raise Invalid(f"a credential for {credential.mechanism} cannot be stored for {mechanism}")


def users_of(rows: Sequence[tuple[str, str, int, bytes, bytes, bytes]]) -> Sequence[User]:
    """Return the users of rows (name, mechanism, iterations, salt, stored key, server key), which are ordered by name and mechanism."""
    found: dict[str, list[ScramCredential]] = {}
    for name, mechanism, iterations, salt, stored_key, server_key in rows:
        credential = ScramCredential(mechanism, iterations, salt, stored_key, server_key)
        found.setdefault(name, []).append(credential)
    return [User(name, credentials) for name, credentials in found.items()]
