"""One SCRAM login, on the server's side: two messages of the client, two answers.

Source: RFC 5802 section 5; KIP-84.
"""

from collections.abc import Callable
from typing import Protocol

from scramp import ScramException, ScramMechanism

from bearlake.errors import Denied
from bearlake.metadata.users import ScramCredential

MESSAGE_BYTES_MAX = 4_096


class Credentials(Protocol):
    """Where the credentials of users come from."""

    async def find(self, user: str, mechanism: str) -> ScramCredential:
        """Return the user's credential; for an unknown user a decoy. Raises `Unavailable` if the metadata store does not answer."""


class ScramExchange:
    """The state of one login. A message out of order, or one after an error, raises `Denied`."""

    def __init__(self, mechanism: str, credentials: Credentials, check: Callable[[str], None] = lambda _: None) -> None:
        """`check` is called with the user's name before each message is looked at further, and may raise."""
        self._mechanism = ScramMechanism(mechanism)
        self._credentials = credentials
        self._check = check
        self._server = self._mechanism.make_server(_unknown)
        self._is_started = False
        self.user = ""
        """The name that the client gave; empty before its first message."""
        self.is_complete = False
        """Whether the client has proved that it knows the password."""

    async def answer(self, message: bytes) -> bytes:
        """Return the answer to the client's next message.

        Raises:
            Denied: a malformed message, an unknown user or a wrong password; the text does not say which of the last two.
            Unavailable: the metadata store does not answer.
        """
        if len(message) > MESSAGE_BYTES_MAX:
            raise Denied(f"a SCRAM message has {len(message)} bytes, the limit is {MESSAGE_BYTES_MAX}")
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise Denied("a SCRAM message is not UTF-8") from error
        if self._is_started:
            self._check(self.user)
            return self._final(text)
        self._is_started = True
        return await self._first(text)

    async def _first(self, text: str) -> bytes:
        """Read the user's name with one exchange, then run the exchange with the user's credential."""
        try:
            self.user = _name_in(self._mechanism, text)
            self._check(self.user)
            found = await self._credentials.find(self.user, self._mechanism.name)
            keys = (found.salt, found.stored_key, found.server_key, found.iterations)
            self._server = self._mechanism.make_server(lambda _user: keys)
            self._server.set_client_first(text)
            first: str = self._server.get_server_first()
            return first.encode()
        except (ScramException, ValueError) as error:
            raise Denied("a malformed SCRAM message") from error

    def _final(self, text: str) -> bytes:
        try:
            self._server.set_client_final(text)
            final: str = self._server.get_server_final()
        except (ScramException, ValueError) as error:
            raise Denied("the user name or the password is wrong") from error
        self.is_complete = True
        return final.encode()


def _name_in(mechanism: ScramMechanism, text: str) -> str:
    names: list[str] = []
    server = mechanism.make_server(names.append)
    try:
        server.set_client_first(text)  # ends with "unknown user" after it has read the name
    except ScramException:
        if not names:
            raise
    return names[0]


def _unknown(_user: str) -> None:
    return None
