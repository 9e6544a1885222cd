"""Users for a command, which opens the metadata store itself: it needs neither a running server nor a right.

A change is decided on the revision that was read, and decided again if other processes have changed users in the meantime.
"""

from collections.abc import Callable, Sequence

from bearlake.app.startup import opened_metadata
from bearlake.errors import AlreadyExists, NotFound
from bearlake.metadata.users import SCRAM_HASHES, CredentialChange, User, UserStore, check_user_name
from bearlake.serving.authentication.credentials import create_credential
from bearlake.settings.document import Settings
from bearlake.streams.conflicts import repeated
from bearlake.streams.principal import check_login_name

Decide = Callable[[User | None], Sequence[CredentialChange]]
"""Returns the changes of a user that is as given."""


async def create(settings: Settings, name: str, password: str, iterations: int, *, replaces: bool) -> None:
    """Store credentials for all mechanisms. `replaces`: a user of that name gets a new password, and loses credentials of other mechanisms.

    Raises:
        AlreadyExists: there is a user of that name.
        Invalid: a name, password or number of iterations that is not allowed.
    """
    check_user_name(name)
    check_login_name(name)
    made = [create_credential(mechanism, password, iterations) for mechanism in SCRAM_HASHES]

    def decide(user: User | None) -> Sequence[CredentialChange]:
        if user is not None and not replaces:
            raise AlreadyExists(f"user {name!r} exists; --replace gives it a new password")
        changes = {
            credential.mechanism: CredentialChange(name, credential.mechanism, credential) for credential in made
        }
        for former in user.credentials if user is not None else ():  # of a later version, with the former password
            changes.setdefault(former.mechanism, CredentialChange(name, former.mechanism, None))
        return list(changes.values())

    async with opened_metadata(settings) as metadata:
        await _change(metadata.users, name, decide)


async def delete(settings: Settings, name: str) -> None:
    """Delete a user. Connections that are logged in end with their session. Raises `NotFound`."""

    def decide(user: User | None) -> Sequence[CredentialChange]:
        if user is None:
            raise NotFound(f"there is no user {name!r}")
        return [CredentialChange(name, credential.mechanism, None) for credential in user.credentials]

    async with opened_metadata(settings) as metadata:
        await _change(metadata.users, name, decide)


async def all_users(settings: Settings) -> Sequence[User]:
    """Return all users, by name."""
    found: list[User] = []
    async with opened_metadata(settings) as metadata:
        while page := await metadata.users.list(after=found[-1].name if found else ""):
            found += page
    return found


async def _change(store: UserStore, name: str, decide: Decide) -> None:
    async def attempt() -> None:
        revision = await store.revision()
        await store.change(decide(await store.get(name)), revision=revision)

    await repeated("users", attempt)
