"""The logins of one connection: CONNECT carries the first one, and AUTH_CHALLENGE asks for the next one before it ends.

| `auth_method_name` | `auth_data` | mechanism of the settings |
|---|---|---|
| `token` | a JSON Web Token | OAUTHBEARER |
| `basic` | `user:password` | PLAIN |
| any, on a listener that asks for client certificates | | the certificate is the login |

Until CONNECT has its answer, no other command is taken. A refused client gets AuthenticationError and is disconnected. A client that can
renew its login is challenged once before the login ends. At the end the connection closes; the client connects again.

A proxy may act for its client only if it passes the client's own login on (`forwardAuthorizationCredentials`): a name alone proves nothing.

Source: Pulsar binary protocol specification, "Connection establishment"; PIP-30 (AUTH_CHALLENGE); PIP-9 (proxied principals).
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Protocol

from bearlake import __version__
from bearlake.errors import BearlakeError, Denied, Overloaded, Unavailable
from bearlake.protocols.pulsar import commands
from bearlake.protocols.pulsar.errors import Refused, count_error, error_of
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    AuthData,
    CommandAuthChallenge,
    CommandAuthResponse,
    CommandConnect,
)
from bearlake.serving.authentication.peer import LoginRules
from bearlake.serving.authentication.presented import split_basic
from bearlake.streams.principal import Principal, at_host

if TYPE_CHECKING:  # its libraries are loaded only by processes whose clients log in
    from bearlake.serving.authentication.authenticator import Authenticator
    from bearlake.serving.authentication.certificates import Subject

FRAME_BYTES_MAX = 64 * 1024
"""Largest command (bytes) before the login."""

REFRESH = b"PulsarAuthRefresh"
"""Content of a challenge that asks for a new login; Java clients look for it."""


class Client(Protocol):
    """The connection."""

    who: Principal
    listener: str
    is_held: bool
    """Whether no command may be taken now."""

    def start(self, work: Coroutine[None, None, None]) -> object:
        """Run a task; afterwards, take up commands that may be taken again."""

    def send(self, frame: bytes) -> None:
        """Queue a frame."""

    def finish(self) -> None:
        """Close the connection after sending all queued frames."""


@dataclass(frozen=True, slots=True)
class PulsarListenerLogin:
    """How the clients of one listener log in."""

    authenticator: "Authenticator"
    rules: LoginRules
    now_s: Callable[[], float] = time
    """The time in seconds since 1970."""

    async def log_in(self, method: str, data: bytes, address: str, is_encrypted: bool, subject: "Subject") -> Principal:
        """Return whom the client has proved to be. Raises as `Authenticator.log_in`."""
        if self.rules.by_certificate:
            return self.authenticator.read_certificate(subject)
        peer = self.rules.peer(address, is_encrypted=is_encrypted, listener="pulsar")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Denied("the login is not UTF-8") from None  # the cause has the password
        match method:
            case "token":
                return await self.authenticator.verify_token(text, peer)
            case "basic":
                return await self.authenticator.log_in(*split_basic(text), peer)
        raise Denied(f"authentication by {method[:50]!r} is not accepted, expected token or basic")


class Session:
    """Who is logged in on one connection, and until when."""

    def __init__(
        self, login: PulsarListenerLogin, client: Client, address: str, is_encrypted: bool, subject: "Subject"
    ) -> None:
        """`subject` is that of the client's certificate; empty without one."""
        self._login = login
        self._client = client
        self._place = address, is_encrypted, subject
        self._settings = login.authenticator.settings
        self._method = ""
        self._can_renew = False
        self._is_challenged = False
        self._timers: list[asyncio.TimerHandle] = []

    def connect(self, request: CommandConnect, accept: Callable[[], None]) -> None:
        """Log in by CONNECT, then call `accept`. No other command is taken before."""
        self._client.is_held = True
        self._client.start(self._connect(request, accept))

    def renew(self, response: CommandAuthResponse) -> None:
        """Log in again, by the answer to a challenge; an answer without a challenge is ignored."""
        if self._is_challenged:
            self._is_challenged = False
            self._client.start(self._renew(response.response))

    def check_original(self, principal: str) -> None:
        """Raise `Denied` if a proxy asks for somebody else than the user of this connection."""
        if principal not in ("", self._client.who.name):
            raise Denied(f"{self._client.who} may not act for {principal[:50]!r}")

    def close(self) -> None:
        """End the session: the connection is closed. Safe to repeat."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    async def _connect(self, request: CommandConnect, accept: Callable[[], None]) -> None:
        self._method = request.auth_method_name
        try:
            who = await self._log_in(self._method, request.auth_data)
            ends_s = self._ends_s(who)
            by_certificate = self._login.rules.by_certificate  # it is verified only when a connection begins
            self._can_renew = request.feature_flags.supports_auth_refresh and not by_certificate
            if request.original_auth_data:
                who = await self._log_in(request.original_auth_method, request.original_auth_data.encode())
                ends_s = min(ends_s, self._ends_s(who))
                self._can_renew = False
            self._client.who = who
            self.check_original(request.original_principal)
        except BearlakeError as error:
            self._refuse(error)
            return
        self._accept(who, ends_s)
        self._client.is_held = False
        accept()

    async def _renew(self, answer: AuthData) -> None:
        try:
            who = await self._log_in(answer.auth_method_name or self._method, answer.auth_data)
            if str(who) != str(self._client.who):
                raise Denied(f"this connection belongs to {self._client.who}; log in again as the same user")
        except (Overloaded, Unavailable):
            return  # the present login stays valid until its end
        except BearlakeError as error:
            self._refuse(error)
            return
        self._accept(who, self._ends_s(who))

    async def _log_in(self, method: str, data: bytes) -> Principal:
        try:
            async with asyncio.timeout(self._settings.login_ms / 1000):
                return await self._login.log_in(method, data, *self._place)
        except TimeoutError:
            raise Unavailable("the login took too long, retry") from None

    def _ends_s(self, who: Principal) -> float:
        return self._login.authenticator.ends_s(who, self._login.now_s())

    def _accept(self, who: Principal, ends_s: float) -> None:
        self.close()
        self._client.who = at_host(who, self._place[0], self._client.listener)
        if ends_s == math.inf:
            return
        left_s = max(0.0, ends_s - self._login.now_s())
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(left_s, self._end))
        if self._can_renew:
            ahead_s = min(self._settings.login_ms / 1000, left_s / 2)
            self._timers.append(loop.call_later(left_s - ahead_s, self._challenge))

    def _challenge(self) -> None:
        self._is_challenged = True
        challenge = AuthData(auth_method_name=self._method, auth_data=REFRESH)
        body = CommandAuthChallenge(server_version=f"Bearlake {__version__}", challenge=challenge)
        self._client.send(commands.frame("auth_challenge", body))

    def _end(self) -> None:
        """Close: the login has ended."""
        self._client.is_held = True
        self._client.finish()

    def _refuse(self, error: BearlakeError) -> None:
        """Say why, take no more commands, and close once the client has had the time to read it."""
        self.close()
        self._client.is_held = True
        refused = Refused("AuthenticationError", str(error)) if isinstance(error, Denied) else error
        number = error_of(refused)
        count_error(number)
        self._client.send(commands.error(commands.SERVER_REQUEST_ID, number, str(error)))
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(self._settings.refusal_ms / 1000, self._client.finish))
