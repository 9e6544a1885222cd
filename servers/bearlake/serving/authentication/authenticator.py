"""The front of authentication: one `Authenticator` per process, which all protocol servers ask.

A protocol server passes what its client sent (a SCRAM message, a user name and password, a token, a certificate's subject) and the client's
address. Every failure counts against the address and the user. Messages never contain a password, a token or a key.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

from bearlake.errors import Denied, Overloaded
from bearlake.serving.authentication.certificates import CertificateNames, Subject
from bearlake.serving.authentication.credentials import HASHES, ScramCredential, has_password
from bearlake.serving.authentication.failures import Failures, FailureSettings
from bearlake.serving.authentication.login import Login
from bearlake.serving.authentication.scram import ScramExchange
from bearlake.serving.authentication.tokens import Tokens, TokenSettings
from bearlake.serving.listener import is_loopback
from bearlake.streams.principal import Principal

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (*HASHES, PLAIN, OAUTHBEARER)
"""SASL mechanisms (RFC 4422), the strongest first."""

WRONG_PASSWORD = "the user name or the password is wrong"  # noqa: S105 - a message


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings:
    """Who may log in, and how; the same for all protocols."""

    mechanisms: list[str] = field(default_factory=list)
    """Accepted SASL mechanisms: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER; empty: callers need not log in."""
    plain_without_tls: bool = False
    """Accept passwords on connections without TLS, also from other machines."""
    certificate_rules: list[str] = field(default_factory=lambda: ["DEFAULT"])
    """Rules that make a user name of a client certificate's subject (Kafka's `ssl.principal.mapping.rules`)."""
    login_ms: int = 10_000
    """Time (ms) in which a connection must log in."""
    session_ms_max: int = 3_600_000
    """Longest time (ms) between two logins of a Kafka connection (KIP-368); a token that ends earlier shortens it. 0: no limit."""
    checks_waiting_max: int = 100
    """Passwords that wait for their check, each of which takes milliseconds of CPU time; further logins are refused for now."""
    failures: FailureSettings = field(default_factory=FailureSettings)
    token: TokenSettings = field(default_factory=TokenSettings)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.mechanisms) - set(MECHANISMS))
        if unknown:
            raise ValueError(f"mechanisms: unknown {', '.join(unknown)}, expected some of {', '.join(MECHANISMS)}")
        if OAUTHBEARER in self.mechanisms and not (self.token.issuer and self.token.audience):
            raise ValueError("mechanisms: OAUTHBEARER needs token.issuer and token.audience")


class Users(Protocol):
    """The users of the deployment."""

    async def find(self, user: str, mechanism: str) -> ScramCredential:
        """Return the user's credential; for an unknown user a decoy. Raises `Unavailable` if the metadata store does not answer."""

    async def find_any(self, user: str) -> ScramCredential:
        """Return a credential of the user with which a plain password can be checked; for an unknown user a decoy."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a login comes from."""

    address: str
    """The client's IP address."""
    is_encrypted: bool
    """Whether the connection uses TLS."""


class Authenticator:
    """Decides who a caller is."""

    def __init__(self, settings: AuthenticationSettings, users: Users, tokens: Tokens, executor: Executor) -> None:
        """`executor` checks passwords, which take milliseconds of CPU time each. Raises `Invalid` for a wrong certificate rule."""
        self.settings = settings
        self._users = users
        self._tokens = tokens
        self._executor = executor
        self._failures = Failures(settings.failures)
        self._names = CertificateNames(settings.certificate_rules)
        self._checks_waiting = 0

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        """Return the SASL mechanisms that this client may use."""
        is_open = peer.is_encrypted or is_loopback(peer.address) or self.settings.plain_without_tls
        return [name for name in self.settings.mechanisms if is_open or name in HASHES]

    def start_scram(self, mechanism: str, peer: Peer) -> "ScramLogin":
        """Begin a SCRAM login. Raises `Denied` if the client may not use the mechanism."""
        self._require(mechanism, peer)
        return ScramLogin(ScramExchange(mechanism, self._users), peer, self._failures)

    async def log_in(self, user: str, password: str, peer: Peer) -> Login:
        """Check a user name and password (PLAIN, HTTP Basic, Pulsar's basic).

        Raises:
            Denied: the name or the password is wrong, or passwords are not accepted on this connection.
            Overloaded: too many failed logins, or too many logins at once.
            Unavailable: the metadata store does not answer.
        """
        self._require(PLAIN, peer)
        self._failures.check(peer.address, user)
        credential = await self._users.find_any(user)
        if not await self._check(credential, password):
            self._failures.failed(peer.address, user)
            raise Denied(WRONG_PASSWORD)
        self._failures.succeeded(peer.address, user)
        return Login(Principal("User", user))

    async def verify_token(self, token: str, peer: Peer) -> Login:
        """Check a JSON Web Token (OAUTHBEARER, HTTP Bearer, Pulsar's token). Raises as `log_in`."""
        self._require(OAUTHBEARER, peer)
        self._failures.check(peer.address, "")
        try:
            return await self._tokens.verify(token)
        except Denied:
            self._failures.failed(peer.address, "")
            raise

    def read_certificate(self, subject: Subject) -> Login:
        """Return whom a verified client certificate names. Raises `Denied` if no rule gives it a name."""
        return Login(Principal("User", self._names.name(subject)))

    async def _check(self, credential: ScramCredential, password: str) -> bool:
        if self._checks_waiting >= self.settings.checks_waiting_max:
            raise Overloaded("too many logins at once, retry later")
        self._checks_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, has_password, credential, password)
        finally:
            self._checks_waiting -= 1

    def _require(self, mechanism: str, peer: Peer) -> None:
        if mechanism not in self.settings.mechanisms:
            accepted = ", ".join(self.mechanisms(peer)) or "none"
            raise Denied(f"mechanism {mechanism} is not enabled, expected one of: {accepted}")
        if mechanism not in self.mechanisms(peer):
            raise Denied(f"mechanism {mechanism} sends a secret and needs a connection with TLS")


class ScramLogin:
    """One SCRAM login with its limits."""

    def __init__(self, exchange: ScramExchange, peer: Peer, failures: Failures) -> None:
        self._exchange = exchange
        self._peer = peer
        self._failures = failures

    async def answer(self, message: bytes) -> tuple[bytes, Login | None]:
        """Return the answer to the client's next message, and after the last one the login. Raises as `Authenticator.log_in`."""
        exchange = self._exchange
        self._failures.check(self._peer.address, exchange.user)
        try:
            answer = await exchange.answer(message)
            if exchange.user and not exchange.is_complete:
                self._failures.check(self._peer.address, exchange.user)
        except Denied:
            self._failures.failed(self._peer.address, exchange.user)
            raise
        if not exchange.is_complete:
            return answer, None
        self._failures.succeeded(self._peer.address, exchange.user)
        return answer, Login(Principal("User", exchange.user))
