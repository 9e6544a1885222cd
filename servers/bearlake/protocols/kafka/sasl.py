"""The SASL session of one connection: SaslHandshake chooses a mechanism, SaslAuthenticate carries its messages.

    handshake ──> SCRAM:       client-first ──> client-final ──> logged in
                  PLAIN:       one message ──> logged in
                  OAUTHBEARER: one message ──> logged in; after a refusal the client sends one byte more

Before the first login, and after a login has ended, a connection accepts only ApiVersions and these two requests. A client may log in
again on the same connection before its login ends (KIP-368), with the same mechanism and as the same user.

Source: RFC 4422 (SASL), RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-152, KIP-255, KIP-368.
"""

import json
from collections.abc import Callable
from time import monotonic, time
from typing import TYPE_CHECKING

from bearlake.errors import BearlakeError, Denied, Overloaded
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from bearlake.serving.authentication.peer import Peer
from bearlake.serving.authentication.settings import OAUTHBEARER, PLAIN
from bearlake.streams.principal import Principal, at_host

if TYPE_CHECKING:  # its libraries are loaded only by processes whose clients log in
    from bearlake.serving.authentication.authenticator import Authenticator, ScramLogin

FRAME_BYTES_MAX = 64 * 1024
"""Largest request (bytes) before the login."""

LOGIN_APIS = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Requests that a client may send before the login."""


class SaslSession:
    """Who is logged in on one connection, and until when."""

    def __init__(
        self,
        authenticator: "Authenticator",
        peer: Peer,
        now_s: Callable[[], float] = time,
        passed_s: Callable[[], float] = monotonic,
    ) -> None:
        """`now_s` is the time in seconds since 1970. `passed_s` never goes back: a clock that is set back does not prolong a login."""
        self.principal: Principal | None = None
        """Who logged in last; None before the first login."""
        self.ends_s = float("inf")
        """When the login ends, in seconds since 1970."""
        self.is_refused = False
        """Whether a login failed. The server closes the connection after its answer, as Kafka does."""
        self._authenticator = authenticator
        self._peer = peer
        self._now_s = now_s
        self._passed_s = passed_s
        self._last_s = float("inf")  # when the login ends at the latest, by `passed_s`
        self._mechanism = ""  # of the handshake; empty: no handshake is in progress
        self._first_mechanism = ""  # of the first login
        self._scram: ScramLogin | None = None
        self._refusal = ""  # of a token, until the client has acknowledged it

    @property
    def is_logged_in(self) -> bool:
        """Whether the client may send other requests."""
        return self.principal is not None and self._now_s() < self.ends_s and self._passed_s() < self._last_s

    def handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        """Choose a mechanism. An unknown one is answered with those that this client may use.

        A client that has chosen and not finished its login is refused."""
        offered = list(self._authenticator.mechanisms(self._peer))
        is_begun, self._scram, self._mechanism, self._refusal = bool(self._mechanism), None, "", ""
        if is_begun:  # as in Kafka; otherwise one connection could ask for any number of users
            self.is_refused = True
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=offered)
        if request.mechanism not in offered:
            self.is_refused = True
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
        if self._first_mechanism not in ("", request.mechanism):
            self.is_refused = True
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[self._first_mechanism])
        self._mechanism = request.mechanism
        return SaslHandshakeResponse(mechanisms=offered)

    def refuse_unframed_tokens(self) -> SaslHandshakeResponse:
        """Refuse a client that would send its tokens without frames (version 0 of SaslHandshake, KIP-43)."""
        self.is_refused = True
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, mechanisms=[])

    async def authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        """Take the next message of the mechanism. After an error, the client begins with a handshake again, on a new connection."""
        if not self._mechanism:
            return self._failed(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate needs a SaslHandshake before it")
        message = bytes(request.auth_bytes)
        try:
            answer, who = await self._take(message)
            lifetime_ms = 0 if who is None else self._accept(who)
        except Denied as error:
            return self._failed(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        except Overloaded as error:  # not SASL_AUTHENTICATION_FAILED, after which clients give up
            return self._failed(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error))
        except BearlakeError:
            return self._failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server cannot look up users now, retry")
        return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    async def _take(self, message: bytes) -> tuple[bytes, Principal | None]:
        if self._mechanism == PLAIN:
            user, password = read_plain(message)
            return b"", await self._authenticator.log_in(user, password, self._peer)
        if self._mechanism == OAUTHBEARER:
            return await self._take_token(message)
        if self._scram is None:
            self._scram = self._authenticator.start_scram(self._mechanism, self._peer)
        return await self._scram.answer(message)

    async def _take_token(self, message: bytes) -> tuple[bytes, Principal | None]:
        if self._refusal:
            raise Denied(self._refusal)
        token = read_bearer(message)
        try:
            return b"", await self._authenticator.verify_token(token, self._peer)
        except Denied as error:
            self._refusal = str(error)
            return json.dumps({"status": "invalid_token"}).encode(), None

    def _accept(self, who: Principal) -> int:
        """Note the login; returns the time (ms) until it ends, 0 without an end."""
        if self.principal is not None and str(self.principal) != str(who):
            raise Denied(f"this connection belongs to {self.principal}; log in again as the same user")
        now_s = self._now_s()
        ends_s = self._authenticator.ends_s(who, now_s)
        self.principal, self.ends_s = at_host(who, self._peer.address, self._peer.listener), ends_s
        self._last_s = self._passed_s() + ends_s - now_s
        self._first_mechanism, self._mechanism, self._scram = self._mechanism, "", None
        return 0 if ends_s == float("inf") else max(1, int((ends_s - now_s) * 1000))

    def _failed(self, code: ErrorCode, message: str) -> SaslAuthenticateResponse:
        self._mechanism, self.is_refused = "", True
        return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")


def read_plain(message: bytes) -> tuple[str, str]:
    """Return user name and password of a PLAIN message (RFC 4616): authorization identity, user, password, NUL between them.

    Raises:
        Denied: the message is malformed, or the client wants to act as somebody else.
    """
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise Denied("the PLAIN message is not UTF-8") from None  # the cause has the password
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise Denied("the PLAIN message is malformed, expected: authorization identity, NUL, user name, NUL, password")
    if parts[0] not in ("", parts[1]):
        raise Denied("the authorization identity must be empty or the user name")
    return parts[1], parts[2]


def read_bearer(message: bytes) -> str:
    """Return the token of an OAUTHBEARER message (RFC 7628 section 3.1). Raises `Denied` if the message is malformed."""
    try:
        header, *pairs = message.decode("ascii").split("\x01")
    except UnicodeDecodeError:
        raise Denied("the OAUTHBEARER message is not ASCII") from None  # the cause has the token
    found = [value for pair in pairs for name, _, value in [pair.partition("=")] if name == "auth"]
    scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    if not header.startswith(("n,", "y,")) or scheme.lower() != "bearer" or not token.strip():
        raise Denied("the OAUTHBEARER message is malformed, expected: n,,^Aauth=Bearer <token>^A^A")
    return token.strip()
