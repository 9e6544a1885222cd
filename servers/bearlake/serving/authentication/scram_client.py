"""One SCRAM login, on the client's side: for servers that read another cluster.

Source: RFC 5802 sections 5 and 9; KIP-84.
"""

from scramp import ScramClient, ScramException

from bearlake.errors import Corrupt, Denied

ITERATIONS_MAX = 100_000
"""More are refused: the server chooses how often this side hashes. Kafka allows 16,384."""
MESSAGE_BYTES_MAX = 4_096


class ScramLogin:
    """The state of one login; call each method once, in order. The server is trusted only after `finish`."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        """Raises `Denied` if the password has characters that SCRAM does not allow (RFC 4013)."""
        try:
            self._client = ScramClient([mechanism], user, password)
        except (ScramException, ValueError) as error:
            raise Denied(f"the password of {user!r} cannot be used with {mechanism}") from error

    def first(self) -> bytes:
        """Return the first message."""
        text: str = self._client.get_client_first()
        return text.encode()

    def prove(self, answer: bytes) -> bytes:
        """Return the second message, which proves the password. Raises `Corrupt` if the server's answer is not SCRAM's."""
        text = _text(answer)
        count = next((part[2:] for part in text.split(",") if part.startswith("i=")), "")
        if not (count.isascii() and count.isdigit()) or not 0 < int(count[:10]) <= ITERATIONS_MAX:
            raise Corrupt(f"the server asks for {count[:10]!r} iterations: expected 1 to {ITERATIONS_MAX}")
        try:
            self._client.set_server_first(text)
            proof: str = self._client.get_client_final()
        except (ScramException, ValueError) as error:
            raise Corrupt("the server's first SCRAM message is malformed") from error
        return proof.encode()

    def finish(self, answer: bytes) -> None:
        """Check that the server knows the user's key, too. Raises `Denied`."""
        try:
            self._client.set_server_final(_text(answer))
        except (ScramException, ValueError, TypeError) as error:
            raise Denied("the server did not prove that it knows the user's password") from error


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise Corrupt(f"a SCRAM message has {len(message)} bytes, the limit is {MESSAGE_BYTES_MAX}")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise Corrupt("a SCRAM message is not UTF-8") from error
