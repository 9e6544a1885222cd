"""Passwords that were verified before: the slow check of a password that a client sends with every request runs once.

An entry holds for one credential. A user who is deleted or has a new password has another credential, or none, in the metadata store, so
the entry no longer matches. The table keeps a keyed digest under a key of this process, and no password.
"""

import hmac
import secrets
from collections import OrderedDict

from bearlake.metadata.users import ScramCredential


class VerifiedPasswords:
    """A bounded table; the entry that was idle longest goes first."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[ScramCredential, bytes] = OrderedDict()

    def has(self, credential: ScramCredential, password: str) -> bool:
        """Whether this password has been verified for this credential."""
        digest = self._digest(password)  # also without an entry, so that the time does not reveal who has logged in
        if not hmac.compare_digest(self._digests.get(credential, b""), digest):
            return False
        self._digests.move_to_end(credential)
        return True

    def add(self, credential: ScramCredential, password: str) -> None:
        """Remember a verified password."""
        self._digests[credential] = self._digest(password)
        self._digests.move_to_end(credential)
        if len(self._digests) > self._entries_max:
            self._digests.popitem(last=False)

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), "sha256")
