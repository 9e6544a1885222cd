"""The users of the metadata store, for logins: an unknown user gets a decoy, which looks and costs the same.

Source: RFC 5802 section 9 (an attacker must not learn which users exist).
"""

from bearlake.metadata.users import SCRAM_HASHES, ScramCredential, User, UserStore
from bearlake.serving.authentication.credentials import decoy_credential

STRONGEST = "SCRAM-SHA-512"
"""Plain passwords are checked against this credential if the user has it."""


class StoredUsers:
    """`authenticator.Users` of a metadata store. Each login reads the store: a deleted user cannot log in from then on."""

    def __init__(self, store: UserStore) -> None:
        self._store = store
        self._decoy_key = b""

    async def find(self, user: str, mechanism: str) -> ScramCredential:
        """Return the user's credential; for an unknown user, or one without this mechanism, a decoy. Raises `Unavailable`."""
        found = _credentials(await self._store.get(user))
        return found.get(mechanism) or await self._decoy(mechanism, user)

    async def find_any(self, user: str) -> ScramCredential:
        """Return the user's strongest credential; for an unknown user a decoy. Raises `Unavailable`."""
        found = _credentials(await self._store.get(user))
        return found.get(STRONGEST) or next(iter(found.values()), None) or await self._decoy(STRONGEST, user)

    async def _decoy(self, mechanism: str, user: str) -> ScramCredential:
        if not self._decoy_key:
            self._decoy_key = await self._store.decoy_key()
        return decoy_credential(mechanism, user, self._decoy_key)


def _credentials(user: User | None) -> dict[str, ScramCredential]:
    """Return the user's credentials that this version can check, by mechanism."""
    stored = () if user is None else user.credentials
    return {credential.mechanism: credential for credential in stored if credential.mechanism in SCRAM_HASHES}
