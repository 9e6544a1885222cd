"""The interface of authentication: one `Authenticator` per process, which all protocol servers ask.

A protocol server passes what its client sent (a SCRAM message, a user name and password, a token, a certificate's subject) and the client's
address. Every failure counts against the address and the user. Messages never contain a password, a token or a key.

Concurrent guesses count like consecutive ones: the passwords of one address are checked one after another, each after the failures before
it are counted. SCRAM messages are checked without a pause between the look at the count and the result. A token with a right signature is
accepted at every address: a signature cannot be guessed.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from bearlake.errors import Denied, Overloaded, Unavailable
from bearlake.metadata.users import SCRAM_HASHES, ScramCredential, is_user_name
from bearlake.serving.authentication.certificates import CertificateNames, Subject
from bearlake.serving.authentication.credentials import has_password
from bearlake.serving.authentication.failures import Failures
from bearlake.serving.authentication.peer import Peer
from bearlake.serving.authentication.scram import Credentials, ScramExchange
from bearlake.serving.authentication.settings import OAUTHBEARER, PLAIN, AuthenticationSettings
from bearlake.serving.authentication.tokens import Tokens
from bearlake.serving.authentication.verified_passwords import VerifiedPasswords
from bearlake.serving.listener import is_loopback
from bearlake.streams.audit import Audit
from bearlake.streams.principal import Principal, user_principal
from bearlake.telemetry import metrics

CERTIFICATE = "certificate"

WRONG_PASSWORD = "the user name or the password is wrong"  # noqa: S105 - a message


class Users(Credentials, Protocol):
    """The users of the deployment."""

    async def find_any(self, user: str) -> ScramCredential:
        """Return a credential of the user with which a plain password can be checked; for an unknown user a decoy. Raises as `find`."""


class Authenticator:
    """Decides who a caller is."""

    def __init__(
        self,
        settings: AuthenticationSettings,
        users: Users,
        tokens: Tokens,
        executor: Executor,
        audit: Audit | None = None,
    ) -> None:
        """`executor` checks passwords, which take milliseconds of CPU time each. `audit` notes refused logins.

        Raises `Invalid` for a wrong certificate rule.
        """
        self.settings = settings
        self.audit = audit or Audit()
        self._users = users
        self._tokens = tokens
        self._executor = executor
        self._failures = Failures(settings.failures)
        self._names = CertificateNames(settings.certificate_rules)
        self._verified_passwords = VerifiedPasswords(settings.failures.entries_max)
        self._checks_waiting = 0
        self._turns: dict[str, _Turn] = {}

    def mechanisms(self, peer: Peer) -> Sequence[str]:
        """Return the SASL mechanisms that this client may use."""
        is_open = peer.is_encrypted or is_loopback(peer.address) or self.settings.plain_without_tls
        safe = {*SCRAM_HASHES, *([OAUTHBEARER] if peer.tokens_without_tls else [])}
        return [name for name in peer.mechanisms if is_open or name in safe]

    def start_scram(self, mechanism: str, peer: Peer) -> "ScramLogin":
        """Begin a SCRAM login. Raises `Denied` if the client may not use the mechanism."""
        self._require(mechanism, peer)
        return ScramLogin(mechanism, self._users, peer, self._failures, self.audit)

    async def log_in(self, user: str, password: str, peer: Peer) -> Principal:
        """Check a user name and password (PLAIN, HTTP Basic, Pulsar's basic).

        Raises:
            Denied: the name or the password is wrong, or passwords are not accepted on this connection.
            Overloaded: too many failed logins, or too many logins at once.
            Unavailable: the metadata store does not answer.
        """
        with counted(PLAIN, self.audit, peer, user):
            self._require(PLAIN, peer)
            known_as = counted_name(user)
            if not (known_as and await self._is_verified(user, password, peer)):
                async with self._turn(peer.network):
                    await self._check_password(user, password, peer)
            self._failures.succeeded(peer.network, known_as)
            return user_principal(user)

    async def verify_token(self, token: str, peer: Peer) -> Principal:
        """Check a JSON Web Token (OAUTHBEARER, HTTP Bearer, Pulsar's token). Raises as `log_in`."""
        with counted(OAUTHBEARER, self.audit, peer):
            self._require(OAUTHBEARER, peer)
            try:
                return await self._tokens.verify(token)  # at any address: a signature cannot be guessed
            except Denied:
                self._failures.check(peer.network, "")
                self._failures.failed(peer.network, "")
                raise

    def read_certificate(self, subject: Subject) -> Principal:
        """Return whom a verified client certificate names. Raises `Denied` if no rule gives it a name."""
        with counted(CERTIFICATE, self.audit):
            return user_principal(self._names.name(subject))

    def ends_s(self, who: Principal, now_s: float) -> float:
        """Return when a login that begins at `now_s` ends, in seconds since 1970: with its token, and after `session_ms_max`."""
        session_s = self.settings.session_ms_max / 1000 or math.inf
        return min(now_s + session_s, math.inf if who.expires_s is None else who.expires_s)

    def left_s(self, who: Principal, now_s: float) -> float | None:
        """Return the time (s) until a login that begins at `now_s` ends; None: never."""
        ends_s = self.ends_s(who, now_s)
        return None if ends_s == math.inf else max(0.0, ends_s - now_s)

    async def _is_verified(self, user: str, password: str, peer: Peer) -> bool:
        """Whether the password was right before, and no other password of this address waits for its check.

        A guess must never be answered before the guesses that came earlier are counted.
        """
        self._failures.check(peer.network, user)
        credential = await self._users.find_any(user)
        self._failures.check(peer.network, user)
        return peer.network not in self._turns and self._verified_passwords.has(credential, password)

    async def _check_password(self, user: str, password: str, peer: Peer) -> None:
        known_as = counted_name(user)
        self._failures.check(peer.network, known_as)
        if known_as:
            credential = await self._users.find_any(user)
            if self._verified_passwords.has(credential, password):  # by a login that was before this one in the line
                return
            run = asyncio.get_running_loop().run_in_executor
            if await run(self._executor, has_password, credential, password):
                self._verified_passwords.add(credential, password)
                return
        self._failures.failed(peer.network, known_as)
        raise Denied(WRONG_PASSWORD)

    @asynccontextmanager
    async def _turn(self, network: str) -> AsyncIterator[None]:
        """Run the block alone among those of the address. Raises `Overloaded` if too many wait."""
        settings = self.settings
        turn = self._turns.get(network) or _Turn()
        if self._checks_waiting >= settings.checks_waiting_max or turn.count >= settings.checks_waiting_per_address_max:
            raise Overloaded("too many logins at once, retry later")
        self._turns[network] = turn
        self._checks_waiting += 1
        turn.count += 1
        try:
            async with turn.lock:
                yield
        finally:
            self._checks_waiting -= 1
            turn.count -= 1
            if not turn.count:
                del self._turns[network]

    def _require(self, mechanism: str, peer: Peer) -> None:
        if mechanism not in peer.mechanisms:
            accepted = ", ".join(self.mechanisms(peer)) or "none"
            raise Denied(f"mechanism {mechanism} is not enabled, expected one of: {accepted}")
        if mechanism not in self.mechanisms(peer):
            raise Denied(f"mechanism {mechanism} sends a secret and needs a connection with TLS")


class ScramLogin:
    """One SCRAM login with its limits."""

    def __init__(self, mechanism: str, users: Users, peer: Peer, failures: Failures, audit: Audit) -> None:
        self._audit = audit
        self._exchange = ScramExchange(mechanism, users, self._check)
        self._mechanism = mechanism
        self._peer = peer
        self._failures = failures

    async def answer(self, message: bytes) -> tuple[bytes, Principal | None]:
        """Return the answer to the client's next message, and after the last one whom it has proved to be.

        Raises as `Authenticator.log_in`.
        """
        exchange, network = self._exchange, self._peer.network
        with counted(self._mechanism, self._audit, self._peer) as count:
            try:
                answer = await exchange.answer(message)
                self._check(exchange.user)
            except Denied:
                count.user = exchange.user
                self._failures.failed(network, counted_name(exchange.user))
                raise
            if not exchange.is_complete:
                count.is_over = False
                return answer, None
            self._failures.succeeded(network, counted_name(exchange.user))
            return answer, user_principal(exchange.user)

    def _check(self, user: str) -> None:
        self._failures.check(self._peer.network, counted_name(user))


@dataclass(slots=True)
class _Turn:
    """The checks of one address, which run one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0
    """Checks that wait or run."""


class counted:  # noqa: N801 - used as a function
    """Counts the login that the block decides, by mechanism and outcome: accepted, refused, limited, unavailable. Audits refusals."""

    def __init__(self, mechanism: str, audit: Audit, peer: Peer | None = None, user: str = "") -> None:
        self.is_over = True
        """Whether the block, if it raises nothing, ends the login."""
        self.user = user
        """The name that the client gave."""
        self._mechanism = mechanism
        self._audit = audit
        self._peer = peer

    def __enter__(self) -> "counted":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        outcomes = ((Denied, "refused"), (Overloaded, "limited"), (Unavailable, "unavailable"))
        outcome = next((name for kind, name in outcomes if isinstance(error, kind)), "")
        if error is None and self.is_over:
            outcome = "accepted"
        if isinstance(error, Denied):
            address, listener = ("", "") if self._peer is None else (self._peer.address, self._peer.listener)
            self._audit.login_refused(self._mechanism, counted_name(self.user), address, listener, str(error))
        if outcome:
            metrics.LOGINS.labels(self._mechanism, outcome).inc()


def counted_name(user: str) -> str:
    """Return the name by which failures are counted: empty if no user can have the name, which may be long."""
    return user if is_user_name(user) else ""
